//! One cache and several runtimes of tokio, or none.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{Either, join_all, select},
    stream::FuturesUnordered,
};
use stockade_cache::{Batching, Breaker, Cache, Error, Fetch, LoadBounds, Outcome, Strategy};
use stockade_model::{
    seed::Seed,
    time::{Live, Runtime as _, before, yield_now},
};
use tokio::runtime::{Builder, Runtime};

const MS: Duration = Duration::from_millis(1);

fn stampede() -> Strategy {
    Strategy::preset("stampede").unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// On the clock of the runtime, paused or not.
async fn pass(time: Duration) {
    let live = Live::new();
    live.sleep_until(live.now() + time).await;
}

async fn loaded(value: u64) -> Result<u64, Infallible> {
    pass(MS).await;
    Ok(value)
}

/// As two tests of a service that share a `static` do.
#[test]
fn cache_in_a_static_serves_one_runtime_after_the_other() {
    static CACHE: LazyLock<Cache<u64, u64>> = LazyLock::new(|| Cache::new(stampede()).unwrap());
    assert_eq!(CACHE.get(&1), None, "the first use is outside of any runtime");
    for key in 0..3 {
        let answer = runtime().block_on(CACHE.get_with(key, move || loaded(key)));
        assert_eq!(answer.unwrap().value, key);
    }
}

#[test]
fn loads_run_without_a_runtime_of_the_caller() {
    let builder = Cache::<u64, u64>::builder(stampede());
    #[cfg(feature = "metrics")]
    let builder = builder.metrics("without a runtime");
    let cache = builder.build().unwrap();
    let answer = futures_util::FutureExt::now_or_never(cache.get_with(1, || loaded(1)));
    assert!(answer.is_none(), "the load goes on without its caller");
    while cache.get(&1).is_none() {
        std::thread::yield_now();
    }
}

/// The runtime of the leader exists, and no thread drives it.
#[test]
fn callers_of_a_runtime_depend_on_no_other_runtime() {
    const WAIT: Duration = Duration::from_millis(50);
    let load = LoadBounds { deadline: WAIT, hedge_after: None, ..LoadBounds::DEFAULT };
    let strategy = Strategy { fetch: Fetch::coalesce(WAIT), load, ..stampede() };
    let cache: Cache<u64, u64> = Cache::new(strategy).unwrap();
    let (still, driven) = (runtime(), runtime());
    // Its timer covers its own deadline only.
    let mut leader = Box::pin(cache.get_with(1, || loaded(10)));
    let mut waiter = Box::pin(cache.get_with(1, || loaded(10)));
    still.block_on(async {
        assert!(futures_util::poll!(&mut leader).is_pending());
        assert!(futures_util::poll!(&mut waiter).is_pending());
    });
    driven.block_on(async {
        let waited = cache.get_with(1, || loaded(11)).await;
        assert!(matches!(waited, Err(Error::WaitTimeout { .. })), "{waited:?}");
        let answer = loop {
            // After three deadlines a load begins anew.
            if let Ok(answer) = cache.get_with(1, || loaded(11)).await {
                break answer;
            }
        };
        assert_eq!((answer.value, answer.outcome), (11, Outcome::Miss));
    });
    // The first callers are answered when their runtime goes on.
    assert_eq!(still.block_on(leader).unwrap().value, 10);
    assert_eq!(still.block_on(waiter).unwrap().value, 10);
}

/// A service's test with tokio's clock: everything expires when it is advanced, and no load fails.
#[tokio::test(start_paused = true)]
async fn paused_clock_of_tokio_decides() {
    let strategy = Strategy {
        ttl: Some(Duration::from_secs(30)),
        breaker: Some(Breaker::DEFAULT),
        ..Strategy::preset("breaker").unwrap()
    };
    let cache: Cache<u64, u64> =
        Cache::builder(strategy).time_to_idle(Duration::from_secs(20)).build().unwrap();
    assert_eq!(cache.get_with(1, || loaded(1)).await.unwrap().outcome, Outcome::Miss);
    cache.insert(2, 2);
    for step in [19_u64, 2, 10] {
        assert_eq!((cache.get(&1), step), (Some(1), step), "each hit gives it another idle time");
        tokio::time::advance(Duration::from_secs(step)).await;
    }
    assert_eq!((cache.get(&1), cache.get(&2)), (None, None), "31 seconds have passed");
    for round in 0..10 {
        let answer = cache.get_with(1, move || loaded(round)).await.unwrap();
        assert_eq!((answer.value, answer.outcome), (round, Outcome::Miss));
        tokio::time::advance(Duration::from_secs(31)).await;
    }
    // A minute passes while a load takes it, and its callers wait.
    let slow = cache.get_with(3, || async {
        pass(Duration::from_mins(1)).await;
        Ok::<_, Infallible>(3)
    });
    assert!(matches!(slow.await, Err(Error::Deadline { .. })));
}

/// The next load after it was advanced notices it.
#[tokio::test]
async fn clock_may_be_paused_after_the_cache_was_built() {
    let cache: Cache<u64, u64> =
        Cache::new(Strategy { ttl: Some(Duration::from_secs(30)), ..stampede() }).unwrap();
    cache.get_with(1, || loaded(1)).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    cache.get_with(2, || loaded(1)).await.unwrap();
    assert_eq!(cache.get_with(1, || loaded(2)).await.unwrap().value, 2);
    assert_eq!(cache.get(&1), Some(2));
}

/// Each batch that was dropped used to start the next one, within its own drop.
#[test]
fn shutdown_of_a_runtime_ends_thousands_of_waiting_batches() {
    const BATCHES: u64 = 20_000;
    let engine = runtime();
    let cache: Cache<u64, u64> = {
        let live = Live::on(engine.handle().clone());
        Cache::builder(stampede()).build_on(live, Seed(1)).unwrap()
    };
    let batching = Batching { window: Duration::ZERO, keys_max: 1, concurrent_max: 1 };
    let hangs = async |_: Vec<u64>| {
        std::future::pending::<Result<Vec<(u64, Result<u64, Infallible>)>, Infallible>>().await
    };
    let loader = cache.batch_loader(batching, hangs);
    let mut callers: FuturesUnordered<_> =
        (0..BATCHES).map(|key| cache.get_many_with([key], &loader)).collect();
    engine.block_on(async {
        assert!(futures_util::poll!(callers.next()).is_pending());
        while cache.stats().loads < BATCHES {
            tokio::task::yield_now().await;
        }
    });
    drop(engine);
    let answers = runtime().block_on(callers.collect::<Vec<_>>());
    assert_eq!(answers.len(), usize::try_from(BATCHES).unwrap());
    let is_lost = |answer: &Vec<_>| matches!(answer[..], [Err(Error::LeaderLost)]);
    assert!(answers.iter().all(is_lost), "{:?}", answers.iter().find(|answer| !is_lost(answer)));
}

/// A batch loader outlives the runtime that loaded its first batches.
#[test]
fn batches_go_on_after_a_runtime_has_shut_down() {
    let cache: Cache<u64, u64> = Cache::new(stampede()).unwrap();
    let batching = Batching { window: MS, keys_max: 100, concurrent_max: 2 };
    let calls = Arc::new(AtomicUsize::new(0));
    let loader = {
        let calls = Arc::clone(&calls);
        cache.batch_loader(batching, move |keys: Vec<u64>| {
            let is_first = calls.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if is_first {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(
                    keys.into_iter().map(|key| (key, Ok::<_, Infallible>(key))).collect::<Vec<_>>(),
                )
            }
        })
    };
    let first = runtime();
    first.block_on(async {
        // One batch hangs, and the window of another has just begun.
        let live = Live::new();
        let hangs = pin!(cache.get_many_with([1], &loader));
        let called = pin!(async {
            while calls.load(Ordering::SeqCst) == 0 {
                yield_now().await;
            }
        });
        assert!(matches!(select(hangs, called).await, Either::Right(_)));
        let begins = cache.get_many_with([2], &loader);
        assert!(before(&live, live.now(), begins).await.is_none());
    });
    drop(first);
    let answers = runtime().block_on(join_all((1..=3).map(|key| cache.get_many_with([key], &loader))));
    for (key, answer) in (1..).zip(answers) {
        assert_eq!(answer[0].as_ref().map(|answer| answer.value).ok(), Some(key), "{answer:?}");
    }
}

/// The window of a batch and the task of one that runs are on a runtime that no thread drives.
#[test]
fn batches_of_one_runtime_depend_on_no_other_runtime() {
    let load = LoadBounds { deadline: Duration::from_millis(100), ..LoadBounds::DEFAULT };
    let cache: Cache<u64, u64> = Cache::new(Strategy { load, ..stampede() }).unwrap();
    let batching = Batching { window: MS, keys_max: 100, concurrent_max: 2 };
    let loader = cache.batch_loader(batching, async |keys: Vec<u64>| {
        Ok::<_, Infallible>(keys.into_iter().map(|key| (key, Ok::<_, Infallible>(key))).collect::<Vec<_>>())
    });
    let (still, driven) = (runtime(), runtime());
    let mut first = Box::pin(cache.get_many_with([1], &loader));
    still.block_on(async {
        assert!(futures_util::poll!(&mut first).is_pending());
        // Its load adds the key.
        tokio::task::yield_now().await;
    });
    driven.block_on(async {
        pass(5 * MS).await;
        for key in 2..5 {
            let answer = cache.get_many_with([key], &loader).await;
            assert_eq!(answer[0].as_ref().map(|answer| answer.value).ok(), Some(key), "{answer:?}");
        }
    });
    assert_eq!(still.block_on(first)[0].as_ref().unwrap().value, 1);
}

/// After three deadlines another request starts the refresh that the stopped runtime does not run.
#[test]
fn refreshes_depend_on_no_other_runtime() {
    let load = LoadBounds { deadline: 5 * MS, soft_timeout: None, ..LoadBounds::DEFAULT };
    let strategy = Strategy { ttl: Some(Duration::ZERO), swr: Duration::from_hours(1), load, ..stampede() };
    let cache: Cache<u64, u64> = Cache::new(strategy).unwrap();
    let (still, driven) = (runtime(), runtime());
    cache.insert(1, 10);
    still.block_on(async {
        assert_eq!(cache.get_with(1, || loaded(11)).await.unwrap().outcome, Outcome::Stale);
    });
    driven.block_on(async {
        let refreshed = Arc::new(AtomicUsize::new(0));
        while refreshed.load(Ordering::SeqCst) == 0 {
            let counted = Arc::clone(&refreshed);
            let load = async move || {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Infallible>(12)
            };
            assert_eq!(cache.get_with(1, load).await.unwrap().outcome, Outcome::Stale);
            pass(10 * MS).await;
        }
    });
}
