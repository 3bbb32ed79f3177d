//! Which entry goes when room is needed: one file a policy, one registry.
//!
//! A policy is pure: no lock, no clock, no value. It knows entries by their slots, is told what
//! happens to them, and says which one goes. What it keeps of an entry stands in the entry, where
//! whoever looks it up or takes it out has it in the cache anyway. A hit is told through a shared
//! reference, so that lookups need no exclusive lock: it may leave a mark, and what the mark means is
//! decided at eviction.

mod fifo;
mod lru;
mod lrw;
mod s3_fifo;
mod sieve;

use std::{fmt::Debug, sync::atomic::AtomicU8};

use stockade_model::nearest::remedy;

/// The number of an entry within its shard. Numbers are small: those of entries that left are used again.
pub(crate) type Slot = u32;

/// What a policy keeps of an entry, in the entry.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Place {
    /// What hits leave. A new entry's is 0.
    mark: AtomicU8,
    neighbours: fifo::Neighbours,
}

/// The entries, as far as policies are concerned.
pub(crate) trait Places {
    /// The place of an entry that is there.
    fn place(&mut self, slot: Slot) -> &mut Place;

    /// A part of the hash of its key.
    fn hash(&self, slot: Slot) -> u32;
}

/// An eviction policy at work on the entries of one shard.
trait Evict {
    /// There is a new entry.
    fn admit(&mut self, places: &mut impl Places, slot: Slot);

    /// An entry is about to leave for a reason of its own.
    fn remove(&mut self, places: &mut impl Places, slot: Slot);

    /// Chooses an entry and forgets it; `None`: there is none.
    fn evict(&mut self, places: &mut impl Places) -> Option<Slot>;

    /// A lookup found the entry. Others may be told so at the same time.
    fn hit(&self, slot: Slot, place: &Place) {
        _ = (slot, place);
    }

    /// The entry was written anew, and has kept its place.
    fn rewrite(&mut self, places: &mut impl Places, slot: Slot) {
        self.hit(slot, places.place(slot));
    }
}

/// A policy with a name.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// As experiment files call it.
    pub name: &'static str,
    /// What goes first, and what it is good for.
    pub summary: &'static str,
    /// What it keeps for each entry beyond the entry's own place, in bytes.
    pub entry_bytes: usize,
    start: fn() -> Working,
}

/// Every policy.
pub static POLICIES: [Policy; 4] = [
    Policy {
        name: "sieve",
        summary: "the oldest that was not asked for since the hand last passed it (Zhang et al., NSDI 2024)",
        entry_bytes: 0,
        start: || Working::Sieve(sieve::Sieve::default()),
    },
    Policy {
        name: "lrw",
        summary: "the least recently written, asked for or not (Cachex)",
        entry_bytes: 0,
        start: || Working::Lrw(lrw::Lrw::default()),
    },
    Policy {
        name: "lru",
        summary: "the least recently asked for or written",
        entry_bytes: lru::ENTRY_BYTES,
        start: || Working::Lru(Box::default()),
    },
    Policy {
        name: "s3-fifo",
        summary: "the newcomer that nobody asked for twice; the others go in turns (Yang et al., SOSP 2023)",
        entry_bytes: s3_fifo::ENTRY_BYTES,
        start: || Working::S3Fifo(Box::default()),
    },
];

/// A policy at work: known by its variant and not behind a pointer, because every hit comes by.
#[derive(Debug)]
pub(crate) enum Working {
    /// Without a limit nobody goes.
    Nobody,
    Sieve(sieve::Sieve),
    Lrw(lrw::Lrw),
    Lru(Box<lru::Lru>),
    S3Fifo(Box<s3_fifo::S3Fifo>),
}

/// The same question to whichever it is.
macro_rules! ask {
    ($working:expr, $policy:ident => $answer:expr, nobody => $otherwise:expr) => {
        match $working {
            Working::Nobody => $otherwise,
            Working::Sieve($policy) => $answer,
            Working::Lrw($policy) => $answer,
            Working::Lru($policy) => $answer,
            Working::S3Fifo($policy) => $answer,
        }
    };
}

impl Working {
    pub(crate) fn admit(&mut self, places: &mut impl Places, slot: Slot) {
        ask!(self, policy => policy.admit(places, slot), nobody => ());
    }

    pub(crate) fn remove(&mut self, places: &mut impl Places, slot: Slot) {
        ask!(self, policy => policy.remove(places, slot), nobody => ());
    }

    pub(crate) fn evict(&mut self, places: &mut impl Places) -> Option<Slot> {
        ask!(self, policy => policy.evict(places), nobody => None)
    }

    #[inline]
    pub(crate) fn hit(&self, slot: Slot, place: &Place) {
        ask!(self, policy => policy.hit(slot, place), nobody => ());
    }

    pub(crate) fn rewrite(&mut self, places: &mut impl Places, slot: Slot) {
        ask!(self, policy => policy.rewrite(places, slot), nobody => ());
    }
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{name}`: {remedy}")]
pub struct UnknownPolicy {
    /// The name asked for.
    pub name: String,
    remedy: String,
}

impl Policy {
    /// The default: as quick as a queue, and its hits are among the best.
    pub const SIEVE: &'static Self = &POLICIES[0];
    /// Belfrage's, for whoever wants to know what was stored by its age alone.
    pub const LRW: &'static Self = &POLICIES[1];
    /// What everybody knows. Exact; a hit writes to a cache line that all hits of its shard share.
    pub const LRU: &'static Self = &POLICIES[2];
    /// For loads with many keys that are asked for once.
    pub const S3_FIFO: &'static Self = &POLICIES[3];

    /// The policy with this name.
    pub fn named(name: &str) -> Result<&'static Self, UnknownPolicy> {
        POLICIES.iter().find(|policy| policy.name == name).ok_or_else(|| UnknownPolicy {
            name: name.to_owned(),
            remedy: remedy(name, POLICIES.iter().map(|policy| policy.name)),
        })
    }

    /// Puts it to work on an empty shard.
    pub(crate) fn start(&self) -> Working {
        (self.start)()
    }
}

/// Two are the same if they have the same name.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Policy {}

#[cfg(test)]
mod tests;
