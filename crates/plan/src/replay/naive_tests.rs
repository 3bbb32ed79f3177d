//! The replay against the cache of its description, as plainly as it can be written: a struct for each entry, and a clock
//! that ends each load at its time, before anything else happens.

use proptest::prelude::*;

use super::*;
use crate::{
    policy::Policy,
    trace::{NewRequest, TraceBuilder},
    warmup::Warmup,
};

const MS: u64 = 1_000_000;

/// The order in which entries are evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// The entry that was stored first.
    Stored,
    /// The entry whose last request is the oldest.
    Used,
}

struct NaiveCache<'a> {
    setup: &'a CacheSetup,
    /// The path of each key, and a ttl for each path that begins or ends like it.
    paths: &'a [String],
    routes: &'a [(String, u64)],
    order: Order,
    entries: Vec<NaiveEntry>,
    /// In the order of their ends.
    loads: Vec<NaiveLoad>,
    swept: usize,
    ranks: usize,
    /// When each load started.
    load_times_ns: Vec<u64>,
    counts: Replay,
}

struct NaiveEntry {
    key: Key,
    weight: u64,
    /// When it was stored, or for [`Order::Used`] the last time that it was used or stored. The lowest is evicted.
    rank: usize,
    loaded_ns: u64,
    ttl_ns: u64,
    kind: NaiveKind,
}

#[derive(Clone, Copy, PartialEq)]
enum NaiveKind {
    Ok,
    Other,
    Marker,
}

#[derive(Clone)]
struct NaiveLoad {
    key: Key,
    ends_ns: u64,
    weight: u64,
    ttl_ns: u64,
    kind: NaiveKind,
    /// A HEAD, and the end of the load of the value that it found.
    head_of: Option<u64>,
}

impl<'a> NaiveCache<'a> {
    fn new(setup: &'a CacheSetup, order: Order) -> Self {
        Self {
            setup,
            paths: &[],
            routes: &[],
            order,
            entries: Vec::new(),
            loads: Vec::new(),
            load_times_ns: Vec::new(),
            swept: 0,
            ranks: 0,
            counts: Replay::default(),
        }
    }

    fn tick(&mut self, now: u64) {
        while let Some(ended) = self.loads.first().filter(|load| load.ends_ns <= now).cloned() {
            self.loads.remove(0);
            let found = self.find(ended.key);
            match (ended.head_of, found) {
                (Some(loaded_ns), Some(at)) if self.entries[at].loaded_ns == loaded_ns => {
                    // The value of a load that began before is older than this answer.
                    self.loads.retain(|load| {
                        load.key != ended.key || load.head_of.is_some() || load.kind == NaiveKind::Marker
                    });
                    self.store(&NaiveLoad { weight: self.entries[at].weight, ..ended });
                }
                (Some(_), _) => {}
                (None, _) if ended.kind == NaiveKind::Marker => self.mark(&ended),
                (None, _) if ended.ttl_ns == 0 => self.remove(ended.key),
                (None, _) => self.store(&ended),
            }
        }
    }

