//! The cache for a log: a size, a policy and a lifetime, and what they give.
//!
//! - **Lifetime**: of those given, the one with the most hits among those that keep to the bound on staleness.
//! - **Size**: the room that was given; else the smallest of the sizes that twice the room would improve by less than
//!   [`GAIN_MIN`].
//! - **Policy**: of those that ship, the one with the fewest loads; of two that differ by less than [`TIE`], the first of the
//!   registry.

use crate::{
    curve::{Curve, CurveSettings, Lifetime, Point},
    policy::Policy,
    replay::{CacheSetup, Capacity, Replay, Ttl},
    trace::Trace,
};

/// Twice the room has to give as many more hits, as a share of the requests.
pub const GAIN_MIN: f64 = 0.01;
/// A difference in loads that does not count, as a share of the requests.
pub const TIE: f64 = 0.002;

const SECOND_NS: u64 = 1_000_000_000;

/// A cache for a log.
#[derive(Clone, Debug)]
pub struct Recommendation {
    /// The policy.
    pub policy: &'static Policy,
    /// The size.
    pub capacity: Capacity,
    /// For how long values are served.
    pub lifetime: Lifetime,
    /// What it gives.
    pub point: Point,
    /// The hit ratio that twice the room would add, as a share of the requests.
    pub gain_of_double: f64,
    /// The hit ratio that half of the room would cost.
    pub loss_of_half: f64,
    /// Loads and requests over time.
    pub peaks: Peaks,
    /// The greatest age of a response, in nanoseconds since its load ended.
    pub age_max_ns: u64,
}

/// The busiest moments of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peaks {
    /// Loads in the second with most of them.
    pub loads_per_s: f64,
    /// Loads a second in the minute with most of them.
    pub loads_per_s_in_minute: f64,
    /// Requests in the second with most of them: the loads of no cache.
    pub requests_per_s: f64,
}

/// Chooses a cache. `curves` have the sizes, policies and lifetimes of the settings.
#[must_use]
pub fn recommend(
    whole: &Trace,
    curves: &[Curve],
    settings: &CurveSettings,
    memory: Option<Capacity>,
    staleness_ns: Option<u64>,
) -> Option<Recommendation> {
    let shipped: Vec<&Curve> = curves.iter().filter(|curve| curve.policy.shipped.is_some()).collect();
    let is_allowed = |lifetime: &Lifetime| staleness_ns.is_none_or(|bound| lifetime.age_max_ns() <= bound);
    let largest = |curve: &&&Curve| curve.points.last().map_or(1.0, |point| point.load_ratio);
    let lifetime = shipped
        .iter()
        .filter(|curve| is_allowed(&curve.lifetime))
        .min_by(|one, other| largest(one).total_cmp(&largest(other)))?
        .lifetime;
    let candidates: Vec<&Curve> = shipped.into_iter().filter(|curve| curve.lifetime == lifetime).collect();
    let best_at = |size: usize| {
        let fewest = candidates.iter().map(|curve| curve.points[size].load_ratio).reduce(f64::min)?;
        candidates.iter().find(|curve| curve.points[size].load_ratio <= fewest + TIE).copied()
    };
    let capacity = match memory {
        Some(memory) => memory,
        None => {
            let sizes = settings.sizes.len();
            let hits = |size: usize| best_at(size).map_or(0.0, |curve| 1.0 - curve.points[size].load_ratio);
            let enough = (0..sizes).find(|size| {
                let double = settings.sizes[*size].times(2.0);
                let next = (0..sizes).rev().find(|next| settings.sizes[*next].room() <= double.room());
                hits(next.unwrap_or(*size)) - hits(*size) < GAIN_MIN
                    && hits(sizes - 1) - hits(*size) < 2.0 * GAIN_MIN
            });
            settings.sizes[enough.unwrap_or(sizes.checked_sub(1)?)]
        }
    };
    // The size may lie between those of the curves.
    let nearest = (0..settings.sizes.len())
        .min_by_key(|size| settings.sizes[*size].room().abs_diff(capacity.room()))?;
    let policy = best_at(nearest)?.policy;
    // Only a replay with a clock counts loads by interval.
    let latency_ns = settings.latency_ns.max(1);
    let replay =
        |capacity| policy.replay(whole, &CacheSetup { latency_ns, ..settings.setup(capacity, lifetime) });
    let chosen = replay(capacity);
    let point = Point::of(capacity, &chosen, whole);
    let other = |factor: f64| {
        let capacity = capacity.times(factor);
        Point::of(capacity, &replay(capacity), whole).miss_ratio
    };
    Some(Recommendation {
        policy,
        capacity,
        lifetime,
        point,
        gain_of_double: point.miss_ratio - other(2.0),
        loss_of_half: other(0.5) - point.miss_ratio,
        peaks: peaks(whole, &chosen),
        age_max_ns: chosen.age_max_ns,
    })
}

/// Counts of a sample are scaled to the whole log.
fn peaks(trace: &Trace, replay: &Replay) -> Peaks {
    let interval_s = replay.interval_ns.max(1) as f64 / SECOND_NS as f64;
    let per_minute = usize::try_from(60 * SECOND_NS / replay.interval_ns.max(SECOND_NS)).unwrap_or(1).max(1);
    let scale = 1.0 / (trace.rate() * interval_s);
    let loads = &replay.loads_by_interval;
    let greatest = f64::from(loads.iter().copied().max().unwrap_or(0));
    let width = per_minute.min(loads.len().max(1));
    let mut sum: u64 = loads[..width.min(loads.len())].iter().map(|count| u64::from(*count)).sum();
    let mut most = sum;
    for end in width..loads.len() {
        sum = sum + u64::from(loads[end]) - u64::from(loads[end - width]);
        most = most.max(sum);
    }
    let mut requests = vec![0_u32; loads.len()];
    for request in trace.requests() {
        let interval = usize::try_from(request.at_ns / replay.interval_ns.max(1)).unwrap_or(usize::MAX);
        if let Some(count) = requests.get_mut(interval) {
            *count += 1;
        }
    }
    Peaks {
        loads_per_s: greatest * scale,
        loads_per_s_in_minute: most as f64 / width as f64 * scale,
        requests_per_s: f64::from(requests.into_iter().max().unwrap_or(0)) * scale,
    }
}

impl Lifetime {
    /// The greatest age of a response, in nanoseconds; where the log says for how long a response is fresh, where it
    /// says nothing.
    #[must_use]
    pub fn age_max_ns(&self) -> u64 {
        let ttl_ns = match self.ttl {
            Ttl::Never => u64::MAX,
            Ttl::Fixed(ttl_ns) | Ttl::Logged { default_ns: ttl_ns } => ttl_ns,
        };
        ttl_ns.saturating_add(self.swr_ns)
    }
}
