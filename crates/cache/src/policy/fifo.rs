//! A queue of entries. Each entry is in one queue at most.

use std::sync::atomic::Ordering;

use super::eviction::{Listed, NONE, PolicyEntries, QueueLinks, Slot};

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
    #[inline]
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
    #[inline]
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

    /// Adds the entries to a list, oldest first, after those that it has.
    pub(super) fn list(&self, entries: &impl PolicyEntries, list: &mut Vec<Listed>, hits: impl Fn(u8) -> u8) {
        let listed = from(entries, self.oldest()).zip(list.len() as u64..).map(|(slot, rank)| Listed {
            rank: (rank, 0),
            slot,
            hits: hits(entries.see(slot).mark.load(Ordering::Relaxed)),
        });
        list.extend(listed);
    }

    /// Removes the oldest entry.
    pub(super) fn pop(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        let oldest = self.oldest()?;
        self.remove(entries, oldest);
        Some(oldest)
    }
}

/// The entries of a queue from this one to the newest.
pub(super) fn from(entries: &impl PolicyEntries, slot: Option<Slot>) -> impl Iterator<Item = Slot> {
    std::iter::successors(slot, |slot| entries.see(*slot).links.newer())
}

fn some(slot: Slot) -> Option<Slot> {
    (slot != NONE).then_some(slot)
}