    fn find(&self, key: Key) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key == key)
    }

    fn is_loading(&self, key: Key) -> bool {
        let is_it = |load: &NaiveLoad| load.key == key && load.kind != NaiveKind::Marker;
        self.loads.iter().any(|load| is_it(load) && load.head_of.is_none())
    }

    fn next_rank(&mut self) -> usize {
        self.ranks += 1;
        self.ranks
    }

    fn request(&mut self, trace: &Trace, index: usize) {
        let request = trace.requests()[index];
        let (now, key, bytes, exchange) = (request.at_ns, request.key(), request.bytes, request.exchange());
        self.tick(now);
        self.counts.requests += 1;
        let found = self.find(key);
        let entry = found.map(|at| &self.entries[at]).filter(|entry| entry.kind != NaiveKind::Marker);
        let marker = found.filter(|at| self.entries[*at].kind == NaiveKind::Marker);
        let (is_fresh, is_stale) = entry.map_or((false, false), |entry| {
            let age = now - entry.loaded_ns;
            (age < entry.ttl_ns, age >= entry.ttl_ns && age < entry.ttl_ns.saturating_add(self.setup.swr_ns))
        });
        let is_write = matches!(exchange, Exchange::Write | Exchange::Passed);
        let is_head = matches!(exchange, Exchange::Head | Exchange::HeadOther);
        let freshened =
            entry.filter(|entry| exchange == Exchange::Head && is_stale && entry.kind == NaiveKind::Ok);
        let freshened = freshened.map(|entry| entry.loaded_ns);
        if is_write || is_head && !is_fresh {
            self.counts.forwarded += 1;
            self.counts.misses += 1;
            self.counts.miss_bytes += u64::from(bytes);
            self.count_load(now, bytes);
            if exchange == Exchange::Write {
                self.loads.retain(|load| {
                    load.key != key || load.head_of.is_some() || load.kind == NaiveKind::Marker
                });
                self.remove(key);
            }
            if let Some(loaded_ns) = freshened {
                let load = self.load(trace, index);
                if load.ttl_ns > 0 {
                    self.loads.push(NaiveLoad { head_of: Some(loaded_ns), kind: NaiveKind::Ok, ..load });
                    self.tick(now);
                }
            }
            return;
        }
        let is_loading = self.is_loading(key);
        match (is_fresh, is_stale, is_loading) {
            (true, ..) => self.counts.hits += 1,
            (_, true, _) => self.counts.stale += 1,
            (.., true) => self.counts.coalesced += 1,
            _ => {
                self.counts.misses += 1;
                self.counts.miss_bytes += u64::from(bytes);
            }
        }
        if is_fresh || is_stale {
            let age = found.map_or(0, |at| now - self.entries[at].loaded_ns);
            self.counts.age_max_ns = self.counts.age_max_ns.max(age);
        }
        if let Some(at) = found.filter(|_| (is_fresh || is_stale) && !is_head && self.order == Order::Used) {
            self.entries[at].rank = self.next_rank();
        }
        if is_fresh || is_loading {
            return;
        }
        let is_found = marker.filter(|at| now - self.entries[*at].loaded_ns < self.entries[*at].ttl_ns);
        if let Some(at) = is_found.filter(|_| self.order == Order::Used) {
            self.entries[at].rank = self.next_rank();
        }
        self.count_load(now, bytes);
        let load = self.load(trace, index);
        if load.ttl_ns > 0 || is_stale {
            self.loads.push(load);
            self.tick(now);
        } else if exchange != Exchange::NoLifetime && self.setup.marker_bytes > 0 {
            self.loads.push(NaiveLoad { kind: NaiveKind::Marker, ..load });
            self.tick(now);
        } else {
            self.remove(key);
        }
    }

    fn count_load(&mut self, now: u64, bytes: u32) {
        self.counts.loads += 1;
        self.counts.load_bytes += u64::from(bytes);
        self.counts.peaks.add(now);
        self.load_times_ns.push(now);
    }

    fn remove(&mut self, key: Key) {
        if let Some(at) = self.find(key) {
            self.entries.swap_remove(at);
        }
    }

    fn load(&self, trace: &Trace, index: usize) -> NaiveLoad {
        let request = trace.requests()[index];
        let logged = trace.ttl_ns(index);
        let planned = match self.setup.ttl {
            Ttl::Never => u64::MAX,
            Ttl::Fixed(ttl_ns) => ttl_ns,
            Ttl::Logged { default_ns } => logged.unwrap_or(default_ns),
        };
        let path =
            self.paths.get(request.key() as usize).map_or("", |path| path.split('?').next().unwrap_or(path));
        let of_route = self.routes.iter().find_map(|(route, ttl_ns)| {
            let is_match = route.strip_suffix('*').map_or(route == path, |start| path.starts_with(start));
            is_match.then_some(*ttl_ns)
        });
        let ttl_ns = match request.exchange() {
            // 404 has the ttl of the plan, unless nothing of the route is stored.
            Exchange::NotFound => of_route.filter(|ttl_ns| *ttl_ns == 0).unwrap_or(planned),
            Exchange::Planned | Exchange::Head => of_route.unwrap_or(planned),
            Exchange::Declared => logged.unwrap_or(0),
            _ => 0,
        };
        let weight = match self.setup.capacity {
            Capacity::Entries(_) => 1,
            Capacity::Bytes(_) => u64::from((request.bytes + self.setup.overhead_bytes).max(1)),
        };
        NaiveLoad {
            key: request.key(),
            ends_ns: request.at_ns + self.setup.latency_ns,
            weight,
            ttl_ns,
            kind: if request.exchange() == Exchange::Planned { NaiveKind::Ok } else { NaiveKind::Other },
            head_of: None,
        }
    }

    fn mark(&mut self, load: &NaiveLoad) {
        let is_fresh = self.find(load.key).is_some_and(|at| {
            let entry = &self.entries[at];
            entry.kind != NaiveKind::Marker && load.ends_ns - entry.loaded_ns < entry.ttl_ns
        });
        let weight = match self.setup.capacity {
            Capacity::Entries(_) => 1,
            Capacity::Bytes(_) => u64::from(self.setup.marker_bytes),
        };
        if !is_fresh {
            self.store(&NaiveLoad { weight, ttl_ns: 120_000 * MS, kind: NaiveKind::Marker, ..load.clone() });
        }
    }

    fn store(&mut self, load: &NaiveLoad) {
        let &NaiveLoad { key, weight, kind, .. } = load;
        let capacity = self.setup.capacity.size();
        let beyond = match self.setup.capacity {
            Capacity::Bytes(_) if kind != NaiveKind::Marker => u64::from(self.setup.reserved_bytes),
            _ => 0,
        };
        let is_too_large = weight + beyond > self.setup.entry_max.map_or(capacity, |most| most.min(capacity));
        if is_too_large {
            self.remove(key);
            if kind != NaiveKind::Marker && self.setup.marker_bytes > 0 {
                self.mark(load);
            }
            return;
        }
        self.sweep(load.ends_ns);
        // An entry is replaced after there is room for its new bytes, too.
        let is_replaced_in_place =
            self.find(key).is_some() && matches!(self.setup.capacity, Capacity::Entries(_));
        let added = if is_replaced_in_place { 0 } else { weight + beyond };
        while self.entries.iter().map(|entry| entry.weight).sum::<u64>() + added > capacity {
            let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.rank);
            let Some((oldest, _)) = oldest else { break };
            self.entries.swap_remove(oldest);
            self.counts.evictions += 1;
        }
        let new = NaiveEntry {
            key,
            weight,
            rank: self.next_rank(),
            loaded_ns: load.ends_ns,
            ttl_ns: load.ttl_ns,
            kind,
        };
        match self.find(key) {
            Some(at) if self.order == Order::Stored => {
                self.entries[at] = NaiveEntry { rank: self.entries[at].rank, ..new };
            }
            Some(at) => self.entries[at] = new,
            None => self.entries.push(new),
        }
    }

    fn sweep(&mut self, now: u64) {
        for _ in 0..2.min(self.entries.len()) {
            if self.swept >= self.entries.len() {
                self.swept = 0;
            }
            let NaiveEntry { loaded_ns, ttl_ns, kind, .. } = self.entries[self.swept];
            let swr_ns = if kind == NaiveKind::Marker { 0 } else { self.setup.swr_ns };
            if loaded_ns.saturating_add(ttl_ns).saturating_add(swr_ns) <= now {
                self.entries.swap_remove(self.swept);
            } else {
                self.swept += 1;
            }
        }
    }
}

