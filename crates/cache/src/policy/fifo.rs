//! Queues of entries, of which every entry is in one at most.

use super::{Places, Slot};

const NONE: Slot = Slot::MAX;

/// Where an entry stands in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbours {
    older: Slot,
    newer: Slot,
}

/// First in, first out; any entry can leave in between.
#[derive(Debug)]
pub(super) struct Fifo {
    oldest: Slot,
    newest: Slot,
    len: u32,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self { older: NONE, newer: NONE }
    }
}

impl Neighbours {
    pub(super) fn newer(self) -> Option<Slot> {
        some(self.newer)
    }
}

impl Default for Fifo {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE, len: 0 }
    }
}

impl Fifo {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn oldest(&self) -> Option<Slot> {
        some(self.oldest)
    }

    /// Puts an entry in that is in no queue.
    pub(super) fn push(&mut self, places: &mut impl Places, slot: Slot) {
        places.place(slot).neighbours = Neighbours { older: self.newest, newer: NONE };
        match some(self.newest) {
            Some(newest) => places.place(newest).neighbours.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.len += 1;
    }

    /// Takes an entry out that is in this queue.
    pub(super) fn remove(&mut self, places: &mut impl Places, slot: Slot) {
        let Neighbours { older, newer } = places.place(slot).neighbours;
        match some(older) {
            Some(older) => places.place(older).neighbours.newer = newer,
            None => self.oldest = newer,
        }
        match some(newer) {
            Some(newer) => places.place(newer).neighbours.older = older,
            None => self.newest = older,
        }
        self.len -= 1;
    }

    /// Takes the oldest out.
    pub(super) fn pop(&mut self, places: &mut impl Places) -> Option<Slot> {
        let oldest = self.oldest()?;
        self.remove(places, oldest);
        Some(oldest)
    }
}

fn some(slot: Slot) -> Option<Slot> {
    (slot != NONE).then_some(slot)
}
