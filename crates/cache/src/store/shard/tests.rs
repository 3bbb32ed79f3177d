//! The shard against a model that keeps everything and searches.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    Invalidation,
    policy::{POLICIES, Policy},
};

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

fn hash(key: u8) -> u64 {
    // Some keys collide in the index, and all in the bits that choose the shard.
    u64::from(key / 2)
}

fn shard(limit: Option<&Limit>) -> Shard<u8, u32> {
    let entries_max = limit.and_then(|limit| limit.entries).unwrap_or(usize::MAX);
    Shard::new(&FixedState::with_seed(1), limit, entries_max, false, None)
}

/// Even and odd values have a tag each.
fn tag(value: u32) -> u64 {
    u64::from(value % 2)
}

const TAGS: [[u64; 1]; 2] = [[0], [1]];

fn until(expires: Time) -> Lifetime {
    Lifetime::until(expires, Duration::ZERO)
}

fn new(key: u8, value: u32, life: &Lifetime) -> NewEntry<'_, u8, u32> {
    NewEntry {
        hash: hash(key),
        key,
        value,
        life,
        precedence: Precedence::Younger,
        weight: 1,
        tags: &TAGS[value as usize % 2],
    }
}

fn new_plain(key: u32, life: &Lifetime, weight: u32) -> NewEntry<'_, u32, u32> {
    NewEntry { hash: u64::from(key), key, value: 0, life, precedence: Precedence::Younger, weight, tags: &[] }
}

