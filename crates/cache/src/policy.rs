//! Which entry goes when room is needed: one file a policy, one registry.
//!
//! A policy is pure: no lock, no clock, no entry. It knows entries by their [`Slot`], is told what
//! happens to them, and says which one goes. A hit is told through a shared reference, so that
//! lookups need no exclusive lock; it may leave a mark, and what the mark means is decided at eviction.

mod fifo;
mod lru;
mod lrw;
mod s3_fifo;
pub(crate) mod sieve;

use std::fmt::Debug;

use stockade_model::nearest::remedy;

/// The number of an entry within its shard. Numbers are small: those of entries that left are used again.
pub type Slot = u32;

/// An eviction policy at work on the entries of one shard.
pub trait Evict: Debug + Send + Sync {
    /// There is a new entry, and this is the hash of its key.
    fn admit(&mut self, slot: Slot, hash: u64);

    /// An entry left for a reason of its own.
    fn remove(&mut self, slot: Slot);

    /// Chooses an entry and forgets it; `None`: there is none.
    fn evict(&mut self) -> Option<Slot>;

    /// A lookup found the entry. Others may be told so at the same time.
    fn hit(&self, slot: Slot) {
        _ = slot;
    }

    /// The entry was written anew.
    fn rewrite(&mut self, slot: Slot) {
        self.hit(slot);
    }
}

/// A policy with a name.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// As experiment files call it.
    pub name: &'static str,
    /// What goes first, and what it is good for.
    pub summary: &'static str,
    /// What it keeps for each entry, in bytes.
    pub entry_bytes: usize,
    make: fn() -> Box<dyn Evict>,
}

/// Every policy.
pub static POLICIES: [Policy; 4] = [
    Policy {
        name: "sieve",
        summary: "the oldest that was not asked for since the hand last passed it (Zhang et al., NSDI 2024)",
        entry_bytes: sieve::ENTRY_BYTES,
        make: || Box::new(sieve::Sieve::default()),
    },
    Policy {
        name: "lrw",
        summary: "the least recently written, asked for or not (Cachex)",
        entry_bytes: lrw::ENTRY_BYTES,
        make: || Box::new(lrw::Lrw::default()),
    },
    Policy {
        name: "lru",
        summary: "the least recently asked for or written",
        entry_bytes: lru::ENTRY_BYTES,
        make: || Box::new(lru::Lru::default()),
    },
    Policy {
        name: "s3-fifo",
        summary: "the newcomer that nobody asked for twice; the others go in turns (Yang et al., SOSP 2023)",
        entry_bytes: s3_fifo::ENTRY_BYTES,
        make: || Box::new(s3_fifo::S3Fifo::default()),
    },
];

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

    /// The policy with this name.
    pub fn named(name: &str) -> Result<&'static Self, UnknownPolicy> {
        POLICIES.iter().find(|policy| policy.name == name).ok_or_else(|| UnknownPolicy {
            name: name.to_owned(),
            remedy: remedy(name, POLICIES.iter().map(|policy| policy.name)),
        })
    }

    /// Puts it to work on an empty shard.
    #[must_use]
    pub fn start(&self) -> Box<dyn Evict> {
        (self.make)()
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
