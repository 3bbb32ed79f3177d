//! One cache over a trace.
//!
//! ```text
//! request -- the key is present and fresh ------------------> hit; not of a write
//!         -- HEAD, a write, or passed ----------------------> miss, forwarded; a write removes the entry, HEAD may freshen it
//!         -- it is present, past its ttl, within swr --------> stale; a load starts unless one is under way
//!         -- its load is under way --------------------------> coalesced
//!         -- else: load; at its end make room and store -----> miss
//! ```
//!
//! A response that may not be stored answers its own request alone, and removes the older one. [`Exchange`] has the rules.
//! A load has its effect on the cache when it ends: until then it takes no room, as in the cache, which reserves the bytes of a
//! response when its head arrives.
//!
//! Without these, lifetimes and latency the last two lines and the clock are left out, and the replay is the usual simulation of
//! an eviction policy: `hit`, or evict until the object fits and insert it. An object larger than the room is not stored.
//! As in the proxy, a response that is not shared leaves a marker in the cache, a small entry that says so. As in the cache, an expired
//! entry keeps its room until it is replaced, evicted or swept, each store sweeps two entries, and a value that replaces another needs
//! room in bytes in addition to it.

use std::{collections::VecDeque, mem, time::Duration};

use stockade_cache::{
    Limit, Outcome, Policy as CachePolicy, Time,
    simulation::{FreshnessState, Lifetime, Spans},
};

use crate::{
    exchange::Exchange,
    peaks::Peaks,
    policy::{EvictionPolicy, PolicySetup},
    routes::RouteTtls,
    scale::scaled,
    trace::{Access, Key, NEVER, Request, Trace},
};

/// Entries that each store examines for expired ones, as in the cache.
const SWEEP_SLICE: usize = 2;
/// Never, or for ever.
const NONE: u64 = u64::MAX;
/// For how long a marker is kept.
const MARKER_TTL_NS: u64 = 120_000_000_000;
/// No load of the key is under way, or none that is shared and stored.
const NOT_LOADING: u32 = 0;

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

    /// This size times a factor.
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
    /// The ttl of a response without one in the log; `None`: it never expires.
    #[must_use]
    pub fn default_ns(self) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::Fixed(ttl_ns) | Self::Logged { default_ns: ttl_ns } => Some(ttl_ns),
        }
    }
}

/// A cache to be replayed, without its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSetup {
    /// The room.
    pub capacity: Capacity,
    /// Bytes of an entry without its response, with a capacity in bytes.
    pub overhead_bytes: u32,
    /// Bytes of a marker of the proxy: that responses to a URL are not shared. 0: it leaves none.
    pub marker_bytes: u32,
    /// Bytes that the proxy reserves for an entry beyond its own, until it is stored.
    pub reserved_bytes: u32,
    /// Larger entries, with what is reserved, are not stored; `None`: those larger than the room.
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
            marker_bytes: 0,
            reserved_bytes: 0,
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
    /// Those of the loads that a cache does not make: HEAD and other methods than GET, which it forwards.
    pub forwarded: u64,
    /// Entries evicted to make room.
    pub evictions: u64,
    /// The greatest age of a response, in nanoseconds since its load ended; 0 if values never expire and loads take no time.
    pub age_max_ns: u64,
    /// The most loads in a second and in a minute.
    pub peaks: Peaks,
    /// The same of the cold start: of all loads before [`CountedRequests::cold_until_ns`](crate::CountedRequests::cold_until_ns).
    pub cold_peaks: Peaks,
}

/// The state of a key, present or not.
#[derive(Clone, Copy)]
struct KeyState {
    /// When the load of the present value ended.
    loaded_ns: u64,
    /// Until when the present value is fresh.
    expires_ns: u64,
    weight: u32,
    /// Among the present keys.
    index: u32,
    /// The position of the request whose load is under way, or [`NOT_LOADING`].
    loading: u32,
    /// Of the present entry.
    kind: EntryKind,
}

impl KeyState {
    fn is_present(&self) -> bool {
        self.index != ABSENT
    }

    /// The times of the present entry; `spans` are those of responses.
    #[inline]
    fn life(&self, spans: Spans) -> Lifetime {
        let expires = Time::from_nanos(self.expires_ns);
        let spans = if self.kind == EntryKind::Marker { Spans::NONE } else { spans };
        Lifetime::new(Time::from_nanos(self.loaded_ns), expires, expires, spans)
    }

