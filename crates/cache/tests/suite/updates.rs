//! Changes of stored values by functions of them, in virtual time.

use std::{sync::Arc, time::Duration};

use stockade_cache::{
    Cache, Insertion, Invalidation, Lifespan, Limit, Outcome, Policy, Strategy, Update, sync,
};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Virtual},
};

type TestedCache = Cache<u8, u32, Virtual>;

const SECOND: Duration = Duration::from_secs(1);

fn run(test: impl AsyncFnOnce(Virtual, TestedCache)) {
    let time = Virtual::new();
    let strategy = Strategy { ttl: Some(10 * SECOND), swr: SECOND, ..Strategy::preset("stampede").unwrap() };
    let cache = Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
    time.run(test(time.clone(), cache)).unwrap();
}

fn add(cache: &TestedCache, key: u8, more: u32) -> Option<u32> {
    cache.update(&key, |stored| Update::Store(stored.map_or(0, |stored| stored.value) + more))
}

async fn pass(time: &Virtual, duration: Duration) {
    time.sleep_until(time.now() + duration).await;
}

#[test]
fn a_change_sees_the_fresh_value_and_returns_what_is_stored() {
    run(async |time, cache| {
        assert_eq!((add(&cache, 1, 2), add(&cache, 1, 3), cache.get(&1)), (Some(2), Some(5), Some(5)));
        assert_eq!(cache.update(&1, |stored| stored.map_or(Update::Remove, |_| Update::Keep)), Some(5));
        assert_eq!(cache.update(&2, |_| Update::Keep), None);

        pass(&time, 10 * SECOND).await;
        assert!(cache.peek(&1).is_some(), "stale");
        assert_eq!(add(&cache, 1, 7), Some(7), "a stale value is not there");

        assert_eq!(cache.update(&1, |_| Update::Remove), None);
        assert_eq!((cache.len(), cache.stats().invalidated), (0, 1));
        assert_eq!(cache.update(&1, |_| Update::Remove), None);
        assert_eq!(cache.stats().invalidated, 1);
    });
}

#[test]
fn a_change_may_keep_the_times_of_the_value() {
    let time = Virtual::new();
    let strategy = Strategy {
        ttl: Some(10 * SECOND),
        jitter: 0.5,
        swr: SECOND,
        ..Strategy::preset("stampede").unwrap()
    };
    let cache: TestedCache = Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
    time.run(async {
        let count =
            || cache.update(&1, |stored| Update::StoreInPlace(stored.map_or(0, |stored| stored.value) + 1));
        count();
        let end = time.now() + cache.peek(&1).unwrap().fresh_for;
        for counted in 2..5 {
            pass(&time, SECOND).await;
            assert_eq!(count(), Some(counted));
            let stored = cache.peek(&1).unwrap();
            assert_eq!(
                (time.now() + stored.fresh_for, stored.servable_for.saturating_sub(stored.fresh_for)),
                (end, SECOND)
            );
        }
        time.sleep_until(end).await;
        assert_eq!(count(), Some(1));
        assert_eq!(cache.update(&1, |_| Update::StoreFor(1, Lifespan::NONE)), None, "not cacheable");
        assert!(cache.is_empty());
    })
    .unwrap();
}

#[test]
fn a_not_found_has_times_of_its_own() {
    let time = Virtual::new();
    let strategy = Strategy {
        ttl: Some(10 * SECOND),
        negative_ttl: Some(SECOND),
        ..Strategy::preset("stampede").unwrap()
    };
    let cache: TestedCache =
        Cache::builder(strategy).not_found(|value| *value == 0).build_on(time.clone(), Seed(1)).unwrap();
    time.run(async {
        for (value, ttl) in [(0, SECOND), (1, 10 * SECOND), (0, SECOND)] {
            assert_eq!(cache.update(&1, |_| Update::StoreInPlace(value)), Some(value));
            assert_eq!(cache.peek(&1).unwrap().fresh_for, ttl, "of {value}");
        }
    })
    .unwrap();
}

/// All keys of a cache of 16 entries are in one shard.
#[test]
fn a_change_is_made_once_beside_removals_of_other_keys() {
    let time = Virtual::new();
    let strategy = Strategy { limit: Some(Limit::entries(16)), ..Strategy::preset("stampede").unwrap() };
    let cache: TestedCache = Cache::builder(strategy).build_on(time.clone(), Seed(1)).unwrap();
    time.run(async {
        (1..4).for_each(|key| assert_eq!(cache.insert(key, 1), Insertion::Stored));
        let mut calls = 0;
        let counted = cache.update(&1, |stored| {
            calls += 1;
            assert_eq!(cache.insert_for(2, 1, Lifespan::NONE), Insertion::NotCacheable);
            cache.update(&3, |_| Update::Remove);
            Update::Store(stored.map_or(0, |stored| stored.value) + 1)
        });
        assert_eq!((counted, calls, cache.len()), (Some(2), 1, 1));
    })
    .unwrap();
}

