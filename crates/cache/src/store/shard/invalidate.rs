//! The effect of an invalidation on the entries of a shard.

use std::{borrow::Borrow, hash::Hash, num::NonZeroU32};

use stockade_model::time::Time;

use super::{Entry, InvalidationFilter, Shard, pending, pending::CarriedOut};
use crate::{
    freshness::Lifetime,
    invalidation::Invalidation,
    policy::Slot,
    store::{
        removal::{RemovalReason, RemovedEntries},
        tags::TagIndex,
    },
};

/// Entries that one step of an invalidation examines.
const INVALIDATION_SLICE: usize = 32;

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
        let stored = self.find(hash, key).filter(|(slot, entry)| !self.is_removed(*slot, entry));
        let slot = stored.map(|(slot, _)| slot);
        slot.is_some_and(|slot| self.invalidate_slot(slot, how, now, true, gone))
    }

    /// Invalidates the entries that match, in constant time but for the count of those with a tag. Returns their number.
    /// [`carry_out`](Self::carry_out) removes or changes them later.
    pub(crate) fn begin_invalidation(
        &mut self,
        filter: InvalidationFilter,
        how: Invalidation,
        now: Time,
    ) -> usize {
        let count = match filter {
            InvalidationFilter::All => self.len(),
            InvalidationFilter::Tag(tag) => self.tags.as_ref().map_or(0, |tags| tags.count(tag)),
        };
        if count == 0 {
            return 0;
        }
        // An update that has seen a value must not take it for evicted.
        self.removals += 1;
        let mut removed = None;
        if filter == InvalidationFilter::All {
            // Loads that failed may succeed after the change.
            self.refills.lift_throttles();
            let is_removal = how == Invalidation::Hard || self.spans.is_empty();
            removed = is_removal.then_some(self.used_slots());
        }
        self.pending.begin(filter, how, now, self.stores, removed);
        self.invalidated_through = self.pending.through();
        count
    }

    /// Removes or changes some entries of the oldest pending invalidation. `None`: no invalidation is pending.
    pub(crate) fn carry_out(&mut self, gone: &mut RemovedEntries<K, V>) -> Option<CarriedOut> {
        let pending = *self.pending.first()?;
        let slots: Vec<Slot> = match pending.filter {
            InvalidationFilter::Tag(tag) => {
                let tagged = |tags: &TagIndex| tags.slots(tag, pending.done, INVALIDATION_SLICE);
                self.tags.as_ref().map(tagged).unwrap_or_default()
            }
            InvalidationFilter::All => self.slice(pending.done).collect(),
        };
        let (examined, last) = (slots.len(), slots.last().copied());
        let is_older = |slot: &Slot| {
            let entry = self.entries.get(*slot as usize).and_then(Option::as_ref);
            entry.is_some_and(|entry| entry.version <= pending.through)
        };
        let slots = slots.into_iter().filter(is_older).collect();
        let is_all = pending.filter == InvalidationFilter::All;
        let mut hashes = self.invalidate_slots(slots, pending.how, pending.at, !is_all, gone);
        if is_all {
            hashes.clear();
        }
        self.pending.proceed(last);
        self.invalidated_through = self.pending.through();
        Some(CarriedOut { examined, hashes, how: pending.how, at: pending.at })
    }

    /// The number of invalidations that are not carried out yet.
    pub(crate) fn pending_invalidations(&self) -> usize {
        self.pending.count()
    }

    /// True if the numbers of versions may soon begin again, so that pending invalidations have to be carried out at once.
    pub(crate) fn is_old(&self) -> bool {
        pending::is_old(self.stores)
    }

    /// The lifetime of an entry after the pending invalidations.
    #[cold]
    pub(super) fn invalidated_life(&self, slot: Slot, version: NonZeroU32, life: Lifetime) -> Lifetime {
        self.pending.life(version, life, |tag| self.has_tag(slot, tag))
    }

    /// True if a pending invalidation by tag concerns the entry. Those of all have lifted its throttle.
    pub(super) fn is_tag_invalidated(&self, slot: Slot, entry: &Entry<K, V>) -> bool {
        entry.version.get() <= self.invalidated_through
            && self.pending.concerns_by_tag(entry.version, |tag| self.has_tag(slot, tag))
    }

    fn has_tag(&self, slot: Slot, tag: u64) -> bool {
        self.tags.as_ref().is_some_and(|tags| tags.has(slot, tag))
    }

    /// True if a pending invalidation removes the entry.
    pub(super) fn is_removed(&self, slot: Slot, entry: &Entry<K, V>) -> bool {
        entry.version.get() <= self.invalidated_through && self.life(slot, entry).is_removed()
    }

    /// Copies of some entries after a slot, and the slot to continue from; `None`: these were the last ones.
    pub(crate) fn copy_slice(&self, after: Option<Slot>) -> (Vec<SeenEntry<K, V>>, Option<Slot>) {
        (self.copy_slots(self.slice(after)), self.slice(after).last())
    }

    /// Copies of the entries in these slots.
    pub(crate) fn copy_slots(&self, slots: impl IntoIterator<Item = Slot>) -> Vec<SeenEntry<K, V>> {
        let copy = |slot: Slot| {
            let entry = self.entries.get(slot as usize)?.as_ref()?;
            let Entry { key, value, version, .. } = entry;
            (!self.is_removed(slot, entry)).then(|| SeenEntry {
                slot,
                version: *version,
                key: key.clone(),
                value: value.clone(),
            })
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
        let is_same = |&(slot, version): &(Slot, NonZeroU32)| {
            let entry = self.entries.get(slot as usize).and_then(Option::as_ref);
            entry.is_some_and(|entry| entry.version == version && !self.is_removed(slot, entry))
        };
        let (same, changed): (Vec<_>, Vec<_>) = seen.iter().partition(|seen| is_same(seen));
        let slots = |seen: Vec<(Slot, NonZeroU32)>| seen.into_iter().map(|(slot, _)| slot).collect();
        invalidated.extend(self.invalidate_slots(slots(same), how, now, true, gone));
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
        lifts_throttle: bool,
        gone: &mut RemovedEntries<K, V>,
    ) -> Vec<u32> {
        let mut invalidated = Vec::new();
        for slot in slots {
            let entry = self.entries.get(slot as usize).and_then(Option::as_ref);
            if let Some(hash) = entry.map(|entry| entry.short_hash)
                && self.invalidate_slot(slot, how, now, lifts_throttle, gone)
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
        lifts_throttle: bool,
        gone: &mut RemovedEntries<K, V>,
    ) -> bool {
        let Some(Some(entry)) = self.entries.get(slot as usize) else { return false };
        let Some(life) = self.life(slot, entry).after_invalidation(how, now) else {
            // An update that has seen the value must not take it for evicted.
            self.removals += 1;
            gone.extend(self.remove_slot(slot, RemovalReason::Invalidated));
            return true;
        };
        if lifts_throttle {
            // A load that failed may succeed after the change.
            self.refills.lift_throttle(&entry.key);
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
        if self.is_removed(slot, entry) {
            return false;
        }
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
