//! The store: shards behind locks.

use std::{borrow::Borrow, hash::Hash};

use stockade_model::{seed::Seed, time::Time};

use crate::{
    shard::{Found, Shard, Version},
    sharded::Sharded,
};

/// Locks one shard at a time, for as long as a map operation takes. Old values are handed back by
/// the shard, so that they are dropped outside the lock.
#[derive(Debug)]
pub(crate) struct Store<K, V>(Sharded<Shard<K, V>>);

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    pub(crate) fn new(seed: Seed) -> Self {
        Self(Sharded::new(seed, Shard::new))
    }

    pub(crate) fn look_up<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Time) -> Found<V>
    where
        K: Borrow<Q>,
    {
        self.0.part(key).lock().look_up(key, now)
    }

    pub(crate) fn version(&self, key: &K) -> Version {
        self.0.part(key).lock().version(key)
    }

    pub(crate) fn publish(&self, key: K, value: V, expires: Option<Time>) {
        let old = self.0.part(&key).lock().publish(key, value, expires);
        drop(old);
    }

    pub(crate) fn claim(&self, key: &K, seen: Version) -> bool {
        self.0.part(key).lock().claim(key, seen)
    }

    pub(crate) fn unclaim(&self, key: &K, seen: Version) {
        self.0.part(key).lock().unclaim(key, seen);
    }

    pub(crate) fn begin_load(&self, key: &K, now: Time, closes: Time) -> bool {
        self.0.part(key).lock().begin_load(key, now, closes)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.sum(Shard::len)
    }
}
