//! The effect of an invalidation on the entries of a shard.

use std::{borrow::Borrow, hash::Hash};

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

pub(crate) enum InvalidationFilter<'a, K> {
    /// Entries with a tag of this hash.
    Tag(u64),
    /// Entries of matching keys.
    Keys(&'a dyn Fn(&K) -> bool),
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
        filter: &InvalidationFilter<'_, K>,
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
            InvalidationFilter::Keys(_) => {
                let all = (after.map_or(0, |slot| slot + 1)..)
                    .take_while(|&slot| (slot as usize) < self.entries.len());
                all.take(INVALIDATION_SLICE).collect()
            }
        };
        let last = slots.last().copied();
        let matches = |entry: &Entry<K, V>| match filter {
            InvalidationFilter::Tag(_) => true,
            InvalidationFilter::Keys(matches) => matches(&entry.key),
        };
        let mut invalidated = Vec::new();
        for slot in slots {
            let entry =
                self.entries.get(slot as usize).and_then(Option::as_ref).filter(|entry| matches(entry));
            if let Some(hash) = entry.map(|entry| entry.short_hash)
                && self.invalidate_slot(slot, how, now, gone)
            {
                invalidated.push(hash);
            }
        }
        (invalidated, last)
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
                Invalidation::Soft => life.kept_until() > life.expires,
                Invalidation::Fallback => life.gone() > life.stale_from(),
                Invalidation::Hard => false,
            };
        if !is_of_use {
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
