//! ARC: entries that were requested once since they came, and those that were requested again, in two lists by recency.
//! Keys that left either list are remembered, and a request for one of them gives that list more room.
//!
//! The paper counts pages of one size. Here counts are weights; with weights of one they are the paper's.

use super::{
    EvictionPolicy, PolicySetup,
    queue::{Links, Queue},
};
use crate::trace::{Access, Key};

pub(crate) struct Arc {
    links: Links,
    /// T1 and T2 of the paper.
    recent: Queue,
    frequent: Queue,
    /// B1 and B2: keys that are not present any more.
    recent_ghosts: Queue,
    frequent_ghosts: Queue,
    /// p: the weight that `recent` aims at.
    recent_target: f64,
    capacity: u64,
    incoming: Incoming,
}

/// Where the key to be inserted was remembered.
#[derive(Clone, Copy, PartialEq)]
enum Incoming {
    New,
    /// And `recent` alone fills the cache: its oldest entry leaves without being remembered.
    NewInFullRecent,
    RecentGhost,
    FrequentGhost,
}

impl EvictionPolicy for Arc {
    fn new(setup: &PolicySetup) -> Self {
        Self {
            links: Links::new(setup.keys),
            recent: Queue::new(1),
            frequent: Queue::new(2),
            recent_ghosts: Queue::new(3),
            frequent_ghosts: Queue::new(4),
            recent_target: 0.0,
            capacity: setup.capacity,
            incoming: Incoming::New,
        }
    }

    fn on_hit(&mut self, access: &Access) {
        if self.recent.has(&self.links, access.key) {
            self.recent.move_to(&mut self.frequent, &mut self.links, access.key);
        } else {
            self.frequent.touch(&mut self.links, access.key);
        }
    }

    fn on_miss(&mut self, access: &Access) {
        let (recent, frequent) = (self.recent_ghosts.weight() as f64, self.frequent_ghosts.weight() as f64);
        let (capacity, weight) = (self.capacity as f64, f64::from(access.weight));
        let links = &mut self.links;
        if self.recent_ghosts.has(links, access.key) {
            let step = (frequent / recent).max(1.0) * weight;
            self.recent_target = (self.recent_target + step).min(capacity);
            self.recent_ghosts.remove(links, access.key);
            self.incoming = Incoming::RecentGhost;
        } else if self.frequent_ghosts.has(links, access.key) {
            let step = (recent / frequent).max(1.0) * weight;
            self.recent_target = (self.recent_target - step).max(0.0);
            self.frequent_ghosts.remove(links, access.key);
            self.incoming = Incoming::FrequentGhost;
        } else {
            self.incoming = Incoming::New;
            let added = u64::from(access.weight);
            if self.recent.weight() + self.recent_ghosts.weight() + added > self.capacity {
                if self.recent_ghosts.is_empty() {
                    self.incoming = Incoming::NewInFullRecent;
                } else {
                    let rest = self.capacity.saturating_sub(self.recent.weight() + added);
                    self.recent_ghosts.trim(links, rest);
                }
            } else {
                let all = self.recent.weight()
                    + self.recent_ghosts.weight()
                    + self.frequent.weight()
                    + self.frequent_ghosts.weight();
                let excess = (all + added).saturating_sub(self.capacity.saturating_mul(2));
                let rest = self.frequent_ghosts.weight().saturating_sub(excess);
                self.frequent_ghosts.trim(links, rest);
            }
        }
    }

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        let links = &mut self.links;
        if self.incoming == Incoming::NewInFullRecent && !self.recent.is_empty() {
            return self.recent.pop(links);
        }
        let recent = self.recent.weight() as f64;
        let is_over = recent > self.recent_target
            || (self.incoming == Incoming::FrequentGhost && recent >= self.recent_target);
        let from_recent = self.frequent.is_empty() || (!self.recent.is_empty() && is_over);
        let (list, ghosts) = if from_recent {
            (&mut self.recent, &mut self.recent_ghosts)
        } else {
            (&mut self.frequent, &mut self.frequent_ghosts)
        };
        let oldest = list.oldest()?;
        list.move_to(ghosts, links, oldest);
        Some(oldest)
    }

    fn on_insert(&mut self, access: &Access) {
        let list = match self.incoming {
            Incoming::New | Incoming::NewInFullRecent => &mut self.recent,
            Incoming::RecentGhost | Incoming::FrequentGhost => &mut self.frequent,
        };
        list.push(&mut self.links, access.key, access.weight);
    }

    fn on_update(&mut self, access: &Access) {
        self.links.reweigh_in([&mut self.recent, &mut self.frequent], access.key, access.weight);
    }

    fn on_remove(&mut self, key: Key) {
        self.links.remove_from([&mut self.recent, &mut self.frequent], key);
    }
}
