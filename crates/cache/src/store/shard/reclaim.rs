//! Room for other entries: evictions and reclaims, and the sweep for expired entries.

use std::hash::Hash;

use stockade_model::time::Time;

use super::Shard;
use crate::{
    limit::LimitBounds,
    policy::Slot,
    store::removal::{RemovalReason, RemovedEntries, RemovedEntry},
};

/// Entries that one store removes at most while it reclaims.
pub(crate) const RECLAIM_SLICE: usize = 32;
/// Slots that one step of a purge examines.
pub(crate) const PURGE_SLICE: usize = 256;

impl<K: Hash + Eq + Clone, V: Clone> Shard<K, V> {
    /// Removes the entry that the policy chooses.
    pub(crate) fn evict(&mut self) -> Option<RemovedEntry<K, V>> {
        let slot = self.choose()?;
        self.vacate(slot, RemovalReason::Evicted)
    }

    /// The slot of the entry that the policy chooses and forgets.
    #[expect(clippy::inline_always, reason = "fourteen instructions of each store into a full cache")]
    #[inline(always)]
    fn choose(&mut self) -> Option<Slot> {
        self.policy.evict(&mut self.entries)
    }

    /// Sets another limit of entries. Excess entries are [evicted](Self::evict_some) later.
    pub(crate) fn set_ceiling(&mut self, ceiling: LimitBounds) {
        self.ceiling = ceiling;
        self.room = self.room.min(ceiling.max);
    }

    /// Evicts some of the entries beyond the limit. Returns true if there are more.
    pub(crate) fn evict_some(&mut self, most: usize, gone: &mut RemovedEntries<K, V>) -> bool {
        while self.used_slots() > self.ceiling.max && gone.len() < most {
            let Some(evicted) = self.evict() else { return false };
            gone.push(evicted);
        }
        self.used_slots() > self.ceiling.max
    }

    /// Starts a purge: expired entries are reclaimed first, until all slots have been examined.
    pub(crate) fn start_purge(&mut self) {
        self.unpurged = self.entries.len();
    }

    /// One step of reclaiming: of the purge, or an eviction.
    pub(crate) fn reclaim_step(&mut self, now: Time, gone: &mut RemovedEntries<K, V>) {
        if self.unpurged > 0 && now >= self.sweep.earliest {
            let seen = self.sweep(PURGE_SLICE.min(self.unpurged), now, gone);
            self.unpurged -= seen;
        } else {
            gone.extend(self.evict());
        }
    }

    /// Makes room for one more entry. Returns the slot of the last one that was evicted for it.
    #[inline]
    pub(super) fn make_room(&mut self, now: Time, gone: &mut RemovedEntries<K, V>) -> Option<Slot> {
        let LimitBounds { max, reclaim_to } = self.ceiling;
        if self.used_slots() >= max && reclaim_to < max && !self.is_reclaiming {
            self.is_reclaiming = true;
            self.reclaims += 1;
            self.start_purge();
        }
        if self.is_reclaiming {
            let mut steps = 0..RECLAIM_SLICE;
            while self.used_slots() > reclaim_to && gone.len() < RECLAIM_SLICE && steps.next().is_some() {
                self.reclaim_step(now, gone);
            }
            self.is_reclaiming = self.used_slots() > reclaim_to;
        }
        while self.used_slots() > max
            && gone.len() < RECLAIM_SLICE
            && let Some(entry) = self.evict()
        {
            gone.push(entry);
        }
        if self.used_slots() < max {
            return None;
        }
        let slot = self.choose()?;
        // Not `extend`, which costs forty instructions.
        if let Some(entry) = self.take_entry(slot, RemovalReason::Evicted) {
            gone.push(entry);
        }
        Some(slot)
    }

    /// Removes expired entries among the next `slots` slots. Returns the number of slots examined.
    pub(crate) fn sweep(&mut self, slots: usize, now: Time, gone: &mut RemovedEntries<K, V>) -> usize {
        let mut seen = 0;
        while seen < slots && gone.len() < RECLAIM_SLICE {
            seen += 1;
            let slot = self.sweep.next(self.entries.len());
            let Some(entry) = self.entries.get(slot as usize) else { return slots };
            let Some(entry) = entry else { continue };
            let gone_from = self.kept_until(slot, &self.life(slot, entry));
            if now < gone_from {
                self.sweep.keep(gone_from);
            } else {
                gone.extend(self.remove_slot(slot, RemovalReason::Expired));
            }
        }
        seen
    }
}
