//! The sampled keys, and the ghosts that hold them.

use std::{collections::VecDeque, time::Duration};

use hashbrown::HashTable;
use stockade_model::{seed::Seed, time::Time};

use super::{
    Ghost, GhostCounts, GhostStats, GhostTtl, Shadow, ShadowStats, StoredFacts,
    choice::{PolicyChoice, candidates},
    ghost::{KnownValue, SimulatedCache},
    position,
};
use crate::{
    invalidation::Invalidation,
    limit::Limit,
    policy::{Policy, Slot},
    random::Random,
    sharded::lengthen,
};

/// Requests for sampled keys in a second; with more, the sample shrinks.
const REQUESTS_MAX: u32 = 10_000;
/// The same while the sample has all keys: a cache with more requests is not slowed by each of them.
const REQUESTS_MAX_OF_ALL: u32 = 1_000;
/// A sample does not shrink below this share: 2^-20.
const BOUND_MIN: u64 = 1 << 12;
/// All keys.
const BOUND_MAX: u64 = 1 << 32;
/// After this time with few keys and requests the sample grows again.
const GROWTH_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// At most one in this number of keys may wait for its first load.
const KEYS_FOR_A_FIRST_LOAD: usize = 16;
/// How long a first load is awaited.
const FIRST_LOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Parts of the last hour.
const PARTS: usize = 12;
const PART: Duration = Duration::from_secs(5 * 60);

#[derive(Debug)]
pub(super) struct Sample {
    /// Keys with a lower position are sampled. A power of two.
    bound: u64,
    keys_max: usize,
    keys: Keys,
    ghosts: Vec<SimulatedCache>,
    /// With the policy `auto`.
    choice: Option<PolicyChoice>,
    hours: Hours,
    requests: u64,
    /// Hits of the cache itself.
    measured_hits: u64,
    sampled_requests: u64,
    random: Random,
    second: RequestRate,
    /// Since when the sample has been able to grow.
    small_since: Time,
    last_request: Time,
    bytes_max: u64,
}

/// Requests in the current second.
#[derive(Debug, Default)]
struct RequestRate {
    second: u64,
    requests: u32,
}

impl RequestRate {
    /// True if another second has begun.
    fn starts(&mut self, now: Time) -> bool {
        let second = now.elapsed().as_secs();
        let is_new = self.second != second;
        if is_new {
            *self = Self { second, requests: 0 };
        }
        is_new
    }
}

/// The default of [`Shadow::keys_max`]; fewer if the ghosts cannot hold as many.
fn keys_max(limit: &Limit, ghosts: usize) -> usize {
    let held = limit.entries.map_or(usize::MAX, |entries| entries.saturating_mul(ghosts + 1));
    held.clamp(256, Shadow::KEYS_MAX)
}

fn requests_max(bound: u64) -> u32 {
    if bound < BOUND_MAX { REQUESTS_MAX } else { REQUESTS_MAX_OF_ALL }
}

/// Keys by slot. Slots of released keys are used again.
#[derive(Debug)]
pub(super) struct Keys {
    index: HashTable<Slot>,
    slots: Vec<SampledKey>,
    vacant: Vec<Slot>,
    /// Keys that no ghost holds any more, to be removed.
    released: Vec<Slot>,
    /// Keys without a known value and the time of their first request, the oldest first. Some may be known or gone meanwhile.
    first_loads: VecDeque<(Slot, u64, Time)>,
    first_loads_max: usize,
}

#[derive(Clone, Debug)]
struct SampledKey {
    hash: u64,
    /// `None`: its first load is in flight.
    known: Option<KnownValue>,
    /// One bit for each ghost that holds it.
    holders: u64,
    /// One bit for each ghost that waits for its first load.
    waiting: u64,
    is_present: bool,
}

impl Keys {
    fn new(keys_max: usize) -> Self {
        Self {
            index: HashTable::with_capacity(keys_max),
            slots: Vec::with_capacity(keys_max),
            vacant: Vec::new(),
            released: Vec::new(),
            first_loads: VecDeque::new(),
            first_loads_max: keys_max / KEYS_FOR_A_FIRST_LOAD,
        }
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    fn find(&self, hash: u64) -> Option<Slot> {
        let is_it = |&slot: &Slot| self.slots[slot as usize].hash == hash;
        self.index.find(lengthen(position(hash)), is_it).copied()
    }

    fn insert(&mut self, hash: u64) -> Slot {
        let key = SampledKey { hash, known: None, holders: 0, waiting: 0, is_present: true };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot as usize] = key;
                slot
            }
            None => {
                self.slots.push(key);
                Slot::try_from(self.slots.len() - 1).expect("a sample has fewer keys")
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(lengthen(position(hash)), slot, |&slot| {
            lengthen(position(slots[slot as usize].hash))
        });
        slot
    }