/// Milliseconds, often the same ones, so that times meet.
fn times() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 0_u64..60, 0_u64..2_000]
}

/// A trace, and the path of each of its keys.
fn logs() -> impl Strategy<Value = (Trace, Vec<String>)> {
    let exchange = prop_oneof![8 => Just(Exchange::Planned), 6 => (0_u8..9).prop_map(Exchange::from_number)];
    let request = (times(), 0_usize..12, prop::option::of(0_u64..40), prop::option::of(times()), exchange);
    (prop::collection::vec(request, 1..120), prop::bool::weighted(0.2)).prop_map(|(requests, is_plain)| {
        let mut builder = TraceBuilder::new(usize::MAX, 1);
        let mut at_ns = 0;
        let mut paths: Vec<String> = Vec::new();
        for (pause_ms, key, bytes, ttl_ms, exchange) in requests {
            let exchange = if is_plain { Exchange::Planned } else { exchange };
            at_ns += pause_ms * MS;
            let ttl_ns = ttl_ms.map(|ttl_ms| ttl_ms * MS);
            let path = PATHS[key];
            builder.push(&NewRequest { at_ns, key: path.as_bytes(), exchange, bytes, ttl_ns });
            if !paths.iter().any(|known| known == path) {
                paths.push(path.to_owned());
            }
        }
        (builder.finish(), paths)
    })
}