#[test]
fn a_change_is_made_again_if_another_came_between() {
    run(async |_, cache| {
        let mut seen = Vec::new();
        let stored = cache.update(&1, |stored| {
            seen.push(stored.map(|stored| stored.value));
            match seen.len() {
                1 => assert_eq!(cache.insert(1, 10), Insertion::Stored),
                2 => assert!(cache.invalidate(&1, Invalidation::Hard)),
                3 => assert_eq!(add(&cache, 1, 20), Some(20)),
                4 => assert!(cache.invalidate(&1, Invalidation::Soft), "it is still there, and stale"),
                5 => assert_eq!(cache.insert_for(1, 30, Lifespan::NONE), Insertion::NotCacheable),
                _ => {}
            }
            Update::Store(u32::try_from(seen.len()).unwrap())
        });
        assert_eq!(seen, [None, Some(10), None, Some(20), None, None]);
        assert_eq!((stored, cache.get(&1)), (Some(6), Some(6)));
        assert_eq!(cache.stats().stores_outdated, 0);

        let mut calls = 0;
        let removed = cache.update(&1, |stored| {
            calls += 1;
            if calls == 1 {
                cache.insert(1, 7);
            }
            assert_eq!(stored.map(|stored| stored.value), Some(5 + calls));
            Update::Remove
        });
        assert_eq!((removed, calls, cache.get(&1)), (None, 2, None));
    });
}

#[test]
fn a_load_in_flight_is_not_stored_over_a_change() {
    run(async |time, cache| {
        let spawn_load = || {
            let (slow, cache) = (time.clone(), cache.clone());
            let load = async move || {
                slow.sleep_until(slow.now() + 2 * SECOND).await;
                Ok::<_, std::io::Error>(100)
            };
            time.spawn(async move {
                let answer = cache.get_with(1, load).await.unwrap();
                assert_eq!((answer.value, answer.outcome), (100, Outcome::Miss));
            });
        };
        spawn_load();
        pass(&time, SECOND).await;
        assert_eq!(add(&cache, 1, 1), Some(1));
        cache.wait_idle().await;
        assert_eq!(cache.get(&1), Some(1));
    });
}

/// An entry makes room for its successor.
#[test]
fn a_change_survives_the_eviction_of_its_old_value() {
    let time = Virtual::new();
    let limit = Limit { policy: Policy::LRW, max_object: Some(1_000), ..Limit::bytes(1_000) };
    let strategy = Strategy { limit: Some(limit), ..Strategy::preset("stampede").unwrap() };
    let cache: Cache<u8, u32, Virtual> =
        Cache::builder(strategy).weigh(|_, _| 400).build_on(time.clone(), Seed(1)).unwrap();
    time.run(async {
        for round in 1..50 {
            for key in [1, 2] {
                let count = |stored: u32| Update::Store(stored + 1);
                let counted = cache.update(&key, |stored| count(stored.map_or(0, |stored| stored.value)));
                assert_eq!(counted, Some(round), "of {key}");
            }
        }
        assert!(cache.stats().evicted_size > 40, "each change evicts the old value");
    })
    .unwrap();
}

#[test]
fn a_value_that_the_limit_rejects_removes_the_entry() {
    let time = Virtual::new();
    let limit = Limit { max_object: Some(1_000), ..Limit::bytes(10_000) };
    let strategy = Strategy { limit: Some(limit), ..Strategy::preset("stampede").unwrap() };
    let cache: Cache<u8, Arc<[u8]>, Virtual> = Cache::builder(strategy)
        .weigh(|_, value: &Arc<[u8]>| value.len())
        .build_on(time.clone(), Seed(1))
        .unwrap();
    time.run(async {
        let doubled = || {
            cache.update(&1, |stored| {
                let length = stored.map_or(100, |stored| 2 * stored.value.len());
                Update::Store(vec![0; length].into())
            })
        };
        let lengths: Vec<_> = (0..5).map(|_| doubled().map(|value| value.len())).collect();
        assert_eq!(lengths, [Some(100), Some(200), Some(400), Some(800), None]);
        assert_eq!(cache.stats().stores_refused, 1);
        assert_eq!((cache.len(), cache.byte_usage().map(|bytes| bytes.used)), (0, Some(0)));
    })
    .unwrap();
}

#[test]
fn threads_lose_no_change() {
    const THREADS: u32 = 4;
    const CHANGES: u32 = 5_000;
    let cache: sync::Cache<u8, u32> = sync::Cache::new(Strategy::preset("stampede").unwrap()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..CHANGES {
                    let count = |stored: Option<u32>| Update::Store(stored.unwrap_or_default() + 1);
                    cache.update(&1, |stored| count(stored.map(|stored| stored.value)));
                }
            });
        }
    });
    assert_eq!(cache.get(&1), Some(THREADS * CHANGES));
}
