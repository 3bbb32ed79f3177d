//! The change from one policy to another while the entries stay.
//!
//! Each store moves a few entries from the old policy to the new one, in the old one's order, and with their hits. An
//! entry that was stored since belongs to the new one at once. Evictions are the old policy's until it has no entry left.

use std::iter;

use super::{
    PolicyInstance,
    eviction::{Listed, PolicyData, PolicyEntries, Slot},
};

/// Entries that one store moves. A change of a shard with 16,384 entries takes 512 stores.
const MOVED_AT_ONCE: usize = 32;
/// Hits that the new policy learns of, at most.
const HITS_MAX: u32 = 16;

#[derive(Debug)]
pub(crate) struct Switch {
    old: PolicyInstance,
    new: PolicyInstance,
    /// The entries of the new policy.
    moved: SlotSet,
}

impl Switch {
    pub(super) fn new(old: PolicyInstance, new: PolicyInstance) -> Self {
        Self { old, new, moved: SlotSet::default() }
    }

    pub(super) fn target(&self) -> &PolicyInstance {
        &self.new
    }

    /// Moves entries. Returns false if there are no more.
    fn advance(&mut self, entries: &mut impl PolicyEntries) -> bool {
        for _ in 0..MOVED_AT_ONCE {
            let Some((slot, hits)) = self.old.take_next(entries) else { return false };
            *entries.data(slot) = PolicyData::default();
            self.moved.add(slot);
            self.new.on_insert(entries, slot);
            for _ in 0..hits.min(HITS_MAX) {
                self.new.on_hit(slot, entries.data(slot));
            }
        }
        true
    }

    /// Moves all entries.
    pub(super) fn finish(mut self, entries: &mut impl PolicyEntries) -> PolicyInstance {
        while self.advance(entries) {}
        self.new
    }

    /// Returns true if the change has ended.
    #[inline(never)]
    pub(super) fn on_insert(&mut self, entries: &mut impl PolicyEntries, slot: Slot) -> bool {
        self.moved.add(slot);
        self.new.on_insert(entries, slot);
        !self.advance(entries)
    }

    pub(super) fn into_new(self) -> PolicyInstance {
        self.new
    }

    #[inline(never)]
    pub(super) fn on_remove(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        let policy = if self.moved.remove(slot) { &mut self.new } else { &mut self.old };
        policy.on_remove(entries, slot);
    }

    #[inline(never)]
    pub(super) fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        self.old.evict(entries).or_else(|| {
            let slot = self.new.evict(entries)?;
            self.moved.remove(slot);
            Some(slot)
        })
    }

    #[inline(never)]
    pub(super) fn on_hit(&self, slot: Slot, data: &PolicyData) {
        let policy = if self.moved.has(slot) { &self.new } else { &self.old };
        policy.on_hit(slot, data);
    }

    #[inline(never)]
    pub(super) fn on_update(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        let policy = if self.moved.has(slot) { &mut self.new } else { &mut self.old };
        policy.on_update(entries, slot);
    }

    pub(super) fn take_next(&mut self, entries: &mut impl PolicyEntries) -> Option<(Slot, u32)> {
        self.old.take_next(entries).or_else(|| {
            let next = self.new.take_next(entries)?;
            self.moved.remove(next.0);
            Some(next)
        })
    }
}

impl Switch {
    /// Entries that have not moved yet come first.
    pub(super) fn list(&self, entries: &impl PolicyEntries, list: &mut Vec<Listed>) {
        for policy in [&self.old, &self.new] {
            let mut part = Vec::new();
            policy.list(entries, &mut part);
            part.sort_unstable_by_key(|listed| listed.rank);
            let ranked = part.into_iter().zip(list.len() as u64..);
            list.extend(ranked.map(|(listed, rank)| Listed { rank: (rank, 0), ..listed }));
        }
    }
}

/// One bit for each slot.
#[derive(Debug, Default)]
struct SlotSet(Vec<u64>);

impl SlotSet {
    fn has(&self, slot: Slot) -> bool {
        self.0.get(slot as usize / 64).is_some_and(|word| word & (1 << (slot % 64)) != 0)
    }

    fn add(&mut self, slot: Slot) {
        let word = slot as usize / 64;
        if word >= self.0.len() {
            self.0.extend(iter::repeat_n(0, word + 1 - self.0.len()));
        }
        self.0[word] |= 1 << (slot % 64);
    }

    /// Returns true if it was there.
    fn remove(&mut self, slot: Slot) -> bool {
        let was_there = self.has(slot);
        if was_there {
            self.0[slot as usize / 64] &= !(1 << (slot % 64));
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{
        POLICIES, Policy,
        tests::{Cache, Request, requests},
    };

    fn policy() -> impl Strategy<Value = &'static Policy> {
        (0..POLICIES.len())
            .prop_map(|number| &POLICIES[number])
            .prop_filter("no change", |policy| !policy.is_auto())
    }

    proptest! {
        #[test]
        fn changes_keep_all_entries(
            phases in prop::collection::vec((policy(), requests()), 1..5),
            entries_max in 1..200_usize,
        ) {
            let mut cache = Cache::new(Policy::SIEVE, entries_max);
            for (policy, requests) in phases {
                let before = cache.contents();
                cache.switch_to(policy);
                prop_assert_eq!(cache.contents(), before);
                requests.into_iter().for_each(|request| _ = cache.request(request));
            }
            let stored = cache.contents();
            let mut evicted = cache.evict_all();
            evicted.sort_unstable();
            prop_assert_eq!(evicted, stored);
        }
    }

    /// The 64 stored keys in the order in which they are evicted after the change, and after 20 stores that move them.
    fn order_after(old: &'static Policy, new: &'static Policy, hits: &[u64]) -> Vec<u64> {
        let mut cache = Cache::new(old, 84);
        (0..64).for_each(|key| _ = cache.request(Request::Get(key)));
        hits.iter().for_each(|key| _ = cache.request(Request::Get(*key)));
        cache.switch_to(new);
        (64..84).for_each(|key| _ = cache.request(Request::Get(key)));
        assert_eq!(cache.policy(), new);
        cache.evict_all()
    }

    #[test]
    fn list_during_a_change_has_the_entries_that_have_not_moved_first() {
        let mut cache = Cache::new(Policy::LRU, 84);
        (0..64).for_each(|key| _ = cache.request(Request::Get(key)));
        cache.switch_to(Policy::LRW);
        assert_eq!(cache.listed(), (0..64).collect::<Vec<_>>());
        // One store moves the 32 oldest.
        cache.request(Request::Get(64));
        assert_eq!(cache.listed(), (32..64).chain([64]).chain(0..32).collect::<Vec<_>>());
    }

    #[test]
    fn order_and_hits_survive_a_change() {
        let hot = [0, 1, 2, 3];
        for old in [Policy::SIEVE, Policy::S3_FIFO, Policy::LFU, Policy::GDSF] {
            for new in [Policy::SIEVE, Policy::LFU] {
                let order = order_after(old, new, &hot);
                let first = order.iter().take(60);
                let kept = first.filter(|key| hot.contains(key)).count();
                assert_eq!(kept, 0, "{} to {}: {order:?}", old.name, new.name);
            }
        }
        let by_recency = order_after(Policy::LRU, Policy::LRW, &hot);
        let old: Vec<u64> = by_recency.into_iter().filter(|key| *key < 64).collect();
        assert_eq!(old, (4..64).chain(hot).collect::<Vec<_>>());
    }
}
