//! Explicit writes: they win over all that they follow, whatever else is invalidated meanwhile.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use futures_util::future::join;
use stockade_cache::{Cache, Insertion, Invalidation, Strategy, Update};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, Virtual},
};

fn cache() -> Cache<u64, u64> {
    Cache::builder(Strategy {
        ttl: Some(Duration::from_secs(60 * 60)),
        ..Strategy::preset("stampede").unwrap()
    })
    .tags(|key, _, tag| tag(if key % 2 == 0 { "even" } else { "odd" }))
    .build()
    .unwrap()
}

/// One writer of a key reads its own writes, while other keys, another tag and nothing are invalidated, and loads are in flight.
#[test]
fn no_write_is_lost_to_invalidations_of_other_entries() {
    const WRITES: u64 = 100_000;
    let (cache, is_done) = (cache(), AtomicBool::new(false));
    let lost = thread::scope(|scope| {
        let invalidations: [Box<dyn Fn(u64) -> bool + Sync + Send>; 4] = [
            Box::new(|_| cache.invalidate_if(|_, _| false, Invalidation::Hard) == 0),
            Box::new(|round| !cache.invalidate(&(round % 100 + 1_000), Invalidation::Hard)),
            Box::new(|_| cache.invalidate_tag("odd", Invalidation::Hard) == 0),
            Box::new(|round| cache.insert(round % 10 + 2_000, round) == Insertion::Stored),
        ];
        for invalidate in invalidations {
            let is_done = &is_done;
            scope.spawn(move || {
                let mut round = 0;
                while !is_done.load(SeqCst) {
                    invalidate(round);
                    round += 1;
                }
            });
        }
        let lost = (1..=WRITES).filter(|&write| {
            let stored = match write % 3 {
                0 => cache.update(&2, |_| Update::Store(write)) == Some(write),
                _ => cache.insert(2, write) == Insertion::Stored,
            };
            !stored || cache.get(&2) != Some(write)
        });
        let lost = lost.count();
        is_done.store(true, SeqCst);
        lost
    });
    assert_eq!(lost, 0, "of {WRITES}");
}

/// A function of a caller runs without a lock, so it may call the cache.
#[test]
fn functions_of_callers_may_call_the_cache() {
    let cache = cache();
    for key in 0..1_000 {
        cache.insert(key, key * 10);
    }
    let is_it = |key: &u64, value: &u64| {
        assert!(cache.peek(key).is_some_and(|stored| stored.value == *value));
        cache.insert(key + 10_000, 0);
        *value >= 9_000 && *value < 10_000
    };
    assert_eq!(cache.invalidate_if(is_it, Invalidation::Hard), 100);
    assert_eq!((cache.get(&899), cache.get(&900)), (Some(8_990), None));
}

/// A value that replaces one while the function looks at the old one was written later, and stays.
#[test]
fn value_that_was_written_during_an_invalidation_stays() {
    let cache = cache();
    cache.insert(1, 10);
    let count = cache.invalidate_if(
        |key, value| *value == 10 && cache.insert(*key, 11) == Insertion::Stored,
        Invalidation::Hard,
    );
    assert_eq!((count, cache.get(&1)), (0, Some(11)));
}

/// The keys of removed entries are stored again, in other slots, while the entries are read.
#[test]
fn entries_are_read_once_though_they_move() {
    let cache = cache();
    for key in 0..5_000 {
        cache.insert(key, 0);
    }
    let mut seen = std::collections::HashMap::<u64, u32>::new();
    for (nth, (key, _)) in cache.entries().enumerate() {
        *seen.entry(key).or_default() += 1;
        if nth % 64 == 0 {
            for key in 0..5_000 {
                cache.invalidate(&((key * 7) % 5_000), Invalidation::Hard);
            }
            for key in (0..5_000).rev() {
                cache.insert(key, nth as u64);
            }
        }
    }
    let twice = seen.values().filter(|&&count| count > 1).count();
    // A key that is stored again is taken for another one, but for one in 16 million.
    assert_eq!(twice, 0, "of {}", seen.len());
}

/// More writes than any log of them would remember.
#[test]
fn load_is_stored_though_many_other_keys_are_written_meanwhile() {
    let (time, writes) = (Virtual::new(), 200_000);
    let cache: Cache<u64, u64, Virtual> =
        Cache::builder(Strategy::preset("stampede").unwrap()).build_on(time.clone(), Seed(1)).unwrap();
    let load = |value: u64| {
        let clock = time.clone();
        async move || {
            clock.sleep_until(clock.now() + Duration::from_secs(2)).await;
            Ok::<_, Infallible>(value)
        }
    };
    let run = time.run(async {
        let mut loads = Box::pin(join(cache.get_with(1, load(10)), cache.get_with(2, load(20))));
        assert!(futures_util::poll!(&mut loads).is_pending());
        for key in 0..writes {
            cache.insert(1_000 + key, key);
            cache.invalidate(&(1_000 + key), Invalidation::Hard);
        }
        // One of the two is written itself. Requests that follow do not wait for its load.
        cache.insert(2, 21);
        cache.invalidate(&2, Invalidation::Soft);
        let late = cache.get_with(2, async || Ok::<_, Infallible>(22)).await.unwrap();
        assert_eq!((late.value, time.now()), (22, Time::ZERO));
        let (first, second) = loads.await;
        assert_eq!((first.unwrap().value, second.unwrap().value), (10, 20), "to the waiters");
        assert_eq!((cache.get(&1), cache.get(&2)), (Some(10), Some(22)));
    });
    run.unwrap();
}

/// A function that writes each entry that it looks at does not run for ever.
#[test]
fn predicate_that_writes_what_it_sees_ends() {
    let cache = cache();
    for key in 0..10 {
        cache.insert(key, 0);
    }
    let calls = AtomicU64::new(0);
    let writes = |key: &u64, value: &u64| {
        calls.fetch_add(1, SeqCst);
        cache.insert(*key, value + 1) == Insertion::Stored
    };
    assert_eq!(cache.invalidate_if(writes, Invalidation::Hard), 10);
    assert_eq!((cache.len(), calls.load(SeqCst)), (0, 80));
}
