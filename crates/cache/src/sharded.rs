//! Data per key, in parts with a lock each.

use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;
use stockade_model::seed::Seed;

/// Parts of type `P`. A key always maps to the same part.
#[derive(Debug)]
pub(crate) struct Sharded<P> {
    parts: Box<[P]>,
    hasher: FixedState,
}

impl<P> Sharded<P> {
    /// `part` creates a part, given its index and the hasher of its keys.
    pub(crate) fn new(seed: Seed, parts: usize, part: impl Fn(usize, &FixedState) -> P) -> Self {
        assert!(parts.is_power_of_two(), "parts are chosen by bits");
        let hasher = FixedState::with_seed(seed.0);
        Self { parts: (0..parts).map(|number| part(number, &hasher)).collect(), hasher }
    }

    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(crate) fn part(&self, hash: u64) -> &P {
        &self.parts[self.number(hash)]
    }

    pub(crate) fn number(&self, hash: u64) -> usize {
        // The maps inside a part use the low and the top bits of the same hash.
        (hash >> 32) as usize & self.mask()
    }

    /// The bits that number a part. There is one part at least, which the compiler does not know.
    fn mask(&self) -> usize {
        self.parts.len().wrapping_sub(1)
    }

    /// All parts, starting with this one.
    pub(crate) fn from(&self, number: usize) -> impl Iterator<Item = &P> {
        let (before, after) = self.parts.split_at(number & self.mask());
        after.iter().chain(before)
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, P> {
        self.parts.iter()
    }
}

/// The bits of a hash that an entry keeps. They do not depend on the bits that choose the shard.
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub(crate) fn shorten(hash: u64) -> u32 {
    hash as u32
}

/// Spreads the kept bits over 64: the index uses the lowest and the highest ones.
pub(crate) fn lengthen(short: u32) -> u64 {
    u64::from(short).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
