//! The store: shards behind locks, and the limits that they share.

mod account;
mod aside;
pub(crate) mod budget;
mod ghosts;
pub(crate) mod held;
mod idle;
mod insert;
pub(crate) mod invalidate;
pub(crate) mod listing;
pub(crate) mod load_mark;
pub(crate) mod refills;
pub(crate) mod removal;
mod reservation;
mod resize;
pub(crate) mod shard;
mod sweep;
mod tags;
pub(crate) mod update;
pub(crate) mod weigh;

use std::{
    borrow::Borrow,
    hash::Hash,
    hint::spin_loop,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use foldhash::quality::FixedState;
use std::time::Duration;
use stockade_model::{seed::Seed, time::Time};

pub use self::reservation::Reservation;
use self::{
    account::ByteAccount,
    budget::{ByteBudget, EvictionProgress, ReservedBytes},
    held::{HeldEntries, IsHeldFn},
    idle::IdleTimes,
    refills::Version,
    removal::{RemovalFn, RemovedEntries, RemovedEntry, report},
    shard::{LookupResult, PURGE_SLICE, RECLAIM_SLICE, Shard},
    tags::{TAG_BYTES, TagHasher, TagsFn},
};
use crate::{
    freshness::Lifetime,
    invalidation::{InvalidationLog, InvalidationSeq, JournalFn, TagHashes, TargetHash},
    limit::{self, Limit},
    locks::{Lock, RwLockReadGuard, SharedLock},
    policy::Slot,
    shadow::{SampledGhosts, Shadow},
    sharded::Sharded,
    stats::StoreStats,
};

/// Returns true for a value after which a request is loaded all the same.
pub(crate) type IsMarkerFn<V> = Box<dyn Fn(&V) -> bool + Send + Sync>;

/// Returns the bytes that a key and its value own.
pub(crate) type WeighFn<K, V> = Box<dyn Fn(&K, &V) -> usize + Send + Sync>;

/// Entries evicted per step, for a load that can yield between steps.
const ROOM_SLICE: usize = 512;
/// How often a store retries while other stores hold bytes that they are about to release.
const IN_TRANSIT_SPINS: usize = 10_000;

/// Locks one shard at a time, for one map operation. A lookup takes the lock shared. Removed entries are returned by
/// the shard and dropped outside the lock.
pub(crate) struct Store<K, V> {
    parts: Sharded<LockedShard<K, V>>,
    /// The bytes of an entry, without those that its key and value own.
    entry_bytes: usize,
    weight: Option<ByteAccount<K, V>>,
    /// False: the limit is 0.
    has_capacity: AtomicBool,
    tagging: Option<TagHasher<K, V>>,
    invalidations: InvalidationLog,
    refused: AtomicU64,
    outdated: AtomicU64,
    invalidated: AtomicU64,
    resizing: Lock<()>,
    /// A task carries out pending invalidations.
    is_carrying_out: AtomicBool,
    counts_lookups: bool,
    /// True if a hit is neither counted nor sampled, and entries have no idle time.
    is_plain: bool,
    /// False: no value has ever expired or been stored with an end, so that lookups need no clock.
    has_end: AtomicBool,
    ghosts: SampledGhosts,
    is_marker: Option<IsMarkerFn<V>>,
    on_removal: Option<RemovalFn<K, V>>,
    /// Set once, with a file for snapshots.
    journal: OnceLock<JournalFn>,
    /// The seed of the hashes of keys, and that of tags.
    hash_seeds: [Seed; 2],
}

/// The builder's functions of keys and values.
pub(crate) struct StoreConfig<K, V> {
    /// Required with a limit in bytes, unused otherwise.
    pub(crate) weigh: Option<WeighFn<K, V>>,
    pub(crate) tags: Option<TagsFn<K, V>>,
    pub(crate) is_held: Option<IsHeldFn<V>>,
    pub(crate) idle: Option<Duration>,
    pub(crate) counts_lookups: bool,
    /// Only with a limit.
    pub(crate) shadow: Option<Shadow>,
    pub(crate) is_marker: Option<IsMarkerFn<V>>,
    pub(crate) on_removal: Option<RemovalFn<K, V>>,
}

impl<K, V> StoreConfig<K, V> {
    /// The bytes of an entry, without those that its key and value own and those of the eviction policy.
    pub(crate) fn entry_bytes(&self) -> usize {
        Shard::<K, V>::ENTRY_BYTES + self.idle.map_or(0, |_| IdleTimes::ENTRY_BYTES)
    }
}

impl<K, V> Default for StoreConfig<K, V> {
    fn default() -> Self {
        Self {
            weigh: None,
            tags: None,
            is_held: None,
            idle: None,
            counts_lookups: false,
            shadow: None,
            is_marker: None,
            on_removal: None,
        }
    }
}

/// A shard and the counters of its lookups. The counters share the lock's cache line, which a lookup writes anyway.
#[repr(C, align(64))]
struct LockedShard<K, V> {
    hits: AtomicU64,
    misses: AtomicU64,
    shard: SharedLock<Shard<K, V>>,
}

/// A lookup that found no simply fresh entry. It holds the lock until it is finished.
pub(crate) struct SlowLookup<'a, K, V> {
    shard: RwLockReadGuard<'a, Shard<K, V>>,
    slot: Option<Slot>,
    misses: Option<&'a AtomicU64>,
}

