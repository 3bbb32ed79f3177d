//! One part of the store: entries, their eviction policy and their refills. It decides; it has no lock and never
//! awaits.

mod invalidate;
mod pending;
mod reclaim;

use std::{
    borrow::Borrow, cmp::Reverse, collections::BinaryHeap, hash::Hash, mem::replace, num::NonZeroU32,
    time::Duration,
};

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use pending::PendingInvalidations;
pub(crate) use pending::{CarriedOut, INVALIDATIONS_MAX, InvalidationFilter};
pub(crate) use reclaim::{PURGE_SLICE, RECLAIM_SLICE};
use stockade_model::time::Time;

use super::{
    idle::IdleTimes,
    insert::Precedence,
    load_mark::LoadingKeys,
    refills::{Refills, Version},
    removal::{RemovalReason, RemovedEntries, RemovedEntry},
    sweep::ExpirySweep,
    tags::TagIndex,
};
use crate::{
    freshness::{Lifetime, Spans},
    limit::{Limit, LimitBounds},
    policy::{Listed, Policy, PolicyData, PolicyEntries, PolicyInstance, Slot},
    shadow::{StoredFacts, first_policy},
    sharded::{lengthen, shorten},
};

/// Slots that every store examines for expired entries.
const SWEEP_SLICE: usize = 2;
/// Maximum number of entries allocated in advance.
const PREALLOCATED_MAX: usize = 1 << 16;
/// Capacity below which no memory is released.
const CAPACITY_MIN: usize = 256;

/// Fields are in the order of use: behind the lock and its counters a lookup reads two cache lines, and most stores
/// three.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard<K, V> {
    index: HashTable<Slot>,
    entries: Vec<Option<Entry<K, V>>>,
    /// Only with an idle time.
    idle: Option<Box<IdleTimes>>,
    /// Entries up to this version may be invalidated; 0: no entry is.
    invalidated_through: Version,
    policy: PolicyInstance,
    /// Lowest slot first, so that the highest stay vacant and their memory can be released. May contain slots that
    /// are beyond the end or taken again.
    vacant: BinaryHeap<Reverse<Slot>>,
    /// The maximum number of entries.
    ceiling: LimitBounds,
    sweep: ExpirySweep,
    spans: SpanTable,
    stores: u64,
    evicted_size: u64,
    has_refills: bool,
    is_reclaiming: bool,
    refills: Refills<K>,
    pending: PendingInvalidations,
    pub(super) loading: LoadingKeys,
    /// Slots that the current purge has not examined yet.
    unpurged: usize,
    evicted_expired: u64,
    reclaims: u64,
    /// Entries that were removed since a newer value of their key was not stored, by a change, or by an invalidation.
    removals: u64,
    tags: Option<TagIndex>,
    /// Slots allocated in advance.
    room: usize,
}

/// A stored entry: as large as a cache line if key and value are numbers or pointers. Fields are in the order of use: a hit reads
/// from the key to the policy's mark, 17 bytes after the value. The [`Lifetime`] is here without its spans.
#[derive(Debug)]
#[repr(C)]
struct Entry<K, V> {
    key: K,
    value: V,
    due: Time,
    loaded: Time,
    policy_data: PolicyData,
    version: NonZeroU32,
    short_hash: u32,
    /// In bytes, with a limit in bytes.
    weight: u32,
    expires: Time,
}

/// The spans of the entry in each slot. Empty as long as no entry has any.
#[derive(Debug, Default)]
struct SpanTable(Vec<Spans>);

impl SpanTable {
    #[inline]
    fn get(&self, slot: Slot) -> Spans {
        self.0.get(slot as usize).copied().unwrap_or(Spans::NONE)
    }

    #[inline]
    fn set(&mut self, slot: Slot, spans: Spans) {
        if let Some(there) = self.0.get_mut(slot as usize) {
            *there = spans;
        } else if spans != Spans::NONE {
            self.0.resize(slot as usize, Spans::NONE);
            self.0.push(spans);
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Releases the memory of the slots from `slots` on, but for `capacity`.
    fn shrink(&mut self, slots: usize, capacity: usize) {
        self.0.truncate(slots);
        self.0.shrink_to(capacity);
    }
}

/// The state of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryStamp {
    /// 0: nothing is stored.
    version: Version,
    expires: Time,
    pub(crate) loaded: Time,
    /// Of the shard.
    removals: u64,
    stores: u64,
}

impl EntryStamp {
    /// True if nothing has changed what is stored since `seen`.
    pub(crate) fn is_same_entry(&self, seen: &Self) -> bool {
        (self.version, self.expires) == (seen.version, seen.expires)
    }

