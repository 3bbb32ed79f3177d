//! One cache over a trace.
//!
//! ```text
//! request -- the key is present and fresh ------------------> hit; not of a write
//!         -- HEAD, a write, or passed ----------------------> miss; a write removes the entry
//!         -- it is present, past its ttl, within swr --------> stale; a load starts unless one is under way
//!         -- its load is under way --------------------------> coalesced
//!         -- else: make room, load, store -------------------> miss
//! ```
//!
//! A response that may not be stored answers its own request alone, and removes the older one. [`Exchange`] has the rules.
//!
//! Without these, lifetimes and latency the last two lines and the clock are left out, and the replay is the usual simulation of
//! an eviction policy: `hit`, or evict until the object fits and insert it. An object larger than the room is not stored.
//! As in the cache, an expired entry keeps its room until it is replaced, evicted or swept, and each store sweeps two entries.
//! Room is made when a load starts, as the cache reserves it; an entry that is evicted before its load ends is not stored.

use std::mem;

use stockade_cache::{Limit, Policy as CachePolicy};

use crate::{
    exchange::Exchange,
    peaks::Peaks,
    policy::{EvictionPolicy, PolicySetup},
    routes::RouteTtls,
    scale::scaled,
    trace::{Access, Key, Request, Trace},
};

/// Entries that each store examines for expired ones, as in the cache.
const SWEEP_SLICE: usize = 2;
/// Not under way, not present.
const NONE: u64 = u64::MAX;

/// The size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Each entry counts one.
    Entries(u64),
    /// An entry counts its bytes, and an overhead.
    Bytes(u64),
}

impl Capacity {
    /// The number of entries or bytes.
    #[must_use]
    pub fn size(self) -> u64 {
        match self {
            Self::Entries(size) | Self::Bytes(size) => size,
        }
    }

    /// So many times this size.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let size = scaled(self.size(), factor);
        match self {
            Self::Entries(_) => Self::Entries(size),
            Self::Bytes(_) => Self::Bytes(size),
        }
    }

    /// The limit of a cache of this size. `max_object`: the largest entry that is stored, in bytes; `None`: the default of the cache.
    pub(crate) fn limit(self, max_object: Option<u64>) -> Limit {
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        match self {
            Self::Entries(entries) => Limit::entries(size(entries)),
            Self::Bytes(bytes) => Limit { max_object: max_object.map(size), ..Limit::bytes(size(bytes)) },
        }
    }

    /// The largest entry that a cache of this size stores, in bytes. It has no such bound with a limit in entries.
    pub(crate) fn entry_max(self, max_object: Option<u64>) -> Option<u64> {
        let limit = self.limit(max_object);
        limit.bytes.map(|bytes| limit.max_object_bytes(bytes) as u64)
    }
}

/// For how long a value is fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// For ever.
    Never,
    /// The same for all values, in nanoseconds.
    Fixed(u64),
    /// The ttl of each response in the log, else this, in nanoseconds.
    Logged {
        /// Where the log says nothing.
        default_ns: u64,
    },
}

impl Ttl {
    /// The ttl of a response of which the log says nothing; `None`: it never expires.
    #[must_use]
    pub fn default_ns(self) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::Fixed(ttl_ns) | Self::Logged { default_ns: ttl_ns } => Some(ttl_ns),
        }
    }
}

/// A cache to be replayed, beside its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSetup {
    /// The room.
    pub capacity: Capacity,
    /// Bytes of an entry beside those of its response, with a capacity in bytes.
    pub overhead_bytes: u32,
    /// Larger entries are not stored; `None`: those larger than the room.
    pub entry_max: Option<u64>,
    /// For how long a value is fresh.
    pub ttl: Ttl,
    /// For how long after that it is served while a load is under way, in nanoseconds.
    pub swr_ns: u64,
    /// How long a load takes, in nanoseconds.
    pub latency_ns: u64,
    /// The ttls of routes, in place of `ttl`. A response of 404 has `ttl`, unless nothing of its route is stored.
    pub routes: RouteTtls,
}

impl CacheSetup {
    /// Values never expire, loads take no time.
    #[must_use]
    pub fn of(capacity: Capacity) -> Self {
        Self {
            capacity,
            overhead_bytes: 0,
            entry_max: None,
            ttl: Ttl::Never,
            swr_ns: 0,
            latency_ns: 0,
            routes: RouteTtls::NONE,
        }
    }

    fn is_timed(&self) -> bool {
        self.ttl != Ttl::Never || self.latency_ns > 0 || !self.routes.is_none()
    }
}

