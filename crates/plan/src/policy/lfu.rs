//! Least frequently used, without aging: an entry that was popular once stays. Of entries with as many requests the
//! one that reached that number first is evicted.

use super::{EvictionPolicy, PolicySetup, heap::RisingHeap};
use crate::trace::{Access, Key};

pub(crate) struct Lfu {
    lowest: RisingHeap<u32>,
    /// Requests for each key since it was inserted.
    requests: Vec<u32>,
}

impl EvictionPolicy for Lfu {
    fn new(setup: &PolicySetup) -> Self {
        Self { lowest: RisingHeap::new(setup.keys), requests: vec![0; setup.keys] }
    }

    fn on_hit(&mut self, access: &Access) {
        let requests = &mut self.requests[access.key as usize];
        *requests = requests.saturating_add(1);
        self.lowest.raise(access.key, *requests);
    }

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        self.lowest.pop().map(|(key, _)| key)
    }

    fn on_insert(&mut self, access: &Access) {
        self.requests[access.key as usize] = 1;
        self.lowest.insert(access.key, 1);
    }

    fn on_remove(&mut self, key: Key) {
        self.lowest.remove(key);
    }
}
