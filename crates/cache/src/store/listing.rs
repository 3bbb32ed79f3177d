//! All entries of the store, read a few at a time while lookups and stores continue.

use std::hash::Hash;

use stockade_model::time::Time;

use super::{
    Store,
    shard::{EntryCopy, Shard},
};
use crate::policy::{Listed, Slot};

/// Entries that are read under one lock.
const READ_AT_ONCE: usize = 64;

/// Reads all entries, in an order in which they can be stored again: the next to be evicted come first. The shards take
/// turns, so that a store with other shards receives the entries of each in order, too.
///
/// Costs 8 bytes an entry. Entries that are stored meanwhile may be missed, and one that is replaced is read once, old or new. No
/// key is read twice, but for one in 16 million of those that are removed and stored again meanwhile.
pub(crate) struct Listing {
    shards: Vec<Vec<ListedSlot>>,
    round: usize,
    rounds: usize,
    /// The shard that is read next.
    next: usize,
}

/// A slot with 24 bits of the hash of its key, above the hits that the policy remembers.
#[derive(Clone, Copy)]
struct ListedSlot {
    slot: Slot,
    hash_and_hits: u32,
}

impl ListedSlot {
    fn of<K, V>(listed: &Listed, shard: &Shard<K, V>) -> Self
    where
        K: Hash + Eq + Clone,
        V: Clone,
    {
        let hash = shard.short_hash(listed.slot).unwrap_or(0);
        Self { slot: listed.slot, hash_and_hits: hash & !0xff | u32::from(listed.hits) }
    }

    fn hits(self) -> u8 {
        (self.hash_and_hits & 0xff) as u8
    }

    /// False: another key has the slot since.
    fn is_still(self, hash: u32) -> bool {
        (self.hash_and_hits ^ hash) & !0xff == 0
    }
}

impl Listing {
    /// Stores of a shard wait while its policy lists its entries: some milliseconds for a hundred thousand.
    pub(crate) fn new<K: Hash + Eq + Clone, V: Clone>(store: &Store<K, V>) -> Self {
        let list = |shard: &Shard<K, V>| {
            let mut list = shard.list();
            list.sort_unstable();
            list.iter().map(|listed| ListedSlot::of(listed, shard)).collect()
        };
        let shards: Vec<Vec<_>> = store.parts.iter().map(|part| list(&part.shard.read())).collect();
        let rounds = shards.iter().map(|shard| shard.len().div_ceil(READ_AT_ONCE)).max().unwrap_or(0);
        Self { shards, round: 0, rounds, next: 0 }
    }

    /// The next entries that are still stored; `None` after the last. `out` is emptied first.
    pub(crate) fn next<K: Hash + Eq + Clone, V: Clone>(
        &mut self,
        store: &Store<K, V>,
        now: Time,
        out: &mut Vec<(EntryCopy<K, V>, u8)>,
    ) -> Option<()> {
        out.clear();
        if self.round == self.rounds {
            return None;
        }
        let listed = &self.shards[self.next];
        // All shards end in the last round, however many entries they have.
        let at = |round| listed.len() * round / self.rounds;
        let listed = &listed[at(self.round)..at(self.round + 1)];
        let shard = store.parts.iter().nth(self.next)?.shard.read();
        out.extend(listed.iter().filter_map(|listed| {
            shard.short_hash(listed.slot).filter(|&hash| listed.is_still(hash))?;
            Some((shard.copy(listed.slot, now)?, listed.hits()))
        }));
        drop(shard);
        self.next += 1;
        if self.next == self.shards.len() {
            (self.next, self.round) = (0, self.round + 1);
        }
        Some(())
    }
}