/// Counts of one replay, of the sampled requests after the [warm-up](crate::Warmup).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// Requests.
    pub requests: u64,
    /// Answered by a fresh entry.
    pub hits: u64,
    /// Answered by an entry past its ttl.
    pub stale: u64,
    /// Answered by the load of another request.
    pub coalesced: u64,
    /// Answered by a load of their own.
    pub misses: u64,
    /// Bytes of the misses.
    pub miss_bytes: u64,
    /// Bytes of the loads, those in the background included: what the origin sends.
    pub load_bytes: u64,
    /// Misses, and refreshes in the background.
    pub loads: u64,
    /// Entries evicted to make room.
    pub evictions: u64,
    /// The greatest age of a response, in nanoseconds since its load ended; 0 if values never expire and loads take no time.
    pub age_max_ns: u64,
    /// The most loads in a second and in a minute.
    pub peaks: Peaks,
    /// The same of the cold start: of all loads before [`Counted::cold_until_ns`](crate::Counted::cold_until_ns).
    pub cold_peaks: Peaks,
}

/// The state of a key, present or not.
#[derive(Clone, Copy)]
struct KeyState {
    /// When the load of the present value ended, or [`NONE`].
    loaded_ns: u64,
    /// When the load that is under way ends, or [`NONE`].
    load_ends_ns: u64,
    /// For how long the present value is fresh, and the one of the load that is under way.
    ttl_ns: u64,
    next_ttl_ns: u64,
    weight: u32,
    /// Among the present keys.
    index: u32,
}

impl KeyState {
    /// Completes a load that has ended. No read of a state comes before this, and a load is completed as a whole.
    #[inline]
    fn complete_load(&mut self, now: u64) {
        if self.load_ends_ns <= now {
            (self.loaded_ns, self.ttl_ns) = (self.load_ends_ns, self.next_ttl_ns);
            self.load_ends_ns = NONE;
        }
    }

    fn is_loading(&self) -> bool {
        self.load_ends_ns != NONE
    }
}

/// Absent keys are there in no list.
const ABSENT: u32 = u32::MAX;

struct CacheReplay<'a, P> {
    setup: &'a CacheSetup,
    /// For policies that know the future.
    next: Option<&'a [u32]>,
    policy: P,
    keys: Vec<KeyState>,
    present: Vec<Key>,
    swept: usize,
    capacity: u64,
    /// A heavier entry is not stored.
    entry_max: u64,
    used: u64,
    /// When counting begins; [`NONE`]: it has.
    counts_from_ns: u64,
    cold_until_ns: u64,
    counts: Replay,
}

/// Runs a cache with the policy `P` over a trace.
pub(crate) fn replay<P: EvictionPolicy>(
    trace: &Trace,
    setup: &CacheSetup,
    shipped: Option<&'static CachePolicy>,
) -> Replay {
    let mut cache = CacheReplay::<P>::new(trace, setup, shipped);
    if setup.is_timed() || !trace.is_plain() {
        cache.run_timed(trace);
    } else {
        cache.run(trace);
    }
    cache.counts
}

impl<'a, P: EvictionPolicy> CacheReplay<'a, P> {
    /// An empty cache. Over a sample of the keys it has the same share of the room.
    fn new(trace: &'a Trace, setup: &'a CacheSetup, shipped: Option<&'static CachePolicy>) -> Self {
        let capacity = setup.capacity.times(trace.sampled_share()).size();
        let requests = trace.requests();
        let mean_weight = match setup.capacity {
            Capacity::Entries(_) => 1.0,
            Capacity::Bytes(_) => {
                let bytes: u64 = requests.iter().map(|request| u64::from(request.bytes)).sum();
                bytes as f64 / requests.len().max(1) as f64 + f64::from(setup.overhead_bytes)
            }
        };
        let absent = KeyState {
            loaded_ns: NONE,
            load_ends_ns: NONE,
            ttl_ns: 0,
            next_ttl_ns: 0,
            weight: 0,
            index: ABSENT,
        };
        Self {
            setup,
            next: P::KNOWS_FUTURE.then(|| trace.next_positions()),
            policy: P::new(&PolicySetup {
                keys: trace.keys(),
                capacity,
                unit: setup.capacity,
                mean_weight,
                swr_ns: setup.swr_ns,
                latency_ns: setup.latency_ns,
                shipped,
            }),
            keys: vec![absent; trace.keys()],
            present: Vec::new(),
            swept: 0,
            capacity,
            entry_max: setup.entry_max.map_or(capacity, |entry_max| entry_max.min(capacity)),
            used: 0,
            counts_from_ns: trace.counted().from_ns,
            cold_until_ns: trace.counted().cold_until_ns(),
            counts: Replay::default(),
        }
    }