/// Paths of three routes, and of none.
const PATHS: [&str; 12] = [
    "/a/1",
    "/a/2?q",
    "/a/b/3",
    "/a/",
    "/a",
    "/search?q=1",
    "/search?q=2",
    "/search",
    "/7",
    "/8/x",
    "/ab/1",
    "/",
];

fn traces() -> impl Strategy<Value = Trace> {
    logs().prop_map(|(trace, _)| trace)
}

/// Routes with a ttl each, some of 0.
fn routes() -> impl Strategy<Value = Vec<(String, u64)>> {
    let names = ["/a/*", "/a", "/search", "/ab/*", "/"].map(str::to_owned).to_vec();
    let ttl = prop_oneof![1 => Just(0), 3 => times().prop_map(|ttl_ms| ttl_ms * MS)];
    prop_oneof![3 => prop::sample::subsequence(names, 0..=5), 1 => Just(Vec::new())]
        .prop_flat_map(move |names| (Just(names.clone()), prop::collection::vec(ttl.clone(), names.len())))
        .prop_map(|(names, ttls)| names.into_iter().zip(ttls).collect())
}

fn setups() -> impl Strategy<Value = CacheSetup> {
    let capacity =
        prop_oneof![(1_u64..12).prop_map(Capacity::Entries), (1_u64..300).prop_map(Capacity::Bytes)];
    let ttl = prop_oneof![
        1 => Just(Ttl::Never),
        2 => times().prop_map(|ttl_ms| Ttl::Fixed(ttl_ms * MS)),
        3 => times().prop_map(|ttl_ms| Ttl::Logged { default_ns: ttl_ms * MS }),
    ];
    // Nothing expires, and loads take no time.
    let times = prop_oneof![4 => (ttl, times(), times()), 1 => Just((Ttl::Never, 0, 0))];
    (capacity, 0_u32..5, 0_u32..9, 0_u32..9, prop::option::of(0_u64..60), times).prop_map(
        |(capacity, overhead_bytes, marker_bytes, reserved_bytes, entry_max, (ttl, swr_ms, latency_ms))| {
            CacheSetup {
                marker_bytes,
                reserved_bytes,
                capacity,
                overhead_bytes,
                entry_max: entry_max.filter(|_| matches!(capacity, Capacity::Bytes(_))),
                ttl,
                swr_ns: swr_ms * MS,
                latency_ns: latency_ms * MS,
                routes: RouteTtls::NONE,
            }
        },
    )
}

/// Equal counts after each request, and of the whole replay as a user of the crate runs it.
fn compare<P: EvictionPolicy>(
    policy: &str,
    order: Order,
    (trace, paths): &(Trace, Vec<String>),
    setup: &CacheSetup,
    routes: &[(String, u64)],
) -> Result<(), TestCaseError> {
    let of_routes = routes.iter().map(|(name, ttl_ns)| (&**name, *ttl_ns));
    let setup = &CacheSetup { routes: RouteTtls::of(trace, of_routes), ..*setup };
    let mut cache = CacheReplay::<P>::new(trace, setup, None);
    let mut naive = NaiveCache { paths, routes, ..NaiveCache::new(setup, order) };
    for index in 0..trace.requests().len() {
        cache.request(trace, index);
        naive.request(trace, index);
        prop_assert_eq!(&cache.counts, &naive.counts, "{}, request {}", policy, index);
    }
    if CacheReplay::<P>::new(trace, setup, None).is_simple(trace) {
        // Not counted there.
        naive.counts.age_max_ns = 0;
    }
    prop_assert_eq!(replay::<P>(trace, setup, None), naive.counts, "{}", policy);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn replay_of_lru_is_the_naive_one_to_the_request(log in logs(), setup in setups(), routes in routes()) {
        compare::<crate::policy::lru::Lru>("lru", Order::Used, &log, &setup, &routes)?;
    }

    #[test]
    fn replay_of_fifo_is_the_naive_one_to_the_request(log in logs(), setup in setups(), routes in routes()) {
        compare::<crate::policy::fifo::Fifo>("fifo", Order::Stored, &log, &setup, &routes)?;
    }
}

