//! The requests of a log in memory, with densely numbered keys: all of them, or those of a sample of the keys.
//!
//! A key is sampled by its hash, so that all of its requests are in the sample or none is. A cache of a tenth of
//! the size over the requests for a tenth of the keys has about the same miss ratio (Waldspurger, Park, Garthwaite,
//! Ahmad, "Efficient MRC construction with SHARDS", FAST 2015; Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and
//! optimization using miniature simulations", ATC 2017). The share starts at 1 and is halved whenever the sample has more
//! requests than its bound: memory is constant, and a small log is exact.
//!
//! Requests for a key that is requested very often are all in the sample or all missing. Ratios therefore have the expected
//! number of requests as their denominator, not the number in the sample: the missing requests are hits (SHARDS-adj).

use std::{
    hash::BuildHasher,
    ops::Range,
    sync::{Arc, OnceLock},
};

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use crate::{
    exchange::Exchange,
    peaks::SecondCounts,
    routes::{ROUTES, RouteNames},
    scale::scaled,
    warmup::CountedRequests,
};

/// A key, by its number.
pub type Key = u32;

/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// The position of a request that never comes.
pub(crate) const NEVER: u32 = u32::MAX;

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Nanoseconds since the first request of the log.
    pub at_ns: u64,
    /// Bytes of the response.
    pub bytes: u32,
    /// The lowest [`KEY_BITS`] are the key, then [`EXCHANGE_BITS`] the exchange, the others the route: a log of millions of lines is
    /// kept in memory.
    packed: u32,
}

const _: () = assert!(size_of::<Request>() == 16);

/// The bits of a key.
const KEY_BITS: u32 = 23;
const KEY_MASK: u32 = (1 << KEY_BITS) - 1;
/// The bits of an exchange.
const EXCHANGE_BITS: u32 = 4;
const EXCHANGE_MASK: u32 = (1 << EXCHANGE_BITS) - 1;
const ROUTE_AT: u32 = KEY_BITS + EXCHANGE_BITS;
const _: () = assert!(ROUTES == 1 << (u32::BITS - ROUTE_AT));
const _: () = assert!(KEYS_MAX + NUMBERED_AT_ONCE < KEY_MASK as usize);
const _: () = assert!(Exchange::ALL.len() <= 1 << EXCHANGE_BITS);

impl Request {
    pub(crate) fn new(at_ns: u64, key: Key, exchange: Exchange, bytes: u32) -> Self {
        debug_assert!(key <= KEY_MASK, "more keys than a trace has");
        Self { at_ns, bytes, packed: key & KEY_MASK | u32::from(exchange as u8) << KEY_BITS }
    }

    /// The requested key.
    #[must_use]
    pub fn key(&self) -> Key {
        self.packed & KEY_MASK
    }

    /// The effect of the request and its response on the cache.
    #[must_use]
    pub fn exchange(&self) -> Exchange {
        Exchange::from_number((self.packed >> KEY_BITS & EXCHANGE_MASK) as u8)
    }

    /// The number of its route in the trace, from 1; 0: another route.
    #[must_use]
    pub(crate) fn route(&self) -> u8 {
        (self.packed >> ROUTE_AT) as u8
    }

    /// The same request in the route of this number.
    pub(crate) fn in_route(self, route: u8) -> Self {
        let rest = self.packed & ((1 << ROUTE_AT) - 1);
        Self { packed: rest | u32::from(route) << ROUTE_AT, ..self }
    }

    /// The same request at another time.
    pub(crate) fn at(self, at_ns: u64) -> Self {
        Self { at_ns, ..self }
    }

    /// The same request, where its key has this number.
    pub(crate) fn renumbered(self, key: Key) -> Self {
        Self { packed: self.packed & !KEY_MASK | key & KEY_MASK, ..self }
    }
}

/// A request as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub key: Key,
    /// The object's part of the size: 1, or its bytes and the overhead.
    pub weight: u32,
    /// Among the requests of the trace, from 1.
    pub position: u32,
    /// The position of the key's next request, or [`NEVER`]; 0 for policies that do not know the future.
    pub next: u32,
    /// Nanoseconds since the first request of the log.
    pub at_ns: u64,
    /// For how long the found value is fresh, or the one that is loaded; `u64::MAX`: for ever.
    pub ttl_ns: u64,
}

