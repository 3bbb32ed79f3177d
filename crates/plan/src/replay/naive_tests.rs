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
    /// At most one for each key.
    loads: Vec<NaiveLoad>,
    swept: usize,
    /// When each load started.
    load_times_ns: Vec<u64>,
    counts: Replay,
}

struct NaiveEntry {
    key: Key,
    weight: u64,
    /// The request that stored it, or for [`Order::Used`] the last one that found it. The lowest is evicted.
    rank: usize,
    /// When it was loaded, and its ttl; `None`: its first load is under way.
    value: Option<(u64, u64)>,
}

struct NaiveLoad {
    key: Key,
    ends_ns: u64,
    ttl_ns: u64,
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
            counts: Replay::default(),
        }
    }

    fn tick(&mut self, now: u64) {
        let (ended, under_way) = mem::take(&mut self.loads).into_iter().partition(|load| load.ends_ns <= now);
        self.loads = under_way;
        let ended: Vec<NaiveLoad> = ended;
        for load in ended {
            if let Some(at) = self.find(load.key) {
                self.entries[at].value = Some((load.ends_ns, load.ttl_ns));
            }
        }
    }

    fn find(&self, key: Key) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key == key)
    }

    fn is_loading(&self, key: Key) -> bool {
        self.loads.iter().any(|load| load.key == key)
    }

    fn request(&mut self, trace: &Trace, index: usize) {
        let request = trace.requests()[index];
        let (now, key, bytes) = (request.at_ns, request.key(), request.bytes);
        self.tick(now);
        self.counts.requests += 1;
        if matches!(request.exchange(), Exchange::Write | Exchange::Passed) {
            self.counts.misses += 1;
            self.counts.miss_bytes += u64::from(bytes);
            self.count_load(now, bytes);
            if request.exchange() == Exchange::Write {
                self.loads.retain(|load| load.key != key);
                self.remove(key);
            }
            return;
        }
        let found = self.find(key);
        let value = found.and_then(|at| self.entries[at].value).map(|(loaded, ttl)| (now - loaded, ttl));
        let is_loading = self.is_loading(key);
        let (is_fresh, is_stale) = value.map_or((false, false), |(age, ttl)| {
            (age < ttl, age >= ttl && age < ttl.saturating_add(self.setup.swr_ns))
        });
        let is_head = request.exchange() == Exchange::Head;
        if is_head && !is_fresh {
            self.counts.misses += 1;
            self.counts.miss_bytes += u64::from(bytes);
            self.count_load(now, bytes);
            return;
        }
        let must_load = !is_fresh && !is_loading;
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
            self.counts.age_max_ns = self.counts.age_max_ns.max(value.map_or(0, |(age, _)| age));
        }
        let is_counted = self.order == Order::Used && (is_fresh || is_stale || must_load);
        if let Some(at) = found.filter(|_| is_counted) {
            self.entries[at].rank = index;
        }
        if must_load {
            self.count_load(now, bytes);
            self.load(trace, index);
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

    fn load(&mut self, trace: &Trace, index: usize) {
        let request = trace.requests()[index];
        let (now, key, bytes) = (request.at_ns, request.key(), request.bytes);
        let logged = trace.ttl_ns(index);
        let planned = match self.setup.ttl {
            Ttl::Never => u64::MAX,
            Ttl::Fixed(ttl_ns) => ttl_ns,
            Ttl::Logged { default_ns } => logged.unwrap_or(default_ns),
        };
        let path = self.paths.get(key as usize).map_or("", |path| path.split('?').next().unwrap_or(path));
        let of_route = self.routes.iter().find_map(|(route, ttl_ns)| {
            let is_match = route.strip_suffix('*').map_or(route == path, |start| path.starts_with(start));
            is_match.then_some(*ttl_ns)
        });
        let ttl_ns = match request.exchange() {
            // 404 has the ttl of the plan, unless nothing of the route is stored.
            Exchange::NotFound => of_route.filter(|ttl_ns| *ttl_ns == 0).unwrap_or(planned),
            Exchange::Planned => of_route.unwrap_or(planned),
            Exchange::Declared => logged.unwrap_or(0),
            _ => 0,
        };
        let (weight, capacity) = match self.setup.capacity {
            Capacity::Entries(entries) => (1, entries),
            Capacity::Bytes(size) => (u64::from((bytes + self.setup.overhead_bytes).max(1)), size),
        };
        self.sweep(now);
        let entry_max = self.setup.entry_max.map_or(capacity, |most| most.min(capacity));
        let is_stored = ttl_ns > 0 && weight <= entry_max;
        match self.find(key) {
            Some(at) if is_stored => self.entries[at].weight = weight,
            _ => self.remove(key),
        }
        if is_stored {
            let added = if self.find(key).is_some() { 0 } else { weight };
            while self.entries.iter().map(|entry| entry.weight).sum::<u64>() + added > capacity {
                let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.rank);
                let Some((oldest, _)) = oldest else { break };
                self.entries.swap_remove(oldest);
                self.counts.evictions += 1;
            }
            if added > 0 {
                self.entries.push(NaiveEntry { key, weight, rank: index, value: None });
            }
        }
        if ttl_ns > 0 {
            self.loads.push(NaiveLoad { key, ends_ns: now + self.setup.latency_ns, ttl_ns });
            self.tick(now);
        }
    }

    fn sweep(&mut self, now: u64) {
        for _ in 0..2.min(self.entries.len()) {
            if self.swept >= self.entries.len() {
                self.swept = 0;
            }
            let NaiveEntry { key, value, .. } = self.entries[self.swept];
            let is_gone = value.is_some_and(|(loaded, ttl)| {
                now - loaded >= ttl.saturating_add(self.setup.swr_ns) && !self.is_loading(key)
            });
            if is_gone {
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
    let exchange = prop_oneof![8 => Just(Exchange::Planned), 6 => (0_u8..8).prop_map(Exchange::from_number)];
    let request = (times(), 0_usize..12, prop::option::of(0_u64..40), prop::option::of(times()), exchange);
    prop::collection::vec(request, 1..120).prop_map(|requests| {
        let mut builder = TraceBuilder::new(usize::MAX, 1);
        let mut at_ns = 0;
        let mut paths: Vec<String> = Vec::new();
        for (pause_ms, key, bytes, ttl_ms, exchange) in requests {
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
    prop::sample::subsequence(names, 0..=5)
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
    (capacity, 0_u32..5, prop::option::of(0_u64..60), ttl, times(), times()).prop_map(
        |(capacity, overhead_bytes, entry_max, ttl, swr_ms, latency_ms)| CacheSetup {
            capacity,
            overhead_bytes,
            entry_max: entry_max.filter(|_| matches!(capacity, Capacity::Bytes(_))),
            ttl,
            swr_ns: swr_ms * MS,
            latency_ns: latency_ms * MS,
            routes: RouteTtls::NONE,
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
    if !setup.is_timed() && trace.is_plain() {
        // Not counted there.
        naive.counts.age_max_ns = 0;
    }
    let policy = Policy::named(policy).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(policy.replay(trace, setup), naive.counts);
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
        let mut naive = NaiveCache::new(&setup, Order::Used);
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
            let Replay { requests, hits, stale, coalesced, misses, miss_bytes, loads, load_bytes, evictions, .. } = counts;
            [requests, hits, stale, coalesced, misses, miss_bytes, loads, load_bytes, evictions].map(|count| *count)
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