impl<K: Hash + Eq + Clone, V: Clone> SlowLookup<'_, K, V> {
    #[inline]
    pub(crate) fn finish<Q: Hash + Eq + ?Sized>(self, key: &Q, now: Time) -> LookupResult<V>
    where
        K: Borrow<Q>,
    {
        let Self { shard, slot, misses } = self;
        if let Some(misses) = misses {
            misses.fetch_add(1, Relaxed);
        }
        match slot {
            Some(slot) => shard.look_up_aged(slot, key, now),
            None => LookupResult::Missing { version: 0 },
        }
    }
}

/// A stored value and its remaining times, from [`Cache::peek`](crate::Cache::peek).
#[derive(Clone, Debug)]
pub struct StoredValue<V> {
    /// The value.
    pub value: V,
    /// Time since the end of its load, accurate to 2 ms.
    pub age: Duration,
    /// Time until it expires; zero if it has expired.
    pub fresh_for: Duration,
    /// Time until it is not served any more, fresh or stale; zero if it may not be served.
    pub servable_for: Duration,
    /// True if it is served only if a load fails, since [`Invalidation::Fallback`](crate::Invalidation::Fallback).
    pub is_fallback_only: bool,
}

impl<V> StoredValue<V> {
    pub(crate) fn new(value: V, life: &Lifetime, now: Time) -> Self {
        let (fresh_for, servable_for) = (life.expires - now, life.gone() - now);
        let is_fallback_only = life.is_fallback_only();
        Self { value, age: now - life.loaded, fresh_for, servable_for, is_fallback_only }
    }
}

/// A new value for a key.
pub(crate) struct NewValue<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
    /// The sequence number of the last invalidation before its load.
    pub(crate) since: InvalidationSeq,
    /// The duration of its load.
    pub(crate) took: Duration,
}

/// The right to store a value of this weight, with its reserved bytes.
pub(crate) struct StorePermit {
    weight: u32,
    room: Option<ReservedBytes>,
}

impl StorePermit {
    /// The value is stored: its bytes are released with the entry.
    #[inline]
    fn commit(self) {
        if let Some(room) = self.room {
            room.commit();
        }
    }
}