/// Requests in the order of time; those of the same time in the order of the log.
#[derive(Clone, Debug)]
pub struct Trace {
    requests: Vec<Request>,
    keys: usize,
    sampled_share: f64,
    totals: Totals,
    requests_per_s_max: Option<u32>,
    is_plain: bool,
    pub(crate) counted: CountedRequests,
    /// For how long each response is fresh, in nanoseconds, where the log says so; empty: it never does.
    ttls_ns: Vec<Option<u64>>,
    /// The names of the routes, from number 1 on.
    routes: Arc<[Box<str>]>,
    /// The position of the next request for the same key, once a policy has asked for it.
    next: OnceLock<Vec<u32>>,
}

/// Figures of the whole log, whatever the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All requests.
    pub requests: u64,
    /// The bytes of all responses but 206 and 304, whose sizes are not those of an object.
    pub bytes: u64,
    /// As `bytes`, where a response without a size, such as a 304, counts the bytes of its object; of a sample an estimate.
    pub object_bytes: u64,
    /// From the first request to the last, in nanoseconds.
    pub span_ns: u64,
    /// Requests of the log whose time is before that of an earlier line. The trace is sorted by time.
    pub reversals: u64,
    /// How far the time of one was behind, in nanoseconds.
    pub reversal_max_ns: u64,
}

/// A request to be added to a trace.
#[derive(Clone, Copy, Debug)]
pub struct NewRequest<'a> {
    /// Nanoseconds since any moment.
    pub at_ns: u64,
    /// The key.
    pub key: &'a [u8],
    /// Its effect on the cache.
    pub exchange: Exchange,
    /// Bytes of the response; `None`: as the key's last one, or the next.
    pub bytes: Option<u64>,
    /// For how long the response is fresh, if the log says so.
    pub ttl_ns: Option<u64>,
}

impl<'a> NewRequest<'a> {
    /// A request whose response may be stored; nothing else is known about it.
    #[must_use]
    pub fn read(at_ns: u64, key: &'a [u8]) -> Self {
        Self { at_ns, key, exchange: Exchange::Planned, bytes: None, ttl_ns: None }
    }
}

/// The hash by which keys are told apart and sampled, the same in each run.
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    const HASHER: FixedState = FixedState::with_seed(0);
    HASHER.hash_one(key)
}

/// Reads requests into a [`Trace`].
#[derive(Debug)]
pub struct TraceBuilder {
    requests: Vec<Request>,
    /// The hashes of the last requests, whose keys have no number yet, and where each key ends in `unnumbered_keys`.
    unnumbered: Vec<(u64, usize)>,
    unnumbered_keys: Vec<u8>,
    ttls_ns: Vec<Option<u64>>,
    has_ttls: bool,
    /// Numbers of sampled keys with those of their routes, by hash.
    numbers: HashTable<(u64, Key, u16)>,
    route_names: RouteNames,
    keys: usize,
    /// Keys with hashes below this are sampled.
    threshold: u64,
    halvings: u32,
    is_full: bool,
    requests_max: usize,
    keys_min: usize,
    totals: Totals,
    per_second: SecondCounts,
    earliest_ns: u64,
    latest_ns: u64,
}

/// The size of a response that the log does not have.
pub(crate) const UNKNOWN_BYTES: u32 = u32::MAX;

/// The size of a response in 32 bits, 4 GiB less two bytes at most, or [`UNKNOWN_BYTES`].
pub(crate) fn bytes_or_unknown(bytes: Option<u64>) -> u32 {
    bytes.map_or(UNKNOWN_BYTES, |bytes| u32::try_from(bytes).unwrap_or(UNKNOWN_BYTES).min(UNKNOWN_BYTES - 1))
}

/// The bound of `requests_max`.
const REQUESTS_MAX: usize = 1_000_000_000;
/// A replay takes some 60 bytes for each key.
const KEYS_MAX: usize = 4_000_000;
/// No sample has fewer keys.
const KEYS_LEAST: usize = 1_024;
/// Keys of this number of requests are numbered at once: a processor looks several up in the time of one, since its caches are smaller than
/// the table.
const NUMBERED_AT_ONCE: usize = 32;

