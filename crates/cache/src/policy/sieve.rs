//! SIEVE: a queue, a mark for who was asked for, and a hand (Zhang, Yang, Yue, Vigfusson, Rashmi,
//! "SIEVE is Simpler than LRU", NSDI 2024).
//!
//! The hand goes from the oldest to the newest. Who is marked loses the mark and keeps its place; the
//! first without a mark goes, and the hand stays there. A hit sets a mark and moves nothing.

use std::sync::atomic::Ordering;

use super::{Evict, Place, Places, Slot, fifo::Fifo};

#[derive(Debug, Default)]
pub(crate) struct Sieve {
    queue: Fifo,
    /// Where the hand looks next; `None`: at the oldest.
    hand: Option<Slot>,
}

impl Evict for Sieve {
    fn admit(&mut self, places: &mut impl Places, slot: Slot) {
        self.queue.push(places, slot);
    }

    fn remove(&mut self, places: &mut impl Places, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = places.place(slot).neighbours.newer();
        }
        self.queue.remove(places, slot);
    }

    fn evict(&mut self, places: &mut impl Places) -> Option<Slot> {
        let mut at = self.hand.or(self.queue.oldest())?;
        loop {
            let place = places.place(at);
            if std::mem::take(place.mark.get_mut()) == 0 {
                break;
            }
            at = place.neighbours.newer().or(self.queue.oldest())?;
        }
        self.hand = Some(at);
        self.remove(places, at);
        Some(at)
    }

    fn hit(&self, _slot: Slot, place: &Place) {
        // What is marked already is only read: writing would take its line away from other cores.
        if place.mark.load(Ordering::Relaxed) == 0 {
            place.mark.store(1, Ordering::Relaxed);
        }
    }
}
