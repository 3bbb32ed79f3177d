//! papaya: a concurrent map, and no cache.

use papaya::HashMap;

use super::{Contender, Value};
use crate::clock::{self, Expiring};

/// Never evicts, so it grows without bound and always hits: the reference for the bookkeeping of a cache.
pub struct Papaya<V>(HashMap<u64, Expiring<V>, foldhash::quality::RandomState>);

impl<V: Value> Papaya<V> {
    pub fn new() -> Self {
        clock::start();
        Self(HashMap::with_hasher(foldhash::quality::RandomState::default()))
    }
}

impl<V: Value> Contender<V> for Papaya<V> {
    fn get(&self, key: u64) -> Option<V> {
        self.0.pin().get(&key).and_then(Expiring::fresh_clone)
    }

    fn insert(&self, key: u64, value: V) {
        self.0.pin().insert(key, Expiring::new(value));
    }

    fn entries(&self) -> usize {
        self.0.len()
    }
}