impl TraceBuilder {
    /// A trace of at most `requests_max` requests, or twice as many where fewer than `keys_min` keys would be left. Both are
    /// numbered by 32 bits, so that `requests_max` is 1,000,000,000 at most.
    #[must_use]
    pub fn new(requests_max: usize, keys_min: usize) -> Self {
        Self {
            requests: Vec::new(),
            unnumbered: Vec::with_capacity(NUMBERED_AT_ONCE),
            unnumbered_keys: Vec::new(),
            ttls_ns: Vec::new(),
            has_ttls: false,
            numbers: HashTable::new(),
            route_names: RouteNames::default(),
            keys: 0,
            threshold: u64::MAX,
            halvings: 0,
            is_full: false,
            requests_max: requests_max.min(REQUESTS_MAX),
            keys_min,
            totals: Totals::default(),
            per_second: SecondCounts::default(),
            earliest_ns: u64::MAX,
            latest_ns: 0,
        }
    }

    /// Adds the next request of the log, unless the trace [is full](Self::is_full).
    pub fn push(&mut self, request: &NewRequest<'_>) {
        self.push_hashed(request, hash_of(request.key));
    }

    /// Adds a request whose key has this [hash](hash_of).
    pub(crate) fn push_hashed(&mut self, request: &NewRequest<'_>, hash: u64) {
        if self.is_full {
            return;
        }
        if let Some(back @ 1..) = self.latest_ns.checked_sub(request.at_ns) {
            self.totals.reversals += 1;
            self.totals.reversal_max_ns = self.totals.reversal_max_ns.max(back);
        }
        self.earliest_ns = self.earliest_ns.min(request.at_ns);
        self.latest_ns = self.latest_ns.max(request.at_ns);
        self.totals.requests += 1;
        self.per_second.add(request.at_ns);
        self.totals.bytes = self.totals.bytes.saturating_add(request.bytes.unwrap_or(0));
        if hash > self.threshold {
            return;
        }
        let bytes = bytes_or_unknown(request.bytes);
        self.requests.push(Request::new(request.at_ns, 0, request.exchange, bytes));
        self.unnumbered_keys.extend_from_slice(request.key);
        self.unnumbered.push((hash, self.unnumbered_keys.len()));
        if request.ttl_ns.is_some() && !self.has_ttls {
            self.has_ttls = true;
            self.ttls_ns = vec![None; self.requests.len() - 1];
        }
        if self.has_ttls {
            self.ttls_ns.push(request.ttl_ns);
        }
        if self.unnumbered.len() == NUMBERED_AT_ONCE || self.requests.len() >= 2 * self.requests_max {
            self.number();
        }
    }

    /// True if half of the keys have to leave.
    fn is_too_large(&self) -> bool {
        let requests = self.requests.len();
        self.keys > KEYS_MAX
            || requests > self.requests_max && self.keys >= 2 * self.keys_min
            || requests >= 2 * self.requests_max && self.keys >= 2 * KEYS_LEAST
    }

    /// True if no more requests can be added: there are twice as many as wanted, of few keys, so that a sample would not stand for
    /// the log.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Numbers the keys of the last requests, and bounds the trace.
    fn number(&mut self) {
        let mut found = [None; NUMBERED_AT_ONCE];
        for (number, (hash, _)) in found.iter_mut().zip(&self.unnumbered) {
            *number = self.numbers.find(*hash, |known| known.0 == *hash).map(|known| known.1);
        }
        let first = self.requests.len() - self.unnumbered.len();
        let mut start = 0;
        for ((request, (hash, end)), number) in
            self.requests[first..].iter_mut().zip(&self.unnumbered).zip(found)
        {
            let key = &self.unnumbered_keys[start..*end];
            start = *end;
            let number = number.unwrap_or_else(|| {
                // The one before it may have the same key.
                let known = self.numbers.entry(*hash, |known| known.0 == *hash, |known| known.0);
                let next = Key::try_from(self.keys).unwrap_or(Key::MAX);
                let number = known.or_insert_with(|| (*hash, next, self.route_names.number(key))).get().1;
                self.keys = self.numbers.len();
                number
            });
            *request = request.renumbered(number);
        }
        self.unnumbered.clear();
        self.unnumbered_keys.clear();
        if self.is_too_large() {
            self.halve();
        }
        self.is_full = self.requests.len() >= 2 * self.requests_max && self.keys < 2 * KEYS_LEAST;
    }

