//! Bytes of the limit that are set aside for memory that entries do not use.

use std::{hash::Hash, sync::atomic::Ordering::Relaxed};

use super::{
    Store,
    budget::{EvictionProgress, ReservedBytes},
};

/// Half of the limit at most, so that entries and loads have the other half whatever happens outside of the cache.
const SHARE_DIVISOR: usize = 2;

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    /// Sets aside `bytes` in place of those before, and evicts where that is necessary: fewer if they exceed half of the limit, or if
    /// nothing is left to evict.
    pub(crate) fn set_aside(&self, bytes: usize) {
        let Some(account) = &self.weight else { return };
        let budget = &account.budget;
        let bytes = bytes.min(budget.max() / SHARE_DIVISOR);
        // No lock is held while entries are evicted: their listeners may call this.
        let mut aside = std::mem::replace(&mut *account.aside.lock(), ReservedBytes::none(budget));
        loop {
            // Each step takes from another shard.
            let shard = account.next_shard.fetch_add(1, Relaxed);
            let progress = self.make_room(account, shard, &mut aside, bytes);
            budget.record_set_aside(aside.bytes());
            if progress != EvictionProgress::More {
                break;
            }
        }
        *account.aside.lock() = aside;
    }
}