/// The reason why a value is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreRejection {
    /// It is larger than the limit's [`max_object`](crate::Limit::max_object).
    TooLarge,
    /// Loads in flight and other stores have reserved all bytes.
    NoSpace,
    /// The [mailbox](crate::Writer::Mailbox) is full.
    MailboxFull,
    /// The [limit](crate::Limit::entries) is 0.
    NoCapacity,
}

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    pub(crate) fn new(seed: Seed, limit: Option<&Limit>, config: StoreConfig<K, V>) -> Self {
        let entry_bytes = config.entry_bytes();
        let StoreConfig { weigh, tags, is_held, idle, counts_lookups, shadow, is_marker, on_removal } =
            config;
        let shards = limit::shards(limit);
        let entries = limit.and_then(|limit| limit.entries).unwrap_or(usize::MAX);
        let weight = limit.zip(weigh).and_then(|(limit, weigh)| ByteAccount::new(limit, weigh, is_held));
        let tag_seed = seed.child("tags");
        let tagging = tags.map(|of| TagHasher::new(of, FixedState::with_seed(tag_seed.0)));
        let part = |number: usize, hasher: &_| {
            let shard =
                Shard::new(hasher, limit, limit::share(entries, shards, number), tagging.is_some(), idle);
            LockedShard { hits: AtomicU64::new(0), misses: AtomicU64::new(0), shard: SharedLock::new(shard) }
        };
        let ghosts = SampledGhosts::new(shadow.as_ref(), limit, seed.child("ghosts"));
        let policy_bytes = limit.map_or(0, |limit| limit.policy.entry_bytes);
        Self {
            parts: Sharded::new(seed, shards, part),
            entry_bytes: entry_bytes + policy_bytes,
            weight,
            has_capacity: AtomicBool::new(limit.is_none_or(|limit| !limit.is_zero())),
            tagging,
            invalidations: InvalidationLog::new(seed.child("invalidations")),
            refused: AtomicU64::new(0),
            outdated: AtomicU64::new(0),
            invalidated: AtomicU64::new(0),
            resizing: Lock::new(()),
            is_carrying_out: AtomicBool::new(false),
            counts_lookups,
            is_plain: !counts_lookups && ghosts.is_none() && idle.is_none(),
            // The values of a ghost may expire.
            has_end: AtomicBool::new(!ghosts.is_none() || idle.is_some()),
            ghosts,
            is_marker,
            on_removal,
            journal: OnceLock::new(),
            hash_seeds: [seed, tag_seed],
        }
    }

    /// Looks up a simply fresh value. Returns it with the end of its load. `RECORDS`: a request that finds it is recorded for the
    /// ghosts; one that does not has to be [recorded](Self::record_request) later.
    #[inline]
    pub(crate) fn look_up<const RECORDS: bool, Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        now: Time,
    ) -> Result<(V, Time), SlowLookup<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.parts.hash(key);
        let part = self.parts.part(hash);
        let shard = part.shard.read();
        match shard.get_fresh(hash, key, now) {
            Ok((value, loaded, _)) if self.is_plain => {
                drop(shard);
                Ok((value, loaded))
            }
            Ok((value, loaded, slot)) => {
                if !shard.touch(slot, now) {
                    return Err(SlowLookup { shard, slot: Some(slot), misses: self.misses(part) });
                }
                // Before the lock is released: afterwards the compiler would keep more values.
                if RECORDS && self.ghosts.may_sample(hash) {
                    self.record_sampled(shard, hash, key, now);
                } else {
                    drop(shard);
                }
                if self.counts_lookups {
                    part.hits.fetch_add(1, Relaxed);
                }
                Ok((value, loaded))
            }
            Err(slot) => Err(SlowLookup { shard, slot, misses: self.misses(part) }),
        }
    }

    /// The counter of misses, if lookups are counted.
    fn misses<'a>(&self, part: &'a LockedShard<K, V>) -> Option<&'a AtomicU64> {
        self.counts_lookups.then_some(&part.misses)
    }

    /// True if stored values expire.
    #[inline]
    pub(crate) fn has_end(&self) -> bool {
        self.has_end.load(Relaxed)
    }

    /// Looks up a key for a request that has been counted.
    pub(crate) fn look_again(&self, key: &K, now: Time) -> LookupResult<V> {
        self.read(key, |shard, hash| shard.look_up(hash, key, now))
    }

    /// The stored value, whatever its age.
    pub(crate) fn peek<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Time) -> Option<StoredValue<V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.parts.hash(key);
        let (value, life) = self.parts.part(hash).shard.read().peek(hash, key, now)?;
        Some(StoredValue::new(value, &life, now))
    }

    /// True if a fresh value is stored.
    pub(crate) fn is_fresh<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Time) -> bool
    where
        K: Borrow<Q>,
    {
        self.read(key, |shard, hash| shard.is_fresh(hash, key, now))
    }

    pub(crate) fn version(&self, key: &K) -> Version {
        self.read(key, |shard, hash| shard.version(hash, key))
    }

    pub(crate) fn open_episode(&self, key: &K, now: Time, deadline: Time) -> bool {
        self.write(key, |shard, _| shard.open_episode(key, now, deadline))
    }

    pub(crate) fn claim(&self, key: &K, seen: Version) -> bool {
        self.write(key, |shard, hash| shard.claim(hash, key, seen))
    }

    pub(crate) fn unclaim(&self, key: &K, seen: Version) {
        self.write(key, |shard, _| shard.unclaim(key, seen));
    }

    /// Reserves bytes for a value to be stored. `reserved` are bytes that the load has reserved already.
    #[inline]
    pub(crate) fn reserve_for_store(
        &self,
        key: &K,
        value: &V,
        reserved: Option<ReservedBytes>,
    ) -> Result<StorePermit, StoreRejection> {
        if !self.has_capacity.load(Relaxed) {
            return Err(self.refuse(StoreRejection::NoCapacity));
        }
        let Some(weight) = &self.weight else { return Ok(StorePermit { weight: 0, room: None }) };
        let is_loaded = reserved.is_some();
        let mut room = reserved.unwrap_or_else(|| ReservedBytes::none(&weight.budget));
        room.end_load();
        let mut bytes = self.entry_bytes.saturating_add((weight.weigh)(key, value));
        bytes = bytes.saturating_add(self.tags(key, value).map_or(0, |tags| tags.len() * TAG_BYTES));
        if is_loaded {
            weight.observe_load(bytes);
        }
        if bytes > weight.budget.max_object {
            let max_object = weight.budget.max_object;
            tracing::debug!(
                bytes,
                max_object,
                "a value is larger than the limit's `max_object`, and is not stored"
            );
            return Err(self.refuse(StoreRejection::TooLarge));
        }
        if !self.make_all_room(weight, key, &mut room, bytes) {
            return Err(self.refuse(StoreRejection::NoSpace));
        }
        let weight = u32::try_from(bytes).expect("`max_object` is no more");
        Ok(StorePermit { weight, room: Some(room) })
    }

    /// Sets a load's reservation to `bytes`. Returns false if that exceeds a limit.
    fn grow_to(&self, key: &K, room: &mut Option<ReservedBytes>, bytes: usize) -> bool {
        let Some(weight) = &self.weight else { return true };
        let room = room.get_or_insert_with(|| ReservedBytes::none(&weight.budget));
        bytes <= weight.budget.max_object
            && room.try_reserve_for_load(bytes)
            && self.make_all_room(weight, key, room, bytes)
    }

    /// Evicts until the reservation succeeds. Returns false if nothing is left to evict.
    fn make_all_room(
        &self,
        weight: &ByteAccount<K, V>,
        key: &K,
        room: &mut ReservedBytes,
        bytes: usize,
    ) -> bool {
        let shard = self.parts.number(self.parts.hash(key));
        let mut spins = 0..IN_TRANSIT_SPINS;
        loop {
            match self.make_room(weight, shard, room, bytes) {
                EvictionProgress::Done => return true,
                EvictionProgress::More => {}
                // Bytes that are not reserved for loads belong to stores in progress, which release or commit them
                // soon.
                EvictionProgress::Blocked
                    if !weight.is_held_full() && room.used_by_others() > 0 && spins.next().is_some() =>
                {
                    spin_loop();
                }
                EvictionProgress::Blocked => return false,
            }
        }
    }

    fn refuse(&self, why: StoreRejection) -> StoreRejection {
        self.refused.fetch_add(1, Relaxed);
        why
    }

    pub(crate) fn tag_names(&self, key: &K, value: &V) -> Vec<String> {
        self.tagging.as_ref().map(|tagging| tagging.names(key, value)).unwrap_or_default()
    }

    /// `None`: values have no tags.
    #[inline]
    fn tags(&self, key: &K, value: &V) -> Option<TagHashes> {
        self.tagging.as_ref().map(|tagging| tagging.hashes(key, value))
    }

    /// Counts further hits of an entry for the policy.
    pub(crate) fn add_hits(&self, key: &K, hits: u8) {
        self.read(key, |shard, hash| shard.add_hits(hash, key, hits));
    }

    /// The sequence number of the last invalidation.
    pub(crate) fn invalidation_seq(&self) -> InvalidationSeq {
        self.invalidations.newest()
    }

    /// True if an invalidation lies between the start of a value's load (`began`) and the start of a request
    /// (`requested`).
    pub(crate) fn is_outdated(
        &self,
        began: InvalidationSeq,
        requested: InvalidationSeq,
        key: &K,
        value: &V,
    ) -> bool {
        requested > began
            && self.invalidations.is_outdated(
                began,
                requested,
                self.tags(key, value).as_deref().unwrap_or_default(),
            )
    }

    /// The record of a key; `None`: there is no journal.
    pub(crate) fn journal_target<Q: Hash + ?Sized>(&self, key: &Q) -> Option<TargetHash> {
        self.journal.get().map(|_| TargetHash::Key(self.parts.hash(key)))
    }

    /// Records that the value of a target is outdated. After it was removed or replaced: a snapshot that copied it before is followed
    /// by the journal that has the record.
    pub(crate) fn write_journal(&self, target: TargetHash) {
        if let Some(journal) = self.journal.get() {
            journal(target);
        }
    }

    pub(crate) fn hash_seeds(&self) -> [Seed; 2] {
        self.hash_seeds
    }

    /// Passes all invalidations from now on to `journal`. False: there is another already.
    pub(crate) fn attach_journal(&self, journal: JournalFn) -> bool {
        self.journal.set(journal).is_ok()
    }

    /// Suppresses loads of a key for a while after one failed.
    pub(crate) fn throttle(&self, key: &K, now: Time, until: Time) {
        self.write(key, |shard, hash| shard.throttle(hash, key, now, until));
    }

    /// Reports removed entries, drops them and releases their bytes. For callers without a lock.
    #[inline]
    fn drop_outside(&self, gone: RemovedEntries<K, V>) {
        if (self.on_removal.is_some() || self.weight.is_some()) && !gone.is_empty() {
            self.report_and_release(gone);
        }
    }

    #[inline(never)]
    fn report_and_release(&self, gone: RemovedEntries<K, V>) {
        self.report(&gone);
        if let Some(weight) = &self.weight {
            weight.discard(gone);
        }
    }

    fn report(&self, removed: &[RemovedEntry<K, V>]) {
        if let Some(listener) = &self.on_removal {
            report(listener, removed);
        }
    }

    /// A step towards the reservation of a load: the last size of its value, or that of other loads.
    pub(crate) fn reserve_for_load(&self, key: &K, room: &mut ReservedBytes) -> EvictionProgress {
        let Some(weight) = &self.weight else { return EvictionProgress::Done };
        let last = self.read(key, |shard, hash| shard.weight(hash, key));
        let bytes = last.map_or_else(|| weight.expected_bytes(self.entry_bytes), |last| last as usize);
        if !room.try_reserve_for_load(bytes) {
            return EvictionProgress::Blocked;
        }
        match self.make_room(weight, self.parts.number(self.parts.hash(key)), room, bytes) {
            // Nothing tells when their values are released: the load starts, and its value is stored if there is room then.
            EvictionProgress::Blocked if weight.is_held_full() => EvictionProgress::Done,
            progress => progress,
        }
    }

    /// Evicts until the reservation succeeds, one step at most: from this shard, then from the others.
    /// The reservation keeps the freed bytes.
    fn make_room(
        &self,
        weight: &ByteAccount<K, V>,
        shard: usize,
        room: &mut ReservedBytes,
        bytes: usize,
    ) -> EvictionProgress {
        weight.drop_released();
        for _ in 0..ROOM_SLICE {
            if room.try_resize(bytes) {
                return EvictionProgress::Done;
            }
            if weight.is_held_full() {
                return EvictionProgress::Blocked;
            }
            if weight.budget.start_reclaim() {
                weight.reclaims.fetch_add(1, Relaxed);
                self.parts.iter().for_each(|part| part.shard.write().start_purge());
            }
            let mut parts = self.parts.from(shard);
            let Some(evicted) = parts.find_map(|part| part.shard.write().evict()) else {
                return EvictionProgress::Blocked;
            };
            self.report(std::slice::from_ref(&evicted));
            if let Some(evicted) = weight.unless_held(evicted) {
                let freed = evicted.weight as usize;
                room.drop_and_take(evicted, freed);
            }
        }
        EvictionProgress::More
    }

    /// Removes all expired entries, in steps, and those that are invalidated. Returns the number of the expired.
    pub(crate) fn purge_expired(&self, now: Time) -> usize {
        self.carry_out(usize::MAX);
        let mut count = 0;
        for part in self.parts.iter() {
            let mut unseen = part.shard.read().slot_count();
            while unseen > 0 {
                let mut gone = RemovedEntries::new();
                let seen = part.shard.write().sweep(PURGE_SLICE.min(unseen), now, &mut gone);
                unseen -= seen;
                count += gone.len();
                self.drop_outside(gone);
            }
        }
        count
    }

    /// One step of reclaiming.
    fn reclaim(&self, weight: &ByteAccount<K, V>, now: Time) {
        for _ in 0..RECLAIM_SLICE {
            if !weight.budget.is_reclaiming() {
                return;
            }
            let mut gone = RemovedEntries::new();
            if let Some(part) = self.parts.from(weight.next_shard.fetch_add(1, Relaxed)).next() {
                part.shard.write().reclaim_step(now, &mut gone);
            }
            self.drop_outside(gone);
        }
    }

    pub(crate) fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    pub(crate) fn budget(&self) -> Option<&Arc<ByteBudget>> {
        self.weight.as_ref().map(|weight| &weight.budget)
    }

    /// The held entries, without some of those that are held no more.
    pub(crate) fn released_held(&self) -> Option<&HeldEntries<K, V>> {
        let weight = self.weight.as_ref()?;
        weight.drop_released();
        weight.held.as_ref()
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.shard.read().len()).sum()
    }

    pub(crate) fn stats(&self) -> StoreStats {
        let mut stats = StoreStats {
            stores_refused: self.refused.load(Relaxed),
            stores_outdated: self.outdated.load(Relaxed),
            invalidated: self.invalidated.load(Relaxed),
            reclaims: self.weight.as_ref().map_or(0, |weight| weight.reclaims.load(Relaxed)),
            bytes: self.budget().map(|budget| budget.used() as u64),
            bytes_set_aside: self.budget().map(|budget| budget.set_aside() as u64),
            bytes_held: self.released_held().map(|held| held.bytes() as u64),
            ..StoreStats::default()
        };
        for part in self.parts.iter() {
            let shard = part.shard.read();
            stats.entries += shard.len() as u64;
            stats.stores += shard.stores();
            let evictions = shard.evictions();
            stats.evicted_expired += evictions.expired;
            stats.evicted_size += evictions.size;
            stats.reclaims += evictions.reclaims;
        }
        stats
    }

    /// Hits and misses, if lookups are counted.
    pub(crate) fn lookups(&self) -> Option<(u64, u64)> {
        let sum = |count: fn(&LockedShard<K, V>) -> &AtomicU64| {
            self.parts.iter().map(|part| count(part).load(Relaxed)).sum()
        };
        self.counts_lookups.then(|| (sum(|part| &part.hits), sum(|part| &part.misses)))
    }

    fn read<Q: Hash + ?Sized, T>(&self, key: &Q, finish: impl FnOnce(&Shard<K, V>, u64) -> T) -> T {
        let hash = self.parts.hash(key);
        finish(&self.parts.part(hash).shard.read(), hash)
    }

    fn write<T>(&self, key: &K, change: impl FnOnce(&mut Shard<K, V>, u64) -> T) -> T {
        let hash = self.parts.hash(key);
        change(&mut self.parts.part(hash).shard.write(), hash)
    }
}

#[cfg(all(test, shuttle))]
mod explored;