    /// True if an entry is stored, and no invalidation removes it.
    pub(crate) fn is_stored(&self) -> bool {
        self.version > 0
    }

    /// True if nothing is stored any more, and it was evicted or has expired since `seen`.
    pub(crate) fn is_evicted(&self, seen: &Self) -> bool {
        // A store since may have been of this key, and evicted as well.
        self.version == 0 && (self.removals, self.stores) == (seen.removals, seen.stores)
    }
}

/// An entry outside of the store.
#[derive(Clone, Debug)]
pub(crate) struct EntryCopy<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
    pub(crate) life: Lifetime,
}

pub(crate) struct NewEntry<'a, K, V> {
    pub(crate) hash: u64,
    pub(crate) key: K,
    pub(crate) value: V,
    pub(crate) life: &'a Lifetime,
    pub(crate) precedence: Precedence,
    pub(crate) weight: u32,
    pub(crate) tags: &'a [u64],
}

/// Entries removed by expiry and by limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EvictionCounts {
    pub(crate) expired: u64,
    pub(crate) size: u64,
    /// How often the limit was reached and a share of it cleared.
    pub(crate) reclaims: u64,
}

/// The result of a lookup.
#[derive(Clone, Debug)]
pub(crate) enum LookupResult<V> {
    /// Simply fresh, with the end of its load.
    Fresh {
        value: V,
        loaded: Time,
    },
    /// Its age decides.
    Aged(AgedEntry<V>),
    Missing {
        version: Version,
    },
}

/// An entry that is not simply fresh, and still stored.
#[derive(Clone, Debug)]
pub(crate) struct AgedEntry<V> {
    pub(crate) value: V,
    pub(crate) life: Lifetime,
    pub(crate) version: Version,
    /// True if a recent load of it failed.
    pub(crate) is_throttled: bool,
}

/// The hash function of the index.
fn rehash<K, V>(entries: &[Option<Entry<K, V>>]) -> impl Fn(&Slot) -> u64 {
    |&slot| entries[slot as usize].as_ref().map_or(0, |entry| lengthen(entry.short_hash))
}

#[expect(clippy::cast_possible_truncation, reason = "after 4 billion stores a version comes again")]
fn version(stores: u64) -> NonZeroU32 {
    NonZeroU32::new(stores as u32).unwrap_or(NonZeroU32::MAX)
}

impl<K, V> PolicyEntries for Vec<Option<Entry<K, V>>> {
    #[inline]
    fn data(&mut self, slot: Slot) -> &mut PolicyData {
        let entry = self[slot as usize].as_mut().expect("a policy knows what is stored");
        &mut entry.policy_data
    }

    fn see(&self, slot: Slot) -> &PolicyData {
        &self[slot as usize].as_ref().expect("a policy knows what is stored").policy_data
    }

    fn hash(&self, slot: Slot) -> u32 {
        self[slot as usize].as_ref().map_or(0, |entry| entry.short_hash)
    }

    fn weight(&self, slot: Slot) -> u32 {
        self[slot as usize].as_ref().map_or(0, |entry| entry.weight)
    }
}

impl<K, V> Shard<K, V> {
    /// Bytes of an entry, without those that its key and value own: its slot, its spans, and its share of the index, which is
    /// between seven sixteenths and seven eighths full.
    pub(crate) const ENTRY_BYTES: usize =
        size_of::<Option<Entry<K, V>>>() + size_of::<Spans>() + 2 * (size_of::<Slot>() + 1);
}

