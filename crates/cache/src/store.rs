//! The store: shards behind locks, and what they may hold together.

use std::{
    borrow::Borrow,
    hash::Hash,
    hint::spin_loop,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use foldhash::quality::FixedState;
use stockade_model::{seed::Seed, time::Time};

use crate::{
    Held,
    budget::{Budget, Progress, Reservation},
    invalidations::{Invalidations, Moment, TagHashes, What},
    life::Life,
    limit,
    policy::Slot,
    shard::{Evictions, Found, Gone, Invalidation, New, RECLAIM_SLICE, Shard, Version, Whose},
    sharded::Sharded,
    strategy::Strategy,
    sync::{RwLockReadGuard, SharedLock},
    tags::{TAG_BYTES, Tagging, TagsOf},
};

/// What a key and its value own, in bytes.
pub(crate) type WeighBy<K, V> = Box<dyn Fn(&K, &V) -> usize + Send + Sync>;

/// How many entries are evicted in one go, for a load that can wait for its turn.
const ROOM_SLICE: usize = 512;
/// How often a store looks again for what others are about to store or to drop.
const IN_TRANSIT_SPINS: usize = 10_000;

/// Locks one shard at a time, for as long as a map operation takes; a lookup shares the lock. What
/// leaves is handed back by the shard, so that it is dropped outside the lock.
pub(crate) struct Store<K, V> {
    parts: Sharded<Part<K, V>>,
    /// What an entry costs beyond what its key and value own.
    entry_bytes: usize,
    weight: Option<Weight<K, V>>,
    tagging: Option<Tagging<K, V>>,
    invalidations: Invalidations,
    refused: AtomicU64,
    outdated: AtomicU64,
    invalidated: AtomicU64,
    counts_lookups: bool,
}

/// What a builder was told of keys and values.
pub(crate) struct Told<K, V> {
    /// Needed if bytes are limited, and not used otherwise.
    pub(crate) weigh: Option<WeighBy<K, V>>,
    pub(crate) tags: Option<TagsOf<K, V>>,
    pub(crate) counts_lookups: bool,
}

/// A shard, and what its lookups found: beside the lock, whose cache line a lookup has anyway.
#[repr(C, align(64))]
struct Part<K, V> {
    hits: AtomicU64,
    misses: AtomicU64,
    shard: SharedLock<Shard<K, V>>,
}

/// A lookup that has found no more than where to look closer. It holds the lock until that is done.
pub(crate) struct Closer<'a, K, V> {
    shard: RwLockReadGuard<'a, Shard<K, V>>,
    slot: Option<Slot>,
    misses: Option<&'a AtomicU64>,
}

impl<K: Hash + Eq + Clone, V: Clone> Closer<'_, K, V> {
    #[inline]
    pub(crate) fn look<Q: Hash + Eq + ?Sized>(self, key: &Q, now: Time) -> Found<V>
    where
        K: Borrow<Q>,
    {
        let Self { shard, slot, misses } = self;
        if let Some(misses) = misses {
            misses.fetch_add(1, Relaxed);
        }
        match slot {
            Some(slot) => shard.look_closer(slot, key, now),
            None => Found::Missing { version: 0 },
        }
    }
}

/// What is needed where bytes are limited.
struct Weight<K, V> {
    budget: Arc<Budget>,
    weigh: WeighBy<K, V>,
    /// How often a share of the limit was cleared.
    reclaims: AtomicU64,
    /// The part that gives up the next entry to be reclaimed.
    reclaims_next: AtomicUsize,
}

/// A value that was loaded or written, and is to follow what is stored under its key.
pub(crate) struct Publication<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
    /// When its load began, in invalidations.
    pub(crate) since: Moment,
    /// None: it is not to be stored itself.
    pub(crate) kept: Option<(Life, Ticket)>,
}

/// Leave to store a value of this weight, and its room where bytes are limited.
pub(crate) struct Ticket {
    weight: u32,
    room: Option<Reservation>,
}

/// Room for a value that a load brings piece by piece: [`Cache::get_arriving`](crate::Cache::get_arriving).
/// What it has counts under the limit, as an entry does.
pub struct Room<K: Hash + Eq + Clone, V: Clone> {
    store: Arc<Store<K, V>>,
    key: K,
    reservation: Option<Reservation>,
}

impl<K: Hash + Eq + Clone, V: Clone> Room<K, V> {
    pub(crate) fn new(store: &Arc<Store<K, V>>, key: &K) -> Self {
        Self { store: Arc::clone(store), key: key.clone(), reservation: None }
    }

