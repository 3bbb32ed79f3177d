//! S3-FIFO: a small queue for new entries, a main queue for entries that were requested again, and the hashes of entries
//! evicted from the small queue (Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction",
//! SOSP 2023).

use std::{collections::VecDeque, sync::atomic::Ordering};

use hashbrown::{
    HashTable,
    hash_table::{AbsentEntry, OccupiedEntry},
};

use super::{
    eviction::{EvictionPolicy, Listed, PolicyData, PolicyEntries, Slot},
    fifo::FifoQueue,
};
use crate::sharded::lengthen;

/// The counter's maximum: the paper has two bits.
const HITS_MAX: u8 = 3;
/// Hits after which a new entry moves to the main queue.
const HITS_TO_PROMOTE: u8 = 2;
/// The bit of the mark that is set for entries in the main queue. The bits below count hits.
const MAIN: u8 = 1 << 7;
/// The small queue holds a tenth of all entries.
const SMALL_DIVISOR: u32 = 10;

#[derive(Debug, Default)]
pub(crate) struct S3Fifo {
    small: FifoQueue,
    main: FifoQueue,
    ghosts: EvictedHashes,
}

impl S3Fifo {
    fn small_share(&self) -> u32 {
        ((self.small.len() + self.main.len()) / SMALL_DIVISOR).max(1)
    }

    /// Evicts the oldest entry that was not promoted. Older ones move to the main queue.
    fn evict_small(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        // As many ghosts as the main queue holds entries.
        let ghosts_max = (self.small.len() + self.main.len()).saturating_sub(self.small_share());
        while let Some(slot) = self.small.pop(entries) {
            let mark = entries.data(slot).mark.get_mut();
            if *mark < HITS_TO_PROMOTE {
                self.ghosts.add(entries.hash(slot), ghosts_max as usize);
                return Some(slot);
            }
            *mark = MAIN;
            self.main.push(entries, slot);
        }
        None
    }

    /// Evicts the oldest entry without hits. Each pass through the queue costs an entry one hit.
    fn evict_main(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        while let Some(slot) = self.main.pop(entries) {
            let mark = entries.data(slot).mark.get_mut();
            if *mark == MAIN {
                return Some(slot);
            }
            *mark -= 1;
            self.main.push(entries, slot);
        }
        None
    }
}

impl EvictionPolicy for S3Fifo {
    const NAME: &'static str = "s3-fifo";
    const SUMMARY: &'static str =
        "new entries that were not requested twice; the others in turns (Yang et al., SOSP 2023)";
    /// A ghost: an element of a half-full table with its control byte, and one of a half-full queue.
    const ENTRY_BYTES: usize = 2 * (size_of::<u32>() + 1) + 2 * size_of::<u32>();

    fn on_insert(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        if self.ghosts.remove(entries.hash(slot)) {
            *entries.data(slot).mark.get_mut() = MAIN;
            self.main.push(entries, slot);
        } else {
            self.small.push(entries, slot);
        }
    }

    fn on_remove(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        let is_main = *entries.data(slot).mark.get_mut() & MAIN != 0;
        let queue = if is_main { &mut self.main } else { &mut self.small };
        queue.remove(entries, slot);
    }

    fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        if self.small.len() >= self.small_share()
            && let Some(slot) = self.evict_small(entries)
        {
            return Some(slot);
        }
        self.evict_main(entries).or_else(|| self.evict_small(entries))
    }

    fn list(&self, entries: &impl PolicyEntries, list: &mut Vec<Listed>) {
        self.small.list(entries, list, |mark| mark);
        // This number of hits brings an entry to the main queue again.
        self.main.list(entries, list, |mark| (mark & !MAIN).max(HITS_TO_PROMOTE));
    }

    fn take_next(&mut self, entries: &mut impl PolicyEntries) -> Option<(Slot, u32)> {
        let slot = self.small.pop(entries).or_else(|| self.main.pop(entries))?;
        Some((slot, (*entries.data(slot).mark.get_mut() & !MAIN).into()))
    }

    fn on_hit(&self, _slot: Slot, data: &PolicyData) {
        let mark = data.mark.load(Ordering::Relaxed);
        if mark & !MAIN < HITS_MAX {
            // Concurrent hits may count as one.
            data.mark.store(mark + 1, Ordering::Relaxed);
        }
    }
}

/// Hashes of the keys that were evicted from the small queue last.
#[derive(Debug, Default)]
struct EvictedHashes {
    /// In the order of their addition.
    queue: VecDeque<u32>,
    /// The number of the first addition in the queue. Numbers wrap around.
    first: u32,
    /// The number of the last addition of each hash.
    numbers: HashTable<u32>,
}

impl EvictedHashes {
    /// Adds a hash, and forgets the oldest beyond `len_max`.
    fn add(&mut self, hash: u32, len_max: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "fewer than slots")]
        let number = self.first.wrapping_add(self.queue.len() as u32);
        self.queue.push_back(hash);
        match self.find(hash) {
            Ok(mut known) => *known.get_mut() = number,
            Err(_) => {
                let (queue, first) = (&self.queue, self.first);
                let hash_of = |number: &u32| lengthen(queue[number.wrapping_sub(first) as usize]);
                self.numbers.insert_unique(lengthen(hash), number, hash_of);
            }
        }
        while self.queue.len() > len_max {
            let Some(oldest) = self.queue.pop_front() else { return };
            let number = self.first;
            // It may have been added again, or removed.
            if let Ok(last) = self.numbers.find_entry(lengthen(oldest), |last| *last == number) {
                last.remove();
            }
            self.first = number.wrapping_add(1);
        }
    }

    fn remove(&mut self, hash: u32) -> bool {
        self.find(hash).is_ok_and(|known| {
            known.remove();
            true
        })
    }

    fn find(&mut self, hash: u32) -> Result<OccupiedEntry<'_, u32>, AbsentEntry<'_, u32>> {
        let Self { queue, first, numbers } = self;
        numbers.find_entry(lengthen(hash), |number| queue[number.wrapping_sub(*first) as usize] == hash)
    }
}
