//! A sample of the requests with their whole URLs: what would be one key without a parameter, and which hosts share a key.
//!
//! A path is sampled by its hash, so that all URLs that differ in their query are there or none is. The share starts at 1 and is
//! halved whenever the sample is larger than its bounds. Where few paths are left the sample ends instead: it is the
//! start of the log then.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    exchange::Exchange,
    read::DroppedParameters,
    trace::{NewRequest, Trace, TraceBuilder, UNKNOWN_BYTES, bytes_or_unknown, hash_of},
};
use foldhash::quality::FixedState;
use hashbrown::{HashMap, HashTable, hash_table};
use memchr::memchr;

/// Bounds of the sample.
const REQUESTS_MAX: usize = 50_000;
const URL_BYTES_MAX: usize = 4 << 20;
/// With fewer paths the sample ends.
const PATHS_MIN: usize = 512;
/// Names of parameters that are examined.
const NAMES_MAX: usize = 200;
/// A set of parameters is part of the answer if it leaves at most this share of the keys that have it,
const KEYS_LEFT_MAX: f64 = 0.8;
/// at least this share of the requests has it,
const REQUESTS_MIN: f64 = 0.02;
/// and at least this share of the answers that would be one has one size.
const SAME_SIZE_MIN: f64 = 0.9;
/// Sizes that differ by less than a fiftieth are one: pages have dates and tokens.
const SIZE_DIVISOR: u32 = 50;
/// Values for each request from which on a parameter is unique for nearly each of them.
const VALUES_MIN: f64 = 0.5;

/// A key of the plan.
#[derive(Debug)]
struct Url {
    hash: u64,
    /// That of its path.
    path_hash: u64,
    key: Box<str>,
}

#[derive(Clone, Copy, Debug)]
struct SampledRequest {
    at_ns: u64,
    url: u32,
    bytes: u32,
    /// The hash of the host; 0: none.
    host: u32,
    exchange: Exchange,
    ttl_ns: Option<u64>,
}

/// Reads requests into the sample.
#[derive(Debug)]
pub(crate) struct UrlSample {
    /// Paths with hashes below this are sampled.
    threshold: u64,
    numbers: HashTable<u32>,
    urls: Vec<Url>,
    url_bytes: usize,
    requests: Vec<SampledRequest>,
    is_full: bool,
    has_queries: bool,
}

impl Default for UrlSample {
    fn default() -> Self {
        Self {
            threshold: u64::MAX,
            numbers: HashTable::new(),
            urls: Vec::new(),
            url_bytes: 0,
            requests: Vec::new(),
            is_full: false,
            has_queries: false,
        }
    }
}

/// The parameters without which fewer keys would be left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub names: Vec<String>,
    /// Keys of the sample that have one of them, and those that are left of these.
    pub keys: usize,
    pub keys_left: usize,
    /// The log has the sizes of the responses, and those of one key left are the same.
    pub has_sizes: bool,
}

/// Keys that several hosts have, with responses of other sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SharedKeys {
    pub hosts: usize,
    /// Their share of the requests.
    pub share: f64,
}

