//! The cache for threads, without a runtime of tokio around it.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use futures_util::FutureExt;
use stockade_cache::{
    Batching, Breaker, Error, Fetch, HedgeAfter, Insertion, LoadBounds, Outcome, Strategy, Validated,
    sync::Cache,
};

fn stampede() -> Strategy {
    Strategy::preset("stampede").unwrap()
}

/// Waits until `is_so`; without sleeping, since the other threads work meanwhile.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

#[test]
fn threads_that_miss_a_key_share_one_load() {
    const CALLERS: u64 = 64;
    let cache: Cache<u64, u64> = Cache::new(stampede()).unwrap();
    let (finish, finished) = mpsc::channel::<()>();
    let finished = Arc::new(std::sync::Mutex::new(finished));
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (cache, finished) = (cache.clone(), Arc::clone(&finished));
                scope.spawn(move || {
                    let load = move || {
                        finished.lock().unwrap().recv().unwrap();
                        Ok::<_, Infallible>(70)
                    };
                    let answer = cache.get_with(7, load).unwrap();
                    assert_eq!(answer.value, 70);
                    answer.outcome
                })
            })
            .collect();
        until(|| cache.as_async().stats().waiters == CALLERS - 1);
        finish.send(()).unwrap();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert_eq!(cache.as_async().stats().loads, 1);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Miss).count(), 1);
    assert_eq!(cache.get(&7), Some(70));
}

/// A load that hangs holds its own caller. Those that wait for it do so for `wait_timeout`, and the breaker learns at its deadline that
/// the source does not answer.
#[test]
fn load_that_hangs_holds_its_own_caller_only() {
    let (wait, deadline) = (Duration::from_millis(20), Duration::from_secs(1));
    let breaker = Breaker { min_calls: 3, open_for: Duration::from_hours(1), ..Breaker::DEFAULT };
    let strategy = Strategy {
        fetch: Fetch::coalesce(wait),
        load: LoadBounds { deadline, hedge_after: None, ..LoadBounds::DEFAULT },
        breaker: Some(breaker),
        ..stampede()
    };
    let cache: Cache<u64, u64> = Cache::new(strategy).unwrap();
    let (finish, finished) = mpsc::channel::<()>();
    let finished = Arc::new(std::sync::Mutex::new(finished));
    thread::scope(|scope| {
        let hung: Vec<_> = (0..5)
            .map(|key| {
                let (cache, finished) = (cache.clone(), Arc::clone(&finished));
                let load = move || finished.lock().unwrap().recv().map(|()| key * 10);
                scope.spawn(move || cache.get_with(key, load))
            })
            .collect();
        until(|| cache.as_async().stats().loads_in_flight == 5);
        let waited = cache.get_with(0, || Ok::<_, Infallible>(1));
        assert!(matches!(waited, Err(Error::WaitTimeout { .. })), "{waited:?}");
        let asks = || cache.as_async().admit_call(&100, None).now_or_never();
        until(|| matches!(asks(), Some(Err(Error::BreakerOpen))));
        (0..5).for_each(|_| finish.send(()).unwrap());
        for (key, caller) in (0..).zip(hung) {
            assert_eq!(caller.join().unwrap().unwrap().value, key * 10, "late, and right");
        }
    });
}

/// The first load and its hedge never return. The hedge runs on a thread of the cache, so that of ten callers nine have an answer.
#[test]
fn hedge_that_hangs_holds_no_caller() {
    let (wait, ms) = (Duration::from_secs(1), Duration::from_millis(1));
    let strategy = Strategy {
        fetch: Fetch::coalesce(wait),
        load: LoadBounds {
            // The hedge fails before its caller's wait ends, and the first load goes on.
            deadline: 30 * ms,
            hedge_after: Some(HedgeAfter::Time(10 * ms)),
            ..LoadBounds::DEFAULT
        },
        ..stampede()
    };
    let cache: Cache<u64, u64> = Cache::new(strategy).unwrap();
    let (finish, finished) = mpsc::channel::<()>();
    let finished = Arc::new(std::sync::Mutex::new(finished));
    let (answer, answered) = mpsc::channel();
    thread::scope(|scope| {
        // Dropped if an assertion fails: the loads end.
        let finish = finish;
        for _ in 0..10 {
            let (cache, finished, answer) = (cache.clone(), Arc::clone(&finished), answer.clone());
            let load = move || finished.lock().unwrap().recv().map(|()| 70);
            scope.spawn(move || answer.send(cache.get_with(7, load)).unwrap());
        }
        for _ in 0..9 {
            let answer = answered.recv_timeout(Duration::from_secs(60)).expect("a caller hangs");
            assert!(matches!(answer, Err(Error::WaitTimeout { .. } | Error::Deadline { .. })), "{answer:?}");
        }
        let hedges = cache.stats().hedges;
        assert!(hedges > 0);
        // Those of the hedges, and the first.
        (0..=hedges).for_each(|_| finish.send(()).unwrap());
        assert_eq!(answered.recv_timeout(Duration::from_secs(60)).unwrap().unwrap().value, 70);
    });
}

