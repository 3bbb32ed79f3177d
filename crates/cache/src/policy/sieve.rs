//! SIEVE: a queue with a mark for each entry, and a hand (Zhang, Yang, Yue, Vigfusson, Rashmi,
//! "SIEVE is Simpler than LRU", NSDI 2024).
//!
//! The hand moves from the oldest to the newest entry. It clears the marks that it passes, and evicts the first
//! entry without a mark. A hit sets the mark and moves nothing.

use std::sync::atomic::Ordering;

use super::{
    eviction::{EvictionPolicy, Listed, PolicyData, PolicyEntries, Slot},
    fifo::{self, FifoQueue},
};

#[derive(Debug, Default)]
pub(crate) struct Sieve {
    queue: FifoQueue,
    /// The next entry to inspect; `None`: the oldest.
    hand: Option<Slot>,
}

impl EvictionPolicy for Sieve {
    const NAME: &'static str = "sieve";
    const SUMMARY: &'static str =
        "the oldest entry that was not requested since the hand last passed it (Zhang et al., NSDI 2024)";

    #[inline]
    fn on_insert(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        self.queue.push(entries, slot);
    }

    fn on_remove(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = entries.data(slot).links.newer();
        }
        self.queue.remove(entries, slot);
    }

    #[inline]
    fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        let mut at = self.hand.or(self.queue.oldest())?;
        loop {
            let data = entries.data(at);
            if std::mem::take(data.mark.get_mut()) == 0 {
                break;
            }
            at = data.links.newer().or(self.queue.oldest())?;
        }
        self.hand = Some(at);
        self.on_remove(entries, at);
        Some(at)
    }

    fn list(&self, entries: &impl PolicyEntries, list: &mut Vec<Listed>) {
        self.queue.list(entries, list, |mark| mark);
        // The hand comes to those before it last.
        let from_hand = fifo::from(entries, self.hand.or(self.queue.oldest())).count();
        let before_hand = list.len() - from_hand;
        list.rotate_left(before_hand);
        list.iter_mut().zip(0..).for_each(|(listed, rank)| listed.rank = (rank, 0));
    }

    fn take_next(&mut self, entries: &mut impl PolicyEntries) -> Option<(Slot, u32)> {
        let slot = self.queue.oldest()?;
        self.on_remove(entries, slot);
        Some((slot, (*entries.data(slot).mark.get_mut()).into()))
    }

    fn on_hit(&self, _slot: Slot, data: &PolicyData) {
        // Write only the first mark: a write takes the cache line away from other cores.
        if data.mark.load(Ordering::Relaxed) == 0 {
            data.mark.store(1, Ordering::Relaxed);
        }
    }
}
