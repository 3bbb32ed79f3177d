//! The cache's metrics, and the cache as a layer of a tower stack.

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
    let told = metrics::with_local_recorder(&recorder, || {
        let cache: Cache<u32, u32, Virtual> =
            Cache::builder(strategy).metrics("users").build_on(time.clone(), Seed(1)).unwrap();
        time.run(async {
            // Ten at once: one loads for 20 ms, nine wait for it.
            let ask = |fails: bool| {
                let sleeper = time.clone();
                cache.get_with(1, async move || {
                    sleeper.sleep_until(sleeper.now() + 20 * MS).await;
                    if fails { Err("on purpose") } else { Ok(7) }
                })
            };
            join_all((0..10).map(|_| ask(false))).await;
            for _ in 0..5 {
                ask(false).await.unwrap();
            }
            time.sleep_until(Time::ZERO + 1_500 * MS).await;
            ask(true).await.unwrap();
            ask(true).await.unwrap();
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
        assert!(told.contains(line), "{line} is not in\n{told}");
    }
    let sum = told.lines().find_map(|line| line.strip_prefix(r#"stockade_wait_seconds_sum{cache="users"} "#));
    let sum: f64 = sum.expect("it is there").parse().unwrap();
    assert!((sum - 9.0 * 0.02).abs() < 1e-9, "nine waited for 20 ms: {sum}");
}

#[cfg(feature = "tower")]
mod layer {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use stockade_cache::{CacheLayer, Outcome};
    use tower::{Layer, Service, ServiceExt, service_fn};

    use super::*;

    #[tokio::test]
    async fn service_is_called_once_per_herd_and_for_each_request_without_key() {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let service = service_fn(move |request: (u32, bool)| {
            let call = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::task::yield_now().await;
                if request.0 == 13 { Err("no luck") } else { Ok(call) }
            }
        });
        let cache: Cache<u32, u64> = Cache::new(Strategy::preset("stampede").unwrap()).unwrap();
        let cached =
            CacheLayer::new(cache, |request: &(u32, bool)| request.1.then_some(request.0)).layer(service);

        let herd = (0..1_000).map(|_| cached.clone().oneshot((1, true)));
        let answers = join_all(herd).await;
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().value == 0));
        assert_eq!(calls.load(Ordering::Relaxed), 1);

        let bypassed = cached.clone().call((1, false)).await.unwrap();
        assert_eq!((bypassed.outcome, bypassed.value), (Outcome::Bypass, 1));
        assert_eq!(cached.clone().call((1, true)).await.unwrap().outcome, Outcome::Hit);
        for has_key in [true, false] {
            let error = cached.clone().call((13, has_key)).await.unwrap_err();
            assert_eq!(error.to_string(), "the load failed: no luck");
        }
    }
}
