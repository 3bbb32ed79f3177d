//! One simulated cache over the sampled keys. It has no values: an entry has times and a weight.

use std::time::Duration;

use stockade_model::{outcome::Outcome, time::Time};

use super::{Ghost, GhostCounts, GhostTtl, StoredFacts, first_policy, sample::Keys};
use crate::{
    freshness::{FreshnessState, Lifetime},
    invalidation::Invalidation,
    limit::{LimitBounds, scaled},
    policy::{Policy, PolicyData, PolicyEntries, PolicyInstance, Slot},
    random::Random,
};

/// Entries that each store examines for expired ones, as in the cache.
const SWEEP_SLICE: usize = 2;
/// Keys that each store looks at in search of these entries: other ghosts may hold most keys.
const SWEEP_KEYS_MAX: usize = 32;

#[derive(Debug)]
pub(super) struct SimulatedCache {
    pub(super) config: Ghost,
    /// Its bit in [`Keys`].
    bit: u64,
    policy: PolicyInstance,
    entries: Entries,
    entries_bounds: LimitBounds,
    bytes_bounds: LimitBounds,
    /// Heavier entries are not stored.
    weight_max: usize,
    used_entries: usize,
    used_bytes: usize,
    swept: usize,
    /// Without the number of requests, which is the same for all ghosts.
    pub(super) counts: GhostCounts,
}

/// By the slot of the key. Entries of keys that the ghost does not hold are meaningless.
#[derive(Debug)]
struct Entries(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    life: Lifetime,
    /// When the load in flight ends, or [`Time::NEVER`].
    load_ends: Time,
    policy_data: PolicyData,
    hash: u32,
    weight: u32,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            life: Lifetime::GONE,
            load_ends: Time::NEVER,
            policy_data: PolicyData::default(),
            hash: 0,
            weight: 0,
        }
    }
}

impl PolicyEntries for Entries {
    #[inline]
    fn data(&mut self, slot: Slot) -> &mut PolicyData {
        &mut self.0[slot as usize].policy_data
    }

    fn see(&self, slot: Slot) -> &PolicyData {
        &self.0[slot as usize].policy_data
    }

    fn hash(&self, slot: Slot) -> u32 {
        self.0[slot as usize].hash
    }

    fn weight(&self, slot: Slot) -> u32 {
        self.0[slot as usize].weight
    }
}

/// The last value of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownValue {
    pub(super) times: StoredFacts,
    /// The duration of its load.
    pub(super) took: Duration,
}

impl Entry {
    /// Ends a load whose time has come.
    #[inline]
    fn complete_load(&mut self, known: &KnownValue, ttl: GhostTtl, now: Time) {
        if self.load_ends <= now {
            self.life = known.times.life.restarted(self.load_ends, |own| ttl.of(own));
            self.load_ends = Time::NEVER;
        }
    }

    fn is_loading(&self) -> bool {
        self.load_ends != Time::NEVER
    }
}

impl SimulatedCache {
    /// Bytes for each key.
    pub(super) fn key_bytes(config: &Ghost) -> usize {
        size_of::<Entry>() + config.limit.policy.entry_bytes
    }

    pub(super) fn new(config: Ghost, bit: u64, share: f64, keys_max: usize) -> Self {
        let mut ghost = Self {
            policy: first_policy(&config.limit).start(),
            entries: Entries(Vec::with_capacity(keys_max)),
            entries_bounds: LimitBounds::new(0, 0.0),
            bytes_bounds: LimitBounds::new(0, 0.0),
            weight_max: 0,
            used_entries: 0,
            used_bytes: 0,
            swept: 0,
            counts: GhostCounts::default(),
            config,
            bit,
        };
        ghost.scale(share);
        ghost
    }

