//! Queues of slots, of which every slot is in one at most.

use super::Slot;

const NONE: Slot = Slot::MAX;

/// What a queue knows of each slot, in bytes.
pub(super) const ENTRY_BYTES: usize = size_of::<Neighbours>();

/// The places of slots in their queues: shared by all queues of one policy.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<Neighbours>);

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    older: Slot,
    newer: Slot,
}

/// First in, first out; any slot can leave in between.
#[derive(Debug)]
pub(super) struct Fifo {
    oldest: Slot,
    newest: Slot,
    len: usize,
}

impl Default for Fifo {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE, len: 0 }
    }
}

impl Fifo {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn oldest(&self) -> Option<Slot> {
        some(self.oldest)
    }

    /// Puts a slot in that is in no queue.
    pub(super) fn push(&mut self, places: &mut Places, slot: Slot) {
        let index = slot as usize;
        if index >= places.0.len() {
            places.0.resize(index + 1, Neighbours { older: NONE, newer: NONE });
        }
        places.0[index] = Neighbours { older: self.newest, newer: NONE };
        match some(self.newest) {
            Some(newest) => places.0[newest as usize].newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.len += 1;
    }

    /// Takes a slot out that is in this queue.
    pub(super) fn remove(&mut self, places: &mut Places, slot: Slot) {
        let Neighbours { older, newer } = places.0[slot as usize];
        match some(older) {
            Some(older) => places.0[older as usize].newer = newer,
            None => self.oldest = newer,
        }
        match some(newer) {
            Some(newer) => places.0[newer as usize].older = older,
            None => self.newest = older,
        }
        self.len -= 1;
    }

    /// Takes the oldest out.
    pub(super) fn pop(&mut self, places: &mut Places) -> Option<Slot> {
        let oldest = self.oldest()?;
        self.remove(places, oldest);
        Some(oldest)
    }
}

impl Places {
    /// The next newer one in the same queue.
    pub(super) fn newer(&self, slot: Slot) -> Option<Slot> {
        some(self.0[slot as usize].newer)
    }
}

fn some(slot: Slot) -> Option<Slot> {
    (slot != NONE).then_some(slot)
}
