//! The store: shards behind locks, and what they may hold together.

use std::{
    borrow::Borrow,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use stockade_model::{seed::Seed, time::Time};

use crate::{
    budget::{Budget, Reservation},
    limit::{self, Limit},
    shard::{Evictions, Found, Gone, New, Shard, Version},
    sharded::Sharded,
    sync::SharedLock,
};

/// What a key and its value own, in bytes.
pub(crate) type WeighBy<K, V> = Box<dyn Fn(&K, &V) -> usize + Send + Sync>;

/// How many entries one store gives up at most towards what is to be reclaimed.
const RECLAIM_SLICE: usize = 32;

/// Locks one shard at a time, for as long as a map operation takes; a lookup shares the lock. What
/// leaves is handed back by the shard, so that it is dropped outside the lock.
pub(crate) struct Store<K, V> {
    parts: Sharded<Part<K, V>>,
    /// What an entry costs beyond what its key and value own.
    entry_bytes: usize,
    weight: Option<Weight<K, V>>,
    refused: AtomicU64,
    counts_lookups: bool,
}

/// A shard, and what its lookups found: beside the lock, whose cache line a lookup has anyway.
#[repr(C, align(64))]
struct Part<K, V> {
    hits: AtomicU64,
    misses: AtomicU64,
    shard: SharedLock<Shard<K, V>>,
}

/// What is needed where bytes are limited.
struct Weight<K, V> {
    budget: Arc<Budget>,
    weigh: WeighBy<K, V>,
    /// The part that gives up the next entry to be reclaimed.
    reclaims_next: AtomicUsize,
}

/// What the store has seen and done.
#[derive(Default)]
pub(crate) struct Tally {
    /// Hits and misses, if they are counted.
    pub(crate) lookups: Option<(u64, u64)>,
    pub(crate) stores: u64,
    pub(crate) refused: u64,
    pub(crate) evictions: Evictions,
}

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    /// `weigh` is needed if bytes are limited, and not used otherwise.
    pub(crate) fn new(
        seed: Seed,
        limit: Option<&Limit>,
        weigh: Option<WeighBy<K, V>>,
        counts_lookups: bool,
    ) -> Self {
        let shards = limit::shards(limit);
        let entries = limit.and_then(|limit| limit.entries).unwrap_or(usize::MAX);
        let weight = limit.zip(weigh).and_then(|(limit, weigh)| {
            Some(Weight { budget: Arc::new(Budget::new(limit)?), weigh, reclaims_next: AtomicUsize::new(0) })
        });
        let part = |number: usize, hasher: &_| {
            // The first ones take what the division leaves.
            let entries_max = entries / shards + usize::from(number < entries % shards);
            let shard = SharedLock::new(Shard::new(hasher, limit, entries_max));
            Part { hits: AtomicU64::new(0), misses: AtomicU64::new(0), shard }
        };
        let policy_bytes = limit.map_or(0, |limit| limit.policy.entry_bytes);
        Self {
            parts: Sharded::new(seed, shards, part),
            entry_bytes: Shard::<K, V>::ENTRY_BYTES + policy_bytes,
            weight,
            refused: AtomicU64::new(0),
            counts_lookups,
        }
    }

    /// A lookup.
    #[inline]
    pub(crate) fn look_up<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Time) -> Found<V>
    where
        K: Borrow<Q>,
    {
        let hash = self.parts.hash(key);
        let part = self.parts.part(hash);
        let found = part.shard.read().look_up(hash, key, now);
        if self.counts_lookups {
            let count = if matches!(found, Found::Fresh(_)) { &part.hits } else { &part.misses };
            count.fetch_add(1, Relaxed);
        }
        found
    }

    /// Another look for who has been counted already.
    pub(crate) fn look_again(&self, key: &K, now: Time) -> Found<V> {
        self.shared(key, |shard, hash| shard.look_up(hash, key, now))
    }

    pub(crate) fn version(&self, key: &K) -> Version {
        self.shared(key, |shard, hash| shard.version(hash, key))
    }

    pub(crate) fn claim(&self, key: &K, seen: Version) -> bool {
        self.exclusive(key, |shard, hash| shard.claim(hash, key, seen))
    }

    pub(crate) fn unclaim(&self, key: &K, seen: Version) {
        self.exclusive(key, |shard, _| shard.unclaim(key, seen));
    }

    pub(crate) fn begin_load(&self, key: &K, now: Time, closes: Time) -> bool {
        self.exclusive(key, |shard, _| shard.begin_load(key, now, closes))
    }

    /// Stores a value, if the limit has room for it; `reserved` is room that it has already. What was
    /// stored under the key is gone in any case.
    pub(crate) fn publish(&self, key: K, value: V, expires: Time, now: Time, reserved: Option<Reservation>) {
        let hash = self.parts.hash(&key);
        let weight = self.weigh(&key, &value);
        let new = New { hash, key, value, expires, weight };
        let part = self.parts.part(hash);
        let Some(weight) = &self.weight else {
            // The lock is let go before what left is dropped.
            let gone = part.shard.write().publish(new, now);
            drop(gone);
            return;
        };
        self.reclaim(weight, now);
        match self.room(weight, &new, reserved) {
            Some(room) => {
                let gone = part.shard.write().publish(new, now);
                weight.discard(gone);
                room.keep();
            }
            None => {
                let gone = part.shard.write().remove(hash, &new.key);
                weight.discard(gone.into_iter().collect());
                self.refused.fetch_add(1, Relaxed);
            }
        }
    }

    /// In bytes; what is too large to be told is too large to be stored.
    fn weigh(&self, key: &K, value: &V) -> u32 {
        let Some(weight) = &self.weight else { return 0 };
        let bytes = self.entry_bytes.saturating_add((weight.weigh)(key, value));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Room for a value, beside what it has reserved.
    fn room(
        &self,
        weight: &Weight<K, V>,
        new: &New<K, V>,
        reserved: Option<Reservation>,
    ) -> Option<Reservation> {
        let need = new.weight as usize;
        if need > weight.budget.max_object {
            return None;
        }
        let Some(mut room) = reserved else { return self.reserve(weight, new.hash, need) };
        room.shrink(need);
        if room.bytes() < need {
            room.join(self.reserve(weight, new.hash, need - room.bytes())?);
        }
        Some(room)
    }

    /// Room for the load of a key: as much as its value took last, or the most that it may take. `None`
    /// if loads under way have it all.
    pub(crate) fn reserve_for_load(&self, key: &K) -> Option<Reservation> {
        let weight = self.weight.as_ref()?;
        let last = self.shared(key, |shard, hash| shard.weight(hash, key));
        self.reserve(
            weight,
            self.parts.hash(key),
            last.map_or(weight.budget.max_object, |last| last as usize),
        )
    }

    /// Evicts until there is room: from the shard of this hash, and from the others when that is empty.
    fn reserve(&self, weight: &Weight<K, V>, hash: u64, bytes: usize) -> Option<Reservation> {
        loop {
            if let Some(room) = Reservation::try_new(&weight.budget, bytes) {
                return Some(room);
            }
            if weight.budget.begin_reclaim() {
                self.parts.iter().for_each(|part| part.shard.write().begin_purge());
            }
            let mut parts = self.parts.from(self.parts.number(hash));
            let evicted = parts.find_map(|part| part.shard.write().evict())?;
            weight.discard(Gone::from_iter([evicted]));
        }
    }

    /// A slice of what is to be reclaimed, if there is something.
    fn reclaim(&self, weight: &Weight<K, V>, now: Time) {
        for _ in 0..RECLAIM_SLICE {
            if !weight.budget.is_reclaiming() {
                return;
            }
            let mut gone = Gone::new();
            if let Some(part) = self.parts.from(weight.reclaims_next.fetch_add(1, Relaxed)).next() {
                part.shard.write().give_up(now, &mut gone);
            }
            weight.discard(gone);
        }
    }

    pub(crate) fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    pub(crate) fn budget(&self) -> Option<&Arc<Budget>> {
        self.weight.as_ref().map(|weight| &weight.budget)
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.shard.read().len()).sum()
    }

    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally {
            refused: self.refused.load(Relaxed),
            lookups: self.counts_lookups.then_some((0, 0)),
            ..Tally::default()
        };
        for part in self.parts.iter() {
            if let Some((hits, misses)) = &mut tally.lookups {
                *hits += part.hits.load(Relaxed);
                *misses += part.misses.load(Relaxed);
            }
            let shard = part.shard.read();
            tally.stores += shard.stores();
            let evictions = shard.evictions();
            tally.evictions.expired += evictions.expired;
            tally.evictions.size += evictions.size;
        }
        tally
    }

    fn shared<T>(&self, key: &K, look: impl FnOnce(&Shard<K, V>, u64) -> T) -> T {
        let hash = self.parts.hash(key);
        look(&self.parts.part(hash).shard.read(), hash)
    }

    fn exclusive<T>(&self, key: &K, change: impl FnOnce(&mut Shard<K, V>, u64) -> T) -> T {
        let hash = self.parts.hash(key);
        change(&mut self.parts.part(hash).shard.write(), hash)
    }
}

impl<K, V> Weight<K, V> {
    /// Drops what left, and only then gives its bytes back.
    fn discard(&self, gone: Gone<K, V>) {
        let bytes = gone.iter().map(|entry| entry.weight as usize).sum();
        drop(gone);
        self.budget.release(bytes);
    }
}

#[cfg(all(test, shuttle))]
mod explored;