    fn remove(&mut self, slot: Slot) {
        let key = &mut self.slots[slot as usize];
        if !std::mem::replace(&mut key.is_present, false) {
            return;
        }
        if let Ok(listed) = self.index.find_entry(lengthen(position(key.hash)), |&listed| listed == slot) {
            listed.remove();
        }
        self.vacant.push(slot);
    }

    /// Removes the keys that no ghost holds or waits for.
    fn remove_released(&mut self) {
        while let Some(slot) = self.released.pop() {
            if !self.is_used(slot) {
                self.remove(slot);
            }
        }
    }

    /// True if a ghost holds the key, or waits for its first load.
    fn is_used(&self, slot: Slot) -> bool {
        let key = &self.slots[slot as usize];
        key.holders | key.waiting != 0
    }

    pub(super) fn known(&self, slot: Slot) -> Option<&KnownValue> {
        self.slots[slot as usize].known.as_ref()
    }

    pub(super) fn position(&self, slot: Slot) -> u32 {
        position(self.slots[slot as usize].hash)
    }

    pub(super) fn is_held(&self, slot: Slot, ghost: u64) -> bool {
        self.slots[slot as usize].holders & ghost != 0
    }

    pub(super) fn hold(&mut self, slot: Slot, ghost: u64) {
        self.slots[slot as usize].holders |= ghost;
    }

    pub(super) fn release(&mut self, slot: Slot, ghost: u64) {
        let key = &mut self.slots[slot as usize];
        key.holders &= !ghost;
        if key.holders == 0 {
            self.released.push(slot);
        }
    }

    pub(super) fn is_waiting(&self, slot: Slot, ghost: u64) -> bool {
        self.slots[slot as usize].waiting & ghost != 0
    }

    pub(super) fn wait(&mut self, slot: Slot, ghost: u64) {
        self.slots[slot as usize].waiting |= ghost;
    }

    /// Gives up first loads that have been awaited for too long, or are too many.
    fn give_up_first_loads(&mut self, now: Time) {
        while let Some(&(slot, hash, since)) = self.first_loads.front()
            && (self.first_loads.len() > self.first_loads_max || now - since > FIRST_LOAD_TIMEOUT)
        {
            self.first_loads.pop_front();
            let key = &self.slots[slot as usize];
            if key.is_present && key.hash == hash && key.known.is_none() {
                self.remove(slot);
            }
        }
    }
}

/// The counts of the last hour, in parts.
#[derive(Debug)]
struct Hours {
    part: u64,
    /// The counts of the ghosts at the start of each part, the oldest first.
    starts: VecDeque<Vec<GhostCounts>>,
}

impl Sample {
    pub(super) fn new(shadow: Option<&Shadow>, limit: &Limit, seed: Seed) -> Self {
        let mut configs = vec![Ghost::of_ttl(limit, GhostTtl::Same)];
        configs.extend(shadow.into_iter().flat_map(|shadow| shadow.ghosts.iter().cloned()));
        let choice = limit.policy.is_auto().then(|| {
            PolicyChoice::new(candidates(limit).iter().map(|policy| {
                configs.push(Ghost::of_candidate(limit, policy));
                (*policy, configs.len() - 1)
            }))
        });
        let keys_max = shadow.map_or_else(|| keys_max(limit, configs.len()), |shadow| shadow.keys_max);
        let key_bytes = size_of::<SampledKey>()
            + 2 * size_of::<Slot>()
            + 2 * (size_of::<Slot>() + 1)
            + size_of::<(Slot, u64, Time)>() / KEYS_FOR_A_FIRST_LOAD
            + configs.iter().map(SimulatedCache::key_bytes).sum::<usize>();
        let ghosts: Vec<SimulatedCache> = configs
            .into_iter()
            .enumerate()
            .map(|(index, config)| SimulatedCache::new(config, 1 << index, 1.0, keys_max))
            .collect();
        let start = vec![GhostCounts::default(); ghosts.len()];
        Self {
            bound: BOUND_MAX,
            keys_max,
            keys: Keys::new(keys_max),
            choice,
            hours: Hours { part: 0, starts: VecDeque::from([start]) },
            ghosts,
            requests: 0,
            measured_hits: 0,
            sampled_requests: 0,
            random: Random::new(seed),
            second: RequestRate::default(),
            small_since: Time::ZERO,
            last_request: Time::ZERO,
            bytes_max: (key_bytes * keys_max) as u64,
        }
    }

    /// Keys up to this position are sampled.
    #[expect(clippy::cast_possible_truncation, reason = "below 2^32")]
    pub(super) fn last_position(&self) -> u32 {
        (self.bound - 1) as u32
    }

