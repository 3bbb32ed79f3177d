//! The policy `auto`.

use std::{convert::Infallible, time::Duration};

use rand::RngExt;
use stockade_cache::{Cache, Ghost, Limit, Policy, Shadow, Strategy};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

/// Two shards.
const ENTRIES: usize = 2_048;

fn strategy(policy: &'static Policy) -> Strategy {
    Strategy {
        limit: Some(Limit { policy, ..Limit::entries(ENTRIES) }),
        ..Strategy::preset("stampede").unwrap()
    }
}

fn cache(policy: &'static Policy) -> (Cache<u64, u64, Virtual>, Virtual) {
    let runtime = Virtual::new();
    (Cache::builder(strategy(policy)).build_on(runtime.clone(), Seed(1)).unwrap(), runtime)
}

/// A new key with every third request, and the newer a key the more requests for it; one request a millisecond. Returns the loads of the
/// last 10,000 requests.
fn run(cache: &Cache<u64, u64, Virtual>, runtime: &Virtual) -> u64 {
    let mut random = Seed(7).stream("keys");
    let mut request = async |number: u64| {
        runtime.sleep_until(Time::ZERO + Duration::from_millis(number)).await;
        let age = random.random::<f64>() * random.random::<f64>() * 3_200.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let key = 10_000 + number / 3 - age as u64;
        let answer = cache.get_with(key, async move || Ok::<_, Infallible>(key)).await.unwrap();
        assert_eq!(answer.value, key);
    };
    let requests = async {
        for number in 0..50_000 {
            request(number).await;
        }
        let before = cache.stats().loads;
        for number in 50_000..60_000 {
            request(number).await;
        }
        cache.stats().loads - before
    };
    runtime.run(requests).expect("nothing waits")
}

#[test]
fn auto_changes_to_a_policy_with_fewer_misses_and_says_so() {
    let loads = |policy| {
        let (cache, runtime) = cache(policy);
        run(&cache, &runtime)
    };
    let (s3_fifo, lru) = (loads(Policy::S3_FIFO), loads(Policy::LRU));
    assert!(lru < s3_fifo * 9 / 10, "{s3_fifo} and {lru} loads");

    let (auto, runtime) = cache(Policy::AUTO);
    let stats = auto.shadow_stats().expect("auto has ghosts");
    assert_eq!((stats.policy.as_str(), stats.policy_changes), ("s3-fifo", 0));
    let names: Vec<_> = stats.ghosts.iter().map(|ghost| ghost.name.as_str()).collect();
    assert_eq!(
        names,
        ["as configured", "auto: s3-fifo", "auto: sieve", "auto: lru", "auto: lfu", "auto: lrw"]
    );
    let loads_of_auto = run(&auto, &runtime);
    let stats = auto.shadow_stats().expect("auto has ghosts");
    assert!(stats.policy_changes > 0 && stats.policy != "s3-fifo", "{stats:?}");
    assert_eq!(auto.len(), ENTRIES);
    assert!(loads_of_auto <= lru * 102 / 100, "{loads_of_auto} loads of {}, {lru} of lru", stats.policy);
    assert_eq!(loads(Policy::AUTO), loads_of_auto, "a seed decides all");
}

#[test]
fn ghosts_have_auto_only_beside_auto() {
    let limit = Limit { policy: Policy::AUTO, ..Limit::entries(ENTRIES) };
    let shadow = Shadow { ghosts: vec![Ghost::of_size(&limit, 2.0)], keys_max: Shadow::KEYS_MAX };
    let build = |policy| Cache::<u64, u64>::builder(strategy(policy)).shadow(shadow.clone()).check();
    assert!(build(Policy::AUTO).is_ok());
    let error = build(Policy::SIEVE).unwrap_err().to_string();
    assert!(error.contains("only ghosts of a cache with the policy `auto`"), "{error}");
}
