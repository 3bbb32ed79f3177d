//! Exact least recently used. The cache's own keeps stamps and a heap, because its hits must not move anything; this
//! one moves the entry in a list, which is faster in one thread. A test compares them.

use super::{
    EvictionPolicy, PolicySetup,
    queue::{Links, Queue},
};
use crate::trace::{Access, Key};

pub(crate) struct Lru {
    links: Links,
    used: Queue,
}

impl EvictionPolicy for Lru {
    fn new(setup: &PolicySetup) -> Self {
        Self { links: Links::new(setup.keys), used: Queue::new(1) }
    }

    fn on_hit(&mut self, access: &Access) {
        self.used.touch(&mut self.links, access.key);
    }

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        self.used.pop(&mut self.links)
    }

    fn on_insert(&mut self, access: &Access) {
        self.used.push(&mut self.links, access.key, access.weight);
    }

    /// As in the cache: a lookup without a response to serve does not count as a hit, and the store is an update.
    fn on_expired(&mut self, _access: &Access) {}

    fn on_update(&mut self, access: &Access) {
        self.used.touch(&mut self.links, access.key);
    }

    fn on_remove(&mut self, key: Key) {
        self.used.remove(&mut self.links, key);
    }
}
