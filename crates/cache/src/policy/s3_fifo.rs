//! S3-FIFO: a small queue for newcomers, a main one for who was asked for, and the hashes of those
//! who left the small one in vain (Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for
//! cache eviction", SOSP 2023).

use std::{collections::VecDeque, sync::atomic::Ordering};

use foldhash::quality::FixedState;
use hashbrown::{HashMap, hash_map};

use super::{Evict, Place, Places, Slot, fifo::Fifo};

/// Hits that count. The paper has two bits.
const HITS_MAX: u8 = 3;
/// Hits that move a newcomer to the main queue.
const HITS_TO_STAY: u8 = 2;
/// Of the mark: set for who is in the main queue. The bits below count hits.
const MAIN: u8 = 1 << 7;
/// The small queue has a tenth of all entries.
const SMALL_SHARE: u32 = 10;

/// A ghost: an entry of a map that is half full, and one of a queue.
pub(super) const ENTRY_BYTES: usize = 2 * size_of::<(u32, u64)>() + size_of::<(u32, u64)>();

#[derive(Debug, Default)]
pub(crate) struct S3Fifo {
    small: Fifo,
    main: Fifo,
    ghosts: Ghosts,
}

impl S3Fifo {
    fn small_share(&self) -> u32 {
        ((self.small.len() + self.main.len()) / SMALL_SHARE).max(1)
    }

    /// Gives the oldest newcomer that nobody asked for; the others move to the main queue.
    fn evict_newcomer(&mut self, places: &mut impl Places) -> Option<Slot> {
        // As many ghosts as the main queue has room.
        let ghosts_max = (self.small.len() + self.main.len()).saturating_sub(self.small_share());
        while let Some(slot) = self.small.pop(places) {
            let mark = places.place(slot).mark.get_mut();
            if *mark < HITS_TO_STAY {
                self.ghosts.add(places.hash(slot), ghosts_max as usize);
                return Some(slot);
            }
            *mark = MAIN;
            self.main.push(places, slot);
        }
        None
    }

    /// Gives the oldest that has used up its hits; each turn in the queue costs one.
    fn evict_main(&mut self, places: &mut impl Places) -> Option<Slot> {
        while let Some(slot) = self.main.pop(places) {
            let mark = places.place(slot).mark.get_mut();
            if *mark == MAIN {
                return Some(slot);
            }
            *mark -= 1;
            self.main.push(places, slot);
        }
        None
    }
}

impl Evict for S3Fifo {
    fn admit(&mut self, places: &mut impl Places, slot: Slot) {
        if self.ghosts.remove(places.hash(slot)) {
            *places.place(slot).mark.get_mut() = MAIN;
            self.main.push(places, slot);
        } else {
            self.small.push(places, slot);
        }
    }

    fn remove(&mut self, places: &mut impl Places, slot: Slot) {
        let is_main = *places.place(slot).mark.get_mut() & MAIN != 0;
        let queue = if is_main { &mut self.main } else { &mut self.small };
        queue.remove(places, slot);
    }

    fn evict(&mut self, places: &mut impl Places) -> Option<Slot> {
        if self.small.len() >= self.small_share()
            && let Some(slot) = self.evict_newcomer(places)
        {
            return Some(slot);
        }
        self.evict_main(places).or_else(|| self.evict_newcomer(places))
    }

    fn hit(&self, _slot: Slot, place: &Place) {
        let mark = place.mark.load(Ordering::Relaxed);
        if mark & !MAIN < HITS_MAX {
            // Two hits at once may count as one.
            place.mark.store(mark + 1, Ordering::Relaxed);
        }
    }
}

/// The last who left the small queue, by a part of their keys' hashes.
#[derive(Debug)]
struct Ghosts {
    /// When each was added last.
    added: HashMap<u32, u64, FixedState>,
    queue: VecDeque<(u32, u64)>,
    additions: u64,
}

impl Default for Ghosts {
    fn default() -> Self {
        Self { added: HashMap::with_hasher(FixedState::default()), queue: VecDeque::new(), additions: 0 }
    }
}

impl Ghosts {
    /// Adds one, and forgets the oldest of more than `most`.
    fn add(&mut self, hash: u32, most: usize) {
        self.additions += 1;
        self.added.insert(hash, self.additions);
        self.queue.push_back((hash, self.additions));
        while self.queue.len() > most {
            let Some((oldest, addition)) = self.queue.pop_front() else { return };
            if let hash_map::Entry::Occupied(added) = self.added.entry(oldest)
                && *added.get() == addition
            {
                added.remove();
            }
        }
    }

    fn remove(&mut self, hash: u32) -> bool {
        self.added.remove(&hash).is_some()
    }
}
