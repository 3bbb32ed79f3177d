//! Loads and waits for a key with continuous requests, in virtual time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::RngExt;
use stockade_cache::{Cache, Fetch, Outcome, Refresh, Stats, Strategy};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

const MS: Duration = Duration::from_millis(1);

/// One key with requests at a steady rate.
struct Steady {
    strategy: Strategy,
    /// The mean interval of requests. It is random, so that it does not align with the ttl.
    every: Duration,
    load: Duration,
    lasts: Duration,
    seed: u64,
}

/// The counts of a run.
struct Seen {
    stats: Stats,
    requests: u64,
    /// Requests by whether they waited, after the first load.
    waited: u64,
    outcomes: Vec<Outcome>,
}

impl Steady {
    fn run(self) -> Seen {
        let Self { strategy, every, load, lasts, seed } = self;
        let runtime = Virtual::new();
        let cache: Cache<u8, Time, Virtual> =
            Cache::builder(strategy.clone()).count_lookups().build_on(runtime.clone(), Seed(seed)).unwrap();
        let waited = Arc::new(AtomicU64::new(0));
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let limit = strategy.max_served_age().unwrap();
        let mut rng = Seed(seed).stream("arrivals");
        let mut requests = 0;
        let seen = Arc::clone(&outcomes);
        let time = runtime.clone();
        runtime
            .run(async {
                let mut due = Duration::ZERO;
                while due < lasts {
                    time.sleep_until(Time::ZERO + due).await;
                    let (cache, clock, sleeper) = (cache.clone(), time.clone(), time.clone());
                    let (waited, outcomes) = (Arc::clone(&waited), Arc::clone(&outcomes));
                    time.spawn(async move {
                        let start = clock.now();
                        let loader = async move || {
                            sleeper.sleep_until(sleeper.now() + load).await;
                            Ok::<_, std::io::Error>(sleeper.now())
                        };
                        let answer = cache.get_with(1, loader).await.unwrap();
                        assert!(clock.now() < answer.value + limit, "served for longer than it may be");
                        if clock.now() > start && start > Time::ZERO + load {
                            waited.fetch_add(1, Ordering::Relaxed);
                        }
                        outcomes.lock().unwrap().push(answer.outcome);
                    });
                    requests += 1;
                    // Exponentially distributed: a Poisson process.
                    due += every.mul_f64(-(1.0 - rng.random::<f64>()).ln());
                }
                time.sleep_until(Time::ZERO + lasts + load + MS).await;
                cache.wait_idle().await;
            })
            .unwrap();
        let outcomes = seen.lock().unwrap().clone();
        Seen { stats: cache.stats(), requests, waited: waited.load(Ordering::Relaxed), outcomes }
    }
}

fn preset(name: &str) -> Strategy {
    Strategy { ttl: Some(Duration::from_secs(1)), swr: Duration::ZERO, ..Strategy::preset(name).unwrap() }
}

#[test]
fn background_refresh_loads_once_per_episode_and_no_request_waits() {
    let swr = Strategy { swr: Duration::from_secs(1), ..preset("swr") };
    for (name, strategy) in [("early", preset("early")), ("xfetch", preset("xfetch")), ("swr", swr)] {
        let steady = Steady { strategy, every: MS, load: 20 * MS, lasts: Duration::from_mins(5), seed: 1 };
        let Seen { stats, waited, requests, outcomes } = steady.run();
        assert!(stats.loads > 250, "{name}: {stats:?}");
        assert_eq!(stats.loads, stats.episodes, "{name}: one load an episode");
        assert_eq!(waited, 0, "{name}: only the first load has waiters");
        let refreshes = stats.refreshes_early + stats.refreshes_xfetch + stats.refreshes_swr;
        assert_eq!(refreshes, stats.loads - 1, "{name}");
        let lookups = stats.lookups.unwrap();
        assert_eq!(lookups.total, requests);
        let of = |outcome| outcomes.iter().filter(|o| **o == outcome).count() as u64;
        assert_eq!((of(Outcome::Hit), of(Outcome::Stale)), (lookups.hits, stats.stale), "{name}");
        assert_eq!(stats.stale > 0, name == "swr");
    }
}

