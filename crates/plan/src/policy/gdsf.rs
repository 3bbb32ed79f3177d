//! Greedy dual size frequency: the priority of an entry is its number of requests by its weight, plus the cache's age at
//! the last one. The entry with the lowest priority is evicted, and the age becomes that priority.

use super::{EvictionPolicy, PolicySetup, heap::RisingHeap};
use crate::trace::{Access, Key};

pub(crate) struct Gdsf {
    /// By the bits of the priority: floats that are not negative have the order of their bits.
    lowest: RisingHeap<u64>,
    requests: Vec<u32>,
    weights: Vec<u32>,
    /// The priority of the entry that was evicted last.
    age: f64,
}

impl Gdsf {
    fn count(&mut self, key: Key) -> u64 {
        let requests = &mut self.requests[key as usize];
        *requests = requests.saturating_add(1);
        self.priority(key)
    }

    fn priority(&self, key: Key) -> u64 {
        let (requests, weight) = (self.requests[key as usize], self.weights[key as usize]);
        (self.age + f64::from(requests) / f64::from(weight.max(1))).to_bits()
    }
}

impl EvictionPolicy for Gdsf {
    fn new(setup: &PolicySetup) -> Self {
        Self {
            lowest: RisingHeap::new(setup.keys),
            requests: vec![0; setup.keys],
            weights: vec![0; setup.keys],
            age: 0.0,
        }
    }

    fn on_hit(&mut self, access: &Access) {
        let priority = self.count(access.key);
        self.lowest.raise(access.key, priority);
    }

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        let (key, priority) = self.lowest.pop()?;
        self.age = f64::from_bits(priority);
        Some(key)
    }

    fn on_insert(&mut self, access: &Access) {
        self.requests[access.key as usize] = 0;
        self.weights[access.key as usize] = access.weight;
        let priority = self.count(access.key);
        self.lowest.insert(access.key, priority);
    }

    /// A heavier value has a lower priority: it is inserted anew.
    fn on_update(&mut self, access: &Access) {
        self.weights[access.key as usize] = access.weight;
        self.lowest.remove(access.key);
        self.lowest.insert(access.key, self.priority(access.key));
    }

    fn on_remove(&mut self, key: Key) {
        self.lowest.remove(key);
    }
}
