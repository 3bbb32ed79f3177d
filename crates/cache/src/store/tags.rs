//! The tags of a shard's entries.

use std::{
    collections::BTreeSet,
    hash::BuildHasher,
    ops::Bound::{Excluded, Included},
};

use foldhash::quality::FixedState;
use hashbrown::HashMap;

use crate::{invalidation::TagHashes, policy::Slot};

/// Calls its last argument with each tag of a value.
pub(crate) type TagsFn<K, V> = Box<dyn Fn(&K, &V, &mut dyn FnMut(&str)) + Send + Sync>;

/// Bytes of one tag, at most: its hash and a slot twice, in a tree whose nodes are two thirds full and in a table
/// that is at least half full.
pub(crate) const TAG_BYTES: usize = 72;

/// Hashes tags, in the same way for all shards.
pub(crate) struct TagHasher<K, V> {
    of: TagsFn<K, V>,
    hasher: FixedState,
}

impl<K, V> TagHasher<K, V> {
    pub(crate) fn new(of: TagsFn<K, V>, hasher: FixedState) -> Self {
        Self { of, hasher }
    }

    pub(crate) fn hash(&self, tag: &str) -> u64 {
        self.hasher.hash_one(tag)
    }

    /// The tags of a value as strings, for other nodes.
    pub(crate) fn names(&self, key: &K, value: &V) -> Vec<String> {
        let mut names = Vec::new();
        (self.of)(key, value, &mut |tag| names.push(tag.to_owned()));
        names
    }

    /// Calls the user's function, so no lock may be held.
    pub(crate) fn hashes(&self, key: &K, value: &V) -> TagHashes {
        let mut hashes = TagHashes::new();
        (self.of)(key, value, &mut |tag| hashes.push(self.hash(tag)));
        hashes
    }
}

/// Maps tags to slots and slots to tags, in one shard.
#[derive(Debug)]
pub(crate) struct TagIndex {
    entries: BTreeSet<(u64, Slot)>,
    of: HashMap<Slot, TagHashes, FixedState>,
}

impl TagIndex {
    pub(crate) fn new(hasher: &FixedState) -> Self {
        Self { entries: BTreeSet::new(), of: HashMap::with_hasher(hasher.clone()) }
    }

    /// Replaces the tags of the entry in this slot.
    pub(crate) fn set(&mut self, slot: Slot, tags: &[u64]) {
        self.remove(slot);
        if !tags.is_empty() {
            self.entries.extend(tags.iter().map(|tag| (*tag, slot)));
            self.of.insert(slot, TagHashes::from_slice(tags));
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        for tag in self.of.remove(&slot).into_iter().flatten() {
            self.entries.remove(&(tag, slot));
        }
    }

    /// The number of entries with a tag.
    pub(crate) fn count(&self, tag: u64) -> usize {
        self.entries.range((tag, 0)..=(tag, Slot::MAX)).count()
    }

    /// True if the entry in this slot has a tag.
    pub(crate) fn has(&self, slot: Slot, tag: u64) -> bool {
        self.entries.contains(&(tag, slot))
    }

    /// Some of the entries with a tag, in order, after this slot.
    pub(crate) fn slots(&self, tag: u64, after: Option<Slot>, most: usize) -> Vec<Slot> {
        let from = after.map_or(Included((tag, 0)), |slot| Excluded((tag, slot)));
        let tagged = self.entries.range((from, Included((tag, Slot::MAX))));
        tagged.map(|(_, slot)| *slot).take(most).collect()
    }
}
