//! Another size of the limit while the cache is in use.

use std::{hash::Hash, sync::atomic::Ordering::Relaxed};

use super::{Store, account::ByteAccount, removal::RemovedEntries, shard::RECLAIM_SLICE};
use crate::{
    error::InvalidStrategy,
    limit::{Limit, LimitBounds, share},
};

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    /// Takes the sizes of `new` in place of those of `old`, and evicts what exceeds them, a few entries under one lock.
    pub(crate) fn resize(&self, old: Option<&Limit>, new: &Limit) -> Result<(), InvalidStrategy> {
        new.check()?;
        let has_both = |old: &Limit| {
            (old.entries.is_some(), old.bytes.is_some()) == (new.entries.is_some(), new.bytes.is_some())
        };
        let Some(old) = old.filter(|old| has_both(old)) else {
            return Err(InvalidStrategy(
                "a limit is resized in what it was built with: entries, bytes, or both",
            ));
        };
        let shards = self.parts.iter().len();
        if old.bytes == Some(0) {
            return Err(InvalidStrategy("the cache was built for 0 bytes: build one of this size"));
        }
        if new.entries.is_some_and(|entries| 0 < entries && entries < shards) {
            return Err(InvalidStrategy(
                "the cache has more shards than the limit has entries: build a cache of this size",
            ));
        }
        let too_small = |(account, bytes): (&ByteAccount<K, V>, usize)| bytes < account.budget.max_object;
        if self.weight.as_ref().zip(new.bytes).is_some_and(too_small) {
            return Err(InvalidStrategy(
                "the limit is below `max_object`: build a cache whose largest entry fits",
            ));
        }
        let resizing = self.resizing.lock();
        self.has_capacity.store(!new.is_zero(), Relaxed);
        if let Some(entries) = new.entries {
            for (number, part) in self.parts.iter().enumerate() {
                let bounds = LimitBounds::new(share(entries, shards, number), old.reclaim);
                part.shard.write().set_ceiling(bounds);
            }
        }
        if let Some((account, bytes)) = self.weight.as_ref().zip(new.bytes) {
            account.budget.resize(LimitBounds::new(bytes, old.reclaim));
            account.held.iter().for_each(|held| held.resize(bytes));
        }
        // No lock is held while entries are evicted: their listeners may call this.
        drop(resizing);
        self.evict_excess();
        Ok(())
    }

    fn evict_excess(&self) {
        for part in self.parts.iter() {
            let mut is_full = true;
            while is_full {
                let mut gone = RemovedEntries::new();
                is_full = part.shard.write().evict_some(RECLAIM_SLICE, &mut gone);
                self.drop_outside(gone);
            }
        }
        let Some(account) = &self.weight else { return };
        self.set_aside(account.budget.set_aside());
        while account.budget.used() > account.budget.max() && !account.is_held_full() {
            let mut parts = self.parts.from(account.next_shard.fetch_add(1, Relaxed));
            // Loads and stores in progress have the other bytes.
            let Some(evicted) = parts.find_map(|part| part.shard.write().evict()) else { break };
            self.drop_outside([evicted].into_iter().collect());
        }
    }
}