    /// Halves the sampled share: keys above the new threshold leave, and the others are numbered anew.
    fn halve(&mut self) {
        self.threshold /= 2;
        self.halvings += 1;
        let mut numbers = vec![None; self.keys];
        let mut kept = 0;
        let threshold = self.threshold;
        self.numbers.retain(|(hash, number, _)| {
            let is_kept = *hash <= threshold;
            if is_kept {
                numbers[*number as usize] = Some(kept);
                *number = kept;
                kept += 1;
            }
            is_kept
        });
        self.keys = kept as usize;
        let mut to = 0;
        for from in 0..self.requests.len() {
            let request = self.requests[from];
            if let Some(key) = numbers[request.key() as usize] {
                self.requests[to] = request.renumbered(key);
                if self.has_ttls {
                    self.ttls_ns[to] = self.ttls_ns[from];
                }
                to += 1;
            }
        }
        self.requests.truncate(to);
        self.ttls_ns.truncate(to);
    }

    /// The trace. Requests that a log with whole seconds puts at one moment are spread evenly over that second.
    #[must_use]
    pub fn finish(mut self) -> Trace {
        self.number();
        let mut route_of_key = vec![0; self.keys];
        self.numbers.iter().for_each(|(_, key, route)| route_of_key[*key as usize] = *route);
        drop(self.numbers);
        let routes = self.route_names.mark(&mut self.requests, &route_of_key);
        if self.totals.reversals > 0 {
            sort_by_time(&mut self.requests, &mut self.ttls_ns);
        }
        self.requests.iter_mut().for_each(|request| request.at_ns -= self.earliest_ns);
        self.totals.span_ns = self.latest_ns.saturating_sub(self.earliest_ns);
        if self.requests.iter().all(|request| request.at_ns.is_multiple_of(SECOND_NS)) {
            for second in self.requests.chunk_by_mut(|one, next| one.at_ns == next.at_ns) {
                let count = second.len() as u64;
                second.iter_mut().zip(0..).for_each(|(request, n)| {
                    request.at_ns = request.at_ns.saturating_add(n * SECOND_NS / count);
                });
            }
            self.totals.span_ns = self.totals.span_ns.saturating_add(SECOND_NS - 1);
        }
        let is_plain = self.requests.iter().all(|request| request.exchange() == Exchange::Planned);
        let filled = fill_sizes(&mut self.requests, self.keys);
        self.totals.object_bytes = self.totals.bytes.saturating_add(filled << self.halvings);
        self.requests.shrink_to_fit();
        Trace {
            requests: self.requests,
            keys: self.keys,
            sampled_share: 0.5f64.powi(i32::try_from(self.halvings).unwrap_or(i32::MAX)),
            counted: CountedRequests::all(&self.totals),
            totals: self.totals,
            requests_per_s_max: self.per_second.max(),
            is_plain,
            ttls_ns: self.ttls_ns,
            routes,
            next: OnceLock::new(),
        }
    }
}

/// Keeps the order of equal times.
fn sort_by_time(requests: &mut [Request], ttls_ns: &mut Vec<Option<u64>>) {
    if ttls_ns.is_empty() {
        requests.sort_by_key(|request| request.at_ns);
        return;
    }
    let mut both: Vec<_> = requests.iter().copied().zip(ttls_ns.drain(..)).collect();
    both.sort_by_key(|(request, _)| request.at_ns);
    for (request, (sorted, ttl_ns)) in requests.iter_mut().zip(both) {
        *request = sorted;
        ttls_ns.push(ttl_ns);
    }
}

/// Gives each request for an object without a size that of the key's last one before it, or the next after it; else 0. Returns the
/// sum.
fn fill_sizes(requests: &mut [Request], keys: usize) -> u64 {
    if requests.iter().all(|request| request.bytes != UNKNOWN_BYTES) {
        return 0;
    }
    let mut filled = 0;
    let mut sizes = vec![UNKNOWN_BYTES; keys];
    let mut fill = |request: &mut Request| {
        if !request.exchange().is_storable() {
            return;
        }
        let size = &mut sizes[request.key() as usize];
        if request.bytes == UNKNOWN_BYTES {
            request.bytes = *size;
            filled += if *size == UNKNOWN_BYTES { 0 } else { u64::from(*size) };
        } else {
            *size = request.bytes;
        }
    };
    requests.iter_mut().for_each(&mut fill);
    requests.iter_mut().rev().for_each(&mut fill);
    for request in requests.iter_mut().filter(|request| request.bytes == UNKNOWN_BYTES) {
        request.bytes = 0;
    }
    filled
}

