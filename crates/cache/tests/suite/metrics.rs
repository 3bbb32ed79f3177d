//! The cache's metrics.

use std::time::Duration;

use futures_util::future::join_all;
use metrics_exporter_prometheus::PrometheusBuilder;
use stockade_cache::{Cache, Strategy};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);

#[test]
fn metrics_are_recorded() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let text = recorder.handle();
    let time = Virtual::new();
    let strategy = Strategy { ttl: Some(Duration::from_secs(1)), ..Strategy::preset("breaker").unwrap() };
    let rendered = metrics::with_local_recorder(&recorder, || {
        let cache: Cache<u32, u32, Virtual> =
            Cache::builder(strategy).metrics("users").build_on(time.clone(), Seed(1)).unwrap();
        time.run(async {
            // Ten at once: one loads for 20 ms, nine wait for it.
            let request = |fails: bool| {
                let sleeper = time.clone();
                cache.get_with(1, async move || {
                    sleeper.sleep_until(sleeper.now() + 20 * MS).await;
                    if fails { Err("on purpose") } else { Ok(7) }
                })
            };
            join_all((0..10).map(|_| request(false))).await;
            for _ in 0..5 {
                request(false).await.unwrap();
            }
            time.sleep_until(Time::ZERO + 1_500 * MS).await;
            request(true).await.unwrap();
            request(true).await.unwrap();
            // Counters are reported once a second.
            time.sleep_until(Time::ZERO + 3_000 * MS).await;
        })
        .unwrap();
        text.run_upkeep();
        text.render()
    });
    for line in [
        r#"stockade_requests_total{cache="users",outcome="hit"} 5"#,
        r#"stockade_requests_total{cache="users",outcome="miss"} 1"#,
        r#"stockade_requests_total{cache="users",outcome="coalesced"} 9"#,
        r#"stockade_requests_total{cache="users",outcome="fallback"} 2"#,
        r#"stockade_requests_total{cache="users",outcome="error"} 0"#,
        r#"stockade_loads_total{cache="users"} 2"#,
        r#"stockade_loads_failed_total{cache="users"} 1"#,
        r#"stockade_loads_in_flight{cache="users"} 0"#,
        r#"stockade_load_seconds_count{cache="users"} 2"#,
        r#"stockade_waiters_total{cache="users"} 9"#,
        r#"stockade_wait_seconds_count{cache="users"} 9"#,
        r#"stockade_entries{cache="users"} 1"#,
        r#"stockade_breaker_state{cache="users",route=""} 0"#,
        "# TYPE stockade_wait_seconds summary",
    ] {
        assert!(rendered.contains(line), "{line} is not in\n{rendered}");
    }
    let sum =
        rendered.lines().find_map(|line| line.strip_prefix(r#"stockade_wait_seconds_sum{cache="users"} "#));
    let sum: f64 = sum.expect("the sum is rendered").parse().unwrap();
    assert!((sum - 9.0 * 0.02).abs() < 1e-9, "nine waited for 20 ms: {sum}");
}
