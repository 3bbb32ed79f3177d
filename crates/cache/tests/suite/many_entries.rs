//! An invalidation of many entries is in force when it returns, and is carried out between other work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use stockade_cache::{Cache, Invalidation, Limit, Outcome, RemovalReason, Strategy};
use stockade_model::{
    seed::Seed,
    time::{Runtime, Virtual},
};

const ENTRIES: u32 = 100_000;

type Numbers = Cache<u32, u32, Virtual>;

/// Even values have the tag "even".
fn numbers(time: &Virtual, strategy: Strategy) -> (Numbers, Arc<[AtomicUsize; 2]>) {
    // Those that were invalidated, and others.
    let removed: Arc<[AtomicUsize; 2]> = Arc::default();
    let counts = Arc::clone(&removed);
    let count = move |_: &_, _: &_, reason| {
        counts[usize::from(reason != RemovalReason::Invalidated)].fetch_add(1, Relaxed);
    };
    let tag = |_: &u32, value: &u32, tag: &mut dyn FnMut(&str)| {
        if value.is_multiple_of(2) {
            tag("even");
        }
    };
    let cache = Cache::builder(strategy).tags(tag).on_removal(count).build_on(time.clone(), Seed(1)).unwrap();
    for key in 0..ENTRIES {
        cache.insert(key, key);
    }
    (cache, removed)
}

fn minute() -> Strategy {
    Strategy { ttl: Some(Duration::from_secs(60)), limit: None, ..Strategy::default() }
}

#[test]
fn all_entries_are_invalidated_at_once_and_removed_later() {
    for how in [Invalidation::Soft, Invalidation::Hard] {
        let time = Virtual::new();
        let (cache, removed) = numbers(&time, minute());
        assert_eq!(cache.invalidate_all(how), ENTRIES as usize);
        // Nothing has run meanwhile.
        assert!(removed[0].load(Relaxed) < ENTRIES as usize / 2, "removed in the call");
        assert_eq!((cache.len(), cache.get(&1), cache.get(&(ENTRIES - 1))), (0, None, None));
        assert!(!cache.contains_key(&7) && cache.peek(&7).is_none() && cache.remove(&7).is_none());
        cache.insert(7, 1_000);
        assert_eq!((cache.get(&7), cache.len()), (Some(1_000), 1));
        assert_eq!(cache.invalidate_all(how), 1);
        cache.insert(8, 8);
        let rest = cache.entries().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(rest, [8]);
        time.run(async {
            time.sleep_until(time.now() + Duration::from_secs(1)).await;
        })
        .unwrap();
        assert_eq!((cache.len(), cache.get(&8)), (1, Some(8)));
        // And the two of key 7.
        assert_eq!(removed.each_ref().map(|count| count.load(Relaxed)), [ENTRIES as usize + 1, 0]);
        assert_eq!(cache.stats().invalidated, u64::from(ENTRIES) + 1);
    }
}

#[test]
fn invalidated_entries_are_stale_at_once() {
    let time = Virtual::new();
    let strategy = Strategy { swr: Duration::from_secs(10), sie: Duration::from_secs(100), ..minute() };
    let (cache, _) = numbers(&time, strategy);
    time.run(async {
        assert_eq!(cache.invalidate_all(Invalidation::Soft), ENTRIES as usize);
        let last = ENTRIES - 1;
        assert_eq!(cache.get(&last), None);
        let answer = cache.get_with(last, async || Ok::<_, std::io::Error>(5)).await.unwrap();
        assert_eq!((answer.value, answer.outcome), (last, Outcome::Stale));
        cache.wait_idle().await;
        assert_eq!(cache.get(&last), Some(5), "the refresh is stored after the invalidation");
        // The time of the invalidation counts, not that at which it is carried out.
        time.sleep_until(time.now() + Duration::from_secs(10)).await;
        assert_eq!(cache.get(&last), Some(5));
        let failed = cache.get_with(1, async || Err::<u32, _>(std::io::Error::other("down"))).await.unwrap();
        assert_eq!((failed.value, failed.outcome), (1, Outcome::Fallback));
        assert_eq!(cache.len(), ENTRIES as usize);
    })
    .unwrap();
}

#[test]
fn entries_with_a_tag_are_invalidated_at_once() {
    let time = Virtual::new();
    let (cache, removed) = numbers(&time, minute());
    assert_eq!(cache.invalidate_tag("even", Invalidation::Hard), ENTRIES as usize / 2);
    assert!(removed[0].load(Relaxed) < ENTRIES as usize / 4, "removed in the call");
    let last = ENTRIES - 1;
    assert_eq!((cache.get(&(last - 1)), cache.get(&last)), (None, Some(last)));
    // Without the tag, in the place of a value that has it; and with the tag, after the invalidation.
    cache.insert(last - 1, 1);
    cache.insert(last - 3, 2);
    time.run(async {
        time.sleep_until(time.now() + Duration::from_secs(1)).await;
    })
    .unwrap();
    assert_eq!([last - 1, last - 3].map(|key| cache.get(&key)), [Some(1), Some(2)]);
    assert_eq!(cache.len(), ENTRIES as usize / 2 + 2);
    assert_eq!(removed[0].load(Relaxed), ENTRIES as usize / 2);
}

#[test]
fn room_for_new_entries_is_there_while_invalidated_ones_wait() {
    let time = Virtual::new();
    let strategy = Strategy { limit: Some(Limit::entries(ENTRIES as usize)), ..minute() };
    let (cache, _) = numbers(&time, strategy);
    let stored = cache.invalidate_all(Invalidation::Hard);
    for key in 0..ENTRIES {
        cache.insert(ENTRIES + key, key);
        assert!(cache.len() <= ENTRIES as usize);
    }
    time.run(async { time.sleep_until(time.now() + Duration::from_secs(1)).await }).unwrap();
    // Shards are not equally full.
    assert!(cache.len() > stored * 9 / 10, "{} of {stored}", cache.len());
    assert_eq!(cache.purge_expired(), 0);
}
