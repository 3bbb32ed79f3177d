//! Which entries of a shard have which tag.

use std::{
    collections::BTreeSet,
    hash::BuildHasher,
    ops::Bound::{Excluded, Included},
};

use foldhash::quality::FixedState;
use hashbrown::HashMap;

use crate::{invalidations::TagHashes, policy::Slot};

/// Tells the tags of a value, one call each.
pub(crate) type TagsOf<K, V> = Box<dyn Fn(&K, &V, &mut dyn FnMut(&str)) + Send + Sync>;

/// What a tag costs in bytes at most: twice its hash, and twice a slot, in a tree whose nodes are two thirds
/// full and in a table that is half full at least.
pub(crate) const TAG_BYTES: usize = 72;

/// How tags are told and hashed, in all shards.
pub(crate) struct Tagging<K, V> {
    of: TagsOf<K, V>,
    hasher: FixedState,
}

impl<K, V> Tagging<K, V> {
    pub(crate) fn new(of: TagsOf<K, V>, hasher: FixedState) -> Self {
        Self { of, hasher }
    }

    pub(crate) fn hash(&self, tag: &str) -> u64 {
        self.hasher.hash_one(tag)
    }

    /// The tags of a value, for who does not know how they are hashed here.
    pub(crate) fn names(&self, key: &K, value: &V) -> Vec<String> {
        let mut names = Vec::new();
        (self.of)(key, value, &mut |tag| names.push(tag.to_owned()));
        names
    }

    /// The user's function is called, so no lock may be held.
    pub(crate) fn hashes(&self, key: &K, value: &V) -> TagHashes {
        let mut hashes = TagHashes::new();
        (self.of)(key, value, &mut |tag| hashes.push(self.hash(tag)));
        hashes
    }
}

/// The index of one shard, both ways.
#[derive(Debug)]
pub(crate) struct Tags {
    entries: BTreeSet<(u64, Slot)>,
    of: HashMap<Slot, TagHashes, FixedState>,
}

impl Tags {
    pub(crate) fn new(hasher: &FixedState) -> Self {
        Self { entries: BTreeSet::new(), of: HashMap::with_hasher(hasher.clone()) }
    }

    /// The entry in this slot has these tags, and no others.
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

    /// A few of the entries with a tag, in order, after this slot.
    pub(crate) fn slots(&self, tag: u64, after: Option<Slot>, most: usize) -> Vec<Slot> {
        let from = after.map_or(Included((tag, 0)), |slot| Excluded((tag, slot)));
        let tagged = self.entries.range((from, Included((tag, Slot::MAX))));
        tagged.map(|(_, slot)| *slot).take(most).collect()
    }
}
