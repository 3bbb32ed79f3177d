//! SIEVE: a queue, a mark for who was asked for, and a hand (Zhang, Yang, Yue, Vigfusson, Rashmi,
//! "SIEVE is Simpler than LRU", NSDI 2024).
//!
//! The hand goes from the oldest to the newest. Who is marked loses the mark and keeps its place; the
//! first without a mark goes, and the hand stays there. A hit sets a mark and moves nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    Evict, Slot,
    fifo::{self, Fifo, Places},
};

pub(super) const ENTRY_BYTES: usize = fifo::ENTRY_BYTES + size_of::<AtomicBool>();

#[derive(Debug, Default)]
pub(crate) struct Sieve {
    queue: Fifo,
    places: Places,
    visited: Vec<AtomicBool>,
    /// Where the hand looks next; `None`: at the oldest.
    hand: Option<Slot>,
}

impl Evict for Sieve {
    fn admit(&mut self, slot: Slot, _hash: u64) {
        self.queue.push(&mut self.places, slot);
        if slot as usize >= self.visited.len() {
            self.visited.resize_with(slot as usize + 1, AtomicBool::default);
        }
        *self.visited[slot as usize].get_mut() = false;
    }

    fn remove(&mut self, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = self.places.newer(slot);
        }
        self.queue.remove(&mut self.places, slot);
    }

    fn evict(&mut self) -> Option<Slot> {
        let mut at = self.hand.or(self.queue.oldest())?;
        while std::mem::take(self.visited[at as usize].get_mut()) {
            at = self.places.newer(at).or(self.queue.oldest())?;
        }
        self.hand = Some(at);
        self.remove(at);
        Some(at)
    }

    fn hit(&self, slot: Slot) {
        let visited = &self.visited[slot as usize];
        // Who is marked already is only read: writing would take its line away from other cores.
        if !visited.load(Ordering::Relaxed) {
            visited.store(true, Ordering::Relaxed);
        }
    }
}
