//! S3-FIFO: a small queue for newcomers, a main one for who was asked for, and the hashes of those
//! who left the small one in vain (Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for
//! cache eviction", SOSP 2023).

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU8, Ordering},
};

use foldhash::quality::FixedState;
use hashbrown::{HashMap, hash_map};

use super::{
    Evict, Slot,
    fifo::{self, Fifo, Places},
};

/// Hits that count. The paper has two bits.
const HITS_MAX: u8 = 3;
/// Hits that move a newcomer to the main queue.
const HITS_TO_STAY: u8 = 2;
/// The small queue has a tenth of all entries.
const SMALL_SHARE: usize = 10;

/// Its place and what is known of it, and a ghost: an entry of a map and one of a queue.
pub(super) const ENTRY_BYTES: usize =
    fifo::ENTRY_BYTES + size_of::<Known>() + size_of::<(u32, u64)>() * 2 + size_of::<(u32, u64)>();

#[derive(Debug, Default)]
pub(super) struct S3Fifo {
    small: Fifo,
    main: Fifo,
    places: Places,
    known: Vec<Known>,
    ghosts: Ghosts,
}

#[derive(Debug, Default)]
struct Known {
    fingerprint: u32,
    hits: AtomicU8,
    is_main: bool,
}

impl S3Fifo {
    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn small_share(&self) -> usize {
        (self.len() / SMALL_SHARE).max(1)
    }

    /// Gives the oldest newcomer that nobody asked for; the others move to the main queue.
    fn evict_newcomer(&mut self) -> Option<Slot> {
        // As many ghosts as the main queue has room.
        let ghosts_max = self.len().saturating_sub(self.small_share());
        while let Some(slot) = self.small.pop(&mut self.places) {
            let known = &mut self.known[slot as usize];
            if *known.hits.get_mut() < HITS_TO_STAY {
                self.ghosts.add(known.fingerprint, ghosts_max);
                return Some(slot);
            }
            *known.hits.get_mut() = 0;
            known.is_main = true;
            self.main.push(&mut self.places, slot);
        }
        None
    }

    /// Gives the oldest that has used up its hits; each turn in the queue costs one.
    fn evict_main(&mut self) -> Option<Slot> {
        while let Some(slot) = self.main.pop(&mut self.places) {
            let hits = self.known[slot as usize].hits.get_mut();
            if *hits == 0 {
                return Some(slot);
            }
            *hits -= 1;
            self.main.push(&mut self.places, slot);
        }
        None
    }
}

impl Evict for S3Fifo {
    fn admit(&mut self, slot: Slot, hash: u64) {
        let fingerprint = (hash >> 32) as u32;
        let is_main = self.ghosts.remove(fingerprint);
        if slot as usize >= self.known.len() {
            self.known.resize_with(slot as usize + 1, Known::default);
        }
        self.known[slot as usize] = Known { fingerprint, hits: AtomicU8::new(0), is_main };
        let queue = if is_main { &mut self.main } else { &mut self.small };
        queue.push(&mut self.places, slot);
    }

    fn remove(&mut self, slot: Slot) {
        let queue = if self.known[slot as usize].is_main { &mut self.main } else { &mut self.small };
        queue.remove(&mut self.places, slot);
    }

    fn evict(&mut self) -> Option<Slot> {
        if self.small.len() >= self.small_share()
            && let Some(slot) = self.evict_newcomer()
        {
            return Some(slot);
        }
        self.evict_main().or_else(|| self.evict_newcomer())
    }

    fn hit(&self, slot: Slot) {
        let hits = &self.known[slot as usize].hits;
        let so_far = hits.load(Ordering::Relaxed);
        if so_far < HITS_MAX {
            // Two hits at once may count as one.
            hits.store(so_far + 1, Ordering::Relaxed);
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
    fn add(&mut self, fingerprint: u32, most: usize) {
        self.additions += 1;
        self.added.insert(fingerprint, self.additions);
        self.queue.push_back((fingerprint, self.additions));
        while self.queue.len() > most {
            let Some((oldest, addition)) = self.queue.pop_front() else { return };
            if let hash_map::Entry::Occupied(added) = self.added.entry(oldest)
                && *added.get() == addition
            {
                added.remove();
            }
        }
    }

    fn remove(&mut self, fingerprint: u32) -> bool {
        self.added.remove(&fingerprint).is_some()
    }
}