impl<K: Hash + Eq + Clone, V: Clone> Shard<K, V> {
    /// Checks the invariants.
    fn validate(&mut self) {
        let stored = self.entries.iter().flatten().count();
        assert_eq!(stored, self.index.len(), "every entry is listed once");
        for slot in 0..self.entries.len() {
            let is_vacant = self.vacant.iter().any(|vacant| vacant.0 as usize == slot);
            assert!(is_vacant || self.entries[slot].is_some(), "every slot is taken or vacant");
        }
        assert!(!matches!(self.entries.last(), Some(None)), "vacant slots at the end are released");
        assert!(stored <= self.ceiling.max);
        for &slot in &self.index {
            let entry = self.entries[slot as usize].as_ref().expect("a listed entry exists");
            let found = self.index.find(lengthen(entry.short_hash), |&listed| listed == slot);
            assert!(found.is_some(), "a listed entry is found by its hash");
            assert!(
                entry.version.get() <= self.invalidated_through
                    || self.sweep.earliest <= self.life(slot, entry).kept_until(),
                "the sweep resumes before the first expiry"
            );
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    LookUp(u8),
    Publish { key: u8, ttl_ms: Option<u64> },
    Remove(u8),
    Invalidate(u8, Invalidation),
    InvalidateTag(u32, Invalidation),
    Clear(Invalidation),
    CarryOut,
    Evict,
    Purge,
    Advance(u64),
}

fn how() -> impl Strategy<Value = Invalidation> {
    prop_oneof![Just(Invalidation::Soft), Just(Invalidation::Fallback), Just(Invalidation::Hard)]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        8 => (0..16_u8).prop_map(Operation::LookUp),
        8 => (0..16_u8, prop::option::of(1..40_u64))
            .prop_map(|(key, ttl_ms)| Operation::Publish { key, ttl_ms }),
        1 => (0..16_u8).prop_map(Operation::Remove),
        1 => (0..16_u8, how()).prop_map(|(key, how)| Operation::Invalidate(key, how)),
        1 => (0..2_u32, how()).prop_map(|(value, how)| Operation::InvalidateTag(value, how)),
        1 => how().prop_map(Operation::Clear),
        2 => Just(Operation::CarryOut),
        1 => Just(Operation::Evict),
        1 => Just(Operation::Purge),
        4 => (0..10_u64).prop_map(Operation::Advance),
    ];
    prop::collection::vec(operation, 0..300)
}

/// Removes invalidated entries of the model, or makes them stale. Entries that are not served any more are removed, too.
fn invalidate(
    model: &mut BTreeMap<u8, (u32, Time)>,
    is_stale: bool,
    now: Time,
    is_meant: impl Fn(u8, u32) -> bool,
) {
    model.retain(|key, (value, expires)| {
        if is_meant(*key, *value) {
            *expires = (*expires).min(now);
            return is_stale;
        }
        true
    });
}

proptest! {
/// The model holds the last value of every key. A shard lacks only the entries that it reported as removed,
    /// its values are the model's, and it stays within its limit.
    #[test]
    fn shard_matches_the_model_within_its_limit(
        operations in operations(),
        entries_max in 1..12_usize,
        reclaim in prop_oneof![Just(0.0), Just(0.3), Just(1.0)],
        policy in prop::option::of((0..POLICIES.len()).prop_map(|number| &POLICIES[number])),
        stale_for in prop_oneof![Just(Duration::ZERO), Just(Duration::from_millis(20))],
    ) {
        let limit = policy.map(|policy| Limit { policy, reclaim, ..Limit::entries(entries_max) });
        let limit = limit.as_ref();
        let entries_max = limit.and_then(|limit| limit.entries).unwrap_or(usize::MAX);
        let hasher = FixedState::with_seed(1);
        let mut shard = Shard::new(&hasher, limit, entries_max, true, None);
// Values, and until when they are fresh.
        let mut model: BTreeMap<u8, (u32, Time)> = BTreeMap::new();
        let serves_stale = !stale_for.is_zero();
        let (mut now, mut value) = (0, 0);
        for operation in operations {
            let mut gone = RemovedEntries::new();
            match operation {
                Operation::LookUp(key) => {
                    match (shard.look_up(hash(key), &key, at(now)), model.get(&key)) {
                        (LookupResult::Fresh { value, .. }, Some(&(stored, expires))) => {
                            prop_assert_eq!(value, stored);
                            prop_assert!(at(now) < expires);
                        }
                        (LookupResult::Aged(aged), Some(&(stored, expires))) => {
                            prop_assert_eq!(aged.value, stored);
                            let is_examined = shard.pending_invalidations() > 0;
                            prop_assert!(at(now) < expires + stale_for && (at(now) >= expires || is_examined));
                            prop_assert_eq!(aged.life.expires, expires);
                        }
                        (LookupResult::Missing { .. }, Some(&(_, expires))) => {
                            prop_assert!(at(now) >= expires + stale_for);
                        }
                        (LookupResult::Missing { version }, None) => prop_assert_eq!(version, 0),
                        (found, None) => prop_assert!(false, "{:?} is not in the model", found),
                    }
                }
                Operation::Publish { key, ttl_ms } => {
                    value += 1;
                    let expires = ttl_ms.map_or(Time::NEVER, |ttl| at(now + ttl));
                    let old = model.remove(&key);
                    let life = Lifetime::until(expires, stale_for);
                    shard.insert(new(key, value, &life), at(now), &mut gone);
                    if let Some((old, _)) = old {
                        prop_assert!(gone.iter().any(|entry| (entry.key, entry.value) == (key, old)));
                    }
                    gone.retain(|entry| entry.key != key);
// Even if the limit is one entry, the new value stays.
                    model.insert(key, (value, expires));
                }
                Operation::Remove(key) => {
                    let was_pending = shard.pending_invalidations() > 0;
                    let removed = shard.remove(hash(key), &key).map(|entry| entry.value);
                    let expected = model.remove(&key).map(|(value, _)| value);
                    prop_assert!(removed == expected || expected.is_none() && was_pending);
                }
                Operation::Invalidate(key, how) => {
                    let was_there = shard.invalidate(hash(key), &key, how, at(now), &mut gone);
                    prop_assert_eq!(was_there, model.contains_key(&key));
                    gone.retain(|entry| entry.key != key);
                    invalidate(&mut model, how != Invalidation::Hard && serves_stale, at(now), |of, _| of == key);
                }
                Operation::InvalidateTag(like, how) => {
                    let filter = InvalidationFilter::Tag(tag(like));
                    let tagged = model.values().filter(|(value, _)| tag(*value) == tag(like)).count();
                    let was_pending = shard.pending_invalidations() > 0;
                    let count = shard.begin_invalidation(filter, how, at(now));
                    prop_assert!(count == tagged || count > tagged && was_pending);
                    let is_stale = how != Invalidation::Hard && serves_stale;
                    invalidate(&mut model, is_stale, at(now), |_, value| tag(value) == tag(like));
                }
                Operation::Clear(how) => {
                    let was_pending = shard.pending_invalidations() > 0;
                    let count = shard.begin_invalidation(InvalidationFilter::All, how, at(now));
                    prop_assert!(count == model.len() || count > model.len() && was_pending);
                    invalidate(&mut model, how != Invalidation::Hard && serves_stale, at(now), |_, _| true);
                }
                Operation::CarryOut => while shard.carry_out(&mut gone).is_some() {},
                Operation::Evict => gone.extend(shard.evict()),
                Operation::Purge => {
                    shard.start_purge();
                    shard.reclaim_step(at(now), &mut gone);
                    let is_expired = |entry: &RemovedEntry<u8, u32>| {
                        model.get(&entry.key).is_some_and(|(_, expires)| at(now) >= *expires + stale_for)
                    };
                    let is_invalidated = |entry: &RemovedEntry<u8, u32>| {
                        entry.reason == Some(RemovalReason::Invalidated) || is_expired(entry)
                    };
                    prop_assert!(gone.iter().all(is_invalidated) || gone.len() == 1);
                }
                Operation::Advance(ms) => now += ms,
            }
            for entry in &gone {
                let is_it = model.get(&entry.key).is_some_and(|(value, _)| *value == entry.value);
                // Invalidated entries have left the model already.
                prop_assert!(is_it || entry.reason == Some(RemovalReason::Invalidated));
                if is_it {
                    model.remove(&entry.key);
                }
            }
            shard.validate();
            if shard.pending_invalidations() == 0 {
                prop_assert_eq!(shard.len(), model.len());
            } else {
                prop_assert!(shard.len() >= model.len());
            }
        }
    }
}

#[test]
fn a_value_is_fresh_until_it_expires() {
    let seen = |shard: &Shard<u8, u32>, ms| match shard.look_up(hash(7), &7, at(ms)) {
        LookupResult::Fresh { value, .. } => Ok(value),
        LookupResult::Aged(_) => panic!("the lifetime has no stale time"),
        LookupResult::Missing { version } => Err(version),
    };
    let mut shard = shard(None);
    assert_eq!(seen(&shard, 0), Err(0));
    let mut gone = RemovedEntries::new();
    shard.insert(new(7, 1, &until(at(10))), at(0), &mut gone);
    assert!(gone.is_empty());
    assert_eq!(seen(&shard, 9), Ok(1));
    assert_eq!(seen(&shard, 10), Err(1));
    shard.insert(new(7, 2, &until(Time::NEVER)), at(10), &mut gone);
    assert_eq!(gone[0].value, 1);
    assert_eq!(seen(&shard, 1_000_000), Ok(2));
}

#[test]
fn a_version_is_claimed_once() {
    let mut shard = shard(None);
    assert!(shard.claim(hash(7), &7, 0));
    assert!(!shard.claim(hash(7), &7, 0), "claimed already");
    shard.insert(new(7, 1, &until(at(10))), at(0), &mut RemovedEntries::new());
    assert!(!shard.claim(hash(7), &7, 0), "published meanwhile");
    assert!(shard.claim(hash(7), &7, 1));
    shard.unclaim(&7, 0);
    assert!(!shard.claim(hash(7), &7, 1), "an ended claim does not end a later one");
    shard.unclaim(&7, 1);
    assert!(shard.claim(hash(7), &7, 1));
    shard.unclaim(&7, 1);
    shard.remove(hash(7), &7);
    assert!(shard.claim(hash(7), &7, 1), "the value was removed, and none has replaced it");
}

#[test]
fn stores_remove_expired_entries() {
    let mut shard: Shard<u32, u32> = Shard::new(&FixedState::with_seed(1), None, usize::MAX, false, None);
    let store = |shard: &mut Shard<u32, u32>, key: u32, expires, now| {
        shard.insert(new_plain(key, &until(expires), 0), now, &mut RemovedEntries::new());
    };
    for key in 0..1_000 {
        store(&mut shard, key, at(10), at(0));
    }
    for key in 1_000..1_500 {
        store(&mut shard, key, at(1_000), at(10));
    }
    assert_eq!((shard.len(), shard.evictions().expired), (500, 1_000));
    shard.validate();
    // A replacement sweeps, too.
    for _ in 0..500 {
        store(&mut shard, 0, at(2_000), at(1_000));
    }
    assert_eq!(shard.len(), 1);
}

#[test]
fn reclaiming_removes_expired_entries_then_the_oldest() {
    let limit = Limit { policy: Policy::LRW, reclaim: 0.3, ..Limit::entries(1_000) };
    let mut shard: Shard<u32, u32> = Shard::new(&FixedState::with_seed(1), Some(&limit), 1_000, false, None);
    let store = |shard: &mut Shard<u32, u32>, now, key: u32, expires| {
        let mut gone = RemovedEntries::new();
        shard.insert(new_plain(key, &until(expires), 0), at(now), &mut gone);
        assert!(gone.len() <= RECLAIM_SLICE, "{} left at once", gone.len());
        gone.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
    };
    for key in 0..1_000 {
        store(&mut shard, 50, key, if key % 10 == 9 { at(100) } else { Time::NEVER });
    }
    let mut left = Vec::new();
    let mut key = 1_000;
    // 700, and the new entry.
    while shard.len() != 701 {
        left.extend(store(&mut shard, 100, key, Time::NEVER));
        key += 1;
        assert!(key < 1_100, "{} have left", left.len());
        assert!((701..=1_000).contains(&shard.len()));
        shard.validate();
    }
    let (expired, oldest): (Vec<u32>, Vec<u32>) = left.iter().partition(|&&key| key % 10 == 9);
    assert_eq!(expired.len(), 100);
    assert!(oldest.is_sorted(), "in the order of their writes: {oldest:?}");
    assert_eq!(shard.evictions().expired, 100);
    // No more entries are removed before it is full again.
    assert_eq!(store(&mut shard, 100, key, Time::NEVER), Vec::<u32>::new());
}

#[test]
fn entry_overhead_is_what_the_documentation_says() {
    assert_eq!(Shard::<u64, u64>::ENTRY_BYTES - size_of::<(u64, u64)>(), 58 + 16);
    assert_eq!(size_of::<Spans>(), 16);
    let documentation = include_str!("../../lib.rs");
    assert!(documentation.contains("An entry costs 58 bytes in addition to its key and value, 16 more"));
    let documented = |policy: &&Policy| documentation.contains(&format!("| `{}` | ", policy.name));
    assert!(POLICIES.iter().filter(documented).count() >= 4);
    for policy in POLICIES.iter().filter(documented) {
        let row = format!("| `{}` | {} | ", policy.name, policy.entry_bytes);
        assert!(documentation.contains(&row), "lib.rs lacks: {row}");
    }
}

#[test]
fn memory_of_removed_entries_is_released() {
    let mut shard: Shard<u32, u32> = Shard::new(
        &FixedState::with_seed(1),
        Some(&Limit { policy: Policy::LRW, ..Limit::bytes(1) }),
        0,
        false,
        None,
    );
    shard.ceiling = LimitBounds::new(usize::MAX, 0.0);
    let insert = |shard: &mut Shard<u32, u32>, key| {
        shard.insert(new_plain(key, &until(Time::NEVER), 1), at(0), &mut RemovedEntries::new());
    };
    for key in 0..100_000 {
        insert(&mut shard, key);
    }
    // 100 insertions for every 1,000 evictions.
    for key in 100_000..109_900 {
        if key % 100 == 0 {
            (0..1_000).for_each(|_| assert!(shard.evict().is_some()));
        }
        insert(&mut shard, key);
    }
    assert_eq!(shard.len(), 10_900);
    (0..10_000).for_each(|_| assert!(shard.evict().is_some()));
    // The last ones took the lowest vacant slots.
    assert_eq!(shard.entries.len(), 9_900);
    assert!(shard.entries.capacity() <= 4 * 9_900 && shard.index.capacity() <= 4 * 9_900);
    assert!(shard.vacant.len() <= 9_900, "{} slots are listed", shard.vacant.len());
    assert!((109_000..109_900).all(|key| shard.find(u64::from(key), &key).is_some()));
}