/// The peaks of the loads from one time until before another.
fn peaks(naive: &NaiveCache<'_>, from_ns: u64, until_ns: u64) -> Peaks {
    let mut peaks = Peaks::default();
    let is_within = |at_ns: &&u64| (from_ns..until_ns).contains(*at_ns);
    naive.load_times_ns.iter().filter(is_within).for_each(|at_ns| peaks.add(*at_ns));
    peaks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// The counts of all requests without those before the end of the warm-up.
    #[test]
    fn warmup_does_not_count(trace in traces(), setup in setups(), share in 0.0_f64..1.0) {
        let trace = trace.with_warmup(Warmup::Share(share));
        let from_ns = trace.counted().from_ns;
        let with_policy = Policy::LRU.setup(&setup);
        let mut naive = NaiveCache::new(&with_policy, Order::Used);
        let mut before = Replay::default();
        for (index, request) in trace.requests().iter().enumerate() {
            naive.request(&trace, index);
            if request.at_ns < from_ns {
                before = naive.counts.clone();
            }
        }
        let all = &naive.counts;
        let counted = Policy::LRU.replay(&trace, &setup);
        prop_assert_eq!(counted.requests, trace.counted().requests);
        let additive = |counts: &Replay| {
            let Replay { requests, hits, stale, coalesced, misses, miss_bytes, loads, forwarded, load_bytes, evictions, .. } = counts;
            [requests, hits, stale, coalesced, misses, miss_bytes, loads, forwarded, load_bytes, evictions].map(|count| *count)
        };
        let (all, before) = (additive(all), additive(&before));
        let expected: Vec<u64> = all.iter().zip(before).map(|(all, before)| all - before).collect();
        prop_assert_eq!(additive(&counted).to_vec(), expected);
        prop_assert_eq!(&counted.peaks, &peaks(&naive, from_ns, u64::MAX));
        let cold_until_ns = if from_ns == 0 { 0 } else { from_ns.max(60_000 * MS) };
        prop_assert_eq!(&counted.cold_peaks, &peaks(&naive, 0, cold_until_ns));
    }
}

/// 100 URLs, requested twice with 15 minutes between: the second request finds a fresh entry, however long a load takes.
#[test]
fn urls_requested_twice_within_the_ttl_have_a_hit_ratio_of_a_half() {
    const SECOND: u64 = 1_000 * MS;
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for round in 0..2 {
        for url in 0..100_u64 {
            let at_ns = round * 15 * 60 * SECOND + url * 100 * MS;
            builder.push(&NewRequest { bytes: Some(5_000), ..NewRequest::read(at_ns, &url.to_le_bytes()) });
        }
    }
    let trace = builder.finish();
    for latency_ns in [0, MS, 60 * SECOND] {
        let setup = CacheSetup {
            overhead_bytes: crate::OVERHEAD_BYTES,
            ttl: Ttl::Fixed(3_600 * SECOND),
            latency_ns,
            ..CacheSetup::of(Capacity::Bytes(64 << 20))
        };
        for policy in &crate::POLICIES {
            let replay = policy.replay(&trace, &setup);
            assert_eq!((replay.hits, replay.misses), (100, 100), "{} with {latency_ns} ns", policy.name);
        }
        let naive = trace.requests().iter().enumerate().fold(NaiveCache::new(&setup, Order::Used), {
            |mut naive, (index, _)| {
                naive.request(&trace, index);
                naive
            }
        });
        assert_eq!((naive.counts.hits, naive.counts.misses), (100, 100));
    }
}
