//! A queue of entries. Each entry is in one queue at most.

use super::eviction::{NONE, PolicyEntries, QueueLinks, Slot};

/// First in, first out; any entry can be removed.
#[derive(Debug)]
pub(super) struct FifoQueue {
    oldest: Slot,
    newest: Slot,
    len: u32,
}

impl QueueLinks {
    pub(super) fn newer(self) -> Option<Slot> {
        some(self.newer)
    }
}

impl Default for FifoQueue {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE, len: 0 }
    }
}

impl FifoQueue {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn oldest(&self) -> Option<Slot> {
        some(self.oldest)
    }

    /// Appends an entry that is in no queue.
    pub(super) fn push(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        entries.data(slot).links = QueueLinks { older: self.newest, newer: NONE };
        match some(self.newest) {
            Some(newest) => entries.data(newest).links.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.len += 1;
    }

    /// Removes an entry that is in this queue.
    pub(super) fn remove(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        let QueueLinks { older, newer } = entries.data(slot).links;
        match some(older) {
            Some(older) => entries.data(older).links.newer = newer,
            None => self.oldest = newer,
        }
        match some(newer) {
            Some(newer) => entries.data(newer).links.older = older,
            None => self.newest = older,
        }
        self.len -= 1;
    }

    /// Removes the oldest entry.
    pub(super) fn pop(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        let oldest = self.oldest()?;
        self.remove(entries, oldest);
        Some(oldest)
    }
}

fn some(slot: Slot) -> Option<Slot> {
    (slot != NONE).then_some(slot)
}
