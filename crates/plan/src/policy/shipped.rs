//! The policies of the cache: their own code, in one shard.

use stockade_cache::policy::{Evictor, Policy};

use super::{EvictionPolicy, PolicySetup};
use crate::trace::{Access, Key};

pub(crate) struct Shipped(Evictor);

impl EvictionPolicy for Shipped {
    fn new(setup: &PolicySetup) -> Self {
        Self(Evictor::new(setup.shipped.unwrap_or(Policy::SIEVE)))
    }

    #[inline]
    fn on_hit(&mut self, access: &Access) {
        self.0.hit(access.key);
    }

    /// As in the cache: a lookup that finds nothing to serve is no hit, and the store is an update.
    fn on_expired(&mut self, _access: &Access) {}

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        self.0.evict()
    }

    fn on_insert(&mut self, access: &Access) {
        self.0.insert_weighted(access.key, access.weight);
    }

    fn on_update(&mut self, access: &Access) {
        self.0.update_weighted(access.key, access.weight);
    }

    fn on_remove(&mut self, key: Key) {
        self.0.remove(key);
    }
}
