//! Least recently written: a queue in the order of writes, as Cachex orders by `modified`.

use super::{Evict, Places, Slot, fifo::Fifo};

#[derive(Debug, Default)]
pub(crate) struct Lrw {
    written: Fifo,
}

impl Evict for Lrw {
    fn admit(&mut self, places: &mut impl Places, slot: Slot) {
        self.written.push(places, slot);
    }

    fn remove(&mut self, places: &mut impl Places, slot: Slot) {
        self.written.remove(places, slot);
    }

    fn evict(&mut self, places: &mut impl Places) -> Option<Slot> {
        self.written.pop(places)
    }

    fn rewrite(&mut self, places: &mut impl Places, slot: Slot) {
        self.written.remove(places, slot);
        self.written.push(places, slot);
    }
}
