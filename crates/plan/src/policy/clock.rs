//! Clock, or FIFO with second chances: one bit for each entry, set by hits.

use super::{
    EvictionPolicy, PolicySetup,
    queue::{Links, Queue},
};
use crate::trace::{Access, Key};

pub(crate) struct Clock {
    links: Links,
    queue: Queue,
}

impl EvictionPolicy for Clock {
    fn new(setup: &PolicySetup) -> Self {
        Self { links: Links::new(setup.keys), queue: Queue::new(1) }
    }

    fn on_hit(&mut self, access: &Access) {
        *self.links.mark(access.key) = 1;
    }

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        self.queue.pop_unmarked(&mut self.links)
    }

    fn on_insert(&mut self, access: &Access) {
        self.queue.push(&mut self.links, access.key, access.weight);
    }

    fn on_remove(&mut self, key: Key) {
        self.queue.remove(&mut self.links, key);
    }
}
