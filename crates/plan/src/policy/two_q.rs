//! 2Q, the full version: new entries pass through a queue; those that are requested again after they left it are kept
//! by recency. The paper's values: the queue has a quarter of the room, and half of the room's entries are remembered.

use super::{
    EvictionPolicy, PolicySetup,
    queue::{Links, Queue},
};
use crate::trace::{Access, Key};

/// The paper's A1in: a quarter of the room.
const NEW_SHARE: f64 = 0.25;
/// The paper's A1out: keys whose entries would fill half of the room.
const REMEMBERED_SHARE: f64 = 0.5;

pub(crate) struct TwoQ {
    links: Links,
    new: Queue,
    /// Keys that left `new` last. They are not present.
    remembered: Queue,
    kept: Queue,
    new_max: u64,
    remembered_max: u64,
    /// The key to be inserted was remembered.
    is_remembered: bool,
}

impl EvictionPolicy for TwoQ {
    fn new(setup: &PolicySetup) -> Self {
        Self {
            links: Links::new(setup.keys),
            new: Queue::new(1),
            remembered: Queue::new(2),
            kept: Queue::new(3),
            new_max: super::share(setup.capacity, NEW_SHARE),
            remembered_max: super::share(setup.capacity, REMEMBERED_SHARE),
            is_remembered: false,
        }
    }

    fn on_hit(&mut self, access: &Access) {
        if self.kept.has(&self.links, access.key) {
            self.kept.touch(&mut self.links, access.key);
        }
    }

    fn on_miss(&mut self, access: &Access) {
        self.is_remembered = self.remembered.has(&self.links, access.key);
        if self.is_remembered {
            self.remembered.remove(&mut self.links, access.key);
        }
    }

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        if self.new.weight() > self.new_max || self.kept.is_empty() {
            let oldest = self.new.oldest()?;
            self.new.move_to(&mut self.remembered, &mut self.links, oldest);
            self.remembered.trim(&mut self.links, self.remembered_max);
            return Some(oldest);
        }
        self.kept.pop(&mut self.links)
    }

    fn on_insert(&mut self, access: &Access) {
        let queue = if std::mem::take(&mut self.is_remembered) { &mut self.kept } else { &mut self.new };
        queue.push(&mut self.links, access.key, access.weight);
    }

    fn on_update(&mut self, access: &Access) {
        self.links.reweigh_in([&mut self.new, &mut self.kept], access.key, access.weight);
    }

    fn on_remove(&mut self, key: Key) {
        self.links.remove_from([&mut self.new, &mut self.kept], key);
    }
}