    /// The state of the present response. Without one it is [gone](FreshnessState::Gone).
    #[inline]
    fn response(&self, now: u64, spans: Spans) -> FreshnessState {
        if !self.is_present() || self.kind == EntryKind::Marker {
            return FreshnessState::Gone;
        }
        let now = Time::from_nanos(now);
        self.life(spans).state(now, || (now, 0.0))
    }

    fn ttl_ns(&self) -> u64 {
        if self.expires_ns == NONE { NONE } else { self.expires_ns - self.loaded_ns }
    }
}

/// The kind of an entry.
#[derive(Clone, Copy, PartialEq)]
enum EntryKind {
    /// A 200, which a response to HEAD freshens.
    Ok,
    /// Another response.
    Other,
    /// That responses are not shared. It answers no request.
    Marker,
}

/// A load that is under way. All take the same time, so that they end in the order of their starts.
struct Load {
    ends_ns: u64,
    /// The request that started it, and the ttl of its response.
    access: Access,
    effect: LoadEffect,
}

/// The effect of the end of a load.
#[derive(Clone, Copy)]
enum LoadEffect {
    /// Its value is stored, unless what was stored has been invalidated meanwhile.
    Store(EntryKind),
    /// Its value may not be stored, and removes the stale one.
    Remove,
    /// Its value is not shared, which is remembered.
    Mark,
    /// A response to HEAD: the value that was loaded at this time is fresh again, if it is still there.
    Freshen(u64),
}

/// The index of absent keys.
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
    /// How long responses are served after they expire.
    spans: Spans,
    used: u64,
    /// When counting begins; [`NONE`]: it has.
    counts_from_ns: u64,
    cold_until_ns: u64,
    under_way: VecDeque<Load>,
    counts: Replay,
}

