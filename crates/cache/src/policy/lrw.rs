//! Least recently written: a queue in the order of writes, as Cachex orders by `modified`.

use super::{
    eviction::{EvictionPolicy, Listed, PolicyEntries, Slot},
    fifo::FifoQueue,
};

#[derive(Debug, Default)]
pub(crate) struct Lrw {
    written: FifoQueue,
}

impl EvictionPolicy for Lrw {
    const NAME: &'static str = "lrw";
    const SUMMARY: &'static str = "the least recently written entry, whether requested or not (Cachex)";

    fn on_insert(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        self.written.push(entries, slot);
    }

    fn on_remove(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        self.written.remove(entries, slot);
    }

    fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        self.written.pop(entries)
    }

    fn list(&self, entries: &impl PolicyEntries, list: &mut Vec<Listed>) {
        self.written.list(entries, list, |_| 0);
    }

    fn on_update(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        self.written.remove(entries, slot);
        self.written.push(entries, slot);
    }
}
