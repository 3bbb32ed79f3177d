//! Invalidations of entries, by key, tag and function.

use std::{
    borrow::Borrow,
    hash::Hash,
    sync::atomic::Ordering::{AcqRel, Relaxed, Release},
};

use stockade_model::time::Time;

use super::{
    LockedShard, Store,
    invalidation::{Invalidation, KeptKeys, TargetHash},
    removal::RemovedEntries,
    shard::{self, CarriedOut, INVALIDATIONS_MAX, InvalidationFilter, Shard},
};
/// Entries that an invalidation of many removes or changes itself, and that a task does before others have their turn.
const ENTRIES_AT_ONCE: usize = 4_096;
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
            let (pending, is_old) = (shard.pending_invalidations(), shard.is_old());
            drop(shard);
            if is_old || pending > INVALIDATIONS_MAX {
                while self.carry_out_some(part).is_some() {}
            }
        }
        self.invalidated.fetch_add(count as u64, Relaxed);
        count
    }

    /// Carries out some steps of pending invalidations. Returns true if there may be more.
    pub(crate) fn carry_out(&self) -> bool {
        let mut examined = 0;
        self.parts.iter().any(|part| {
            loop {
                match self.carry_out_some(part) {
                    None => return false,
                    Some(_) if examined >= ENTRIES_AT_ONCE => return true,
                    Some(some) => examined += some,
                }
            }
        })
    }

    /// False: another task carries invalidations out.
    pub(crate) fn begin_carrying_out(&self) -> bool {
        !self.is_carrying_out.swap(true, AcqRel)
    }

    /// Carries out some steps. Returns false if that was the last, and this task is done.
    pub(crate) fn keep_carrying_out(&self) -> bool {
        if self.carry_out() {
            return true;
        }
        self.is_carrying_out.store(false, Release);
        // One that began meanwhile may have relied on this task.
        self.carry_out() && self.begin_carrying_out()
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
