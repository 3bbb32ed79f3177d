//! Loads of a key that are in progress, so that a write or an invalidation of the key can reject their values.

use std::{hash::Hash, sync::Arc};

use foldhash::quality::FixedState;
use hashbrown::{HashMap, hash_map::Entry};
use stockade_model::time::Time;

use super::{
    Store,
    shard::{LookupResult, Shard},
};

/// The keys of a shard that are being loaded, by their hashes. Two keys with one hash count as one, which costs a load.
#[derive(Debug)]
pub(super) struct LoadingKeys(HashMap<u64, LoadingKey, FixedState>);

#[derive(Clone, Copy, Debug, Default)]
struct LoadingKey {
    loads: u32,
    /// Writes and invalidations of the key since the first of these loads began.
    writes: u32,
}

impl LoadingKeys {
    pub(super) fn new(hasher: &FixedState) -> Self {
        Self(HashMap::with_hasher(hasher.clone()))
    }

    /// Returns the number of writes so far.
    fn begin(&mut self, hash: u64) -> u32 {
        let key = self.0.entry(hash).or_default();
        key.loads += 1;
        key.writes
    }

    fn end(&mut self, hash: u64) {
        if let Entry::Occupied(mut key) = self.0.entry(hash) {
            key.get_mut().loads -= 1;
            if key.get().loads == 0 {
                key.remove();
            }
        }
    }

    /// Rejects the loads of a key that are in progress. Returns true if there are any.
    #[inline]
    pub(super) fn reject(&mut self, hash: u64) -> bool {
        // Most writes meet none.
        !self.0.is_empty()
            && self.0.get_mut(&hash).is_some_and(|key| {
                key.writes = key.writes.wrapping_add(1);
                true
            })
    }

    fn writes(&self, hash: u64) -> Option<u32> {
        self.0.get(&hash).map(|key| key.writes)
    }
}

/// One load in progress. Dropping it ends the load.
pub(crate) struct LoadMark<K: Hash + Eq + Clone, V: Clone> {
    store: Arc<Store<K, V>>,
    hash: u64,
    /// The number of writes when it began.
    writes: u32,
    has_ended: bool,
}

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    /// Before the source is asked.
    pub(crate) fn begin_load(self: &Arc<Self>, key: &K) -> LoadMark<K, V> {
        let (hash, writes) = self.write(key, |shard, hash| (hash, shard.loading.begin(hash)));
        self.mark(hash, writes)
    }

    /// Looks a key up, and begins a load of it at the same moment.
    pub(crate) fn look_up_and_begin_load(
        self: &Arc<Self>,
        key: &K,
        now: Time,
    ) -> (LookupResult<V>, LoadMark<K, V>) {
        let (hash, writes, found) =
            self.write(key, |shard, hash| (hash, shard.loading.begin(hash), shard.look_up(hash, key, now)));
        (found, self.mark(hash, writes))
    }

    /// A write that is stored later: it rejects the loads of its key that are in progress, and is itself rejected by later writes.
    pub(crate) fn begin_write(self: &Arc<Self>, key: &K) -> LoadMark<K, V> {
        let (hash, writes) = self.write(key, |shard, hash| {
            self.reject_loads(shard, hash);
            (hash, shard.loading.begin(hash))
        });
        self.mark(hash, writes)
    }

    fn mark(self: &Arc<Self>, hash: u64, writes: u32) -> LoadMark<K, V> {
        LoadMark { store: Arc::clone(self), hash, writes, has_ended: false }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> LoadMark<K, V> {
    /// Ends the load under the lock of its shard. False: its key was written or invalidated meanwhile.
    #[inline]
    pub(super) fn end(&mut self, shard: &mut Shard<K, V>) -> bool {
        let is_current = shard.loading.writes(self.hash) == Some(self.writes);
        shard.loading.end(self.hash);
        self.has_ended = true;
        is_current
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Drop for LoadMark<K, V> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.store.parts.part(self.hash).shard.write().loading.end(self.hash);
        }
    }
}
