//! Something per key, in parts with a lock each.

use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;
use stockade_model::seed::Seed;

use crate::sync::Lock;

/// Parts of type `T`, each behind its own lock; a key always meets the same one.
#[derive(Debug)]
pub(crate) struct Sharded<T> {
    parts: Box<[Lock<T>]>,
    hasher: FixedState,
}

impl<T> Sharded<T> {
    /// `part` makes one of them, to be hashed with what it is given.
    pub(crate) fn new(seed: Seed, part: impl Fn(FixedState) -> T) -> Self {
        const PARTS: usize = 16;
        let hasher = FixedState::with_seed(seed.0);
        Self { parts: (0..PARTS).map(|_| Lock::new(part(hasher.clone()))).collect(), hasher }
    }

    pub(crate) fn part<Q: Hash + ?Sized>(&self, key: &Q) -> &Lock<T> {
        // The maps inside use the low and the top bits of the same hash; these are neither.
        let bits = (self.hasher.hash_one(key) >> 32) as usize;
        &self.parts[bits % self.parts.len()]
    }

    pub(crate) fn sum(&self, of: impl Fn(&T) -> usize) -> usize {
        self.parts.iter().map(|part| of(&part.lock())).sum()
    }
}
