//! On tokio, with real threads: what virtual time cannot show.

use std::{
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use stockade_cache::{Cache, Error, Strategy, Writer};
use stockade_model::{
    seed::Seed,
    time::{Live, Runtime},
};

fn stampede() -> Strategy {
    Strategy::preset("stampede").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_that_race_for_a_thousand_keys_load_each_once() {
    for round in 0..20 {
        let cache: Cache<u64, u64> = Cache::new(stampede()).unwrap();
        let loads = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let (cache, loads) = (cache.clone(), Arc::clone(&loads));
                // Each thread takes the keys in another order, so that they meet in all ways.
                tokio::task::spawn_blocking(move || {
                    tokio::runtime::Handle::current().block_on(async {
                        for step in 0..1_000_u64 {
                            let key = (step * (2 * caller + 1) + round) % 1_000;
                            let loads = Arc::clone(&loads);
                            let load = async move || {
                                loads.fetch_add(1, Ordering::Relaxed);
                                Ok::<_, std::io::Error>(key * 2)
                            };
                            assert_eq!(cache.get_with(key, load).await.unwrap().value, key * 2);
                        }
                    });
                })
            })
            .collect();
        for caller in join_all(callers).await {
            caller.unwrap();
        }
        cache.idle().await;
        assert_eq!((loads.load(Ordering::Relaxed), cache.stats().loads), (1_000, 1_000));
        assert_eq!((cache.len(), cache.flights()), (1_000, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_waiters_survive_a_leader_that_panics() {
    let cache: Cache<&str, u64> = Cache::new(stampede()).unwrap();
    let loads = Arc::new(AtomicU64::new(0));
    let callers = (0..10_000).map(|_| {
        let (cache, loads) = (cache.clone(), Arc::clone(&loads));
        async move {
            let clock = Live::new();
            cache
                .get_with("key", async move || {
                    let is_first = loads.fetch_add(1, Ordering::Relaxed) == 0;
                    clock.sleep_until(clock.now() + Duration::from_millis(50)).await;
                    assert!(!is_first, "on purpose");
                    Ok::<_, std::io::Error>(7)
                })
                .await
        }
    });
    let answers = join_all(callers).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.value == 7)));
    assert_eq!(loads.load(Ordering::Relaxed), 2);
}

#[test]
fn a_runtime_that_shuts_down_answers_those_who_wait() {
    let [caller, engine] = [(); 2].map(|()| tokio::runtime::Runtime::new().unwrap());
    let live = Live::on(engine.handle().clone());
    let mailbox = Writer::mailbox(None, None, None);
    let cache: Cache<&str, u64> =
        Cache::builder(Strategy { writer: mailbox, ..stampede() }).build_on(live, Seed(1)).unwrap();
    let waiting = caller.spawn({
        let cache = cache.clone();
        async move { cache.get_with("key", std::future::pending::<Result<u64, std::io::Error>>).await }
    });
    caller.block_on(async {
        while cache.stats().loads == 0 {
            tokio::task::yield_now().await;
        }
    });
    engine.shutdown_background();
    let lost = caller.block_on(waiting).unwrap();
    assert!(matches!(lost, Err(Error::LeaderLost)), "{lost:?}");
    let after = caller.block_on(cache.get_with("key", async || Ok::<_, std::io::Error>(7)));
    assert!(matches!(after, Err(Error::LeaderLost)), "{after:?}");
}

/// By the coarse clock nothing is fresh for longer than its ttl, and what has none is not fresh at all.
#[tokio::test]
async fn a_ttl_of_zero_is_never_fresh() {
    let strategy = Strategy { ttl: Some(Duration::ZERO), ..stampede() };
    let cache: Cache<u64, u64> = Cache::new(strategy).unwrap();
    let clock = Live::new();
    // Twenty ticks of the coarse clock.
    let end = clock.now() + Duration::from_millis(20);
    for time in 0.. {
        let answer = cache.get_with(1, async move || Ok::<_, std::io::Error>(time)).await.unwrap();
        assert_eq!((answer.value, cache.get(&1)), (time, None));
        if clock.now() >= end {
            break;
        }
    }
}
