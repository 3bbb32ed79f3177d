//! A part of the store: the entries of the keys that hash to it, their policy and their refills. It
//! decides, holds no lock and never awaits.

use std::{borrow::Borrow, cmp::Reverse, collections::BinaryHeap, hash::Hash, num::NonZeroU32};

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use stockade_model::time::Time;

use crate::{
    life::Life,
    limit::{Ceiling, Limit},
    policy::{Place, Places, Slot, Working},
    refills::Refills,
    tags::Tags,
};

/// Counts a shard's stores, so that the entries of a key that follow each other differ; 0: there is
/// no entry.
pub(crate) type Version = u32;

/// Entries that left; they are dropped when the lock is not held any more.
pub(crate) type Gone<K, V> = SmallVec<[Entry<K, V>; 2]>;

/// How many entries one store clears at most towards what is to be reclaimed.
pub(crate) const RECLAIM_SLICE: usize = 32;
/// How many slots one step of a purge looks at.
const PURGE_SLICE: usize = 256;
/// How many slots every store looks at, so that what has expired does not stay for ever.
const SWEEP_SLICE: usize = 2;
/// How many entries one step of an invalidation looks at.
const INVALIDATION_SLICE: usize = 128;
/// Room that is taken beforehand, in entries of one shard.
const ROOM_MOST: usize = 1 << 16;
/// Room that is never given back.
const ROOM_LEAST: usize = 256;

/// In the order of use: behind the lock and its counters, a lookup reads what is in two cache lines,
/// and a store, most often, in three.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard<K, V> {
    index: HashTable<Slot>,
    entries: Vec<Option<Entry<K, V>>>,
    policy: Working,
    /// Lowest first, so that the highest become vacant for good and their memory is given back. Some have
    /// been by now, and some are taken again: whoever wants one looks.
    vacant: BinaryHeap<Reverse<Slot>>,
    /// How many entries there may be.
    ceiling: Ceiling,
    sweep: Sweep,
    stores: u64,
    evicted_size: u64,
    has_refills: bool,
    is_reclaiming: bool,
    refills: Refills<K>,
    /// How many slots a purge has still to look at.
    unpurged: usize,
    evicted_expired: u64,
    reclaims: u64,
    tags: Option<Tags>,
    /// Slots that were there from the beginning.
    room: usize,
}

/// Something stored. In the order of use: a hit ends with the place's mark.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Entry<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
    life: Life,
    place: Place,
    version: NonZeroU32,
    short_hash: u32,
    /// In bytes, where they are limited.
    pub(crate) weight: u32,
}

/// Something to be stored.
pub(crate) struct New<'a, K, V> {
    pub(crate) hash: u64,
    pub(crate) key: K,
    pub(crate) value: V,
    pub(crate) life: Life,
    pub(crate) weight: u32,
    pub(crate) tags: &'a [u64],
}

/// The way round all slots in search of what has expired. As long as nothing can have, it rests.
#[derive(Debug)]
struct Sweep {
    at: Slot,
    /// Nothing expires before.
    earliest: Time,
    /// Nothing that has been looked at on this way round, or stored meanwhile, expires before.
    earliest_next: Time,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { at: 0, earliest: Time::NEVER, earliest_next: Time::NEVER }
    }
}

impl Sweep {
    /// The slot to look at, of so many.
    fn next(&mut self, slots: usize) -> Slot {
        if self.at as usize >= slots {
            self.at = 0;
            self.earliest = std::mem::replace(&mut self.earliest_next, Time::NEVER);
        }
        self.at += 1;
        self.at - 1
    }

    /// There is a new entry, or one is gone earlier than it was to be.
    fn note(&mut self, gone: Time) {
        self.earliest = self.earliest.min(gone);
        self.keep(gone);
    }

    /// An entry stays.
    fn keep(&mut self, gone: Time) {
        self.earliest_next = self.earliest_next.min(gone);
    }
}

/// Entries that left without being asked to, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evictions {
    pub(crate) expired: u64,
    pub(crate) size: u64,
    /// How often a share of the limit was cleared.
    pub(crate) reclaims: u64,
}

