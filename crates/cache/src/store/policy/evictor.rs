//! A policy without a cache around it.

use super::{
    Policy, PolicyInstance,
    eviction::{PolicyData, PolicyEntries, Slot},
};

/// An eviction policy that decides for a caller who keeps the entries: the code that runs in each shard of a
/// [`Cache`](crate::Cache), for simulators.
///
/// The caller numbers its entries from 0, densely: memory is 16 bytes up to the highest number, and
/// [`entry_bytes`](Policy::entry_bytes).
///
/// ```
/// use stockade_cache::policy::{Evictor, Policy};
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
        &self.0[slot as usize]
    }

    fn hash(&self, slot: Slot) -> u32 {
        slot
    }

    fn weight(&self, slot: Slot) -> u32 {
        self.0[slot as usize].weight
    }
}

impl Evictor {
    /// A policy without entries.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        Self { policy: policy.start(), entries: NumberedEntries::default() }
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

    /// Chooses an entry and forgets it; `None`: there is none.
    pub fn evict(&mut self) -> Option<u32> {
        self.policy.evict(&mut self.entries)
    }
}
