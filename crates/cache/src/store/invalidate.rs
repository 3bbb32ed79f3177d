//! Invalidations of entries, by key, tag and function.

use std::{borrow::Borrow, cell::Cell, hash::Hash, sync::atomic::Ordering::Relaxed};

use stockade_model::time::Time;

use super::{
    Store,
    invalidation::{Invalidation, KeptKeys, TargetHash},
    policy::Slot,
    removal::RemovedEntries,
    shard::{self, InvalidationFilter, Shard},
};
use crate::locks::SharedLock;

/// How often a value is examined that is written meanwhile. Then it is invalidated whatever it is.
const PASSES_MAX: usize = 8;

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    /// Rejects the values of loads of a key that are in progress, and of snapshots that are being read. Returns true if there are such
    /// loads.
    #[inline]
    pub(super) fn reject_loads(&self, shard: &mut Shard<K, V>, hash: u64) -> bool {
        self.invalidations.note_key(hash);
        shard.loading.reject(hash)
    }

    /// Invalidates the entry of a key. Returns true if there was one.
    pub(crate) fn invalidate<Q: Hash + Eq + ?Sized>(&self, key: &Q, how: Invalidation, now: Time) -> bool
    where
        K: Borrow<Q>,
    {
        self.note_ends(how);
        let hash = self.parts.hash(key);
        let mut gone = RemovedEntries::new();
        let mut shard = self.parts.part(hash).shard.write();
        self.reject_loads(&mut shard, hash);
        let was_there = shard.invalidate(hash, key, how, now, &mut gone);
        drop(shard);
        self.end_invalidation(hash, was_there, gone, how, now);
        was_there
    }

    /// From now on the value of a key is served only if a load fails. False: nothing is stored.
    pub(crate) fn restrict_to_fallback(&self, key: &K, now: Time) -> bool {
        self.note_ends(Invalidation::Fallback);
        self.write(key, |shard, hash| shard.restrict_to_fallback(hash, key, now))
    }

    /// After the entry of a key was invalidated, and the lock was released.
    pub(super) fn end_invalidation(
        &self,
        hash: u64,
        was_there: bool,
        gone: RemovedEntries<K, V>,
        how: Invalidation,
        now: Time,
    ) {
        self.drop_outside(gone);
        self.ghosts.invalidate(&[shard::shorten(hash)], how, now);
        self.invalidated.fetch_add(u64::from(was_there), Relaxed);
        self.write_journal(TargetHash::Key(hash));
    }

    /// Invalidates the entries with a tag. Returns their number.
    pub(crate) fn invalidate_tag(&self, tag: &str, how: Invalidation, now: Time) -> usize {
        let Some(tagging) = &self.tagging else { return 0 };
        let hash = tagging.hash(tag);
        self.invalidations.record(TargetHash::Tag(hash));
        let count = self.invalidate_matching(&InvalidationFilter::Tag(hash), how, now);
        self.write_journal(TargetHash::Tag(hash));
        count
    }

    /// Invalidates all entries. Returns their number.
    pub(crate) fn invalidate_all(&self, how: Invalidation, now: Time) -> usize {
        self.invalidations.record(TargetHash::All);
        let count = self.invalidate_matching(&InvalidationFilter::All, how, now);
        self.write_journal(TargetHash::All);
        count
    }

    /// Invalidates the entries that match. Returns their number. Loads in flight have no value yet, so all of those are rejected.
    /// No lock is held while `matches` runs.
    pub(crate) fn invalidate_if(
        &self,
        matches: impl Fn(&K, &V) -> bool,
        how: Invalidation,
        now: Time,
    ) -> usize {
        self.invalidations.record(TargetHash::All);
        let rewritten = Cell::new(0);
        let step = |part: &SharedLock<Shard<K, V>>, after, gone: &mut RemovedEntries<K, V>| {
            let (mut copies, last) = part.read().copy_slice(after);
            let mut invalidated = Vec::new();
            for _ in 0..PASSES_MAX {
                copies.retain(|copy| matches(&copy.key, &copy.value));
                if copies.is_empty() {
                    return (invalidated, last);
                }
                let seen: Vec<_> = copies.iter().map(|copy| (copy.slot, copy.version)).collect();
                // A value that has replaced one that matched is examined, too.
                let changed = part.write().invalidate_versions(&seen, how, now, gone, &mut invalidated);
                copies = part.read().copy_slots(changed);
            }
            // Written faster than they are examined.
            let keys = copies.iter().filter(|copy| self.invalidate(&copy.key, how, now));
            rewritten.set(rewritten.get() + keys.count());
            (invalidated, last)
        };
        let count = self.invalidate_slices(step, how, now) + rewritten.get();
        self.write_journal(TargetHash::All);
        count
    }

    fn invalidate_matching(&self, filter: &InvalidationFilter, how: Invalidation, now: Time) -> usize {
        self.invalidate_slices(
            |part, after, gone| part.write().invalidate_some(filter, how, after, now, gone),
            how,
            now,
        )
    }

    /// In steps, so that no lock is held for long. A step returns the kept bits of the hashes that it has invalidated, and the slot to
    /// continue from; `None`: it was the last one of its shard.
    fn invalidate_slices(
        &self,
        step: impl Fn(
            &SharedLock<Shard<K, V>>,
            Option<Slot>,
            &mut RemovedEntries<K, V>,
        ) -> (Vec<u32>, Option<Slot>),
        how: Invalidation,
        now: Time,
    ) -> usize {
        self.note_ends(how);
        let mut hit = 0;
        for part in self.parts.iter() {
            let mut after = None;
            loop {
                let mut gone = RemovedEntries::new();
                let (some, last) = step(&part.shard, after, &mut gone);
                self.drop_outside(gone);
                self.ghosts.invalidate(&some, how, now);
                hit += some.len();
                match last {
                    Some(_) => after = last,
                    None => break,
                }
            }
        }
        self.invalidated.fetch_add(hit as u64, Relaxed);
        hit
    }

    /// For a reader of values that have no [marks](super::load_mark).
    pub(crate) fn keep_invalidated_keys(&self) -> KeptKeys<'_> {
        self.invalidations.keep_keys()
    }

    /// Before values are made stale: from now on lookups need a clock.
    fn note_ends(&self, how: Invalidation) {
        if how != Invalidation::Hard && !self.has_end() {
            self.has_end.store(true, Relaxed);
        }
    }
}
