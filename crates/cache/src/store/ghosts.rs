//! Requests of the store that its ghosts see.

use std::{borrow::Borrow, hash::Hash};

use stockade_model::time::Time;

use super::{Store, shard::Shard};
use crate::{invalidation::Invalidation, locks::RwLockReadGuard, shadow::ShadowStats};

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    /// Records a request for the ghosts.
    #[inline]
    pub(crate) fn record_request<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Time)
    where
        K: Borrow<Q>,
    {
        if let Some(hash) = self.sampled_hash(key) {
            self.record_sampled(self.parts.part(hash).shard.read(), hash, key, now);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn record_sampled<Q: Hash + Eq + ?Sized>(
        &self,
        shard: RwLockReadGuard<'_, Shard<K, V>>,
        hash: u64,
        key: &Q,
        now: Time,
    ) where
        K: Borrow<Q>,
    {
        let stored = shard.stored_times(hash, key, self.is_marker.as_deref());
        drop(shard);
        if self.ghosts.request(hash, now, stored) {
            // Each shard moves its entries at its next stores.
            self.parts.iter().for_each(|part| part.shard.write().switch_policy(self.ghosts.chosen()));
        }
    }

    /// Records for the ghosts that the value of a load is not stored.
    pub(crate) fn record_not_stored(&self, key: &K) {
        if let Some(hash) = self.sampled_hash(key) {
            self.ghosts.not_stored(hash);
        }
    }

    /// The hash of a key, if it is in the sample.
    #[inline]
    fn sampled_hash<Q: Hash + ?Sized>(&self, key: &Q) -> Option<u64> {
        if self.ghosts.is_none() {
            return None;
        }
        let hash = self.parts.hash(key);
        self.ghosts.may_sample(hash).then_some(hash)
    }

    pub(crate) fn has_ghosts(&self) -> bool {
        !self.ghosts.is_none()
    }

    pub(crate) fn shadow_stats(&self, now: Time) -> Option<ShadowStats> {
        self.ghosts.stats(now)
    }

    /// Invalidates the entries of all ghosts.
    pub(crate) fn invalidate_ghosts(&self, how: Invalidation, now: Time) {
        self.ghosts.invalidate_all(how, now);
    }
}
