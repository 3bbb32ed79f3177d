//! foyer, the part of it in memory.

use foyer_memory::{Cache, CacheBuilder, CacheProperties, SieveConfig};

use super::{Contender, Value};
use crate::clock::{self, Expiring};

/// With its sieve, stockade's default policy: here the fastest of foyer's, with the highest hit ratio.
/// foyer's own default is LRU.
pub struct Foyer<V: Value>(Cache<u64, Expiring<V>, foldhash::quality::RandomState, CacheProperties>);

impl<V: Value> Foyer<V> {
    pub fn new(capacity: usize) -> Self {
        clock::start();
        let builder = CacheBuilder::new(capacity)
            .with_hash_builder(foldhash::quality::RandomState::default())
            .with_eviction_config(SieveConfig);
        Self(builder.build())
    }
}

impl<V: Value> Contender<V> for Foyer<V> {
    fn get(&self, key: u64) -> Option<V> {
        self.0.get(&key).and_then(|entry| entry.fresh_clone())
    }

    fn insert(&self, key: u64, value: V) {
        self.0.insert(key, Expiring::new(value));
    }

    fn entries(&self) -> usize {
        self.0.entries()
    }
}
