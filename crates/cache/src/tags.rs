//! Which entries of a shard have which tag.

use std::{
    collections::BTreeSet,
    hash::BuildHasher,
    ops::Bound::{Excluded, Included},
    sync::Arc,
};

use foldhash::quality::FixedState;

use crate::policy::Slot;

/// Tells the tags of a value, one call each.
pub(crate) type TagsOf<K, V> = Arc<dyn Fn(&K, &V, &mut dyn FnMut(&str)) + Send + Sync>;

/// What a tag costs in bytes: its hash and a slot, in a tree whose nodes are two thirds full.
pub(crate) const TAG_BYTES: usize = 32;

/// How tags are told and hashed, in all shards.
pub(crate) struct Tagging<K, V> {
    of: TagsOf<K, V>,
    hasher: FixedState,
}

impl<K, V> Clone for Tagging<K, V> {
    fn clone(&self) -> Self {
        Self { of: Arc::clone(&self.of), hasher: self.hasher.clone() }
    }
}

impl<K, V> Tagging<K, V> {
    pub(crate) fn new(of: TagsOf<K, V>, hasher: FixedState) -> Self {
        Self { of, hasher }
    }

    pub(crate) fn hash(&self, tag: &str) -> u64 {
        self.hasher.hash_one(tag)
    }

    pub(crate) fn each(&self, key: &K, value: &V, mut tell: impl FnMut(u64)) {
        (self.of)(key, value, &mut |tag| tell(self.hash(tag)));
    }

    pub(crate) fn has(&self, key: &K, value: &V, hash: u64) -> bool {
        let mut has = false;
        self.each(key, value, |tag| has |= tag == hash);
        has
    }
}

/// The index of one shard.
pub(crate) struct Tags<K, V> {
    tagging: Tagging<K, V>,
    entries: BTreeSet<(u64, Slot)>,
}

impl<K, V> Tags<K, V> {
    pub(crate) fn new(tagging: Tagging<K, V>) -> Self {
        Self { tagging, entries: BTreeSet::new() }
    }

    pub(crate) fn add(&mut self, slot: Slot, key: &K, value: &V) {
        let Self { tagging, entries } = self;
        tagging.each(key, value, |tag| {
            entries.insert((tag, slot));
        });
    }

    pub(crate) fn remove(&mut self, slot: Slot, key: &K, value: &V) {
        let Self { tagging, entries } = self;
        tagging.each(key, value, |tag| {
            entries.remove(&(tag, slot));
        });
    }

    /// A few of the entries with a tag, in order, after this slot.
    pub(crate) fn slots(&self, tag: u64, after: Option<Slot>, most: usize) -> Vec<Slot> {
        let from = after.map_or(Included((tag, 0)), |slot| Excluded((tag, slot)));
        self.entries.range((from, Included((tag, Slot::MAX)))).map(|(_, slot)| *slot).take(most).collect()
    }
}

impl<K, V> std::fmt::Debug for Tags<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tags").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}
