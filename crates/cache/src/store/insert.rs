//! Stores and replaces values: those of loads unless they are outdated, and those that callers write.

use std::{hash::Hash, sync::atomic::Ordering::Relaxed};

use stockade_model::time::Time;

use super::{
    NewValue, Store, StorePermit,
    load_mark::LoadMark,
    removal::RemovedEntries,
    shard::{NewEntry, Shard},
};
use crate::{freshness::Lifetime, invalidation::InvalidationSeq, shadow::StoredFacts};

/// The rule by which a new value replaces the stored one of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precedence {
    /// If it was loaded later, as the values of loads.
    Younger,
    /// Always, as the writes of callers.
    Later,
}

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    /// Stores a loaded value and ends its load, unless it was invalidated since its load started or a younger one is stored. Returns
    /// false if it is not stored.
    #[inline]
    pub(crate) fn insert(
        &self,
        new: NewValue<K, V>,
        life: &Lifetime,
        mut mark: LoadMark<K, V>,
        permit: StorePermit,
        now: Time,
    ) -> bool {
        let since = new.since;
        let is_current = |shard: &mut Shard<K, V>, _: &_, _, tags: &_| {
            mark.end(shard) && !self.is_outdated_now(since, tags)
        };
        self.insert_or_reject(new, life, permit, now, is_current)
    }

    /// As [`insert`](Self::insert), for a value of a snapshot, while [written keys are kept](Self::keep_invalidated_keys).
    pub(crate) fn restore(
        &self,
        new: NewValue<K, V>,
        life: &Lifetime,
        permit: StorePermit,
        now: Time,
    ) -> bool {
        let since = new.since;
        let is_current = |_: &mut _, _: &_, hash, tags: &_| {
            !self.invalidations.has_key(hash) && !self.is_outdated_now(since, tags)
        };
        self.insert_or_reject(new, life, permit, now, is_current)
    }

    #[inline]
    fn insert_or_reject(
        &self,
        new: NewValue<K, V>,
        life: &Lifetime,
        permit: StorePermit,
        now: Time,
        is_current: impl FnOnce(&mut Shard<K, V>, &K, u64, &[u64]) -> bool,
    ) -> bool {
        self.insert_if(new, life, Precedence::Younger, permit, now, is_current).unwrap_or_else(|hash| {
            self.reject_outdated(hash);
            false
        })
    }

    /// Stores a value that a caller has written: it follows all that was stored and invalidated before. Returns true if loads of its key
    /// are in progress.
    #[inline]
    pub(crate) fn write_value(
        &self,
        new: NewValue<K, V>,
        life: &Lifetime,
        permit: StorePermit,
        now: Time,
    ) -> bool {
        let mut has_loads = false;
        let wanted = |shard: &mut Shard<K, V>, _: &_, hash, _: &_| {
            has_loads = self.reject_loads(shard, hash);
            true
        };
        // Nothing refuses it.
        let _ = self.insert_if(new, life, Precedence::Later, permit, now, wanted);
        has_loads
    }

    /// Stores a value by its precedence; false: it is not stored. `is_wanted` is called under the lock with the key, its hash and the hashes
    /// of tags; if it returns false nothing is stored, and the hash is the error.
    #[inline]
    pub(super) fn insert_if(
        &self,
        new: NewValue<K, V>,
        life: &Lifetime,
        precedence: Precedence,
        permit: StorePermit,
        now: Time,
        is_wanted: impl FnOnce(&mut Shard<K, V>, &K, u64, &[u64]) -> bool,
    ) -> Result<bool, u64> {
        let NewValue { key, value, took, .. } = new;
        let weight = permit.weight;
        let hash = self.parts.hash(&key);
        let tags = self.tags(&key, &value);
        let tags = tags.as_deref().unwrap_or_default();
        if let Some(account) = &self.weight {
            self.reclaim(account, now);
        }
        if life.due != Time::NEVER && !self.has_end() {
            self.has_end.store(true, Relaxed);
        }
        let sampled = self.ghosts.may_sample(hash).then(|| {
            let is_marker = self.is_marker.as_ref().is_some_and(|is_marker| is_marker(&value));
            StoredFacts { life: *life, weight, is_marker }
        });
        let mut gone = RemovedEntries::new();
        let mut shard = self.parts.part(hash).shard.write();
        if !is_wanted(&mut shard, &key, hash, tags) {
            return Err(hash);
        }
        let new = NewEntry { hash, key, value, life, precedence, weight, tags };
        let is_stored = shard.insert(new, now, &mut gone);
        // Unlock before removed entries are dropped.
        drop(shard);
        if let Some(stored) = sampled {
            self.ghosts.stored(hash, now, stored, took);
        }
        if is_stored {
            permit.commit();
        } else {
            // The value took long to arrive, and a younger one is stored.
            self.outdated.fetch_add(1, Relaxed);
        }
        self.drop_outside(gone);
        Ok(is_stored)
    }

    /// Removes the stored value of the key of a written value that is not stored. Returns true if loads of the key are in progress.
    pub(crate) fn remove(&self, key: &K) -> bool {
        let hash = self.parts.hash(key);
        let mut shard = self.parts.part(hash).shard.write();
        let has_loads = self.reject_loads(&mut shard, hash);
        let gone = shard.remove(hash, key);
        drop(shard);
        self.ghosts.not_stored(hash);
        self.drop_outside(gone.into_iter().collect());
        has_loads
    }

    /// Removes the stored value of the key of a loaded value that is not stored, unless that one was invalidated since its load
    /// started: a newer answer must not be followed by an older one. Ends the load.
    pub(crate) fn remove_older(&self, new: &NewValue<K, V>, mut mark: LoadMark<K, V>, now: Time) {
        let NewValue { key, value, since, .. } = new;
        let hash = self.parts.hash(key);
        let tags = self.tags(key, value);
        if let Some(weight) = &self.weight {
            self.reclaim(weight, now);
        }
        let mut shard = self.parts.part(hash).shard.write();
        if !mark.end(&mut shard) || self.is_outdated_now(*since, tags.as_deref().unwrap_or_default()) {
            drop(shard);
            return self.reject_outdated(hash);
        }
        let gone = shard.remove(hash, key);
        drop(shard);
        self.ghosts.not_stored(hash);
        self.drop_outside(gone.into_iter().collect());
    }

    /// True if a value was invalidated since its load started. Under the lock of its shard: a later invalidation finds the
    /// value stored. (One function that locks and checks costs 25 instructions of each store.)
    #[inline]
    pub(super) fn is_outdated_now(&self, since: InvalidationSeq, tags: &[u64]) -> bool {
        let newest = self.invalidation_seq();
        newest > since && self.invalidations.is_outdated(since, newest, tags)
    }

    #[cold]
    fn reject_outdated(&self, hash: u64) {
        self.ghosts.not_stored(hash);
        self.outdated.fetch_add(1, Relaxed);
    }
}
