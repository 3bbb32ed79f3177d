//! Invalidations of entries, by key, tag and function.

use std::{
    borrow::Borrow,
    hash::Hash,
    sync::{
        Arc, Weak,
        atomic::Ordering::{AcqRel, Relaxed, Release},
    },
};

use stockade_model::time::{Time, yield_now};

use super::{
    LockedShard, Store,
    removal::RemovedEntries,
    shard::{CarriedOut, INVALIDATIONS_MAX, InvalidationFilter, Shard},
};
use crate::{
    invalidation::{Invalidation, KeptKeys, TargetHash},
    sharded::shorten,
};

/// Slots that an invalidation of many entries examines before it returns. A task examines the others.
pub(crate) const EXAMINED_AT_ONCE: usize = 4_096;
/// How often a value is examined that is written meanwhile. Then it is invalidated whatever it is.
const PASSES_MAX: usize = 8;

/// The right to carry out pending invalidations in a task. It ends with the task, also if a runtime drops that.
pub(crate) struct CarryingOut<K, V>(Weak<Store<K, V>>);

impl<K: Hash + Eq + Clone, V: Clone> CarryingOut<K, V> {
    /// Carries out all that are pending, a few entries at a time.
    pub(crate) async fn run(mut self) {
        loop {
            while self.0.upgrade().is_some_and(|store| store.carry_out(1)) {
                yield_now().await;
            }
            let Some(store) = self.0.upgrade() else { return };
            drop(self);
            // One that began meanwhile may have relied on this task.
            match store.carry_out(1).then(|| store.begin_carrying_out()).flatten() {
                Some(again) => self = again,
                None => return,
            }
        }
    }
}

impl<K, V> Drop for CarryingOut<K, V> {
    fn drop(&mut self) {
        if let Some(store) = self.0.upgrade() {
            store.is_carrying_out.store(false, Release);
        }
    }
}

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
        self.ghosts.invalidate(&[shorten(hash)], how, now);
        self.invalidated.fetch_add(u64::from(was_there), Relaxed);
        self.write_journal(TargetHash::Key(hash));
    }

    /// Invalidates the entries with a tag. Returns their number.
    pub(crate) fn invalidate_tag(&self, tag: &str, how: Invalidation, now: Time) -> usize {
        let Some(tagging) = &self.tagging else { return 0 };
        let hash = tagging.hash(tag);
        self.invalidations.record(TargetHash::Tag(hash));
        let count = self.invalidate_matching(InvalidationFilter::Tag(hash), how, now);
        self.write_journal(TargetHash::Tag(hash));
        count
    }

    /// Invalidates all entries. Returns their number. [`carry_out`](Self::carry_out) has to follow, as after
    /// [`invalidate_tag`](Self::invalidate_tag).
    pub(crate) fn invalidate_all(&self, how: Invalidation, now: Time) -> usize {
        self.invalidations.record(TargetHash::All);
        let count = self.invalidate_matching(InvalidationFilter::All, how, now);
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
        self.note_ends(how);
        self.invalidations.record(TargetHash::All);
        let (mut invalidated, mut rewritten) = (0, 0);
        for part in self.parts.iter() {
            let mut after = None;
            loop {
                let mut gone = RemovedEntries::new();
                let (mut copies, last) = part.shard.read().copy_slice(after);
                let mut hashes = Vec::new();
                for _ in 0..PASSES_MAX {
                    copies.retain(|copy| matches(&copy.key, &copy.value));
                    if copies.is_empty() {
                        break;
                    }
                    let seen: Vec<_> = copies.iter().map(|copy| (copy.slot, copy.version)).collect();
                    // A value that has replaced one that matched is examined, too.
                    let mut shard = part.shard.write();
                    let changed = shard.invalidate_versions(&seen, how, now, &mut gone, &mut hashes);
                    copies = shard.copy_slots(changed);
                }
                // Written faster than they are examined.
                rewritten += copies.iter().filter(|copy| self.invalidate(&copy.key, how, now)).count();
                self.drop_outside(gone);
                self.ghosts.invalidate(&hashes, how, now);
                invalidated += hashes.len();
                if last.is_none() {
                    break;
                }
                after = last;
            }
        }
        self.invalidated.fetch_add(invalidated as u64, Relaxed);
        self.write_journal(TargetHash::All);
        invalidated + rewritten
    }

    fn invalidate_matching(&self, filter: InvalidationFilter, how: Invalidation, now: Time) -> usize {
        self.note_ends(how);
        let mut count = 0;
        for part in self.parts.iter() {
            let mut shard = part.shard.write();
            count += shard.begin_invalidation(filter, how, now);
            let (mut gone, mut hashes) = (RemovedEntries::new(), Vec::new());
            // Under the same lock: in between, what is stored could not be told from what is invalidated.
            while shard.is_old()
                && let Some(some) = shard.carry_out(&mut gone)
            {
                hashes.extend(some.hashes);
            }
            let pending = shard.pending_invalidations();
            drop(shard);
            self.drop_outside(gone);
            self.ghosts.invalidate(&hashes, how, now);
            while pending > INVALIDATIONS_MAX && self.carry_out_some(part).is_some() {}
        }
        self.invalidated.fetch_add(count as u64, Relaxed);
        count
    }

    /// Carries out pending invalidations until `most` slots have been examined. Returns true if there may be more.
    pub(crate) fn carry_out(&self, most: usize) -> bool {
        let mut examined = 0;
        for part in self.parts.iter() {
            while let Some(some) = self.carry_out_some(part) {
                examined += some;
                if examined >= most {
                    return true;
                }
            }
        }
        false
    }

    /// `None`: another task carries invalidations out.
    pub(crate) fn begin_carrying_out(self: &Arc<Self>) -> Option<CarryingOut<K, V>> {
        let is_first = !self.is_carrying_out.swap(true, AcqRel);
        is_first.then(|| CarryingOut(Arc::downgrade(self)))
    }

    /// One step. Returns the number of slots that it examined; `None`: nothing is pending.
    fn carry_out_some(&self, part: &LockedShard<K, V>) -> Option<usize> {
        // Mostly nothing is, and a shared lock is enough to see that.
        if part.shard.read().pending_invalidations() == 0 {
            return None;
        }
        let mut gone = RemovedEntries::new();
        let CarriedOut { examined, hashes, how, at } = part.shard.write().carry_out(&mut gone)?;
        self.drop_outside(gone);
        self.ghosts.invalidate(&hashes, how, at);
        Some(examined)
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
