//! Exact least recently used.
//!
//! A hit stamps its entry and moves nothing. The heap orders entries by stamps that may be out of date, but are never
//! later than the true ones. If the stamp of the heap's minimum is up to date, that entry is the least recently used;
//! if not, it is put back with its true stamp.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::atomic::{AtomicU64, Ordering},
};

use super::eviction::{EvictionPolicy, Listed, PolicyData, PolicyEntries, Slot};

/// The stamp of an unused slot.
const UNUSED: u64 = 0;

#[derive(Debug, Default)]
pub(crate) struct Lru {
    /// The stamp of each slot's last use, or [`UNUSED`].
    used: Vec<AtomicU64>,
    earliest: BinaryHeap<Reverse<(u64, Slot)>>,
    stamps: AtomicU64,
    len: usize,
}

impl Lru {
    fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Rebuilds the heap when more than half of it belongs to removed entries.
    fn compact(&mut self) {
        if self.earliest.len() > 2 * self.len + 64 {
            let used = self.used.iter_mut().zip(0..);
            self.earliest = used
                .map(|(used, slot)| (*used.get_mut(), slot))
                .filter(|&(used, _)| used != UNUSED)
                .map(Reverse)
                .collect();
        }
    }
}

impl EvictionPolicy for Lru {
    const NAME: &'static str = "lru";
    const SUMMARY: &'static str = "the least recently requested or written entry";
    /// A stamp, and two heap entries: the heap is rebuilt when half of it is unused.
    const ENTRY_BYTES: usize = size_of::<AtomicU64>() + 2 * size_of::<(u64, Slot)>();

    fn on_insert(&mut self, _entries: &mut impl PolicyEntries, slot: Slot) {
        let stamp = self.stamp();
        if slot as usize >= self.used.len() {
            self.used.resize_with(slot as usize + 1, || AtomicU64::new(UNUSED));
        }
        *self.used[slot as usize].get_mut() = stamp;
        self.earliest.push(Reverse((stamp, slot)));
        self.len += 1;
    }

    fn on_remove(&mut self, _entries: &mut impl PolicyEntries, slot: Slot) {
        *self.used[slot as usize].get_mut() = UNUSED;
        self.len -= 1;
        self.compact();
    }

    fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        loop {
            let mut earliest = self.earliest.peek_mut()?;
            let Reverse((stamp, slot)) = *earliest;
            let used = *self.used[slot as usize].get_mut();
            if used == stamp {
                std::collections::binary_heap::PeekMut::pop(earliest);
                self.on_remove(entries, slot);
                return Some(slot);
            }
            if used == UNUSED {
                std::collections::binary_heap::PeekMut::pop(earliest);
            } else {
                *earliest = Reverse((used, slot));
            }
        }
    }

    fn list(&self, _entries: &impl PolicyEntries, list: &mut Vec<Listed>) {
        let used = self.used.iter().map(|used| used.load(Ordering::Relaxed)).zip(0..);
        let used = used.filter(|&(stamp, _)| stamp != UNUSED);
        list.extend(used.map(|(stamp, slot)| Listed { rank: (stamp, 0), slot, hits: 0 }));
    }

    fn on_hit(&self, slot: Slot, _data: &PolicyData) {
        self.used[slot as usize].store(self.stamp(), Ordering::Relaxed);
    }
}