/// Of each request the position, from 1, of the next one for its key.
fn next_positions(requests: &[Request], keys: usize) -> Vec<u32> {
    let mut following = vec![NEVER; keys];
    let mut next = vec![NEVER; requests.len()];
    let mut position = u32::try_from(requests.len()).unwrap_or(NEVER);
    for (request, next) in requests.iter().zip(&mut next).rev() {
        *next = std::mem::replace(&mut following[request.key() as usize], position);
        position -= 1;
    }
    next
}

impl Trace {
    /// The requests of the sampled keys, by time.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The number of sampled keys.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.keys
    }

    /// The share of the keys that is sampled; 1: all of them.
    #[must_use]
    pub fn sampled_share(&self) -> f64 {
        self.sampled_share
    }

    /// True if all keys are there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.sampled_share >= 1.0
    }

    /// Figures of the whole log.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// An estimate of the number of keys of the whole log; exact without sampling.
    #[must_use]
    pub fn keys_estimate(&self) -> u64 {
        scaled(self.keys as u64, 1.0 / self.sampled_share)
    }

    /// For how long a response is fresh, if the log says so.
    pub(crate) fn ttl_ns(&self, index: usize) -> Option<u64> {
        self.ttls_ns.get(index).copied().flatten()
    }

    /// The longest time for which the log says that a response is fresh.
    #[must_use]
    pub fn ttl_max_ns(&self) -> Option<u64> {
        self.ttls_ns.iter().copied().flatten().max()
    }

    /// The longest lifetime of the log that no ttl of a plan replaces.
    pub(crate) fn declared_ttl_max_ns(&self) -> Option<u64> {
        let declared = self.requests.iter().zip(&self.ttls_ns);
        let is_declared = |request: &Request| request.exchange() == Exchange::Declared;
        declared.filter_map(|(request, ttl_ns)| ttl_ns.filter(|_| is_declared(request))).max()
    }

    /// Requests of the whole log in the second with most of them, counted while it was read; `None`: it is too long for that.
    pub(crate) fn requests_per_s_max(&self) -> Option<u32> {
        self.requests_per_s_max
    }

    /// The names of the routes with the most requests, from number 1 on.
    pub(crate) fn routes(&self) -> &[Box<str>] {
        &self.routes
    }

    /// True if all responses may be stored for the ttl of a plan.
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// True if the log says of any response for how long it is fresh.
    #[must_use]
    pub fn has_ttls(&self) -> bool {
        !self.ttls_ns.is_empty()
    }

    /// Of each request the position, from 1, of the next one for its key, or [`NEVER`].
    pub(crate) fn next_positions(&self) -> &[u32] {
        self.next.get_or_init(|| next_positions(&self.requests, self.keys))
    }

    /// A trace of some keys of this one.
    pub(crate) fn part(
        &self,
        requests: Vec<Request>,
        ttls_ns: Vec<Option<u64>>,
        keys: usize,
        nth: usize,
    ) -> Self {
        let sampled_share = self.sampled_share / nth as f64;
        let Self { totals, requests_per_s_max, is_plain, counted, .. } = *self;
        let (routes, next) = (Arc::clone(&self.routes), OnceLock::new());
        Self {
            requests,
            keys,
            sampled_share,
            totals,
            requests_per_s_max,
            is_plain,
            counted,
            ttls_ns,
            routes,
            next,
        }
    }

    /// The sum of the last known sizes of all sampled keys that may be stored, each with an overhead; scaled to the whole log.
    #[must_use]
    pub fn footprint_bytes(&self, overhead_bytes: u32) -> u64 {
        let mut sizes = vec![None; self.keys];
        for request in &self.requests {
            if request.exchange().is_storable() {
                sizes[request.key() as usize] = Some(request.bytes);
            }
        }
        let entry_bytes = |bytes: &u32| u64::from(*bytes) + u64::from(overhead_bytes);
        let sum: u64 = sizes.iter().flatten().map(entry_bytes).sum();
        scaled(sum, 1.0 / self.sampled_share)
    }
}

/// The numbers of the part with the most requests, of at most this many nanoseconds and requests; of equal ones the last: a cache is
/// warmer then.
pub(crate) fn busiest(requests: &[Request], span_max_ns: u64, requests_max: usize) -> Range<usize> {
    let (mut from, mut best) = (0, 0..0);
    for to in 1..=requests.len() {
        let last_ns = requests[to - 1].at_ns;
        while to - from > requests_max || last_ns - requests[from].at_ns > span_max_ns {
            from += 1;
        }
        if to - from >= best.len() {
            best = from..to;
        }
    }
    best
}

#[cfg(test)]
mod tests;