impl<K: Hash + Eq + Clone, V: Clone> Shard<K, V> {
    /// `entries_max` is this shard's share of the limit's entries.
    pub(crate) fn new(
        hasher: &FixedState,
        limit: Option<&Limit>,
        entries_max: usize,
        has_tags: bool,
        idle: Option<Duration>,
    ) -> Self {
        let reclaim = limit.map_or(0.0, |limit| limit.reclaim);
        let is_limited = limit.is_some_and(|limit| limit.entries.is_some());
        let room = if is_limited { entries_max.min(PREALLOCATED_MAX) } else { 0 };
        Self {
            index: HashTable::with_capacity(room),
            entries: Vec::with_capacity(room),
            idle: idle.map(|idle| Box::new(IdleTimes::new(idle))),
            invalidated_through: 0,
            policy: limit.map_or(PolicyInstance::Unlimited, |limit| first_policy(limit).start()),
            vacant: BinaryHeap::new(),
            room,
            ceiling: LimitBounds::new(entries_max, reclaim),
            sweep: ExpirySweep::default(),
            spans: SpanTable::default(),
            stores: 0,
            evicted_size: 0,
            has_refills: false,
            is_reclaiming: false,
            refills: Refills::new(hasher),
            pending: PendingInvalidations::default(),
            loading: LoadingKeys::new(hasher),
            unpurged: 0,
            evicted_expired: 0,
            reclaims: 0,
            removals: 0,
            tags: has_tags.then(|| TagIndex::new(hasher)),
        }
    }

    /// A simply fresh value with the end of its load and its slot, which the caller [touches](Self::touch); else the slot for
    /// [`look_up_aged`](Self::look_up_aged).
    #[inline]
    pub(crate) fn get_fresh<Q: Eq + ?Sized>(
        &self,
        hash: u64,
        key: &Q,
        now: Time,
    ) -> Result<(V, Time, Slot), Option<Slot>>
    where
        K: Borrow<Q>,
    {
        let Some((slot, entry)) = self.find(hash, key) else { return Err(None) };
        if now >= entry.due || entry.version.get() <= self.invalidated_through {
            return Err(Some(slot));
        }
        self.policy.on_hit(slot, &entry.policy_data);
        Ok((entry.value.clone(), entry.loaded, slot))
    }

    #[cold]
    pub(crate) fn look_up_aged<Q: Hash + Eq + ?Sized>(
        &self,
        slot: Slot,
        key: &Q,
        now: Time,
    ) -> LookupResult<V>
    where
        K: Borrow<Q>,
    {
        let Some(entry) = &self.entries[slot as usize] else { return LookupResult::Missing { version: 0 } };
        let life = self.life(slot, entry);
        let version = if life.is_removed() { 0 } else { entry.version.get() };
        if now >= life.kept_until() || !self.touch(slot, now) {
            return LookupResult::Missing { version };
        }
        self.policy.on_hit(slot, &entry.policy_data);
        let is_throttled =
            self.has_refills && self.refills.is_throttled(key, now) && !self.is_tag_invalidated(slot, entry);
        LookupResult::Aged(AgedEntry { value: entry.value.clone(), life, version, is_throttled })
    }

    pub(crate) fn look_up<Q: Hash + Eq + ?Sized>(&self, hash: u64, key: &Q, now: Time) -> LookupResult<V>
    where
        K: Borrow<Q>,
    {
        match self.get_fresh(hash, key, now) {
            Ok((value, loaded, slot)) if self.touch(slot, now) => LookupResult::Fresh { value, loaded },
            Ok((.., slot)) | Err(Some(slot)) => self.look_up_aged(slot, key, now),
            Err(None) => LookupResult::Missing { version: 0 },
        }
    }

    /// Looks up without a hit for the policy.
    pub(crate) fn peek<Q: Eq + ?Sized>(&self, hash: u64, key: &Q, now: Time) -> Option<(V, Lifetime)>
    where
        K: Borrow<Q>,
    {
        let (slot, entry) = self.find(hash, key)?;
        let life = self.life(slot, entry);
        (now < self.kept_until(slot, &life)).then(|| (entry.value.clone(), life))
    }