#[test]
fn errors_and_panics_of_loads_reach_their_callers_and_later_loads_run() {
    let cache: Cache<u64, u64> = Cache::new(stampede()).unwrap();
    let failed = cache.get_with(1, || Err::<u64, _>("no route to host"));
    assert!(matches!(failed, Err(Error::Load(_))), "{failed:?}");
    let load = || -> Result<u64, Infallible> { panic!("a bug in a load") };
    let panic = catch_unwind(AssertUnwindSafe(|| cache.get_with(1, load))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"a bug in a load"));
    assert_eq!(cache.get_with(1, || Ok::<_, Infallible>(10)).unwrap().value, 10);
}

/// More than the threads that any pool has.
#[test]
fn loads_of_many_callers_may_call_another_cache() {
    const CALLERS: u64 = 600;
    let [outer, inner] = [(); 2].map(|()| Cache::<u64, u64>::new(stampede()).unwrap());
    let all_load = Arc::new(std::sync::Barrier::new(usize::try_from(CALLERS).unwrap()));
    thread::scope(|scope| {
        for key in 0..CALLERS {
            let (outer, inner, all_load) = (outer.clone(), inner.clone(), Arc::clone(&all_load));
            thread::Builder::new()
                .stack_size(256 << 10)
                .spawn_scoped(scope, move || {
                    let load = move || {
                        all_load.wait();
                        inner
                            .get_with(key % 7, move || Ok::<_, Infallible>(key % 7))
                            .map(|answer| answer.value)
                    };
                    assert_eq!(outer.get_with(key, load).unwrap().value, key % 7);
                })
                .unwrap();
        }
    });
    assert_eq!((outer.as_async().stats().loads, inner.as_async().stats().loads), (CALLERS, 7));
}

/// Refreshes in the background have threads of their own cache.
#[test]
fn refreshes_of_one_cache_take_no_thread_from_another() {
    let stale = || Strategy {
        ttl: Some(Duration::ZERO),
        swr: Duration::from_hours(1),
        ..Strategy::preset("swr").unwrap()
    };
    let [hung, healthy] = [(); 2].map(|()| Cache::<u64, u64>::new(stale()).unwrap());
    let (finish, finished) = mpsc::channel::<()>();
    let finished = Arc::new(std::sync::Mutex::new(finished));
    for key in 0..600 {
        hung.insert(key, 1);
        let finished = Arc::clone(&finished);
        let answer = hung.get_with(key, move || finished.lock().unwrap().recv().map(|()| 2)).unwrap();
        assert_eq!((answer.value, answer.outcome), (1, Outcome::Stale));
    }
    healthy.insert(1, 1);
    let refreshed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refreshed);
    let load = move || Ok::<_, Infallible>(counted.fetch_add(1, Ordering::SeqCst) as u64 + 2);
    assert_eq!(healthy.get_with(1, load).unwrap().value, 1);
    until(|| refreshed.load(Ordering::SeqCst) == 1);
    drop(finish);
}

#[test]
fn batches_validation_and_inserts_work_without_a_runtime() {
    let cache: Cache<u64, u64> = Cache::new(stampede()).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let loader = cache.batch_loader(Batching::DEFAULT, move |keys: Vec<u64>| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Infallible>(keys.into_iter().map(|key| (key, Ok(key * 10))).collect::<Vec<_>>())
    });
    let found = cache.get_many_with(0..50, &loader);
    let values: Vec<u64> = found.into_iter().map(|answer| answer.unwrap().value).collect();
    assert_eq!(values, (0..50).map(|key| key * 10).collect::<Vec<_>>());
    // One, unless the window of a batch ends while its keys are still coming.
    assert!(calls.load(Ordering::SeqCst) <= 5);
    assert_eq!(cache.insert(1, 11), Insertion::Stored);
    let validated = cache.get_validated(100, |stored| {
        assert_eq!(stored, None);
        Ok::<_, Infallible>(Validated::Changed(5))
    });
    assert_eq!(validated.unwrap().value, 5);
    assert_eq!(cache.get(&1), Some(11));
    assert!(cache.invalidate(&1, stockade_cache::Invalidation::Hard));
    assert_eq!(cache.get(&1), None);
}

#[tokio::test]
async fn a_thread_for_blocking_work_of_tokio_may_wait() {
    let cache: Cache<u64, u64> = Cache::new(stampede()).unwrap();
    let answer = tokio::task::spawn_blocking(move || cache.get_with(1, || Ok::<_, Infallible>(10)));
    assert_eq!(answer.await.unwrap().unwrap().value, 10);
}
