//! The effect of an invalidation on the entries of a shard.

use std::{borrow::Borrow, hash::Hash, num::NonZeroU32};

use stockade_model::time::Time;

use super::{Entry, Shard};
use crate::{
    freshness::Lifetime,
    store::{
        invalidation::Invalidation,
        policy::Slot,
        removal::{RemovalReason, RemovedEntries},
        tags::TagIndex,
    },
};

/// Entries that one step of an invalidation examines.
const INVALIDATION_SLICE: usize = 128;

pub(crate) enum InvalidationFilter {
    All,
    /// Entries with a tag of this hash.
    Tag(u64),
}

/// An entry as it was when a caller's function looked at it.
pub(crate) struct SeenEntry<K, V> {
    pub(crate) slot: Slot,
    pub(crate) version: NonZeroU32,
    pub(crate) key: K,
    pub(crate) value: V,
}

impl<K: Hash + Eq + Clone, V: Clone> Shard<K, V> {
    /// Invalidates the entry of a key. Returns true if there was one.
    pub(crate) fn invalidate<Q: Eq + ?Sized>(
        &mut self,
        hash: u64,
        key: &Q,
        how: Invalidation,
        now: Time,
        gone: &mut RemovedEntries<K, V>,
    ) -> bool
    where
        K: Borrow<Q>,
    {
        let slot = self.find(hash, key).map(|(slot, _)| slot);
        slot.is_some_and(|slot| self.invalidate_slot(slot, how, now, gone))
    }

    /// Invalidates some of the matching entries after a slot. Returns the kept bits of their hashes, and the slot to
    /// continue from; `None`: this was the last step.
    pub(crate) fn invalidate_some(
        &mut self,
        filter: &InvalidationFilter,
        how: Invalidation,
        after: Option<Slot>,
        now: Time,
        gone: &mut RemovedEntries<K, V>,
    ) -> (Vec<u32>, Option<Slot>) {
        let slots: Vec<Slot> = match filter {
            &InvalidationFilter::Tag(tag) => {
                let tagged = |tags: &TagIndex| tags.slots(tag, after, INVALIDATION_SLICE);
                self.tags.as_ref().map(tagged).unwrap_or_default()
            }
            InvalidationFilter::All => self.slice(after).collect(),
        };
        let last = slots.last().copied();
        (self.invalidate_slots(slots, how, now, gone), last)
    }

    /// Copies of some entries after a slot, and the slot to continue from; `None`: these were the last ones.
    pub(crate) fn copy_slice(&self, after: Option<Slot>) -> (Vec<SeenEntry<K, V>>, Option<Slot>) {
        (self.copy_slots(self.slice(after)), self.slice(after).last())
    }

    /// Copies of the entries in these slots.
    pub(crate) fn copy_slots(&self, slots: impl IntoIterator<Item = Slot>) -> Vec<SeenEntry<K, V>> {
        let copy = |slot: Slot| {
            let Entry { key, value, version, .. } = self.entries.get(slot as usize)?.as_ref()?;
            Some(SeenEntry { slot, version: *version, key: key.clone(), value: value.clone() })
        };
        slots.into_iter().filter_map(copy).collect()
    }

    /// Invalidates the entries in these slots that are still of these versions, and adds the kept bits of their hashes. Returns the
    /// slots of the others.
    pub(crate) fn invalidate_versions(
        &mut self,
        seen: &[(Slot, NonZeroU32)],
        how: Invalidation,
        now: Time,
        gone: &mut RemovedEntries<K, V>,
        invalidated: &mut Vec<u32>,
    ) -> Vec<Slot> {
        let is_same = |&(slot, version): &(Slot, NonZeroU32)| matches!(self.entries.get(slot as usize), Some(Some(entry)) if entry.version == version);
        let (same, changed): (Vec<_>, Vec<_>) = seen.iter().partition(|seen| is_same(seen));
        let slots = |seen: Vec<(Slot, NonZeroU32)>| seen.into_iter().map(|(slot, _)| slot).collect();
        invalidated.extend(self.invalidate_slots(slots(same), how, now, gone));
        slots(changed)
    }

    /// The slots that one step examines.
    fn slice(&self, after: Option<Slot>) -> impl Iterator<Item = Slot> + use<K, V> {
        let end = Slot::try_from(self.entries.len()).expect("memory ends before the numbers do");
        (after.map_or(0, |slot| slot + 1)..end).take(INVALIDATION_SLICE)
    }

    fn invalidate_slots(
        &mut self,
        slots: Vec<Slot>,
        how: Invalidation,
        now: Time,
        gone: &mut RemovedEntries<K, V>,
    ) -> Vec<u32> {
        let mut invalidated = Vec::new();
        for slot in slots {
            let entry = self.entries.get(slot as usize).and_then(Option::as_ref);
            if let Some(hash) = entry.map(|entry| entry.short_hash)
                && self.invalidate_slot(slot, how, now, gone)
            {
                invalidated.push(hash);
            }
        }
        invalidated
    }

    fn invalidate_slot(
        &mut self,
        slot: Slot,
        how: Invalidation,
        now: Time,
        gone: &mut RemovedEntries<K, V>,
    ) -> bool {
        let Some(Some(entry)) = self.entries.get(slot as usize) else { return false };
        let mut life = self.life(slot, entry);
        let is_of_use = !life.is_negative()
            && match how {
                Invalidation::Soft => life.is_kept_after_expiry(),
                Invalidation::Fallback => life.has_fallback(),
                Invalidation::Hard => false,
            };
        if !is_of_use {
            // An update that has seen the value must not take it for evicted.
            self.removals += 1;
            gone.extend(self.remove_slot(slot, RemovalReason::Invalidated));
            return true;
        }
        // A load that failed may succeed after the change.
        self.refills.lift_throttle(&entry.key);
        match how {
            Invalidation::Fallback => life.restrict_to_fallback(now),
            _ => life.expire(now),
        }
        self.set_life(slot, &life);
        true
    }

    /// From now on the value of a key is served only if a load fails. False: nothing is stored.
    pub(crate) fn restrict_to_fallback<Q: Eq + ?Sized>(&mut self, hash: u64, key: &Q, now: Time) -> bool
    where
        K: Borrow<Q>,
    {
        let Some((slot, entry)) = self.find(hash, key) else { return false };
        let mut life = self.life(slot, entry);
        life.restrict_to_fallback(now);
        self.set_life(slot, &life);
        true
    }

    fn set_life(&mut self, slot: Slot, life: &Lifetime) {
        self.sweep.register(life.kept_until());
        self.spans.set(slot, life.spans);
        if let Some(entry) = &mut self.entries[slot as usize] {
            (entry.due, entry.expires) = (life.due, life.expires);
        }
    }
}
