//! The listener of removed entries, in virtual time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use stockade_cache::{Cache, Insertion, Invalidation, Lifespan, Limit, Policy, RemovalReason, Strategy};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Virtual},
};

type Removals = Arc<Mutex<Vec<(u32, RemovalReason)>>>;
type TestedCache = Cache<u32, Arc<[u8]>, Virtual>;

const SECOND: Duration = Duration::from_secs(1);

fn run(limit: Option<Limit>, test: impl AsyncFnOnce(Virtual, TestedCache, Removals)) {
    let (time, removals) = (Virtual::new(), Removals::default());
    let strategy = Strategy { limit, ttl: Some(10 * SECOND), ..Strategy::preset("stampede").unwrap() };
    let heard = Arc::clone(&removals);
    let cache = Cache::builder(strategy)
        .weigh(|_, value: &Arc<[u8]>| value.len())
        .held(|value| Arc::strong_count(value) > 1)
        .tags(|key, _, tag| tag(if key % 2 == 0 { "even" } else { "odd" }))
        .on_removal(move |key, _, reason| {
            heard.lock().unwrap().push((*key, reason));
            assert!(*key != 13, "a listener that panics");
        })
        .build_on(time.clone(), Seed(1))
        .unwrap();
    time.run(test(time.clone(), cache, removals)).unwrap();
}

fn value(bytes: usize) -> Arc<[u8]> {
    vec![0; bytes].into()
}

fn take(removals: &Removals) -> Vec<(u32, RemovalReason)> {
    std::mem::take(&mut removals.lock().unwrap())
}

#[test]
fn each_way_out_has_its_reason() {
    use RemovalReason::{Evicted, Expired, Invalidated, Replaced};
    let limit = Limit { policy: Policy::LRW, ..Limit::entries(4) };
    run(Some(limit), async |time, cache, removals| {
        for key in 0..4 {
            cache.insert(key, value(1));
        }
        assert_eq!(take(&removals), []);
        cache.insert(3, value(1));
        cache.insert(4, value(1));
        assert_eq!(take(&removals), [(3, Replaced), (0, Evicted)]);
        cache.invalidate(&1, Invalidation::Hard);
        cache.invalidate(&1, Invalidation::Hard);
        cache.invalidate_tag("odd", Invalidation::Hard);
        assert_eq!(take(&removals), [(1, Invalidated), (3, Invalidated)]);
        time.sleep_until(time.now() + 11 * SECOND).await;
        // Each store examines two slots, also those of expired entries.
        for _ in 0..4 {
            cache.insert(8, value(1));
        }
        let mut removed = take(&removals);
        removed.retain(|(key, _)| *key != 8);
        removed.sort_by_key(|(key, _)| *key);
        assert_eq!(removed, [(2, Expired), (4, Expired)]);
        assert_eq!(cache.invalidate_all(Invalidation::Hard), 1);
        assert_eq!(take(&removals), [(8, Invalidated)]);
    });
}

#[test]
fn every_stored_value_is_there_or_was_reported_once_and_a_panic_loses_no_bytes() {
    let limit = Limit { max_object: Some(4_000), ..Limit::bytes(20_000) };
    run(Some(limit), async |_, cache, removals| {
        let (mut stored, mut held) = (0, Vec::new());
        for number in 0..2_000_u32 {
            let value = value(100 + number as usize % 7 * 100);
            if number % 50 == 0 {
                held.push(Arc::clone(&value));
            }
            let key = number.wrapping_mul(2_654_435_761) % 100;
            stored += usize::from(cache.insert(key, value) == Insertion::Stored);
            if number % 200 == 0 {
                held.clear();
            }
        }
        let removed = take(&removals);
        assert!(removed.iter().any(|(key, _)| *key == 13), "the listener panicked");
        assert_eq!(removed.len() + cache.len(), stored);
        held.clear();
        cache.invalidate_all(Invalidation::Hard);
        assert_eq!(take(&removals).len() + removed.len(), stored);
        // The held entries are examined four at a time.
        assert!((0..100).any(|_| cache.held_fill() == 0.0));
        assert_eq!(cache.byte_usage().unwrap().used, 0);
    });
}

#[test]
fn a_listener_may_call_the_cache() {
    let strategy = Strategy { limit: Some(Limit::entries(2)), ..Strategy::preset("stampede").unwrap() };
    let time = Virtual::new();
    let slot: Arc<Mutex<Option<Cache<u32, u32, Virtual>>>> = Arc::default();
    let caller = Arc::clone(&slot);
    let cache = Cache::builder(strategy)
        .on_removal(move |key: &u32, _: &u32, reason| {
            let cache = caller.lock().unwrap().clone().unwrap();
            if reason == RemovalReason::Evicted && *key < 4 {
                cache.insert(key + 100, 0);
            }
        })
        .build_on(time, Seed(1))
        .unwrap();
    *slot.lock().unwrap() = Some(cache.clone());
    for key in 0..10 {
        cache.insert(key, key);
    }
    assert_eq!(cache.len(), 2);
    assert_eq!(cache.stats().evicted_size, 8 + 4, "each evicted key below 4 came again, once");
    *slot.lock().unwrap() = None;
}

/// A cache that is only read keeps them.
#[test]
fn purge_removes_all_expired_entries_and_no_others() {
    let time = Virtual::new();
    let removed = Arc::new(AtomicU64::new(0));
    let strategy = Strategy { ttl: Some(Duration::from_secs(1)), ..Strategy::preset("stampede").unwrap() };
    let counted = Arc::clone(&removed);
    let listener = move |_: &u64, _: &u64, reason| {
        assert_eq!(reason, RemovalReason::Expired);
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let cache: Cache<u64, u64, Virtual> =
        Cache::builder(strategy).on_removal(listener).build_on(time.clone(), Seed(1)).unwrap();
    let run = time.run(async {
        for key in 0..300_000 {
            let lives = if key % 10 == 0 { 60 } else { 1 };
            cache.insert_for(key, key, Lifespan { ttl: Duration::from_secs(lives), ..Lifespan::NONE });
        }
        time.sleep_until(time.now() + Duration::from_secs(2)).await;
        assert_eq!((0..300_000).filter(|key| cache.get(key).is_some()).count(), 30_000);
        assert_eq!((cache.len(), cache.purge_expired(), cache.len()), (300_000, 270_000, 30_000));
        assert_eq!((cache.purge_expired(), removed.load(Ordering::Relaxed)), (0, 270_000));
        assert_eq!((0..300_000).filter(|key| cache.get(key).is_some()).count(), 30_000);
    });
    run.unwrap();
}