    /// Sets the limit to this share of the configured one.
    pub(super) fn scale(&mut self, share: f64) {
        let limit = &self.config.limit;
        let bounds = |size: Option<usize>| {
            size.map_or(LimitBounds::new(usize::MAX, 0.0), |size| {
                LimitBounds::new(scaled(size, share), limit.reclaim)
            })
        };
        (self.entries_bounds, self.bytes_bounds) = (bounds(limit.entries), bounds(limit.bytes));
        let object_max = limit.bytes.map_or(usize::MAX, |bytes| limit.max_object_bytes(bytes));
        self.weight_max = object_max.min(self.bytes_bounds.max);
    }

    pub(super) fn used_entries(&self) -> usize {
        self.used_entries
    }

    /// Changes the policy, as the cache does.
    pub(super) fn switch_to(&mut self, policy: &'static Policy) {
        self.policy.switch_to(policy, &mut self.entries);
    }

    /// Evicts what no longer fits.
    pub(super) fn shrink(&mut self, keys: &mut Keys) {
        self.make_room(0, 0, keys);
    }

    /// A request for a key of the sample. It stands for `weight` requests. `known` is the last value of the key.
    pub(super) fn request(
        &mut self,
        slot: Slot,
        weight: u64,
        now: Time,
        known: Option<&KnownValue>,
        keys: &mut Keys,
        random: &Random,
    ) {
        let Some(known) = known else {
            // The first load of the key is in flight, or starts.
            if keys.is_waiting(slot, self.bit) {
                self.counts.coalesced += weight;
            } else {
                keys.wait(slot, self.bit);
                self.counts.loads += weight;
            }
            return;
        };
        if !keys.is_held(slot, self.bit) {
            self.counts.loads += weight;
            return self.store(slot, known, now + known.took, now, keys);
        }
        let entry = &mut self.entries.0[slot as usize];
        if known.times.is_marker {
            self.policy.on_hit(slot, &entry.policy_data);
            self.counts.loads += weight;
            return;
        }
        entry.complete_load(known, self.config.ttl, now);
        if now < entry.life.due {
            self.policy.on_hit(slot, &entry.policy_data);
            self.counts.hits += weight;
            return;
        }
        let state = entry.life.state(now, || (now, random.exponential()));
        if state != FreshnessState::Gone {
            self.policy.on_hit(slot, &entry.policy_data);
        }
        let answer = state.answer(entry.is_loading());
        match answer.outcome {
            Outcome::Hit if entry.life.is_negative() => {}
            Outcome::Hit => self.counts.hits += weight,
            Outcome::Stale => self.counts.stale += weight,
            Outcome::Coalesced => self.counts.coalesced += weight,
            _ => {}
        }
        if answer.starts_load {
            self.counts.loads += weight;
            self.reload(slot, known, now, keys);
        }
    }

    /// The first load of a key ended, for which this ghost waited.
    pub(super) fn first_load_ended(&mut self, slot: Slot, known: &KnownValue, now: Time, keys: &mut Keys) {
        if keys.is_waiting(slot, self.bit) {
            // By the clock of lookups, which may be behind that of loads.
            self.store(slot, known, known.times.life.loaded, now, keys);
        }
    }

    /// Stores the value of a load that ends at `load_ends`.
    fn store(&mut self, slot: Slot, known: &KnownValue, load_ends: Time, now: Time, keys: &mut Keys) {
        self.sweep(now, keys);
        let weight = known.times.weight;
        if weight as usize > self.weight_max {
            return;
        }
        self.make_room(1, weight as usize, keys);
        if self.entries.0.len() <= slot as usize {
            self.entries.0.resize_with(slot as usize + 1, Entry::default);
        }
        self.entries.0[slot as usize] =
            Entry { load_ends, hash: keys.position(slot), weight, ..Entry::default() };
        self.used_entries += 1;
        self.used_bytes += weight as usize;
        keys.hold(slot, self.bit);
        self.policy.on_insert(&mut self.entries, slot);
    }

