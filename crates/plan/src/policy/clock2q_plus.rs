//! Clock2Q+: a small queue for new entries, a main queue for entries that were requested again, and the keys that left the
//! small queue, as [S3-FIFO](stockade_cache::Policy::S3_FIFO). Requests for the newest entries of the small queue do not
//! count: they follow the first one closely and say little about later ones.
//!
//! The small queue has a tenth of the room, half of it does not count requests, and as many keys are remembered as would
//! fill half of the room.

use super::{
    EvictionPolicy, PolicySetup,
    queue::{Links, Queue},
};
use crate::trace::{Access, Key};

const SMALL_SHARE: f64 = 0.1;
/// Of the small queue.
const CORRELATED_SHARE: f64 = 0.5;
const GHOSTS_SHARE: f64 = 0.5;

pub(crate) struct Clock2QPlus {
    links: Links,
    small: Queue,
    main: Queue,
    ghosts: Queue,
    /// The weight inserted into the small queue, in all and before each key.
    inserted: u64,
    inserted_before: Vec<u64>,
    small_max: u64,
    correlated: u64,
    ghosts_max: u64,
    is_ghost: bool,
}

impl Clock2QPlus {
    fn evict_small(&mut self) -> Option<Key> {
        while let Some(oldest) = self.small.oldest() {
            if *self.links.mark(oldest) == 0 {
                self.small.move_to(&mut self.ghosts, &mut self.links, oldest);
                self.ghosts.trim(&mut self.links, self.ghosts_max);
                return Some(oldest);
            }
            self.small.move_to(&mut self.main, &mut self.links, oldest);
        }
        None
    }
}

impl EvictionPolicy for Clock2QPlus {
    fn new(setup: &PolicySetup) -> Self {
        let small_max = super::share(setup.capacity, SMALL_SHARE);
        Self {
            links: Links::new(setup.keys),
            small: Queue::new(1),
            main: Queue::new(2),
            ghosts: Queue::new(3),
            inserted: 0,
            inserted_before: vec![0; setup.keys],
            small_max,
            correlated: super::share(small_max, CORRELATED_SHARE),
            ghosts_max: super::share(setup.capacity, GHOSTS_SHARE),
            is_ghost: false,
        }
    }

    fn on_hit(&mut self, access: &Access) {
        let is_correlated = self.small.has(&self.links, access.key)
            && self.inserted - self.inserted_before[access.key as usize] <= self.correlated;
        if !is_correlated {
            *self.links.mark(access.key) = 1;
        }
    }

    fn on_miss(&mut self, access: &Access) {
        self.is_ghost = self.ghosts.has(&self.links, access.key);
        if self.is_ghost {
            self.ghosts.remove(&mut self.links, access.key);
        }
    }

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        if (self.small.weight() >= self.small_max || self.main.is_empty())
            && let Some(key) = self.evict_small()
        {
            return Some(key);
        }
        self.main.pop_unmarked(&mut self.links).or_else(|| self.evict_small())
    }

    fn on_insert(&mut self, access: &Access) {
        if std::mem::take(&mut self.is_ghost) {
            self.main.push(&mut self.links, access.key, access.weight);
        } else {
            self.inserted_before[access.key as usize] = self.inserted;
            self.inserted += u64::from(access.weight);
            self.small.push(&mut self.links, access.key, access.weight);
        }
    }

    fn on_update(&mut self, access: &Access) {
        self.links.reweigh_in([&mut self.small, &mut self.main], access.key, access.weight);
    }

    fn on_remove(&mut self, key: Key) {
        self.links.remove_from([&mut self.small, &mut self.main], key);
    }
}