    /// The number of requests that one for a sampled key stands for.
    fn weight(&self) -> u64 {
        BOUND_MAX / self.bound
    }

    fn share(&self) -> f64 {
        self.bound as f64 / BOUND_MAX as f64
    }

    /// Returns the policy that was chosen, if that is another one.
    pub(super) fn request(
        &mut self,
        hash: u64,
        now: Time,
        stored: Option<StoredFacts>,
    ) -> Option<&'static Policy> {
        let requests_before = self.second.requests;
        if self.second.starts(now) {
            self.start_part(now);
            self.grow(requests_before, now);
        }
        self.second.requests += 1;
        if self.second.requests > requests_max(self.bound) {
            // The factor by which the requests exceed the next bound, if the rest of the second is like its beginning.
            let a_second = u64::from(self.second.requests) * 1_000_000_000
                / u64::from(now.elapsed().subsec_nanos().max(1));
            let halvings = (a_second / u64::from(REQUESTS_MAX)).max(1).ilog2() + 1;
            self.resize(self.bound >> halvings.min(4), now);
            self.second.requests = 0;
            if position(hash) > self.last_position() {
                return None;
            }
        }
        self.sampled_requests += 1;
        self.last_request = now;
        let weight = self.weight();
        self.requests += weight;
        let is_hit = |stored: &StoredFacts| {
            now < stored.life.expires && !stored.life.is_negative() && !stored.is_marker
        };
        self.measured_hits += if stored.as_ref().is_some_and(is_hit) { weight } else { 0 };
        let slot = match self.keys.find(hash) {
            Some(slot) => slot,
            // The sample cannot shrink any more.
            None if self.keys.len() >= self.keys_max => return None,
            None => self.keys.insert(hash),
        };
        let key = &mut self.keys.slots[slot as usize];
        match (&mut key.known, stored) {
            (None, Some(times)) => {
                // The ghosts had dropped the key, which the cache has.
                key.known = Some(KnownValue { times, took: Duration::ZERO });
                key.waiting = 0;
            }
            (None, None) if key.waiting == 0 => {
                self.keys.first_loads.push_back((slot, hash, now));
                self.keys.give_up_first_loads(now);
            }
            _ => {}
        }
        let known = self.keys.known(slot).copied();
        for ghost in &mut self.ghosts {
            ghost.request(slot, weight, now, known.as_ref(), &mut self.keys, &self.random);
        }
        // A ghost may have no room for it.
        if !self.keys.is_used(slot) {
            self.keys.remove(slot);
        }
        let chosen = self.choose(weight);
        self.settle(now);
        chosen
    }

    fn choose(&mut self, weight: u64) -> Option<&'static Policy> {
        let ghosts = &self.ghosts;
        let ghost = |number: usize| (ghosts[number].counts.loads, ghosts[number].used_entries());
        let policy = self.choice.as_mut()?.request(weight, ghost)?;
        let followers = self.ghosts.iter_mut().filter(|ghost| ghost.config.limit.policy.is_auto());
        followers.for_each(|ghost| ghost.switch_to(policy));
        Some(policy)
    }

    pub(super) fn stored(&mut self, hash: u64, now: Time, times: StoredFacts, took: Duration) {
        let Some(slot) = self.keys.find(hash) else { return };
        let known = KnownValue { times, took };
        if self.keys.slots[slot as usize].known.replace(known).is_some() {
            return;
        }
        for ghost in &mut self.ghosts {
            ghost.first_load_ended(slot, &known, now, &mut self.keys);
        }
        self.keys.slots[slot as usize].waiting = 0;
        if !self.keys.is_used(slot) {
            self.keys.remove(slot);
        }
        self.settle(now);
    }

    pub(super) fn not_stored(&mut self, hash: u64) {
        if let Some(slot) = self.keys.find(hash)
            && self.keys.known(slot).is_none()
        {
            self.keys.remove(slot);
        }
    }

    pub(super) fn invalidate(&mut self, position: u32, how: Invalidation, now: Time) {
        let is_it = |slot: &&Slot| self.keys.position(**slot) == position;
        let slots: Vec<Slot> = self.keys.index.iter_hash(lengthen(position)).filter(is_it).copied().collect();
        for slot in slots {
            self.invalidate_key(slot, how, now);
        }
        self.keys.remove_released();
    }

    pub(super) fn invalidate_all(&mut self, how: Invalidation, now: Time) {
        for slot in self.keys.index.iter().copied().collect::<Vec<_>>() {
            self.invalidate_key(slot, how, now);
        }
        self.keys.remove_released();
    }

    fn invalidate_key(&mut self, slot: Slot, how: Invalidation, now: Time) {
        for ghost in &mut self.ghosts {
            ghost.invalidate(slot, how, now, &mut self.keys);
        }
    }

    /// Removes released keys, and makes the sample smaller if there are too many.
    fn settle(&mut self, now: Time) {
        self.keys.remove_released();
        while self.keys.len() >= self.keys_max && self.bound > BOUND_MIN {
            self.resize(self.bound / 2, now);
        }
    }

    /// Makes the sample larger if it has had few keys and requests for a while. `requests` are those of
    /// the last second.
    fn grow(&mut self, requests: u32, now: Time) {
        self.keys.give_up_first_loads(now);
        let has_room = self.keys.len() < self.keys_max / 4 && requests < requests_max(2 * self.bound) / 4;
        // The keys that ghosts hold may be those of a flood, and no other key in the sample.
        let is_idle = now - self.last_request > GROWTH_INTERVAL;
        if self.bound == BOUND_MAX || !(has_room || is_idle) {
            self.small_since = now;
        } else if now - self.small_since > GROWTH_INTERVAL {
            let times = (now - self.small_since).as_secs() / GROWTH_INTERVAL.as_secs();
            self.resize(self.bound << times.min(8), now);
            // The new keys are missing in all ghosts.
            self.hours.starts = VecDeque::from([self.counts()]);
        }
    }

    /// Drops the keys beyond the new bound, and scales the ghosts.
    fn resize(&mut self, bound: u64, now: Time) {
        self.bound = bound.clamp(BOUND_MIN, BOUND_MAX);
        self.small_since = now;
        let is_beyond = |slot: &Slot| self.keys.position(*slot) > self.last_position();
        let beyond: Vec<Slot> = self.keys.index.iter().filter(|slot| is_beyond(slot)).copied().collect();
        for slot in beyond {
            self.invalidate_key(slot, Invalidation::Hard, now);
            self.keys.remove(slot);
        }
        let share = self.share();
        for ghost in &mut self.ghosts {
            ghost.scale(share);
            ghost.shrink(&mut self.keys);
        }
        self.keys.remove_released();
    }

    /// Starts the part of the hour that `now` is in.
    fn start_part(&mut self, now: Time) {
        let part = now.elapsed().as_secs() / PART.as_secs();
        let passed = part.saturating_sub(self.hours.part);
        if passed == 0 {
            return;
        }
        self.hours.part = part;
        let counts = self.counts();
        for _ in 0..passed.min(PARTS as u64) {
            if self.hours.starts.len() == PARTS {
                self.hours.starts.pop_front();
            }
            self.hours.starts.push_back(counts.clone());
        }
    }

    fn counts(&self) -> Vec<GhostCounts> {
        let of_ghost = |ghost: &SimulatedCache| GhostCounts { requests: self.requests, ..ghost.counts };
        self.ghosts.iter().map(of_ghost).collect()
    }

    pub(super) fn stats(&mut self, now: Time) -> ShadowStats {
        self.start_part(now);
        self.grow(self.second.requests, now);
        let totals = self.counts();
        let hours: Vec<GhostCounts> =
            totals.iter().zip(&self.hours.starts[0]).map(|(total, start)| total.since(start)).collect();
        let own = hours[0];
        let ghosts = self.ghosts.iter().zip(totals.into_iter().zip(hours)).map(|(ghost, (total, hour))| {
            let limit = &ghost.config.limit;
            GhostStats {
                hit_ratio_change: hour.hit_ratio().zip(own.hit_ratio()).map(|(ghost, own)| ghost - own),
                loads_ratio: (own.loads > 0).then(|| hour.loads as f64 / own.loads as f64),
                name: ghost.config.name.clone(),
                policy: limit.policy.name.to_owned(),
                entries_limit: limit.entries.map(|entries| entries as u64),
                bytes_limit: limit.bytes.map(|bytes| bytes as u64),
                total,
                hour,
            }
        });
        ShadowStats {
            sampled_share: self.share(),
            keys: self.keys.len() as u64,
            bytes_max: self.bytes_max,
            sampled_requests: self.sampled_requests,
            ghosts: ghosts.collect(),
            policy: self
                .choice
                .as_ref()
                .map_or(self.ghosts[0].config.limit.policy, PolicyChoice::active)
                .name
                .to_owned(),
            policy_changes: self.choice.as_ref().map_or(0, PolicyChoice::changes),
            measured_hit_ratio: (self.requests > 0).then(|| self.measured_hits as f64 / self.requests as f64),
        }
    }

    /// Panics unless the account of each ghost is that of its entries.
    #[cfg(all(test, not(shuttle)))]
    pub(super) fn check(&self) {
        assert_eq!(self.keys.slots.iter().filter(|key| key.is_present).count(), self.keys.len());
        assert!(self.keys.released.is_empty() && self.keys.len() <= self.keys_max);
        self.ghosts.iter().for_each(|ghost| ghost.check(&self.keys, self.keys.slots.len()));
    }
}