    /// Starts a load of a key that is held.
    fn reload(&mut self, slot: Slot, known: &KnownValue, now: Time, keys: &mut Keys) {
        self.sweep(now, keys);
        if !keys.is_held(slot, self.bit) {
            return self.store(slot, known, now + known.took, now, keys);
        }
        let weight = known.times.weight;
        if weight as usize > self.weight_max {
            return self.remove(slot, keys);
        }
        let entry = &mut self.entries.0[slot as usize];
        entry.load_ends = now + known.took;
        let old = std::mem::replace(&mut entry.weight, weight);
        self.used_bytes = self.used_bytes - old as usize + weight as usize;
        self.policy.on_update(&mut self.entries, slot);
        self.make_room(0, 0, keys);
    }

    fn make_room(&mut self, entries: usize, bytes: usize, keys: &mut Keys) {
        let fits = |used: usize, more: usize, bounds: usize| used.saturating_add(more) <= bounds;
        let (most_entries, most_bytes) = (self.entries_bounds, self.bytes_bounds);
        if fits(self.used_entries, entries, most_entries.max) && fits(self.used_bytes, bytes, most_bytes.max)
        {
            return;
        }
        // The cache reclaims a few entries at each store, a ghost all at once.
        let target = |used: usize, more: usize, bounds: LimitBounds| {
            if fits(used, more, bounds.max) { bounds.max } else { bounds.reclaim_to }
        };
        let entries_target = target(self.used_entries, entries, most_entries).max(entries);
        let bytes_target = target(self.used_bytes, bytes, most_bytes).max(bytes);
        while !(fits(self.used_entries, entries, entries_target)
            && fits(self.used_bytes, bytes, bytes_target))
        {
            let Some(evicted) = self.policy.evict(&mut self.entries) else { return };
            self.forget(evicted, keys);
        }
    }

    /// Removes a key that is held.
    pub(super) fn remove(&mut self, slot: Slot, keys: &mut Keys) {
        self.policy.on_remove(&mut self.entries, slot);
        self.forget(slot, keys);
    }

    pub(super) fn invalidate(&mut self, slot: Slot, how: Invalidation, now: Time, keys: &mut Keys) {
        if !keys.is_held(slot, self.bit) {
            return;
        }
        let entry = &mut self.entries.0[slot as usize];
        if let Some(known) = keys.known(slot) {
            entry.complete_load(known, self.config.ttl, now);
        }
        // A load in flight is not stored.
        entry.load_ends = Time::NEVER;
        match entry.life.after_invalidation(how, now) {
            Some(life) => entry.life = life,
            None => self.remove(slot, keys),
        }
    }

    /// Drops a key that the policy has forgotten.
    fn forget(&mut self, slot: Slot, keys: &mut Keys) {
        self.used_entries -= 1;
        self.used_bytes -= self.entries.0[slot as usize].weight as usize;
        keys.release(slot, self.bit);
    }

    /// Removes the expired ones of the next entries.
    fn sweep(&mut self, now: Time, keys: &mut Keys) {
        let mut examined = 0;
        for _ in 0..SWEEP_KEYS_MAX.min(self.entries.0.len()) {
            if examined == SWEEP_SLICE {
                return;
            }
            if self.swept >= self.entries.0.len() {
                self.swept = 0;
            }
            let slot = Slot::try_from(self.swept).expect("a sample has fewer keys");
            self.swept += 1;
            if !keys.is_held(slot, self.bit) {
                continue;
            }
            examined += 1;
            let entry = &mut self.entries.0[slot as usize];
            if let Some(known) = keys.known(slot) {
                entry.complete_load(known, self.config.ttl, now);
            }
            if !entry.is_loading() && entry.life.kept_until() <= now {
                self.remove(slot, keys);
            }
        }
    }

    /// Panics unless the account is that of the entries.
    #[cfg(all(test, not(shuttle)))]
    pub(super) fn check(&self, keys: &Keys, slot_count: usize) {
        let held = (0..u32::try_from(slot_count).unwrap()).filter(|slot| keys.is_held(*slot, self.bit));
        let weights: Vec<usize> = held.map(|slot| self.entries.0[slot as usize].weight as usize).collect();
        assert_eq!((self.used_entries, self.used_bytes), (weights.len(), weights.iter().sum()));
        assert!(self.used_entries <= self.entries_bounds.max && self.used_bytes <= self.bytes_bounds.max);
    }
}
