//! Belady's MIN, and a version for entries of different sizes. They know when each key is requested next.

use std::collections::BinaryHeap;

use super::{EvictionPolicy, PolicySetup};
use crate::trace::{Access, Key};

/// Evicts the entry that is requested again last: the fewest misses of entries of one size, where each miss is stored.
pub(crate) struct Belady {
    /// The position of the next request of each present key; 0: the key is not there.
    next: Vec<u32>,
    /// Elements that differ from `next` are out of date.
    latest: BinaryHeap<(u32, Key)>,
    len: usize,
}

impl Belady {
    fn expect(&mut self, access: &Access) {
        if self.next[access.key as usize] == access.next {
            return;
        }
        self.next[access.key as usize] = access.next;
        self.latest.push((access.next, access.key));
        if self.latest.len() > 2 * self.len + 64 {
            let next = &self.next;
            self.latest.retain(|(position, key)| next[*key as usize] == *position);
        }
    }
}

impl EvictionPolicy for Belady {
    const KNOWS_FUTURE: bool = true;

    fn new(setup: &PolicySetup) -> Self {
        Self { next: vec![0; setup.keys], latest: BinaryHeap::new(), len: 0 }
    }

    fn on_hit(&mut self, access: &Access) {
        self.expect(access);
    }

    fn evict(&mut self, _access: &Access) -> Option<Key> {
        loop {
            let (position, key) = self.latest.pop()?;
            if self.next[key as usize] == position {
                self.on_remove(key);
                return Some(key);
            }
        }
    }

    fn on_insert(&mut self, access: &Access) {
        self.len += 1;
        self.expect(access);
    }

    fn on_remove(&mut self, key: Key) {
        self.next[key as usize] = 0;
        self.len -= 1;
    }
}

/// Entries that are compared for an eviction.
const CANDIDATES: usize = 64;

/// Evicts the entry with the most weight times requests until it is requested again, of 64 random ones: the exact
/// minimum is NP-hard (Chrobak, Woeginger, Makino, Xu, "Caching is hard, even in the fault model", 2010).
pub(crate) struct BeladySize {
    next: Vec<u32>,
    weights: Vec<u32>,
    present: Vec<Key>,
    /// Of each present key: its index in `present`.
    index: Vec<u32>,
    /// Of a linear congruential generator: the same in every run.
    random: u64,
}

impl BeladySize {
    fn draw(&mut self) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.random >> 32) * self.present.len() as u64) >> 32) as usize
    }

    fn cost(&self, key: Key, position: u32) -> u64 {
        let until = self.next[key as usize].saturating_sub(position);
        u64::from(until) * u64::from(self.weights[key as usize])
    }
}

impl EvictionPolicy for BeladySize {
    const KNOWS_FUTURE: bool = true;

    fn new(setup: &PolicySetup) -> Self {
        Self {
            next: vec![0; setup.keys],
            weights: vec![0; setup.keys],
            present: Vec::new(),
            index: vec![0; setup.keys],
            random: 1,
        }
    }

    fn on_hit(&mut self, access: &Access) {
        self.next[access.key as usize] = access.next;
    }

    fn evict(&mut self, access: &Access) -> Option<Key> {
        let all = self.present.len();
        let costliest = if all <= CANDIDATES {
            self.present.iter().copied().max_by_key(|key| self.cost(*key, access.position))
        } else {
            let candidates: [Key; CANDIDATES] = std::array::from_fn(|_| {
                let index = self.draw();
                self.present[index]
            });
            candidates.into_iter().max_by_key(|key| self.cost(*key, access.position))
        }?;
        self.on_remove(costliest);
        Some(costliest)
    }

    fn on_insert(&mut self, access: &Access) {
        self.index[access.key as usize] = u32::try_from(self.present.len()).unwrap_or(u32::MAX);
        self.present.push(access.key);
        self.next[access.key as usize] = access.next;
        self.on_update(access);
    }

    fn on_update(&mut self, access: &Access) {
        self.weights[access.key as usize] = access.weight;
    }

    fn on_remove(&mut self, key: Key) {
        let index = self.index[key as usize];
        self.present.swap_remove(index as usize);
        if let Some(moved) = self.present.get(index as usize) {
            self.index[*moved as usize] = index;
        }
    }
}