/// Runs a cache with the policy `P` over a trace.
pub(crate) fn replay<P: EvictionPolicy>(
    trace: &Trace,
    setup: &CacheSetup,
    shipped: Option<&'static CachePolicy>,
) -> Replay {
    let mut cache = CacheReplay::<P>::new(trace, setup, shipped);
    if cache.is_simple(trace) {
        cache.run(trace);
    } else {
        cache.run_timed(trace);
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
            loaded_ns: 0,
            expires_ns: 0,
            weight: 0,
            index: ABSENT,
            loading: NOT_LOADING,
            kind: EntryKind::Other,
        };
        Self {
            setup,
            next: P::KNOWS_FUTURE.then(|| trace.next_positions()),
            policy: P::new(&PolicySetup {
                keys: trace.key_count(),
                capacity,
                unit: setup.capacity,
                mean_weight,
                swr_ns: setup.swr_ns,
                latency_ns: setup.latency_ns,
                shipped,
            }),
            keys: vec![absent; trace.key_count()],
            present: Vec::new(),
            swept: 0,
            capacity,
            entry_max: setup.entry_max.map_or(capacity, |entry_max| entry_max.min(capacity)),
            spans: Spans::stale(Duration::from_nanos(setup.swr_ns)),
            used: 0,
            counts_from_ns: trace.counted().from_ns,
            cold_until_ns: trace.counted().cold_until_ns(),
            under_way: VecDeque::new(),
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
            if self.keys[access.key as usize].is_present() {
                self.counts.hits += 1;
                self.policy.on_hit(&access);
                continue;
            }
            self.counts.misses += 1;
            self.counts.miss_bytes += u64::from(request.bytes);
            self.count_load(request);
            let reserved = self.reserved(&access, EntryKind::Ok);
            if reserved <= self.entry_max {
                self.insert(&access, reserved);
            }
        }
    }

    fn run_timed(&mut self, trace: &Trace) {
        for index in 0..trace.requests().len() {
            self.request(trace, index);
        }
    }

    /// True if nothing expires, no load takes time, and no response leaves a marker.
    fn is_simple(&self, trace: &Trace) -> bool {
        let leaves_marker = |(index, request): (usize, &Request)| {
            self.reserved(&self.access(index, request), EntryKind::Ok) > self.entry_max
        };
        !self.setup.is_timed()
            && trace.is_plain()
            && !(self.setup.marker_bytes > 0 && trace.requests().iter().enumerate().any(leaves_marker))
    }

    #[inline]
    fn request(&mut self, trace: &Trace, index: usize) {
        let request = &trace.requests()[index];
        let mut access = self.access(index, request);
        let now = request.at_ns;
        self.count_request(now);
        self.complete_loads(now, access.position);
        let state = self.keys[access.key as usize];
        access.ttl_ns = state.ttl_ns();
        let exchange = request.exchange();
        let found = state.response(now, self.spans);
        if found == FreshnessState::Fresh && exchange.is_lookup() {
            self.counts.hits += 1;
            return self.answer(&access, now - state.loaded_ns, exchange);
        }
        let is_stale = found == FreshnessState::Stale;
        if exchange.is_head() || !exchange.is_lookup() {
            self.counts.misses += 1;
            self.counts.miss_bytes += u64::from(request.bytes);
            self.counts.forwarded += 1;
            self.count_load(request);
            access.ttl_ns = self.ttl_ns(trace, index);
            match exchange {
                Exchange::Write => self.invalidate(access.key),
                Exchange::Head if is_stale && state.kind == EntryKind::Ok && access.ttl_ns > 0 => {
                    self.start(access, now, LoadEffect::Freshen(state.loaded_ns));
                }
                _ => {}
            }
            return;
        }
        let answer = found.answer(state.loading != NOT_LOADING);
        match answer.outcome {
            Outcome::Stale => {
                self.counts.stale += 1;
                self.answer(&access, now - state.loaded_ns, exchange);
            }
            Outcome::Coalesced => self.counts.coalesced += 1,
            _ => {
                self.counts.misses += 1;
                self.counts.miss_bytes += u64::from(request.bytes);
                if state.is_present() && state.kind == EntryKind::Marker && now < state.expires_ns {
                    self.policy.on_hit(&access);
                } else if state.is_present() {
                    self.policy.on_expired(&access);
                }
            }
        }
        if !answer.starts_load {
            return;
        }
        self.count_load(request);
        access.ttl_ns = self.ttl_ns(trace, index);
        let effect = if access.ttl_ns > 0 {
            LoadEffect::Store(if exchange == Exchange::Planned { EntryKind::Ok } else { EntryKind::Other })
        } else if is_stale {
            LoadEffect::Remove
        } else if exchange != Exchange::NoLifetime && self.setup.marker_bytes > 0 {
            return self.start(access, now, LoadEffect::Mark);
        } else {
            return self.remove(access.key);
        };
        // Requests until its end share it, also if the value is too large to be stored.
        self.keys[access.key as usize].loading = access.position;
        self.start(access, now, effect);
    }

    /// For how long the response to a request is fresh; 0: it is not stored.
    fn ttl_ns(&self, trace: &Trace, index: usize) -> u64 {
        let logged = || trace.ttl_ns(index);
        let request = trace.requests()[index];
        let exchange = request.exchange();
        match (exchange, self.setup.routes.ttl_ns(request.route())) {
            (Exchange::Planned | Exchange::Head, Some(ttl_ns)) => return ttl_ns,
            (Exchange::NotFound, Some(0)) => return 0,
            _ => {}
        }
        match (exchange, self.setup.ttl) {
            (Exchange::NotShareable | Exchange::NoLifetime, _) => 0,
            (Exchange::Declared, _) => logged().unwrap_or(0),
            (_, Ttl::Never) => NONE,
            (_, Ttl::Fixed(ttl_ns)) => ttl_ns,
            (_, Ttl::Logged { default_ns }) => logged().unwrap_or(default_ns),
        }
    }

    fn answer(&mut self, access: &Access, age_ns: u64, exchange: Exchange) {
        self.counts.age_max_ns = self.counts.age_max_ns.max(age_ns);
        // A HEAD is answered by a look at the entry.
        if !exchange.is_head() || P::KNOWS_FUTURE {
            self.policy.on_hit(access);
        }
    }

    /// Removes what is stored. A load that is under way goes on, and its value is not stored.
    fn invalidate(&mut self, key: Key) {
        self.remove(key);
        self.keys[key as usize].loading = NOT_LOADING;
    }

    fn remove(&mut self, key: Key) {
        if self.keys[key as usize].is_present() {
            self.policy.on_remove(key);
            self.forget(key);
        }
    }

    fn start(&mut self, access: Access, now: u64, effect: LoadEffect) {
        let load = Load { ends_ns: now.saturating_add(self.setup.latency_ns), access, effect };
        if self.setup.latency_ns == 0 {
            self.complete(load, access.position);
        } else {
            self.under_way.push_back(load);
        }
    }

    /// Completes the loads that have ended, for a request at this position.
    #[inline]
    fn complete_loads(&mut self, now: u64, position: u32) {
        while let Some(load) = self.under_way.pop_front_if(|load| load.ends_ns <= now) {
            self.complete(load, position);
        }
    }

    fn complete(&mut self, Load { ends_ns, mut access, effect }: Load, position: u32) {
        let led = access.position;
        // Requests for the key that came meanwhile are past.
        if let Some(next) = self.next {
            while access.next != NEVER && access.next < position {
                access.next = next[access.next as usize - 1];
            }
        }
        access.at_ns = ends_ns;
        let state = &mut self.keys[access.key as usize];
        let is_current = state.loading == led;
        match effect {
            LoadEffect::Freshen(loaded_ns) => {
                if state.is_present() && state.loaded_ns == loaded_ns {
                    // The value of a load that began before is older.
                    state.loading = NOT_LOADING;
                    access.weight = state.weight;
                    self.store(&access, ends_ns, EntryKind::Ok);
                }
            }
            LoadEffect::Store(kind) if is_current => {
                state.loading = NOT_LOADING;
                self.store(&access, ends_ns, kind);
            }
            LoadEffect::Mark => self.mark(access, ends_ns),
            LoadEffect::Remove if is_current => self.invalidate(access.key),
            LoadEffect::Store(_) | LoadEffect::Remove => {}
        }
    }

    /// Stores a marker, unless a response is fresh.
    fn mark(&mut self, access: Access, now: u64) {
        if self.keys[access.key as usize].response(now, self.spans) == FreshnessState::Fresh {
            return;
        }
        let weight = if self.is_in_bytes() { self.setup.marker_bytes } else { 1 };
        self.store(&Access { weight, ttl_ns: MARKER_TTL_NS, ..access }, now, EntryKind::Marker);
    }

    fn is_in_bytes(&self) -> bool {
        matches!(self.setup.capacity, Capacity::Bytes(_))
    }

    /// The room that an entry needs until it is stored.
    fn reserved(&self, access: &Access, kind: EntryKind) -> u64 {
        let is_response = self.is_in_bytes() && kind != EntryKind::Marker;
        let beyond = if is_response { self.setup.reserved_bytes } else { 0 };
        u64::from(access.weight) + u64::from(beyond)
    }

    /// Stores a value that has been loaded. One that is too large removes the older one, and is remembered as such.
    fn store(&mut self, access: &Access, loaded_ns: u64, kind: EntryKind) {
        let reserved = self.reserved(access, kind);
        if reserved > self.entry_max {
            self.remove(access.key);
            if kind != EntryKind::Marker && self.setup.marker_bytes > 0 {
                self.mark(*access, loaded_ns);
            }
            return;
        }
        self.sweep(loaded_ns);
        let is_present = |cache: &Self| cache.keys[access.key as usize].is_present();
        if is_present(self) && self.is_in_bytes() {
            self.make_room(access, reserved);
        }
        if is_present(self) {
            self.policy.on_update(access);
            let old = mem::replace(&mut self.keys[access.key as usize].weight, access.weight);
            self.used = self.used - u64::from(old) + u64::from(access.weight);
        } else {
            self.insert(access, reserved);
        }
        let state = &mut self.keys[access.key as usize];
        (state.loaded_ns, state.expires_ns, state.kind) =
            (loaded_ns, loaded_ns.saturating_add(access.ttl_ns), kind);
    }

    /// Inserts an absent key.
    fn insert(&mut self, access: &Access, reserved: u64) {
        self.policy.on_miss(access);
        self.make_room(access, reserved);
        self.used += u64::from(access.weight);
        let state = &mut self.keys[access.key as usize];
        state.weight = access.weight;
        state.index = u32::try_from(self.present.len()).unwrap_or(ABSENT);
        self.present.push(access.key);
        self.policy.on_insert(access);
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
        debug_assert!(state.is_present(), "the policy evicted a key that is not there");
        self.used -= u64::from(state.weight);
        let index = mem::replace(&mut state.index, ABSENT);
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
            if self.keys[key as usize].life(self.spans).kept_until() <= Time::from_nanos(now) {
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
