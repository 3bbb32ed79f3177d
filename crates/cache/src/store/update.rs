//! Stores and removals on the condition that a key is as it was observed.

use std::{borrow::Borrow, hash::Hash};

use stockade_model::time::Time;

use super::{
    NewValue, Store, StorePermit, StoredValue,
    insert::Precedence,
    shard::{EntryStamp, Shard},
};
use crate::{
    freshness::Lifetime,
    invalidation::{Invalidation, InvalidationSeq},
};

/// A key as it was observed by a request.
pub(crate) struct ObservedKey<V> {
    pub(crate) fresh: Option<(StoredValue<V>, Lifetime)>,
    pub(crate) stamp: EntryStamp,
    pub(crate) since: InvalidationSeq,
}

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    /// Looks a key up for a change of its value.
    pub(crate) fn observe<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Time) -> ObservedKey<V>
    where
        K: Borrow<Q>,
    {
        // Before the lookup: an invalidation that comes later has a later number, or changes the entry.
        let since = self.invalidation_seq();
        self.read(key, |shard, hash| {
            let fresh = shard.get_with_life(hash, key, now);
            let fresh = fresh.map(|(value, life)| (StoredValue::new(value, &life, now), life));
            ObservedKey { fresh, stamp: shard.stamp(hash, key), since }
        })
    }

    /// As [`write_value`](Self::write_value), if the key is as it was observed; `None`: it is not.
    pub(crate) fn replace(
        &self,
        observed: &ObservedKey<V>,
        new: NewValue<K, V>,
        life: &Lifetime,
        permit: StorePermit,
        now: Time,
    ) -> Option<bool> {
        let mut has_loads = false;
        let stored = self.insert_if(new, life, Precedence::Later, permit, now, |shard, key, hash, tags| {
            let is_unchanged = self.is_unchanged(shard, observed, key, hash, tags);
            if is_unchanged {
                has_loads = self.reject_loads(shard, hash);
            }
            is_unchanged
        });
        stored.is_ok().then_some(has_loads)
    }

    /// Removes the entry of a key, if the key is as it was observed. Returns false if it is not.
    pub(crate) fn remove_if_unchanged<Q: Hash + Eq + ?Sized>(
        &self,
        observed: &ObservedKey<V>,
        key: &Q,
        now: Time,
    ) -> bool
    where
        K: Borrow<Q>,
    {
        let hash = self.parts.hash(key);
        let mut shard = self.parts.part(hash).shard.write();
        if !self.is_unchanged(&shard, observed, key, hash, &[]) {
            return false;
        }
        self.reject_loads(&mut shard, hash);
        let gone = shard.remove(hash, key);
        drop(shard);
        let was_there = gone.is_some() && observed.stamp.is_stored();
        let gone = gone.into_iter().collect();
        self.end_invalidation(hash, was_there, gone, Invalidation::Hard, now);
        true
    }

    /// `tags` are those of the new value. An entry that was evicted meanwhile has not changed: the room for its successor may have cost it.
    fn is_unchanged<Q: Eq + ?Sized>(
        &self,
        shard: &Shard<K, V>,
        observed: &ObservedKey<V>,
        key: &Q,
        hash: u64,
        tags: &[u64],
    ) -> bool
    where
        K: Borrow<Q>,
    {
        let stamp = shard.stamp(hash, key);
        let is_evicted = || stamp.is_evicted(&observed.stamp) && self.invalidation_seq() == observed.since;
        (stamp.is_same_entry(&observed.stamp) || is_evicted()) && !self.is_outdated_now(observed.since, tags)
    }
}