impl UrlSample {
    /// Adds a request of the plan, with the hash of its key and with its host, which may be empty; `None`: the key is not a URL.
    pub fn add(&mut self, request: &NewRequest<'_>, hash: u64, host: Option<&str>) {
        let NewRequest { at_ns, key, exchange, ttl_ns, .. } = *request;
        let Some(host) = host.filter(|_| !self.is_full && exchange.is_lookup()) else { return };
        let query_at = memchr(b'?', key);
        let path_hash = query_at.map_or(hash, |at| hash_of(&key[..at]));
        if path_hash > self.threshold {
            return;
        }
        self.has_queries |= query_at.is_some();
        let urls = &self.urls;
        let number = u32::try_from(urls.len()).unwrap_or(u32::MAX);
        let url = match self.numbers.entry(
            hash,
            |known| urls[*known as usize].hash == hash,
            |known| urls[*known as usize].hash,
        ) {
            hash_table::Entry::Occupied(known) => *known.get(),
            hash_table::Entry::Vacant(vacant) => {
                vacant.insert(number);
                self.url_bytes += key.len();
                self.urls.push(Url { hash, path_hash, key: String::from_utf8_lossy(key).into() });
                number
            }
        };
        let bytes = bytes_or_unknown(request.bytes);
        #[expect(clippy::cast_possible_truncation, reason = "a part of a hash is one")]
        let host = if host.is_empty() { 0 } else { hash_of(host.as_bytes()) as u32 | 1 };
        self.requests.push(SampledRequest { at_ns, url, bytes, host, exchange, ttl_ns });
        if self.requests.len() > REQUESTS_MAX || self.url_bytes > URL_BYTES_MAX {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let threshold = self.threshold / 2;
        let left: BTreeSet<u64> =
            self.urls.iter().map(|url| url.path_hash).filter(|hash| *hash <= threshold).collect();
        if left.len() < PATHS_MIN {
            self.is_full = true;
            return;
        }
        self.threshold = threshold;
        let mut numbers = vec![None; self.urls.len()];
        let mut kept = 0;
        for (url, number) in self.urls.iter().zip(&mut numbers) {
            if url.path_hash <= threshold {
                *number = Some(kept);
                kept += 1;
            }
        }
        self.numbers.clear();
        self.urls.retain(|url| url.path_hash <= threshold);
        self.url_bytes = self.urls.iter().map(|url| url.key.len()).sum();
        let urls = &self.urls;
        for (number, url) in (0..).zip(urls) {
            self.numbers.insert_unique(url.hash, number, |known| urls[*known as usize].hash);
        }
        self.requests.retain_mut(|request| match numbers[request.url as usize] {
            Some(number) => {
                request.url = number;
                true
            }
            None => false,
        });
    }

    /// The number of requests of the sample, and the share of the cache's room that they have: that of the paths. The start of the
    /// log has all of it.
    pub fn requests_and_share(&self) -> (usize, f64) {
        (self.requests.len(), self.threshold as f64 / u64::MAX as f64)
    }

    /// The requests of the sample, whose keys are without these parameters.
    pub fn trace(&self, without: &[String]) -> Trace {
        let mut builder = TraceBuilder::new(usize::MAX, 1);
        let without = DroppedParameters::Named(without.to_vec());
        let keys: Vec<_> = self.urls.iter().map(|url| without.applied(&url.key)).collect();
        for request in &self.requests {
            let bytes = Some(u64::from(request.bytes)).filter(|_| request.bytes != UNKNOWN_BYTES);
            let key = keys[request.url as usize].as_bytes();
            let SampledRequest { at_ns, exchange, ttl_ns, .. } = *request;
            builder.push(&NewRequest { at_ns, key, exchange, bytes, ttl_ns });
        }
        builder.finish()
    }

    /// The parameters without which the keys are fewer, and each key still has responses of one size; `None`: no parameters have that effect.
    pub fn parameters(&self) -> Option<Parameters> {
        if !self.has_queries {
            return None;
        }
        let (names, unique) = self.names();
        let passes = |names: &[String]| self.evidence(names).filter(Evidence::passes);
        let mut chosen: Vec<String> =
            names.into_iter().filter(|name| passes(std::slice::from_ref(name)).is_some()).collect();
        // Two parameters that are unique for each request have no effect alone.
        if unique.len() > 1 && passes(&unique).is_some() {
            chosen.extend(unique);
            chosen.sort_unstable();
            chosen.dedup();
        }
        let evidence = (!chosen.is_empty()).then(|| passes(&chosen)).flatten()?;
        Some(Parameters {
            names: chosen,
            keys: evidence.keys,
            keys_left: evidence.keys_left,
            has_sizes: evidence.sized > 0,
        })
    }

    /// The names of parameters, and those with a value of its own for nearly each request.
    fn names(&self) -> (Vec<String>, Vec<String>) {
        let mut values: BTreeMap<&str, (BTreeSet<&str>, usize)> = BTreeMap::new();
        for request in &self.requests {
            for (name, value) in parameters(&self.urls[request.url as usize].key) {
                if values.len() < NAMES_MAX || values.contains_key(name) {
                    let (known, requests) = values.entry(name).or_default();
                    known.insert(value);
                    *requests += 1;
                }
            }
        }
        let is_unique =
            |(known, requests): &(BTreeSet<&str>, usize)| known.len() as f64 >= VALUES_MIN * *requests as f64;
        let unique =
            values.iter().filter(|(_, values)| is_unique(values)).map(|(name, _)| (*name).to_owned());
        let unique = unique.collect();
        (values.into_keys().map(str::to_owned).collect(), unique)
    }

    /// The keys with one of these parameters, and what is left without them.
    fn evidence(&self, names: &[String]) -> Option<Evidence> {
        // Of each URL that has one of the parameters, the key without them.
        let dropped = DroppedParameters::Named(names.to_vec());
        let merged: Vec<Option<Cow<'_, str>>> = self
            .urls
            .iter()
            .map(|url| {
                let has_one = parameters(&url.key).any(|(name, _)| is_in(names, name));
                has_one.then(|| dropped.applied(&url.key))
            })
            .collect();
        let mut groups: HashMap<&str, Group, FixedState> = HashMap::with_hasher(FixedState::with_seed(0));
        for key in merged.iter().flatten() {
            groups.entry(key).or_default().keys += 1;
        }
        let mut requests = 0;
        for request in &self.requests {
            let Some(key) = &merged[request.url as usize] else { continue };
            requests += 1;
            if let Some(group) = groups.get_mut(&**key).filter(|_| request.bytes != UNKNOWN_BYTES) {
                group.sizes.push(request.bytes);
            }
        }
        let keys: usize = groups.values().map(|group| group.keys).sum();
        if requests == 0 || keys == 0 {
            return None;
        }
        let (mut sized, mut same) = (0, 0);
        let keys_left = groups.len();
        for group in groups.values_mut().filter(|group| group.keys > 1) {
            sized += group.sizes.len();
            same += group.same_sizes();
        }
        let share = f64::from(requests) / self.requests.len() as f64;
        Some(Evidence { keys, keys_left, share, sized, same })
    }

    /// The keys that several hosts have, with responses of other sizes; `None`: hosts share no keys.
    pub fn shared_keys(&self) -> Option<SharedKeys> {
        let mut hosts: BTreeSet<u32> = BTreeSet::new();
        let mut sizes: Vec<BTreeMap<u32, u32>> = vec![BTreeMap::new(); self.urls.len()];
        let has_size = |request: &&SampledRequest| {
            request.host != 0 && request.bytes != UNKNOWN_BYTES && request.exchange.is_storable()
        };
        for request in self.requests.iter().filter(has_size) {
            hosts.insert(request.host);
            sizes[request.url as usize].insert(request.host, request.bytes);
        }
        let is_shared = |sizes: &BTreeMap<u32, u32>| {
            let first = sizes.values().next().copied().unwrap_or(0);
            sizes.values().any(|size| !is_same_size(*size, first))
        };
        let shared: Vec<bool> = sizes.iter().map(is_shared).collect();
        let requests = self.requests.iter().filter(|request| shared[request.url as usize]).count();
        (requests > 0)
            .then(|| SharedKeys { hosts: hosts.len(), share: requests as f64 / self.requests.len() as f64 })
    }
}

/// The URLs that would be one key.
#[derive(Debug, Default)]
struct Group {
    keys: usize,
    sizes: Vec<u32>,
}

impl Group {
    /// The responses whose size is that of the middle one.
    fn same_sizes(&mut self) -> usize {
        if self.sizes.is_empty() {
            return 0;
        }
        let middle = self.sizes.len() / 2;
        let median = *self.sizes.select_nth_unstable(middle).1;
        self.sizes.iter().filter(|size| is_same_size(**size, median)).count()
    }
}

struct Evidence {
    keys: usize,
    keys_left: usize,
    /// Of the requests.
    share: f64,
    /// Responses with a size, of keys that would be one.
    sized: usize,
    /// Those of them that have one size.
    same: usize,
}

impl Evidence {
    fn passes(&self) -> bool {
        self.share >= REQUESTS_MIN
            && self.keys_left as f64 <= KEYS_LEFT_MAX * self.keys as f64
            && self.same as f64 >= SAME_SIZE_MIN * self.sized as f64
    }
}

fn is_same_size(one: u32, other: u32) -> bool {
    one.abs_diff(other) <= one.max(other) / SIZE_DIVISOR
}

/// The parameters of a URL, each with its value.
fn parameters(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    parameters.map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
}

fn is_in(names: &[String], name: &str) -> bool {
    names.iter().any(|other| other == name)
}