    /// Makes it so many bytes altogether, and evicts others for that; false if there is no room for them, or
    /// they are more than [`max_object`](crate::Limit::max_object). The value cannot be stored then.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        self.store.grow(&self.key, &mut self.reservation, bytes)
    }

    pub(crate) fn into_reservation(self) -> Option<Reservation> {
        self.reservation
    }
}

impl<K: Hash + Eq + Clone, V: Clone> std::fmt::Debug for Room<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("reservation", &self.reservation).finish_non_exhaustive()
    }
}

/// Why a value is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// It is larger than the limit's [`max_object`](crate::Limit::max_object).
    TooLarge,
    /// Loads under way and other stores have all the room that there is.
    NoRoom,
    /// The [mailbox](crate::Writer::Mailbox) has all the writes that it can hold.
    MailboxFull,
}

/// What the store has seen and done.
#[derive(Default)]
pub(crate) struct Tally {
    /// Hits and misses, if they are counted.
    pub(crate) lookups: Option<(u64, u64)>,
    pub(crate) stores: u64,
    pub(crate) refused: u64,
    pub(crate) outdated: u64,
    pub(crate) invalidated: u64,
    pub(crate) evictions: Evictions,
}

impl<K: Hash + Eq + Clone, V: Clone> Store<K, V> {
    pub(crate) fn new(seed: Seed, strategy: &Strategy, told: Told<K, V>) -> Self {
        let limit = strategy.limit.as_ref();
        let Told { weigh, tags, counts_lookups } = told;
        let shards = limit::shards(limit);
        let entries = limit.and_then(|limit| limit.entries).unwrap_or(usize::MAX);
        let weight = limit.zip(weigh).and_then(|(limit, weigh)| {
            Some(Weight {
                budget: Arc::new(Budget::new(limit)?),
                weigh,
                reclaims: AtomicU64::new(0),
                reclaims_next: AtomicUsize::new(0),
            })
        });
        let tagging = tags.map(|of| Tagging::new(of, FixedState::with_seed(seed.child("tags").0)));
        let part = |number: usize, hasher: &_| {
            // The first ones take what the division leaves.
            let entries_max = entries / shards + usize::from(number < entries % shards);
            let shard = Shard::new(hasher, limit, entries_max, tagging.is_some());
            Part { hits: AtomicU64::new(0), misses: AtomicU64::new(0), shard: SharedLock::new(shard) }
        };
        let policy_bytes = limit.map_or(0, |limit| limit.policy.entry_bytes);
        Self {
            parts: Sharded::new(seed, shards, part),
            entry_bytes: Shard::<K, V>::ENTRY_BYTES + policy_bytes,
            weight,
            tagging,
            invalidations: Invalidations::new(seed.child("invalidations")),
            refused: AtomicU64::new(0),
            outdated: AtomicU64::new(0),
            invalidated: AtomicU64::new(0),
            counts_lookups,
        }
    }

