//! Curves over the size of a cache: for each policy and lifetime the ratio of requests that it does not answer.
//!
//! A long log is replayed in a [sample](Trace::sample) of its keys, in caches that are smaller by as much. Two points of
//! each such curve are replayed with all requests as well. Where one of them differs by more than [`ERROR_MAX`], all points
//! are: a policy that gives a new entry little time (SIEVE, where most entries have been requested twice) depends on
//! requests that follow each other closely, and a sample has too few of those.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    assemble::{MARKER_BYTES, RESERVED_BYTES},
    policy::Policy,
    replay::{CacheSetup, Capacity, Replay, Ttl},
    routes::RouteTtls,
    trace::Trace,
};

/// Curves of a sample of more requests would take longer and be hardly better.
const SAMPLE_REQUESTS: usize = 1_000_000;
/// The least number of keys of a sample.
pub const SAMPLE_KEYS_MIN: usize = 16_384;
/// The largest difference between a sampled point and the exact one, as a share of the requests.
pub const ERROR_MAX: f64 = 0.005;

/// The ttls that a plan compares without being asked, in seconds.
pub const TTL_GRID_S: [u64; 10] =
    [10, 60, 300, 900, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400];

/// For how long values are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// For how long a value is fresh.
    pub ttl: Ttl,
    /// For how long after that it is served while a load is under way, in nanoseconds.
    pub swr_ns: u64,
}

/// The curves to compute.
#[derive(Clone, Debug)]
pub struct CurveSettings {
    /// One curve for each of these,
    pub policies: Vec<&'static Policy>,
    /// and each of these.
    pub lifetimes: Vec<Lifetime>,
    /// The sizes, ascending.
    pub sizes: Vec<Capacity>,
    /// How long a load takes, in nanoseconds.
    pub latency_ns: u64,
    /// Bytes of an entry without its response.
    pub overhead_bytes: u32,
    /// The largest entry that is stored, in bytes; `None`: the default of the cache.
    pub max_object: Option<u64>,
    /// The ttls of routes, in place of that of the lifetime.
    pub routes: RouteTtls,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its policy.
    pub policy: &'static Policy,
    /// Its lifetime.
    pub lifetime: Lifetime,
    /// One for each size.
    pub points: Vec<Point>,
    /// The largest difference between a sampled point and an exact one of the same size, where both were replayed.
    pub error: Option<f64>,
}

/// A cache of one size. All ratios are shares of the requests after the [warm-up](crate::Warmup).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The size.
    pub capacity: Capacity,
    /// Requests that no fresh entry answered.
    pub miss_ratio: f64,
    /// Requests that waited for a load, their own or another's.
    pub wait_ratio: f64,
    /// Loads for each request, those in the background included.
    pub load_ratio: f64,
    /// The bytes of misses as a share of all bytes: stale answers, and those of another request's load, are served.
    pub byte_miss_ratio: f64,
    /// The bytes of loads, those in the background included, as a share of all bytes.
    pub byte_load_ratio: f64,
    /// All requests were replayed.
    pub is_exact: bool,
}

impl Point {
    /// Ratios of a replay. The denominators are the counted requests and bytes that a sample of this rate has on average.
    #[must_use]
    pub fn of(capacity: Capacity, replay: &Replay, trace: &Trace) -> Self {
        let counted = trace.counted();
        let requests = counted.requests as f64 * trace.sampled_share();
        let ratio = |count: u64| if requests > 0.0 { (count as f64 / requests).min(1.0) } else { 0.0 };
        let bytes = counted.object_bytes as f64 * trace.sampled_share();
        let byte_ratio = |count: u64| if bytes > 0.0 { (count as f64 / bytes).min(1.0) } else { 0.0 };
        Self {
            capacity,
            miss_ratio: ratio(replay.requests - replay.hits),
            wait_ratio: ratio(replay.misses + replay.coalesced),
            load_ratio: ratio(replay.loads),
            byte_miss_ratio: byte_ratio(replay.miss_bytes),
            byte_load_ratio: byte_ratio(replay.load_bytes),
            is_exact: trace.is_whole(),
        }
    }
}

/// The keys of a long trace that its curves are computed from; `None`: all of them.
#[must_use]
pub fn sample(whole: &Trace) -> Option<Trace> {
    let by_requests = whole.requests().len().div_ceil(SAMPLE_REQUESTS);
    let nth = by_requests.min(whole.key_count() / SAMPLE_KEYS_MIN);
    (nth > 1).then(|| whole.sample(nth))
}

