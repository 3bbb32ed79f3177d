//! The rules that simulators of a cache share with it: the states of an entry, and an eviction policy without a store. Pure.
//!
//! ```
//! use std::time::Duration;
//! use stockade_cache::{
//!     Outcome, Time,
//!     simulation::{Lifetime, Spans},
//! };
//!
//! let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
//! // Loaded at 0 s, refreshed from 50 s on, fresh until 60 s, then stale for 10 s.
//! let life = Lifetime::new(at(0), at(50), at(60), Spans::stale(Duration::from_secs(10)));
//! let answer = |seconds, is_loading| life.state(at(seconds), || (at(seconds), 0.0)).answer(is_loading);
//! assert_eq!((answer(49, false).outcome, answer(49, false).starts_load), (Outcome::Hit, false));
//! assert_eq!((answer(50, false).outcome, answer(50, false).starts_load), (Outcome::Hit, true));
//! assert_eq!((answer(69, true).outcome, answer(69, true).starts_load), (Outcome::Stale, false));
//! assert_eq!((answer(70, true).outcome, answer(70, false).outcome), (Outcome::Coalesced, Outcome::Miss));
//! ```

use std::time::Duration;

use stockade_model::{
    seed::{Seed, mixed},
    time::Time,
};

use crate::{
    limit::Limit,
    policy::{Policy, PolicyData, PolicyEntries, PolicyInstance, Slot},
    shadow::{SampledGhosts, first_policy},
};

pub use crate::{
    freshness::{EntryAnswer, FreshnessState, Lifetime, Spans},
    shadow::StoredFacts,
};

/// An eviction policy that decides for a caller who keeps the entries: the code that runs in each shard of a
/// [`Cache`](crate::Cache), for simulators.
///
/// The caller numbers its entries from 0, densely: memory is 16 bytes up to the highest number, and
/// [`entry_bytes`](Policy::entry_bytes).
///
/// ```
/// use stockade_cache::{Policy, simulation::Evictor};
///
/// let mut evictor = Evictor::new(Policy::SIEVE);
/// (0..3).for_each(|entry| evictor.insert(entry));
/// evictor.hit(0);
/// assert_eq!(evictor.evict(), Some(1));
/// ```
#[derive(Debug)]
pub struct Evictor {
    policy: PolicyInstance,
    entries: NumberedEntries,
    /// Under [`Policy::AUTO`].
    ghosts: SampledGhosts,
}

/// The hash of an entry is its number: different entries have different hashes.
#[derive(Debug, Default)]
struct NumberedEntries(Vec<NumberedEntry>);

#[derive(Debug, Default)]
struct NumberedEntry {
    data: PolicyData,
    weight: u32,
}

impl PolicyEntries for NumberedEntries {
    #[inline]
    fn data(&mut self, slot: Slot) -> &mut PolicyData {
        &mut self.0[slot as usize].data
    }

    fn see(&self, slot: Slot) -> &PolicyData {
        &self.0[slot as usize].data
    }

    fn hash(&self, slot: Slot) -> u32 {
        slot
    }

    fn weight(&self, slot: Slot) -> u32 {
        self.0[slot as usize].weight
    }
}

impl Evictor {
    /// A policy without entries. [`Policy::AUTO`] needs a [limit](Self::with_limit); without one it stays what it starts with.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        Self { policy: policy.start(), entries: NumberedEntries::default(), ghosts: SampledGhosts::none() }
    }

    /// The policy of a limit. Under [`Policy::AUTO`] it has the ghosts of a cache with this limit, and sees requests by
    /// [`request`](Self::request) and [`loaded`](Self::loaded).
    #[must_use]
    pub fn with_limit(limit: &Limit, seed: Seed) -> Self {
        Self { ghosts: SampledGhosts::new(None, Some(limit), seed), ..Self::new(first_policy(limit)) }
    }

    /// The policy that evicts: the one that [`Policy::AUTO`] has chosen.
    #[must_use]
    pub fn policy(&self) -> &'static Policy {
        self.policy.policy().unwrap_or(Policy::SIEVE)
    }

    /// A request, before its [`hit`](Self::hit) or [`insert`](Self::insert). `found` is the stored value, fresh or not. Only for
    /// [`Policy::AUTO`].
    #[inline]
    pub fn request(&mut self, entry: u32, at: Time, found: Option<StoredFacts>) {
        let hash = spread(entry);
        if self.ghosts.may_sample(hash) && self.ghosts.request(hash, at, found) {
            self.policy.switch_to(self.ghosts.chosen(), &mut self.entries);
        }
    }

    /// A load that took so long has ended, and its value is stored. Only for [`Policy::AUTO`].
    #[inline]
    pub fn loaded(&mut self, entry: u32, at: Time, value: StoredFacts, took: Duration) {
        let hash = spread(entry);
        if self.ghosts.may_sample(hash) {
            self.ghosts.stored(hash, at, value, took);
        }
    }

    /// Adds an entry that is not there, with a weight of 1.
    pub fn insert(&mut self, entry: u32) {
        self.insert_weighted(entry, 1);
    }

    /// Adds an entry that is not there. Its weight counts for policies that compare sizes.
    pub fn insert_weighted(&mut self, entry: u32, weight: u32) {
        let entries = &mut self.entries.0;
        if entry as usize >= entries.len() {
            entries.resize_with(entry as usize + 1, NumberedEntry::default);
        }
        entries[entry as usize] = NumberedEntry { data: PolicyData::default(), weight };
        self.policy.on_insert(&mut self.entries, entry);
    }

    /// A lookup found the entry.
    #[inline]
    pub fn hit(&mut self, entry: u32) {
        self.policy.on_hit(entry, &self.entries.0[entry as usize].data);
    }

    /// The value of the entry was replaced by one of the same weight.
    pub fn update(&mut self, entry: u32) {
        self.policy.on_update(&mut self.entries, entry);
    }

    /// The value of the entry was replaced by one of this weight.
    pub fn update_weighted(&mut self, entry: u32, weight: u32) {
        self.entries.0[entry as usize].weight = weight;
        self.update(entry);
    }

    /// The entry leaves for another reason than eviction, such as its expiry.
    pub fn remove(&mut self, entry: u32) {
        self.policy.on_remove(&mut self.entries, entry);
    }

    /// Chooses an entry and forgets it; `None` without entries.
    pub fn evict(&mut self) -> Option<u32> {
        self.policy.evict(&mut self.entries)
    }
}

/// The hash of an entry for the sample.
fn spread(entry: u32) -> u64 {
    mixed((u64::from(entry) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