    /// True if a fresh value is stored.
    pub(crate) fn is_fresh<Q: Eq + ?Sized>(&self, hash: u64, key: &Q, now: Time) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(hash, key).is_some_and(|(slot, entry)| {
            let life = self.life(slot, entry);
            now < life.expires.min(self.kept_until(slot, &life))
        })
    }

    /// A fresh value with its times, for a request.
    pub(crate) fn get_with_life<Q: Eq + ?Sized>(&self, hash: u64, key: &Q, now: Time) -> Option<(V, Lifetime)>
    where
        K: Borrow<Q>,
    {
        let (slot, entry) = self.find(hash, key)?;
        let life = self.life(slot, entry);
        if now >= life.expires || !self.touch(slot, now) {
            return None;
        }
        self.policy.on_hit(slot, &entry.policy_data);
        Some((entry.value.clone(), life))
    }

    pub(crate) fn stamp<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> EntryStamp
    where
        K: Borrow<Q>,
    {
        let (version, expires, loaded) = match self.find(hash, key) {
            Some((slot, entry)) if !self.is_removed(slot, entry) => {
                (entry.version.get(), self.life(slot, entry).expires, entry.loaded)
            }
            _ => (0, Time::ZERO, Time::ZERO),
        };
        EntryStamp { version, expires, loaded, removals: self.removals, stores: self.stores }
    }

    /// Records a request for the idle time. Returns false if the entry is idle already.
    #[inline]
    pub(crate) fn touch(&self, slot: Slot, now: Time) -> bool {
        self.idle.as_ref().is_none_or(|idle| idle.touch(slot, now))
    }

    /// From here on the entry is not served, by its lifetime and its idle time.
    fn kept_until(&self, slot: Slot, life: &Lifetime) -> Time {
        let kept_until = life.kept_until();
        self.idle.as_ref().map_or(kept_until, |idle| kept_until.min(idle.end(slot)))
    }

    fn life(&self, slot: Slot, entry: &Entry<K, V>) -> Lifetime {
        let &Entry { due, loaded, expires, .. } = entry;
        let life = Lifetime { due, loaded, expires, spans: self.spans.get(slot) };
        if entry.version.get() <= self.invalidated_through {
            return self.invalidated_life(slot, entry.version, life);
        }
        life
    }

    pub(crate) fn version(&self, hash: u64, key: &K) -> Version {
        match self.find(hash, key) {
            Some((slot, entry)) if !self.is_removed(slot, entry) => entry.version.get(),
            _ => 0,
        }
    }

    /// The weight of an entry, fresh or not.
    pub(crate) fn weight(&self, hash: u64, key: &K) -> Option<u32> {
        self.find(hash, key).map(|(_, entry)| entry.weight)
    }

    /// The times and the weight of an entry, fresh or not.
    pub(crate) fn stored_times<Q: Eq + ?Sized>(
        &self,
        hash: u64,
        key: &Q,
        is_marker: Option<&(dyn Fn(&V) -> bool + Send + Sync)>,
    ) -> Option<StoredFacts>
    where
        K: Borrow<Q>,
    {
        let (slot, entry) = self.find(hash, key)?;
        let is_marker = is_marker.is_some_and(|is_marker| is_marker(&entry.value));
        Some(StoredFacts { life: self.life(slot, entry), weight: entry.weight, is_marker })
    }

    /// Stores a value, and ends the key's claim and episode. Adds removed entries to `gone`. Returns false if the stored
    /// value is younger, and the new one is among the removed.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        new: NewEntry<'_, K, V>,
        now: Time,
        gone: &mut RemovedEntries<K, V>,
    ) -> bool {
        let NewEntry { hash, key, value, life, precedence, weight, tags } = new;
        if self.ceiling.max == 0 {
            gone.push(RemovedEntry { key, value, weight: 0, reason: None });
            return false;
        }
        if now >= self.sweep.earliest {
            self.sweep(SWEEP_SLICE, now, gone);
        }
        let &Lifetime { due, mut loaded, expires, spans } = life;
        let is_younger = |slot, there: &Entry<K, V>| {
            there.loaded > loaded && now < self.kept_until(slot, &self.life(slot, there))
        };
        let found = self.find(hash, &key).map(|(slot, there)| (slot, is_younger(slot, there), there.loaded));
        let reason = found.map(|(slot, ..)| self.removal_reason(slot, RemovalReason::Replaced));
        if let Some((_, true, loaded_there)) = found {
            if precedence == Precedence::Younger {
                gone.push(RemovedEntry { key, value, weight: 0, reason: None });
                return false;
            }
            // The clock of a write may be behind that of the value that it replaces.
            loaded = loaded_there;
        }
        self.end_refill(&key);
        self.stores += 1;
        let version = version(self.stores);
        let slot = match found {
            Some((slot, ..)) => slot,
            None => self.take_slot(now, gone),
        };
        let kept_until = life.kept_until();
        self.sweep.register(match &mut self.idle {
            Some(idle) => kept_until.min(idle.start(slot, now)),
            None => kept_until,
        });
        self.spans.set(slot, spans);
        if let Some(index) = &mut self.tags {
            index.set(slot, tags);
        }
        match &mut self.entries[slot as usize] {
            Some(entry) => {
                self.pending.forget(entry.version);
                gone.push(RemovedEntry {
                    key: replace(&mut entry.key, key),
                    value: replace(&mut entry.value, value),
                    weight: replace(&mut entry.weight, weight),
                    reason,
                });
                (entry.due, entry.loaded, entry.expires, entry.version) = (due, loaded, expires, version);
                self.policy.on_update(&mut self.entries, slot);
            }
            vacant => {
                let (short_hash, policy_data) = (shorten(hash), PolicyData::default());
                let entry =
                    Entry { key, value, due, loaded, policy_data, version, short_hash, weight, expires };
                *vacant = Some(entry);
                self.index.insert_unique(lengthen(short_hash), slot, rehash(&self.entries));
                self.policy.on_insert(&mut self.entries, slot);
            }
        }
        true
    }

    /// A vacant slot for a new entry, within the limit.
    #[inline]
    fn take_slot(&mut self, now: Time, gone: &mut RemovedEntries<K, V>) -> Slot {
        if let Some(slot) = self.make_room(now, gone).or_else(|| self.vacant_slot()) {
            return slot;
        }
        self.entries.push(None);
        Slot::try_from(self.entries.len() - 1).expect("memory ends before the numbers do")
    }

    /// Removes an entry, and ends the key's claim and episode.
    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<RemovedEntry<K, V>>
    where
        K: Borrow<Q>,
    {
        self.end_refill(key);
        // Also if it is gone already: of two that saw it before, one removes it.
        self.removals += 1;
        let (slot, _) = self.find(hash, key)?;
        self.remove_slot(slot, RemovalReason::Invalidated)
    }

    fn remove_slot(&mut self, slot: Slot, reason: RemovalReason) -> Option<RemovedEntry<K, V>> {
        self.policy.on_remove(&mut self.entries, slot);
        self.vacate(slot, reason)
    }

    /// Starts the change to another eviction policy.
    pub(crate) fn switch_policy(&mut self, policy: &'static Policy) {
        self.policy.switch_to(policy, &mut self.entries);
    }

    /// Removes an entry that the policy has forgotten, and counts it. The slot stays with the caller.
    #[expect(clippy::inline_always, reason = "ten instructions of each store into a full cache")]
    #[inline(always)]
    fn take_entry(&mut self, slot: Slot, reason: RemovalReason) -> Option<RemovedEntry<K, V>> {
        let has_pending = self.invalidated_through != 0;
        let reason = if has_pending { self.removal_reason(slot, reason) } else { reason };
        let Entry { key, value, short_hash, weight, version, .. } = self.entries[slot as usize].take()?;
        if has_pending {
            self.pending.forget(version);
        }
        match reason {
            RemovalReason::Evicted => self.evicted_size += 1,
            RemovalReason::Expired => self.evicted_expired += 1,
            RemovalReason::Invalidated | RemovalReason::Replaced => {}
        }
        if let Some(tags) = &mut self.tags {
            tags.remove(slot);
        }
        if let Ok(listed) = self.index.find_entry(lengthen(short_hash), |&listed| listed == slot) {
            listed.remove();
        }
        Some(RemovedEntry { key, value, weight, reason: Some(reason) })
    }

    /// The reason for the removal of an entry: a pending invalidation comes before others.
    #[inline]
    fn removal_reason(&self, slot: Slot, reason: RemovalReason) -> RemovalReason {
        match &self.entries[slot as usize] {
            Some(entry) if self.is_removed(slot, entry) => RemovalReason::Invalidated,
            _ => reason,
        }
    }

    /// Removes an entry that the policy has forgotten, and makes its slot vacant.
    fn vacate(&mut self, slot: Slot, reason: RemovalReason) -> Option<RemovedEntry<K, V>> {
        let entry = self.take_entry(slot, reason)?;
        self.vacant.push(Reverse(slot));
        while let Some(None) = self.entries.last() {
            self.entries.pop();
        }
        self.shrink();
        Some(entry)
    }

    fn vacant_slot(&mut self) -> Option<Slot> {
        while let Some(Reverse(slot)) = self.vacant.pop() {
            if let Some(None) = self.entries.get(slot as usize) {
                return Some(slot);
            }
        }
        None
    }

    /// Releases memory when three quarters of it are unused.
    fn shrink(&mut self) {
        let needed = 2 * self.entries.len().max(self.room).max(CAPACITY_MIN);
        if 2 * needed < self.entries.capacity() {
            self.entries.shrink_to(needed);
            self.spans.shrink(self.entries.len(), needed);
            if let Some(idle) = &mut self.idle {
                idle.shrink(self.entries.len(), needed);
            }
            let entries = &self.entries;
            self.vacant.retain(|Reverse(slot)| matches!(entries.get(*slot as usize), Some(None)));
            self.vacant.shrink_to(needed);
            self.index.shrink_to(needed, rehash(entries));
        }
    }

    #[inline]
    fn find<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Option<(Slot, &Entry<K, V>)>
    where
        K: Borrow<Q>,
    {
        let entry = |slot: Slot| self.entries[slot as usize].as_ref();
        let matches = |&slot: &Slot| entry(slot).is_some_and(|entry| entry.key.borrow() == key);
        let &slot = self.index.find(lengthen(shorten(hash)), matches)?;
        Some((slot, entry(slot)?))
    }

    /// Claims the right to store the successor of version `seen`. Returns false if there is a successor or another
    /// claim. An evicted entry has no successor.
    pub(crate) fn claim(&mut self, hash: u64, key: &K, seen: Version) -> bool {
        let current = self.version(hash, key);
        (current == seen || current == 0) && {
            self.has_refills = true;
            self.refills.claim(key, seen)
        }
    }

    /// Releases a claim, unless a store has ended it.
    pub(crate) fn unclaim(&mut self, key: &K, seen: Version) {
        self.refills.unclaim(key, seen);
    }

    /// Registers a load that ends by `deadline`. Returns true if it opens an episode.
    pub(crate) fn open_episode(&mut self, key: &K, now: Time, deadline: Time) -> bool {
        self.has_refills = true;
        self.refills.open_episode(key, now, deadline)
    }

    /// Suppresses loads of a key for a while after one failed, if it has an entry to serve.
    pub(crate) fn throttle(&mut self, hash: u64, key: &K, now: Time, until: Time) {
        if self.find(hash, key).is_some() {
            self.has_refills = true;
            self.refills.throttle(key, now, until);
        }
    }

    fn end_refill<Q: Hash + Eq + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if self.has_refills {
            self.has_refills = self.refills.end(key);
        }
    }

    /// All entries in the order of the policy, unsorted.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let mut list = Vec::with_capacity(self.used_slots());
        self.policy.list(&self.entries, &mut list);
        if list.is_empty() {
            let stored = (0..).zip(&self.entries).filter(|(_, entry)| entry.is_some());
            list.extend(stored.map(|(slot, _)| Listed { rank: (0, 0), slot, hits: 0 }));
        }
        list
    }

    /// Slots, vacant ones too.
    pub(crate) fn slot_count(&self) -> usize {
        self.entries.len()
    }

    /// The kept bits of the hash of the key in a slot.
    pub(crate) fn short_hash(&self, slot: Slot) -> Option<u32> {
        self.entries.get(slot as usize)?.as_ref().map(|entry| entry.short_hash)
    }

    /// A copy of the entry in a slot, unless it is not to be served any more.
    pub(crate) fn copy(&self, slot: Slot, now: Time) -> Option<EntryCopy<K, V>> {
        let entry = self.entries.get(slot as usize)?.as_ref()?;
        let life = self.life(slot, entry);
        let copy = || EntryCopy { key: entry.key.clone(), value: entry.value.clone(), life };
        (now < self.kept_until(slot, &life)).then(copy)
    }

    /// Counts further hits of an entry for the policy.
    pub(crate) fn add_hits(&self, hash: u64, key: &K, hits: u8) {
        if let Some((slot, entry)) = self.find(hash, key) {
            (0..hits).for_each(|_| self.policy.on_hit(slot, &entry.policy_data));
        }
    }

    pub(crate) fn stores(&self) -> u64 {
        self.stores
    }

    pub(crate) fn evictions(&self) -> EvictionCounts {
        EvictionCounts { expired: self.evicted_expired, size: self.evicted_size, reclaims: self.reclaims }
    }

    /// Entries that are stored and not invalidated by a [pending](pending) removal of all.
    pub(crate) fn len(&self) -> usize {
        self.used_slots() - self.pending.removed()
    }

    fn used_slots(&self) -> usize {
        self.index.len()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
