//! A policy without a cache around it.

use std::time::Duration;

use stockade_model::{seed::Seed, time::Time};

use crate::{
    freshness::Lifetime,
    limit::Limit,
    policy::{Policy, PolicyData, PolicyEntries, PolicyInstance, Slot},
    shadow::{SampledGhosts, StoredTimes, first_policy},
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

/// The times and the weight of a value, for [`Policy::AUTO`]: an [`Evictor`] has no clock.
#[derive(Clone, Copy, Debug)]
pub struct EntryTimes {
    /// The end of its load.
    pub loaded: Time,
    /// For how long it is fresh from then on; `None`: for ever.
    pub ttl: Option<Duration>,
    /// For how long after that it is served while a load is under way.
    pub swr: Duration,
    /// In bytes, with a limit in bytes.
    pub weight: u32,
}

impl EntryTimes {
    fn stored(&self) -> StoredTimes {
        let life = Lifetime::simple(self.loaded, self.ttl, self.swr);
        StoredTimes { life, weight: self.weight, is_marker: false }
    }
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
    pub fn request(&mut self, entry: u32, at: Time, found: Option<EntryTimes>) {
        let hash = spread(entry);
        if self.ghosts.may_sample(hash)
            && self.ghosts.request(hash, at, found.as_ref().map(EntryTimes::stored))
        {
            self.policy.switch_to(self.ghosts.chosen(), &mut self.entries);
        }
    }

    /// A load that took so long has ended, and its value is stored. Only for [`Policy::AUTO`].
    #[inline]
    pub fn loaded(&mut self, entry: u32, at: Time, value: EntryTimes, took: Duration) {
        let hash = spread(entry);
        if self.ghosts.may_sample(hash) {
            self.ghosts.stored(hash, at, value.stored(), took);
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

    /// Chooses an entry and forgets it; `None`: there are no entries.
    pub fn evict(&mut self) -> Option<u32> {
        self.policy.evict(&mut self.entries)
    }
}

/// The hash of an entry for the sample.
fn spread(entry: u32) -> u64 {
    // The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    let mut hash = (u64::from(entry) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