/// Computes curves, from a [`sample`] if there is one, on all cores. `progress` gets the number of finished and of planned replays, which
/// grows if curves have to be exact.
pub fn curves(
    whole: &Trace,
    sample: Option<&Trace>,
    settings: &CurveSettings,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<Curve> {
    let replayed = sample.unwrap_or(whole);
    let curves: Vec<_> = settings
        .policies
        .iter()
        .flat_map(|policy| settings.lifetimes.iter().map(move |lifetime| (*policy, *lifetime)))
        .collect();
    let sizes = settings.sizes.len();
    // The smallest, whose sample is the coarsest, and the middle.
    let checked = [0, sizes / 2];
    let has_check = sample.is_some() && whole.is_whole() && sizes > 0;

    let mut jobs: Vec<Job<'_>> = Vec::new();
    for (curve, _) in curves.iter().enumerate() {
        jobs.extend((0..sizes).map(|size| Job { trace: replayed, curve, size }));
        if has_check {
            jobs.extend(checked.iter().map(|size| Job { trace: whole, curve, size: *size }));
        }
    }
    let points = run(&jobs, &curves, settings, progress);
    let per_curve = if has_check { sizes + checked.len() } else { sizes };
    let mut results: Vec<Curve> = curves
        .iter()
        .zip(points.chunks(per_curve.max(1)))
        .map(|((policy, lifetime), points)| {
            let (points, exact) = points.split_at(sizes);
            let mut points = points.to_vec();
            let errors = checked.iter().zip(exact).map(|(size, exact)| {
                (points[*size].miss_ratio - exact.miss_ratio)
                    .abs()
                    .max((points[*size].load_ratio - exact.load_ratio).abs())
            });
            let error = errors.reduce(f64::max);
            for (size, exact) in checked.iter().zip(exact) {
                points[*size] = *exact;
            }
            Curve { policy, lifetime: *lifetime, points, error }
        })
        .collect();

    let unchecked = (0..sizes).filter(|size| !checked.contains(size));
    let begun = jobs.len();
    let progress = |done: usize, planned: usize| progress(begun + done, begun + planned);
    let jobs: Vec<Job<'_>> = results
        .iter()
        .enumerate()
        .filter(|(_, curve)| curve.error.is_some_and(|error| error > ERROR_MAX))
        .flat_map(|(curve, _)| unchecked.clone().map(move |size| Job { trace: whole, curve, size }))
        .collect();
    for (job, point) in jobs.iter().zip(run(&jobs, &curves, settings, &progress)) {
        results[job.curve].points[job.size] = point;
        results[job.curve].error = None;
    }
    results
}

/// One replay.
struct Job<'a> {
    trace: &'a Trace,
    curve: usize,
    size: usize,
}

fn run(
    jobs: &[Job<'_>],
    curves: &[(&'static Policy, Lifetime)],
    settings: &CurveSettings,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<Point> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let points = Mutex::new(vec![None; jobs.len()]);
    let work = || {
        while let Some((number, job)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(number).map(|job| (number, job))
        } {
            let (policy, lifetime) = curves[job.curve];
            let capacity = settings.sizes[job.size];
            let replay = policy.replay(job.trace, &settings.setup(capacity, lifetime));
            let point = Point::of(capacity, &replay, job.trace);
            points.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(point);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    points.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

impl CurveSettings {
    /// The cache of one point.
    #[must_use]
    pub fn setup(&self, capacity: Capacity, lifetime: Lifetime) -> CacheSetup {
        CacheSetup {
            capacity,
            overhead_bytes: self.overhead_bytes,
            marker_bytes: if self.is_proxy() { MARKER_BYTES } else { 0 },
            reserved_bytes: self.reserved_bytes(),
            entry_max: self.entry_max(capacity),
            ttl: lifetime.ttl,
            swr_ns: lifetime.swr_ns,
            latency_ns: self.latency_ns,
            routes: self.routes,
        }
    }

    /// Without the overhead it is another cache.
    fn is_proxy(&self) -> bool {
        self.overhead_bytes > 0
    }

    fn reserved_bytes(&self) -> u32 {
        if self.is_proxy() { RESERVED_BYTES } else { 0 }
    }

    /// The bytes of an object while it is stored, which have to be within [`entry_max`](Self::entry_max).
    pub(crate) fn entry_bytes(&self, bytes: u32) -> u64 {
        u64::from(bytes) + u64::from(self.overhead_bytes) + u64::from(self.reserved_bytes())
    }

    /// The largest entry that the cache stores, in bytes. It has no such bound with a limit in entries.
    pub(crate) fn entry_max(&self, capacity: Capacity) -> Option<u64> {
        capacity.entry_max(self.max_object)
    }
}
