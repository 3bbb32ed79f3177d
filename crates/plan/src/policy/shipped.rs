//! The policies of the cache: their own code, in one shard.

use std::time::Duration;

use stockade_cache::{
    Limit, Policy,
    simulation::{Evictor, Lifetime, Spans, StoredFacts},
};
use stockade_model::{seed::Seed, time::Time};

use super::{EvictionPolicy, PolicySetup};
use crate::{
    replay::Capacity,
    trace::{Access, Key},
};

pub(crate) struct Shipped(Evictor);

impl EvictionPolicy for Shipped {
    fn new(setup: &PolicySetup) -> Self {
        Self(Evictor::new(setup.shipped.unwrap_or(Policy::SIEVE)))
    }

    #[inline]
    fn on_hit(&mut self, access: &Access) {
        self.0.hit(access.key);
    }

    /// As in the cache: a lookup without a response to serve does not count as a hit, and the store is an update.
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

/// `auto`: with the ghosts that choose its policy.
pub(crate) struct ShippedAuto {
    shipped: Shipped,
    spans: Spans,
    latency: Duration,
}

impl ShippedAuto {
    fn request(&mut self, access: &Access, found: Option<StoredFacts>) {
        self.shipped.0.request(access.key, at(access), found);
    }

    /// The times of a value that was loaded now.
    fn times(&self, access: &Access) -> StoredFacts {
        let expires = Time::from_nanos(access.at_ns.saturating_add(access.ttl_ns));
        let life = Lifetime::new(at(access), expires, expires, self.spans);
        StoredFacts { life, weight: access.weight, is_marker: false }
    }

    fn loaded(&mut self, access: &Access) {
        let value = self.times(access);
        self.shipped.0.loaded(access.key, at(access), value, self.latency);
    }
}

fn at(access: &Access) -> Time {
    Time::from_nanos(access.at_ns)
}

impl EvictionPolicy for ShippedAuto {
    fn new(setup: &PolicySetup) -> Self {
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX).max(1);
        let limit = match setup.unit {
            Capacity::Entries(_) => Limit::entries(size(setup.capacity)),
            Capacity::Bytes(_) => Limit::bytes(size(setup.capacity)),
        };
        let limit = Limit { policy: Policy::AUTO, ..limit };
        Self {
            shipped: Shipped(Evictor::with_limit(&limit, Seed(1))),
            spans: Spans::stale(Duration::from_nanos(setup.swr_ns)),
            latency: Duration::from_nanos(setup.latency_ns),
        }
    }

    #[inline]
    fn on_hit(&mut self, access: &Access) {
        self.request(access, Some(self.times(access)));
        self.shipped.on_hit(access);
    }

    fn on_expired(&mut self, access: &Access) {
        self.request(access, None);
    }

    fn on_miss(&mut self, access: &Access) {
        self.request(access, None);
    }

    fn evict(&mut self, access: &Access) -> Option<Key> {
        self.shipped.evict(access)
    }

    fn on_insert(&mut self, access: &Access) {
        self.shipped.on_insert(access);
        self.loaded(access);
    }

    fn on_update(&mut self, access: &Access) {
        self.shipped.on_update(access);
        self.loaded(access);
    }

    fn on_remove(&mut self, key: Key) {
        self.shipped.on_remove(key);
    }
}