/// What a lookup saw.
#[derive(Clone, Debug)]
pub(crate) enum Found<V> {
    /// Fresh, and loaded then.
    Fresh {
        value: V,
        loaded: Time,
    },
    /// Its age has to be looked at.
    Aged(Aged<V>),
    Missing {
        version: Version,
    },
}

/// An entry that is not simply fresh, and not gone.
#[derive(Clone, Debug)]
pub(crate) struct Aged<V> {
    pub(crate) value: V,
    pub(crate) life: Life,
    pub(crate) version: Version,
    /// Its last load has failed, not long ago.
    pub(crate) is_throttled: bool,
}

/// Which entries are invalidated.
pub(crate) enum Whose<'a, K> {
    /// Those with a tag of this hash.
    Tag(u64),
    /// Those of such keys.
    Those(&'a dyn Fn(&K) -> bool),
}

/// What becomes of an entry that is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// It is stale from now on: where the strategy serves stale, until it has been refreshed; else it goes.
    Soft,
    /// It goes, and is served to nobody who asks from now on. Nothing is left to fall back to.
    Hard,
}

/// The bits of a hash that are kept. Which shard it is has been decided by others.
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
fn shorten(hash: u64) -> u32 {
    hash as u32
}

/// A hash whose bits all depend on those that were kept: the index uses the low and the top ones.
fn lengthen(short: u32) -> u64 {
    u64::from(short).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The hashes of what the index lists.
fn rehash<K, V>(entries: &[Option<Entry<K, V>>]) -> impl Fn(&Slot) -> u64 {
    |&slot| entries[slot as usize].as_ref().map_or(0, |entry| lengthen(entry.short_hash))
}

#[expect(clippy::cast_possible_truncation, reason = "after 4 billion stores a version comes again")]
fn version(stores: u64) -> NonZeroU32 {
    NonZeroU32::new(stores as u32).unwrap_or(NonZeroU32::MAX)
}

impl<K, V> Places for Vec<Option<Entry<K, V>>> {
    #[inline]
    fn place(&mut self, slot: Slot) -> &mut Place {
        let entry = self[slot as usize].as_mut().expect("a policy knows what is stored");
        &mut entry.place
    }

    fn hash(&self, slot: Slot) -> u32 {
        self[slot as usize].as_ref().map_or(0, |entry| entry.short_hash)
    }
}

impl<K, V> Shard<K, V> {
    /// The bytes that an entry costs beside what its key and value own: its slot, and its place in the
    /// index, whose table is between seven sixteenths and seven eighths full.
    pub(crate) const ENTRY_BYTES: usize = size_of::<Option<Entry<K, V>>>() + 2 * (size_of::<Slot>() + 1);
}

impl<K: Hash + Eq + Clone, V: Clone> Shard<K, V> {
    /// An empty shard, of which `entries_max` is the share of the limit's entries.
    pub(crate) fn new(
        hasher: &FixedState,
        limit: Option<&Limit>,
        entries_max: usize,
        has_tags: bool,
    ) -> Self {
        let reclaim = limit.map_or(0.0, |limit| limit.reclaim);
        let is_limited = limit.is_some_and(|limit| limit.entries.is_some());
        let room = if is_limited { entries_max.min(ROOM_MOST) } else { 0 };
        Self {
            index: HashTable::with_capacity(room),
            entries: Vec::with_capacity(room),
            policy: limit.map_or(Working::Nobody, |limit| limit.policy.start()),
            vacant: BinaryHeap::new(),
            room,
            ceiling: Ceiling::new(entries_max, reclaim),
            sweep: Sweep::default(),
            stores: 0,
            evicted_size: 0,
            has_refills: false,
            is_reclaiming: false,
            refills: Refills::new(hasher),
            unpurged: 0,
            evicted_expired: 0,
            reclaims: 0,
            tags: has_tags.then(|| Tags::new(hasher)),
        }
    }

    /// What is simply fresh, and when it was loaded; else where to [look closer](Self::look_closer).
    #[inline]
    pub(crate) fn hit<Q: Eq + ?Sized>(&self, hash: u64, key: &Q, now: Time) -> Result<(V, Time), Option<Slot>>
    where
        K: Borrow<Q>,
    {
        let Some((slot, entry)) = self.find(hash, key) else { return Err(None) };
        if now >= entry.life.due {
            return Err(Some(slot));
        }
        self.policy.hit(slot, &entry.place);
        Ok((entry.value.clone(), entry.life.loaded))
    }

    #[cold]
    pub(crate) fn look_closer<Q: Hash + Eq + ?Sized>(&self, slot: Slot, key: &Q, now: Time) -> Found<V>
    where
        K: Borrow<Q>,
    {
        let Some(entry) = &self.entries[slot as usize] else { return Found::Missing { version: 0 } };
        let version = entry.version.get();
        if now >= entry.life.kept_until() {
            return Found::Missing { version };
        }
        self.policy.hit(slot, &entry.place);
        let is_throttled = self.has_refills && self.refills.is_throttled(key, now);
        Found::Aged(Aged { value: entry.value.clone(), life: entry.life, version, is_throttled })
    }

    pub(crate) fn look_up<Q: Hash + Eq + ?Sized>(&self, hash: u64, key: &Q, now: Time) -> Found<V>
    where
        K: Borrow<Q>,
    {
        match self.hit(hash, key, now) {
            Ok((value, loaded)) => Found::Fresh { value, loaded },
            Err(Some(slot)) => self.look_closer(slot, key, now),
            Err(None) => Found::Missing { version: 0 },
        }
    }

    /// What is stored, for who does not use it.
    pub(crate) fn peek(&self, hash: u64, key: &K, now: Time) -> Option<(V, Life)> {
        let (_, entry) = self.find(hash, key)?;
        (now < entry.life.kept_until()).then(|| (entry.value.clone(), entry.life))
    }

    pub(crate) fn version(&self, hash: u64, key: &K) -> Version {
        self.find(hash, key).map_or(0, |(_, entry)| entry.version.get())
    }

    /// The weight of what is stored, fresh or not.
    pub(crate) fn weight(&self, hash: u64, key: &K) -> Option<u32> {
        self.find(hash, key).map(|(_, entry)| entry.weight)
    }

    /// Stores a value, ends the key's claim and its episode, and gives what had to leave for it; false: what is
    /// there is younger and stays, and it is the value that leaves.
    pub(crate) fn publish(&mut self, new: New<'_, K, V>, now: Time) -> (Gone<K, V>, bool) {
        let New { hash, key, value, life, weight, tags } = new;
        let mut gone = Gone::new();
        if now >= self.sweep.earliest {
            self.sweep(SWEEP_SLICE, now, &mut gone);
        }
        let found = self.find(hash, &key).map(|(slot, there)| (slot, there.life.loaded > life.loaded));
        let (short_hash, place) = (shorten(hash), Place::default());
        if let Some((_, true)) = found {
            gone.push(Entry { key, value, life, place, version: NonZeroU32::MAX, short_hash, weight: 0 });
            return (gone, false);
        }
        self.end_refill(&key);
        self.stores += 1;
        let version = version(self.stores);
        if let Some((slot, _)) = found {
            self.sweep.note(life.kept_until());
            self.retag(slot, tags);
            let entry = Entry { key, value, life, place, version, short_hash, weight };
            let mut old = self.entries[slot as usize].replace(entry);
            if let (Some(old), Some(new)) = (&mut old, &mut self.entries[slot as usize]) {
                std::mem::swap(&mut old.place, &mut new.place);
            }
            self.policy.rewrite(&mut self.entries, slot);
            gone.extend(old);
            return (gone, true);
        }
        self.make_room(now, &mut gone);
        self.sweep.note(life.kept_until());
        let slot = if let Some(slot) = self.vacant_slot() {
            slot
        } else {
            self.entries.push(None);
            Slot::try_from(self.entries.len() - 1).expect("memory ends before the numbers do")
        };
        self.retag(slot, tags);
        let entry = Entry { key, value, life, place, version, short_hash, weight };
        self.entries[slot as usize] = Some(entry);
        self.index.insert_unique(lengthen(short_hash), slot, rehash(&self.entries));
        self.policy.admit(&mut self.entries, slot);
        (gone, true)
    }

    /// Ends a key's claim and its episode with nothing stored, and gives what was.
    pub(crate) fn remove(&mut self, hash: u64, key: &K) -> Option<Entry<K, V>> {
        self.end_refill(key);
        let (slot, _) = self.find(hash, key)?;
        self.remove_slot(slot)
    }

    fn remove_slot(&mut self, slot: Slot) -> Option<Entry<K, V>> {
        self.policy.remove(&mut self.entries, slot);
        self.take(slot)
    }

    /// Invalidates the entry of a key; true if there was one.
    pub(crate) fn invalidate<Q: Eq + ?Sized>(
        &mut self,
        hash: u64,
        key: &Q,
        how: Invalidation,
        now: Time,
        gone: &mut Gone<K, V>,
    ) -> bool
    where
        K: Borrow<Q>,
    {
        let slot = self.find(hash, key).map(|(slot, _)| slot);
        slot.is_some_and(|slot| self.invalidate_slot(slot, how, now, gone))
    }

    /// One step of invalidating many: those after this slot. Where to go on; `None`: it was the last step.
    pub(crate) fn invalidate_some(
        &mut self,
        whose: &Whose<'_, K>,
        how: Invalidation,
        after: Option<Slot>,
        now: Time,
        gone: &mut Gone<K, V>,
    ) -> (usize, Option<Slot>) {
        let slots: Vec<Slot> = match whose {
            &Whose::Tag(tag) => {
                let tagged = |tags: &Tags| tags.slots(tag, after, INVALIDATION_SLICE);
                self.tags.as_ref().map(tagged).unwrap_or_default()
            }
            Whose::Those(_) => {
                let all = (after.map_or(0, |slot| slot + 1)..)
                    .take_while(|&slot| (slot as usize) < self.entries.len());
                all.take(INVALIDATION_SLICE).collect()
            }
        };
        let last = slots.last().copied();
        let is_it = |entry: &Entry<K, V>| match whose {
            Whose::Tag(_) => true,
            Whose::Those(is_it) => is_it(&entry.key),
        };
        let mut hit = 0;
        for slot in slots {
            let is_it = self.entries.get(slot as usize).and_then(Option::as_ref).is_some_and(is_it);
            hit += usize::from(is_it && self.invalidate_slot(slot, how, now, gone));
        }
        (hit, last)
    }

    fn invalidate_slot(&mut self, slot: Slot, how: Invalidation, now: Time, gone: &mut Gone<K, V>) -> bool {
        let Some(Some(entry)) = self.entries.get_mut(slot as usize) else { return false };
        let is_of_use = entry.life.kept_until() > entry.life.expires && !entry.life.is_negative();
        if how == Invalidation::Soft && is_of_use {
            entry.life.expire(now);
            // What failed to be loaded may be there now.
            self.refills.lift_throttle(&entry.key);
            self.sweep.note(entry.life.kept_until());
        } else {
            gone.extend(self.remove_slot(slot));
        }
        true
    }

    /// The entry in this slot is to have these tags.
    fn retag(&mut self, slot: Slot, tags: &[u64]) {
        if let Some(index) = &mut self.tags {
            index.set(slot, tags);
        }
    }

    /// The next to go, by the policy.
    pub(crate) fn evict(&mut self) -> Option<Entry<K, V>> {
        let slot = self.policy.evict(&mut self.entries)?;
        self.evicted_size += 1;
        self.take(slot)
    }

    /// From now on, what has expired goes first, until all entries have been looked at.
    pub(crate) fn begin_purge(&mut self) {
        self.unpurged = self.entries.len();
    }

    /// One step of reclaiming: a slice of the purge, or one that the policy gives up.
    pub(crate) fn give_up(&mut self, now: Time, gone: &mut Gone<K, V>) {
        if self.unpurged > 0 && now >= self.sweep.earliest {
            let seen = self.sweep(PURGE_SLICE.min(self.unpurged), now, gone);
            self.unpurged -= seen;
        } else {
            gone.extend(self.evict());
        }
    }

    /// Room for one more entry.
    fn make_room(&mut self, now: Time, gone: &mut Gone<K, V>) {
        let Ceiling { most, reclaimed } = self.ceiling;
        if self.len() >= most && reclaimed < most && !self.is_reclaiming {
            self.is_reclaiming = true;
            self.reclaims += 1;
            self.begin_purge();
        }
        if self.is_reclaiming {
            let mut steps = 0..RECLAIM_SLICE;
            while self.len() > reclaimed && gone.len() < RECLAIM_SLICE && steps.next().is_some() {
                self.give_up(now, gone);
            }
            self.is_reclaiming = self.len() > reclaimed;
        }
        while self.len() >= most
            && let Some(entry) = self.evict()
        {
            gone.push(entry);
        }
    }

    /// Takes out what has expired among the next so many slots, and tells how many it looked at.
    fn sweep(&mut self, slots: usize, now: Time, gone: &mut Gone<K, V>) -> usize {
        let mut seen = 0;
        while seen < slots && gone.len() < RECLAIM_SLICE {
            seen += 1;
            let slot = self.sweep.next(self.entries.len());
            let Some(entry) = self.entries.get(slot as usize) else { return slots };
            let Some(entry) = entry else { continue };
            let gone_from = entry.life.kept_until();
            if now < gone_from {
                self.sweep.keep(gone_from);
            } else {
                self.evicted_expired += 1;
                gone.extend(self.remove_slot(slot));
            }
        }
        seen
    }

    /// Takes an entry out that the policy knows no more.
    fn take(&mut self, slot: Slot) -> Option<Entry<K, V>> {
        let entry = self.entries[slot as usize].take()?;
        if let Some(tags) = &mut self.tags {
            tags.remove(slot);
        }
        if let Ok(listed) = self.index.find_entry(lengthen(entry.short_hash), |&listed| listed == slot) {
            listed.remove();
        }
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

    /// Gives memory back when three quarters of it are not needed any more.
    fn shrink(&mut self) {
        let needed = 2 * self.entries.len().max(self.room).max(ROOM_LEAST);
        if 2 * needed < self.entries.capacity() {
            self.entries.shrink_to(needed);
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
        let is_it = |&slot: &Slot| entry(slot).is_some_and(|entry| entry.key.borrow() == key);
        let &slot = self.index.find(lengthen(shorten(hash)), is_it)?;
        Some((slot, entry(slot)?))
    }

    /// Claims the right to store the successor of `seen`; false if it has one or is to get one. What
    /// has been evicted meanwhile has no successor.
    pub(crate) fn claim(&mut self, hash: u64, key: &K, seen: Version) -> bool {
        let current = self.version(hash, key);
        (current == seen || current == 0) && {
            self.has_refills = true;
            self.refills.claim(key, seen)
        }
    }

    /// Gives a claim back, if publication has not ended it.
    pub(crate) fn unclaim(&mut self, key: &K, seen: Version) {
        self.refills.unclaim(key, seen);
    }

    /// Notes a load that will be over by `closes`; true if it opens an episode.
    pub(crate) fn begin_load(&mut self, key: &K, now: Time, closes: Time) -> bool {
        self.has_refills = true;
        self.refills.begin(key, now, closes)
    }

    /// A load has failed: the key is left alone for a while, if there is something to answer with.
    pub(crate) fn throttle(&mut self, hash: u64, key: &K, now: Time, until: Time) {
        if self.find(hash, key).is_some() {
            self.has_refills = true;
            self.refills.throttle(key, now, until);
        }
    }

    fn end_refill(&mut self, key: &K) {
        if self.has_refills {
            self.has_refills = self.refills.end(key);
        }
    }

    pub(crate) fn stores(&self) -> u64 {
        self.stores
    }

    pub(crate) fn evictions(&self) -> Evictions {
        Evictions { expired: self.evicted_expired, size: self.evicted_size, reclaims: self.reclaims }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
