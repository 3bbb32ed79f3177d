//! Least recently written: a queue in the order of writes, as Cachex orders by `modified`.

use super::{
    Evict, Slot,
    fifo::{self, Fifo, Places},
};

pub(super) const ENTRY_BYTES: usize = fifo::ENTRY_BYTES;

#[derive(Debug, Default)]
pub(super) struct Lrw {
    written: Fifo,
    places: Places,
}

impl Evict for Lrw {
    fn admit(&mut self, slot: Slot, _hash: u64) {
        self.written.push(&mut self.places, slot);
    }

    fn remove(&mut self, slot: Slot) {
        self.written.remove(&mut self.places, slot);
    }

    fn evict(&mut self) -> Option<Slot> {
        self.written.pop(&mut self.places)
    }

    fn rewrite(&mut self, slot: Slot) {
        self.written.remove(&mut self.places, slot);
        self.written.push(&mut self.places, slot);
    }
}