#[test]
fn coalesce_loads_once_per_episode_and_simple_once_per_request() {
    let steady = |name: &str| Steady {
        strategy: Strategy { ttl: Some(Duration::from_secs(1)), ..Strategy::preset(name).unwrap() },
        every: MS,
        load: 100 * MS,
        lasts: Duration::from_mins(5),
        seed: 2,
    };
    let Seen { stats, waited, .. } = steady("stampede").run();
    assert!(stats.episodes > 250);
    assert_eq!(stats.loads, stats.episodes);
    assert!(waited > 100 * (stats.episodes - 1) / 2, "requests during each load wait");

    let Seen { stats, .. } = steady("simple").run();
    let loads = stats.loads as f64 / stats.episodes as f64;
    let expected = 1.0 + 1_000.0 * 0.1;
    assert!((loads / expected - 1.0).abs() < 0.05, "{loads:.1} loads an episode, {expected} expected");
}

/// Early refreshes start at a rate of `rate * exp(-left / (beta * delta))`. At the first one, the integral of the rate
/// is exponentially distributed with mean 1. While its load takes delta, the integral grows by a factor of
/// `exp(delta / (beta * delta))`, and all refreshes until then load, too. So there are `1 + 1 * (exp(1 / beta) - 1)` on
/// average, if requests are so frequent that the first refresh starts long before expiry.
#[test]
fn independent_xfetch_refreshes_match_the_paper() {
    for (beta, seed) in [(1.0, 1), (2.0, 2)] {
        let strategy =
            Strategy { fetch: Fetch::Independent, refresh: Refresh::XFetch { beta }, ..preset("simple") };
        let steady = Steady {
            strategy,
            every: MS / 2,
            load: 20 * MS,
            // An episode lasts a ttl less the lead of its first refresh.
            lasts: Duration::from_mins(35),
            seed,
        };
        let Seen { stats, .. } = steady.run();
        assert!(stats.episodes > 2_000, "{}", stats.episodes);
        let (loads, expected) = (stats.loads as f64 / stats.episodes as f64, (1.0_f64 / beta).exp());
        assert!((loads / expected - 1.0).abs() < 0.05, "beta {beta}: {loads:.3}, {expected:.3} expected");
    }
}

#[test]
fn load_below_a_millisecond_is_refreshed_early() {
    let steady = Steady {
        strategy: preset("xfetch"),
        every: Duration::from_micros(5),
        load: Duration::from_micros(50),
        lasts: Duration::from_secs(20),
        seed: 4,
    };
    let Seen { stats, waited, .. } = steady.run();
    assert!(stats.refreshes_xfetch >= 19, "{stats:?}");
    assert_eq!((stats.loads, waited), (stats.refreshes_xfetch + 1, 0));
}

#[test]
fn loader_slower_than_the_ttl_runs_one_load_at_a_time() {
    for (name, swr) in [("simple", 0), ("stampede", 0), ("swr", 500), ("early", 0), ("xfetch", 0)] {
        let strategy = Strategy { ttl: Some(100 * MS), swr: swr * MS, ..Strategy::preset(name).unwrap() };
        let coalesces = strategy.fetch != Fetch::Independent;
        let steady = Steady { strategy, every: MS, load: 300 * MS, lasts: Duration::from_secs(30), seed: 5 };
        let Seen { stats, outcomes, requests, .. } = steady.run();
        assert_eq!(outcomes.len() as u64, requests, "{name}: each request is answered");
        if coalesces {
            assert_eq!(stats.loads, stats.episodes, "{name}");
            assert!(stats.loads <= 101, "{name}: {} loads of 300 ms in 30 s", stats.loads);
        }
    }
}