    fn weight(&self, bytes: u32) -> u32 {
        match self.setup.capacity {
            Capacity::Entries(_) => 1,
            Capacity::Bytes(_) => bytes.saturating_add(self.setup.overhead_bytes).max(1),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a trace has fewer requests")]
    fn access(&self, index: usize, request: &Request) -> Access {
        let next = self.next.map_or(0, |next| next[index]);
        Access {
            key: request.key(),
            weight: self.weight(request.bytes),
            position: index as u32 + 1,
            next,
            at_ns: request.at_ns,
            ttl_ns: NONE,
        }
    }

    #[inline]
    fn count_request(&mut self, now: u64) {
        if now >= self.counts_from_ns {
            self.counts = Replay { cold_peaks: mem::take(&mut self.counts.cold_peaks), ..Replay::default() };
            self.counts_from_ns = NONE;
        }
        self.counts.requests += 1;
    }

    fn count_load(&mut self, request: &Request) {
        self.counts.loads += 1;
        self.counts.load_bytes += u64::from(request.bytes);
        self.counts.peaks.add(request.at_ns);
        if request.at_ns < self.cold_until_ns {
            self.counts.cold_peaks.add(request.at_ns);
        }
    }

    /// Without lifetimes and latency.
    fn run(&mut self, trace: &Trace) {
        for (index, request) in trace.requests().iter().enumerate() {
            let access = self.access(index, request);
            self.count_request(request.at_ns);
            if self.keys[access.key as usize].index == ABSENT {
                self.counts.misses += 1;
                self.counts.miss_bytes += u64::from(request.bytes);
                self.count_load(request);
                self.store(&access);
            } else {
                self.counts.hits += 1;
                self.policy.on_hit(&access);
            }
        }
    }

    fn run_timed(&mut self, trace: &Trace) {
        for index in 0..trace.requests().len() {
            self.request(trace, index);
        }
    }

    #[inline]
    fn request(&mut self, trace: &Trace, index: usize) {
        let request = &trace.requests()[index];
        let mut access = self.access(index, request);
        let now = request.at_ns;
        self.count_request(now);
        let state = self.state_at(now, access.key);
        let is_loading = state.is_loading();
        let is_present = state.index != ABSENT;
        let age = (is_present && state.loaded_ns <= now).then(|| now - state.loaded_ns);
        let ttl_ns = state.ttl_ns;
        access.ttl_ns = ttl_ns;
        let exchange = request.exchange();
        if let Some(age) = age.filter(|age| *age < ttl_ns && exchange.is_lookup()) {
            self.counts.hits += 1;
            return self.answer(&access, age);
        }
        if matches!(exchange, Exchange::Head | Exchange::Write | Exchange::Passed) {
            self.counts.misses += 1;
            self.counts.miss_bytes += u64::from(request.bytes);
            self.count_load(request);
            if exchange == Exchange::Write {
                self.invalidate(access.key);
            }
            return;
        }
        match age {
            Some(age) if age < ttl_ns.saturating_add(self.setup.swr_ns) => {
                self.counts.stale += 1;
                self.answer(&access, age);
                if is_loading {
                    return;
                }
            }
            _ if is_loading => {
                self.counts.coalesced += 1;
                return;
            }
            _ => {
                self.counts.misses += 1;
                self.counts.miss_bytes += u64::from(request.bytes);
                if is_present {
                    self.policy.on_expired(&access);
                }
            }
        }
        self.count_load(request);
        let logged = || trace.ttl_ns(index);
        let of_route = self.setup.routes.ttl_ns(request.route());
        let ttl_ns = match (exchange, self.setup.ttl) {
            (Exchange::Planned, _) if let Some(ttl_ns) = of_route => ttl_ns,
            (Exchange::NotFound, _) if of_route == Some(0) => 0,
            (Exchange::NotShareable | Exchange::NoLifetime, _) => 0,
            (Exchange::Declared, _) => logged().unwrap_or(0),
            (_, Ttl::Never) => NONE,
            (_, Ttl::Fixed(ttl_ns)) => ttl_ns,
            (_, Ttl::Logged { default_ns }) => logged().unwrap_or(default_ns),
        };
        access.ttl_ns = ttl_ns;
        self.load(&access, now, ttl_ns);
    }

    /// The state of a key at this time.
    #[inline]
    fn state_at(&mut self, now: u64, key: Key) -> &mut KeyState {
        let state = &mut self.keys[key as usize];
        state.complete_load(now);
        state
    }

    fn answer(&mut self, access: &Access, age_ns: u64) {
        self.counts.age_max_ns = self.counts.age_max_ns.max(age_ns);
        self.policy.on_hit(access);
    }

    /// Removes what is stored. A load that is under way goes on, and its value is not stored.
    fn invalidate(&mut self, key: Key) {
        if self.keys[key as usize].index != ABSENT {
            self.policy.on_remove(key);
            self.forget(key);
        }
        self.keys[key as usize].load_ends_ns = NONE;
    }

    /// Starts a load, and makes room for its value. Requests until its end share it, also if the value is too large to be stored. A
    /// response without a lifetime answers its own request alone.
    fn load(&mut self, access: &Access, now: u64, ttl_ns: u64) {
        self.sweep(now);
        let is_present = self.keys[access.key as usize].index != ABSENT;
        let is_stored = if ttl_ns == 0 {
            // A newer response that may not be stored removes the older one.
            if is_present {
                self.policy.on_remove(access.key);
                self.forget(access.key);
            }
            false
        } else if is_present {
            self.reweigh(access)
        } else {
            self.store(access)
        };
        let state = &mut self.keys[access.key as usize];
        if ttl_ns == 0 {
            state.load_ends_ns = NONE;
        } else if self.setup.latency_ns > 0 {
            state.load_ends_ns = now.saturating_add(self.setup.latency_ns);
            state.next_ttl_ns = ttl_ns;
        } else if is_stored {
            (state.loaded_ns, state.ttl_ns) = (now, ttl_ns);
        }
    }

    /// Inserts an absent key. Returns false if it is too large.
    fn store(&mut self, access: &Access) -> bool {
        if u64::from(access.weight) > self.entry_max {
            return false;
        }
        self.policy.on_miss(access);
        self.make_room(access, u64::from(access.weight));
        self.used += u64::from(access.weight);
        let state = &mut self.keys[access.key as usize];
        state.weight = access.weight;
        state.loaded_ns = NONE;
        state.index = u32::try_from(self.present.len()).unwrap_or(ABSENT);
        self.present.push(access.key);
        self.policy.on_insert(access);
        true
    }

    /// Replaces the value of a present key. Returns false if it has left because the new one is too large.
    fn reweigh(&mut self, access: &Access) -> bool {
        let old = self.keys[access.key as usize].weight;
        if u64::from(access.weight) > self.entry_max {
            self.policy.on_remove(access.key);
            self.forget(access.key);
            return false;
        }
        self.policy.on_update(access);
        self.keys[access.key as usize].weight = access.weight;
        self.used = self.used - u64::from(old) + u64::from(access.weight);
        self.make_room(access, 0);
        self.keys[access.key as usize].index != ABSENT
    }

    fn make_room(&mut self, access: &Access, weight: u64) {
        while self.used + weight > self.capacity
            && let Some(evicted) = self.policy.evict(access)
        {
            self.counts.evictions += 1;
            self.forget(evicted);
        }
    }

    /// Removes a key that the policy has forgotten. A load that is under way goes on, and its value is not stored.
    fn forget(&mut self, key: Key) {
        let state = &mut self.keys[key as usize];
        debug_assert_ne!(state.index, ABSENT, "the policy evicted a key that is not there");
        self.used -= u64::from(state.weight);
        let index = mem::replace(&mut state.index, ABSENT);
        state.loaded_ns = NONE;
        self.present.swap_remove(index as usize);
        if let Some(moved) = self.present.get(index as usize) {
            self.keys[*moved as usize].index = index;
        }
    }

    /// Examines the next entries, and removes those that are gone.
    fn sweep(&mut self, now: u64) {
        for _ in 0..SWEEP_SLICE.min(self.present.len()) {
            if self.swept >= self.present.len() {
                self.swept = 0;
            }
            let key = self.present[self.swept];
            let swr_ns = self.setup.swr_ns;
            let state = self.state_at(now, key);
            let is_gone = !state.is_loading()
                && state.loaded_ns.saturating_add(state.ttl_ns).saturating_add(swr_ns) <= now;
            if is_gone {
                self.policy.on_remove(key);
                self.forget(key);
            } else {
                self.swept += 1;
            }
        }
    }
}

#[cfg(test)]
mod naive_tests;
#[cfg(test)]
mod tests;
