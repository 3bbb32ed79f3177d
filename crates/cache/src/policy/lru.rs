//! Least recently used, exactly, though a hit moves nothing.
//!
//! A hit stamps its entry. The heap has each entry by a stamp that may be out of date, and never
//! later than the true one: so when the earliest of the heap is up to date, it is the earliest of all,
//! and when it is not, it goes back with its true stamp.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{Evict, Place, Places, Slot};

/// A stamp, and an entry of the heap twice: it is cleared when half of it is out of use.
pub(super) const ENTRY_BYTES: usize = size_of::<AtomicU64>() + 2 * size_of::<(u64, Slot)>();

const GONE: u64 = 0;

#[derive(Debug, Default)]
pub(crate) struct Lru {
    /// When each slot was used last, in stamps; [`GONE`] if nobody has it.
    used: Vec<AtomicU64>,
    earliest: BinaryHeap<Reverse<(u64, Slot)>>,
    stamps: AtomicU64,
    len: usize,
}

impl Lru {
    fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Throws out what removed entries left in the heap, when that is more than half of it.
    fn tidy(&mut self) {
        if self.earliest.len() > 2 * self.len + 64 {
            let used = self.used.iter_mut().zip(0..);
            self.earliest = used
                .map(|(used, slot)| (*used.get_mut(), slot))
                .filter(|&(used, _)| used != GONE)
                .map(Reverse)
                .collect();
        }
    }
}

impl Evict for Lru {
    fn admit(&mut self, _places: &mut impl Places, slot: Slot) {
        let stamp = self.stamp();
        if slot as usize >= self.used.len() {
            self.used.resize_with(slot as usize + 1, || AtomicU64::new(GONE));
        }
        *self.used[slot as usize].get_mut() = stamp;
        self.earliest.push(Reverse((stamp, slot)));
        self.len += 1;
    }

    fn remove(&mut self, _places: &mut impl Places, slot: Slot) {
        *self.used[slot as usize].get_mut() = GONE;
        self.len -= 1;
        self.tidy();
    }

    fn evict(&mut self, places: &mut impl Places) -> Option<Slot> {
        loop {
            let mut earliest = self.earliest.peek_mut()?;
            let Reverse((stamp, slot)) = *earliest;
            let used = *self.used[slot as usize].get_mut();
            if used == stamp {
                std::collections::binary_heap::PeekMut::pop(earliest);
                self.remove(places, slot);
                return Some(slot);
            }
            if used == GONE {
                std::collections::binary_heap::PeekMut::pop(earliest);
            } else {
                *earliest = Reverse((used, slot));
            }
        }
    }

    fn hit(&self, slot: Slot, _place: &Place) {
        self.used[slot as usize].store(self.stamp(), Ordering::Relaxed);
    }
}