    /// A lookup: what is simply fresh, and when it was loaded.
    #[inline]
    pub(crate) fn look_up<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        now: Time,
    ) -> Result<(V, Time), Closer<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.parts.hash(key);
        let part = self.parts.part(hash);
        let shard = part.shard.read();
        match shard.hit(hash, key, now) {
            Ok(hit) => {
                drop(shard);
                if self.counts_lookups {
                    part.hits.fetch_add(1, Relaxed);
                }
                Ok(hit)
            }
            Err(slot) => {
                let misses = self.counts_lookups.then_some(&part.misses);
                Err(Closer { shard, slot, misses })
            }
        }
    }

    /// Another look for who has been counted already.
    pub(crate) fn look_again(&self, key: &K, now: Time) -> Found<V> {
        self.shared(key, |shard, hash| shard.look_up(hash, key, now))
    }

    /// What is stored under a key, and its clock.
    pub(crate) fn peek(&self, key: &K, now: Time) -> Option<Held<V>> {
        let (value, life) = self.shared(key, |shard, hash| shard.peek(hash, key, now))?;
        let (fresh_for, servable_for) = (life.expires - now, life.gone() - now);
        Some(Held { value, age: now - life.loaded, fresh_for, servable_for })
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

    /// Leave to store a value: what it weighs, and the room for it; `reserved` is room that it has
    /// already.
    pub(crate) fn ticket(
        &self,
        key: &K,
        value: &V,
        reserved: Option<Reservation>,
    ) -> Result<Ticket, Refused> {
        let Some(weight) = &self.weight else { return Ok(Ticket { weight: 0, room: None }) };
        let mut room = reserved.unwrap_or_else(|| Reservation::none(&weight.budget));
        room.settle();
        let mut bytes = self.entry_bytes.saturating_add((weight.weigh)(key, value));
        bytes = bytes.saturating_add(self.tags(key, value).len() * TAG_BYTES);
        if bytes > weight.budget.max_object {
            return Err(self.refuse(Refused::TooLarge));
        }
        if !self.make_all_room(weight, self.parts.hash(key), &mut room, bytes) {
            return Err(self.refuse(Refused::NoRoom));
        }
        let told = u32::try_from(bytes).expect("`max_object` is no more");
        Ok(Ticket { weight: told, room: Some(room) })
    }

    /// Room for what a load has brought of a key's value so far, and what it says that it will; false if there
    /// is none.
    fn grow(&self, key: &K, room: &mut Option<Reservation>, bytes: usize) -> bool {
        let Some(weight) = &self.weight else { return true };
        let room = room.get_or_insert_with(|| Reservation::none(&weight.budget));
        bytes <= weight.budget.max_object
            && room.try_promise(bytes)
            && self.make_all_room(weight, self.parts.hash(key), room, bytes)
    }

    /// Evicts until there is room; false if nothing is left that could be evicted.
    fn make_all_room(&self, weight: &Weight<K, V>, hash: u64, room: &mut Reservation, bytes: usize) -> bool {
        let mut spins = 0..IN_TRANSIT_SPINS;
        loop {
            match self.make_room(weight, hash, room, bytes) {
                Progress::Done => return true,
                Progress::More => {}
                // What is not promised to loads is on its way in or out, and will soon be there or gone.
                Progress::Blocked if room.others() > 0 && spins.next().is_some() => spin_loop(),
                Progress::Blocked => return false,
            }
        }
    }

    fn refuse(&self, why: Refused) -> Refused {
        self.refused.fetch_add(1, Relaxed);
        why
    }

    /// Stores a value, unless it was invalidated since its load began. If it is not to be kept, what was
    /// stored under its key goes: an answer that was given must not be followed by an older one.
    pub(crate) fn publish(&self, publication: Publication<K, V>, now: Time) {
        let Publication { key, value, since, kept } = publication;
        let hash = self.parts.hash(&key);
        let tags = self.tags(&key, &value);
        if let Some(weight) = &self.weight {
            self.reclaim(weight, now);
        }
        let mut shard = self.parts.part(hash).shard.write();
        // Asked under the lock: what is invalidated from now on finds the value stored.
        let newest = self.moment();
        let is_outdated = newest > since && self.invalidations.outdate(since, newest, hash, &tags);
        if is_outdated {
            drop(shard);
            self.outdated.fetch_add(1, Relaxed);
            return;
        }
        let Some((life, ticket)) = kept else {
            let gone = shard.remove(hash, &key).into_iter().collect();
            drop(shard);
            return self.drop_outside(gone);
        };
        let new = New { hash, key, value, life, weight: ticket.weight, tags: &tags };
        let (gone, is_stored) = shard.publish(new, now);
        // The lock is let go before what left is dropped.
        drop(shard);
        if !is_stored {
            // What took long to arrive is older by now than what is there.
            self.outdated.fetch_add(1, Relaxed);
        } else if let Some(room) = ticket.room {
            room.keep();
        }
        self.drop_outside(gone);
    }

    /// The names of a value's tags.
    pub(crate) fn tag_names(&self, key: &K, value: &V) -> Vec<String> {
        self.tagging.as_ref().map(|tagging| tagging.names(key, value)).unwrap_or_default()
    }

    fn tags(&self, key: &K, value: &V) -> TagHashes {
        self.tagging.as_ref().map(|tagging| tagging.hashes(key, value)).unwrap_or_default()
    }

    /// The moment of the last invalidation.
    pub(crate) fn moment(&self) -> Moment {
        self.invalidations.newest()
    }

    /// Whether a value whose load began at one moment may not be given to who asked at another.
    pub(crate) fn outdates(&self, began: Moment, asked: Moment, key: &K, value: &V) -> bool {
        asked > began
            && self.invalidations.outdate(began, asked, self.parts.hash(key), &self.tags(key, value))
    }

    /// Has what loads of a key bring that are under way not stored.
    pub(crate) fn outdate<Q: Hash + ?Sized>(&self, key: &Q) -> Moment {
        self.invalidations.note(What::Key(self.parts.hash(key)))
    }

    /// Invalidates the entry of a key; true if there was one.
    pub(crate) fn invalidate<Q: Hash + Eq + ?Sized>(&self, key: &Q, how: Invalidation, now: Time) -> bool
    where
        K: Borrow<Q>,
    {
        self.outdate(key);
        let hash = self.parts.hash(key);
        let mut gone = Gone::new();
        let was_there = self.parts.part(hash).shard.write().invalidate(hash, key, how, now, &mut gone);
        self.drop_outside(gone);
        self.invalidated.fetch_add(u64::from(was_there), Relaxed);
        was_there
    }

    /// Invalidates the entries with a tag; how many.
    pub(crate) fn invalidate_tag(&self, tag: &str, how: Invalidation, now: Time) -> usize {
        let Some(tagging) = &self.tagging else { return 0 };
        let hash = tagging.hash(tag);
        self.invalidations.note(What::Tag(hash));
        self.invalidate_all(&Whose::Tag(hash), how, now)
    }

    /// Invalidates every entry; how many.
    pub(crate) fn clear(&self, how: Invalidation, now: Time) -> usize {
        self.invalidate_where(&|_| true, how, now)
    }

    /// Invalidates the entries of such keys; how many. Nobody knows whose loads are under way: none of them is
    /// stored.
    pub(crate) fn invalidate_where(&self, is_it: &dyn Fn(&K) -> bool, how: Invalidation, now: Time) -> usize {
        self.invalidations.note(What::Everything);
        self.invalidate_all(&Whose::Those(is_it), how, now)
    }

    /// A few at a time, so that nobody waits for the lock until all are done.
    fn invalidate_all(&self, whose: &Whose<'_, K>, how: Invalidation, now: Time) -> usize {
        let mut hit = 0;
        for part in self.parts.iter() {
            let mut after = None;
            loop {
                let mut gone = Gone::new();
                let (some, last) = part.shard.write().invalidate_some(whose, how, after, now, &mut gone);
                self.drop_outside(gone);
                hit += some;
                match last {
                    Some(_) => after = last,
                    None => break,
                }
            }
        }
        self.invalidated.fetch_add(hit as u64, Relaxed);
        hit
    }

    /// A load of a key has failed: it is left alone for a while.
    pub(crate) fn throttle(&self, key: &K, now: Time, until: Time) {
        self.exclusive(key, |shard, hash| shard.throttle(hash, key, now, until));
    }

    fn drop_outside(&self, gone: Gone<K, V>) {
        match &self.weight {
            Some(weight) => weight.discard(gone),
            None => drop(gone),
        }
    }

    /// A step towards room for the load of a key: as much as its value took last, or the most that it
    /// may take.
    pub(crate) fn reserve_for_load(&self, key: &K, room: &mut Reservation) -> Progress {
        let Some(weight) = &self.weight else { return Progress::Done };
        let last = self.shared(key, |shard, hash| shard.weight(hash, key));
        let bytes = last.map_or(weight.budget.max_object, |last| last as usize);
        if room.try_promise(bytes) {
            self.make_room(weight, self.parts.hash(key), room, bytes)
        } else {
            Progress::Blocked
        }
    }

    /// Evicts until there is room, or a slice of that: from the shard of this hash, and from the others
    /// when that is empty. What is evicted makes room for nobody else.
    fn make_room(&self, weight: &Weight<K, V>, hash: u64, room: &mut Reservation, bytes: usize) -> Progress {
        for _ in 0..ROOM_SLICE {
            if room.try_resize(bytes) {
                return Progress::Done;
            }
            if weight.budget.begin_reclaim() {
                weight.reclaims.fetch_add(1, Relaxed);
                self.parts.iter().for_each(|part| part.shard.write().begin_purge());
            }
            let mut parts = self.parts.from(self.parts.number(hash));
            let Some(evicted) = parts.find_map(|part| part.shard.write().evict()) else {
                return Progress::Blocked;
            };
            let freed = evicted.weight as usize;
            room.adopt(evicted, freed);
        }
        Progress::More
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
            outdated: self.outdated.load(Relaxed),
            invalidated: self.invalidated.load(Relaxed),
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
            tally.evictions.reclaims += evictions.reclaims;
        }
        if let Some(weight) = &self.weight {
            tally.evictions.reclaims += weight.reclaims.load(Relaxed);
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
        Reservation::none(&self.budget).adopt(gone, bytes);
    }
}

#[cfg(all(test, shuttle))]
mod explored;
