//! On tokio with real threads: races that virtual time cannot produce.

use std::{
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::{FutureExt, future::join_all};
use stockade_cache::{
    Breaker, Cache, Error, Fetch, Invalidation, LoadBounds, Refresh, Stats, Strategy, Writer,
};
use stockade_model::{
    seed::Seed,
    time::{Live, Runtime, Time},
};

fn stampede() -> Strategy {
    Strategy::preset("stampede").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_threads_load_each_key_once() {
    for round in 0..20 {
        let cache: Cache<u64, u64> = Cache::new(stampede()).unwrap();
        let loads = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let (cache, loads) = (cache.clone(), Arc::clone(&loads));
                // Each thread takes the keys in another order, so that all combinations meet.
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
        cache.wait_idle().await;
        assert_eq!((loads.load(Ordering::Relaxed), cache.stats().loads), (1_000, 1_000));
        assert_eq!((cache.len(), cache.coalesced_loads()), (1_000, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_waiters_survive_a_panicking_leader() {
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
fn runtime_shutdown_completes_waiters_with_an_error() {
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

/// With the coarse clock no value is fresh for longer than its ttl, and a ttl of zero is never fresh.
#[tokio::test]
async fn ttl_of_zero_is_never_fresh() {
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

/// A source that is slow, fails, hangs and panics in turn, cancelled callers, and regular invalidations. With real
/// threads in real time: no response is too old or invalidated, and no request hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faulty_source_under_load_serves_nothing_too_old_and_blocks_no_request() {
    const MS: Duration = Duration::from_millis(1);
    let strategy = Strategy {
        ttl: Some(10 * MS),
        swr: 10 * MS,
        sie: 20 * MS,
        throttle: 5 * MS,
        load: LoadBounds { deadline: 60 * MS, soft_timeout: Some(10 * MS), ..LoadBounds::DEFAULT },
        fetch: Fetch::coalesce(100 * MS),
        breaker: Some(Breaker { open_for: 10 * MS, ramp: 10 * MS, ..Breaker::DEFAULT }),
        refresh: Refresh::XFetch { beta: 1.0 },
        ..Strategy::preset("breaker").unwrap()
    };
    let limit = strategy.max_served_age().unwrap();
    let clock = Live::new();
    let cache: Cache<u64, (u64, Time, Time), Live> =
        Cache::builder(strategy).build_on(clock.clone(), Seed(1)).unwrap();
    // The time of each key's last invalidation.
    let invalidated: Arc<Vec<AtomicU64>> = Arc::new((0..20).map(|_| AtomicU64::new(0)).collect());
    let nth = Arc::new(AtomicU64::new(0));
    // A machine that is busy may need longer than the second and a half until each kind of response has been seen.
    let (ends, ends_at_last) = (clock.now() + 1_500 * MS, clock.now() + 60_000 * MS);
    let seen = |stats: &Stats| stats.fallbacks > 0 && stats.stale > 0 && stats.coalesced > 0;

    let client = |client: u64| {
        let (cache, clock) = (cache.clone(), clock.clone());
        let (invalidated, nth) = (Arc::clone(&invalidated), Arc::clone(&nth));
        async move {
            let mut answered = 0_u64;
            for step in 0.. {
                let start = clock.now();
                if start >= ends && (seen(&cache.stats()) || start >= ends_at_last) {
                    break;
                }
                let key = (step * 7 + client) % 20;
                let before =
                    Time::from_nanos(invalidated[usize::try_from(key).unwrap()].load(Ordering::SeqCst));
                let (clock_of_load, nth) = (clock.clone(), Arc::clone(&nth));
                let load = async move || {
                    let began = clock_of_load.now();
                    let nth = nth.fetch_add(1, Ordering::Relaxed);
                    let sleep = |time: Duration| clock_of_load.sleep_until(began + time);
                    match nth % 16 {
                        0 => panic!("on purpose"),
                        1 => std::future::pending().await,
                        2..6 => return Err("on purpose"),
                        6 => sleep(50 * MS).await,
                        _ => sleep(2 * MS).await,
                    }
                    Ok((key, began, clock_of_load.now()))
                };
                let request = cache.get_with(key, load);
                if step % 50 == 49 {
                    // This caller cancels at once.
                    drop(request.now_or_never());
                    continue;
                }
                let answer = request.await;
                let now = clock.now();
                // A wait, a load after an election, and the delay of a busy machine.
                assert!(now - start < 100 * MS + 2 * 60 * MS + 500 * MS, "{:?}", now - start);
                if let Ok(answer) = answer {
                    let (of, began, loaded) = answer.value;
                    assert_eq!(of, key);
                    answered += 1;
                    // The exact time of the lookup is unknown: it is not before the request.
                    let slack = 5 * MS;
                    assert!(start <= loaded + limit + slack || began >= start, "{answer:?} at {start:?}");
                    assert!(began >= before, "{answer:?} was invalidated at {before:?}");
                }
                if step % 97 == 96 {
                    let at = clock.now();
                    cache.invalidate(&key, Invalidation::Hard);
                    invalidated[usize::try_from(key).unwrap()].fetch_max(at.as_nanos(), Ordering::SeqCst);
                }
                tokio::task::yield_now().await;
            }
            answered
        }
    };
    let clients: Vec<_> = (0..64)
        .map(|number| {
            tokio::task::spawn_blocking({
                let client = client(number);
                move || tokio::runtime::Handle::current().block_on(client)
            })
        })
        .collect();
    let mut answered = 0;
    for client in join_all(clients).await {
        answered += client.unwrap();
    }
    cache.wait_idle().await;
    assert_eq!(cache.coalesced_loads(), 0);
    let stats = cache.stats();
    assert!(answered > 1_000 && seen(&stats), "{stats:?}");
}
