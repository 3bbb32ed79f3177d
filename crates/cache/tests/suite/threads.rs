//! The cache for threads, without a runtime of tokio around it.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use stockade_cache::{Batching, Error, Insertion, LoadBounds, Outcome, Strategy, Validated, sync::Cache};

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

#[test]
fn a_load_that_misses_its_deadline_fails_its_callers_and_is_not_stored() {
    let load = LoadBounds { deadline: Duration::from_millis(50), ..LoadBounds::DEFAULT };
    let cache: Cache<u64, u64> = Cache::new(Strategy { load, ..stampede() }).unwrap();
    let (finish, finished) = mpsc::channel::<()>();
    let returned = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&returned);
    let result = cache.get_with(7, move || {
        finished.recv().unwrap();
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Infallible>(70)
    });
    assert!(matches!(result, Err(Error::Deadline { .. })), "{result:?}");
    finish.send(()).unwrap();
    until(|| returned.load(Ordering::SeqCst) == 1);
    cache.wait_idle();
    assert_eq!(cache.get(&7), None);
}

#[test]
fn errors_and_panics_of_loads_reach_their_callers_and_later_loads_run() {
    let cache: Cache<u64, u64> = Cache::new(stampede()).unwrap();
    let failed = cache.get_with(1, || Err::<u64, _>("no route to host"));
    assert!(matches!(failed, Err(Error::Load(_))), "{failed:?}");
    let lost = cache.get_with(1, || -> Result<u64, Infallible> { panic!("a bug in a load") });
    assert!(matches!(lost, Err(Error::LeaderLost)), "{lost:?}");
    assert_eq!(cache.get_with(1, || Ok::<_, Infallible>(10)).unwrap().value, 10);
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
