//! The cache for a log: a size, a policy and a lifetime, and what they give.
//!
//! - **Lifetime**: of those given, the one with the most hits among those that keep to the bound on staleness.
//! - **Size**: the given one; else the smallest to which twice the size adds less than [`GAIN_MIN`], and the largest size less
//!   than [`GAIN_OF_ALL_MIN`].
//! - **Policy**: of those that ship, the one with the most hits; of those that differ by less than [`TIE`] from it, the first
//!   of the registry.

use crate::{
    curve::{Curve, CurveSettings, Lifetime, Point},
    peaks::Peaks,
    policy::Policy,
    replay::{Capacity, Ttl},
    trace::Trace,
};

/// Twice the size has to give as many more hits, as a share of the requests.
pub const GAIN_MIN: f64 = 0.01;
/// And the largest size as many.
pub const GAIN_OF_ALL_MIN: f64 = 0.02;
/// A difference in hits that does not count, as a share of the requests.
pub const TIE: f64 = 0.002;

/// A cache for a log.
#[derive(Clone, Debug)]
pub struct Recommendation {
    /// The policy.
    pub policy: &'static Policy,
    /// The size.
    pub capacity: Capacity,
    /// For how long values are served.
    pub lifetime: Lifetime,
    /// Its ratios.
    pub point: Point,
    /// The hit ratio that twice the room would add, as a share of the requests.
    pub gain_of_double: f64,
    /// The hit ratio that half of the room would cost.
    pub loss_of_half: f64,
    /// Loads in the second with most of them, after the warm-up.
    pub loads_per_s_max: f64,
    /// Loads a second in the minute with most of them, after the warm-up.
    pub loads_per_s_in_busiest_minute: f64,
    /// Loads while the cache fills; `None` without a warm-up.
    pub cold_start: Option<ColdStart>,
    /// Requests in the second with most of them: the loads of no cache.
    pub requests_per_s_max: f64,
    /// The greatest age that a response can have, in nanoseconds; `u64::MAX`: any.
    pub age_max_ns: u64,
}

/// The loads of an empty cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColdStart {
    /// From the first request to the end of the warm-up, a minute at least, in nanoseconds.
    pub span_ns: u64,
    /// Loads in the second with most of them.
    pub loads_per_s_max: f64,
    /// Loads a second in the minute with most of them.
    pub loads_per_s_in_busiest_minute: f64,
}

/// Why there is no recommendation. The message is a sentence with the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRecommendation {
    /// All lifetimes are longer than the bound.
    #[error("No lifetime keeps to the bound on staleness: give a shorter --ttl, or a longer --staleness.")]
    Staleness,
    /// No policy of the curves is one of the cache.
    #[error(
        "No cache to recommend, since none of these policies ships with it: add one to --policy, such as sieve."
    )]
    NoShippedPolicy,
}

/// Chooses a cache. `curves` have the sizes, policies and lifetimes of the settings, at least one each.
pub fn recommend(
    whole: &Trace,
    curves: &[Curve],
    settings: &CurveSettings,
    memory: Option<Capacity>,
    staleness_ns: Option<u64>,
) -> Result<Recommendation, NoRecommendation> {
    let shipped: Vec<&Curve> = curves.iter().filter(|curve| curve.policy.shipped.is_some()).collect();
    if shipped.is_empty() {
        return Err(NoRecommendation::NoShippedPolicy);
    }
    // The size of the curves that is nearest to the given one, else the largest.
    let sizes = &settings.sizes;
    let nearest = |capacity: Capacity| {
        let distance = |size: &usize| sizes[*size].size().abs_diff(capacity.size());
        (0..sizes.len()).min_by_key(distance).unwrap_or(0)
    };
    let compared = memory.map_or(sizes.len() - 1, nearest);
    let is_allowed =
        |curve: &&&Curve| staleness_ns.is_none_or(|bound| age_max_ns(curve.lifetime, whole) <= bound);
    let misses = |curve: &&Curve, size: usize| curve.points[size].miss_ratio;
    let lifetime = shipped
        .iter()
        .filter(is_allowed)
        .min_by(|one, other| misses(one, compared).total_cmp(&misses(other, compared)))
        .ok_or(NoRecommendation::Staleness)?
        .lifetime;
    let candidates: Vec<&Curve> = shipped.into_iter().filter(|curve| curve.lifetime == lifetime).collect();
    let fewest = |size: usize| candidates.iter().map(|curve| misses(curve, size)).fold(1.0, f64::min);
    let capacity = memory.unwrap_or_else(|| {
        let gain = |size: usize, larger: usize| fewest(size) - fewest(larger);
        let last = sizes.len() - 1;
        // The first size of at least twice the room, else the largest.
        let double = |size: usize| {
            (size..last).find(|larger| sizes[*larger].size() / 2 >= sizes[size].size()).unwrap_or(last)
        };
        let enough = (0..last)
            .find(|size| gain(*size, double(*size)) < GAIN_MIN && gain(*size, last) < GAIN_OF_ALL_MIN);
        sizes[enough.unwrap_or(last)]
    });
    let at = nearest(capacity);
    let policy = candidates
        .iter()
        .find(|curve| misses(curve, at) <= fewest(at) + TIE)
        .map_or(candidates[0].policy, |curve| curve.policy);
    let replay = |capacity| policy.replay(whole, &settings.setup(capacity, lifetime));
    let chosen = replay(capacity);
    let point = Point::of(capacity, &chosen, whole);
    let other = |factor: f64| {
        let capacity = capacity.times(factor);
        Point::of(capacity, &replay(capacity), whole).miss_ratio
    };
    // Counts of a sample are scaled to the whole log.
    let all = |count: u64| count as f64 / whole.sampled_share();
    let cold_start = (whole.counted().from_ns > 0).then(|| ColdStart {
        span_ns: whole.counted().cold_until_ns(),
        loads_per_s_max: all(chosen.cold_peaks.in_second()),
        loads_per_s_in_busiest_minute: all(chosen.cold_peaks.in_minute()) / 60.0,
    });
    let mut requests = Peaks::default();
    whole.requests().iter().for_each(|request| requests.add(request.at_ns));
    Ok(Recommendation {
        policy,
        capacity,
        lifetime,
        point,
        gain_of_double: point.miss_ratio - other(2.0),
        loss_of_half: other(0.5) - point.miss_ratio,
        loads_per_s_max: all(chosen.peaks.in_second()),
        loads_per_s_in_busiest_minute: all(chosen.peaks.in_minute()) / 60.0,
        cold_start,
        requests_per_s_max: all(requests.in_second()),
        age_max_ns: age_max_ns(lifetime, whole),
    })
}

/// The greatest age that a response can have, in nanoseconds; `u64::MAX`: any.
fn age_max_ns(lifetime: Lifetime, trace: &Trace) -> u64 {
    let ttl_ns = match lifetime.ttl {
        Ttl::Never => u64::MAX,
        Ttl::Fixed(ttl_ns) => ttl_ns,
        Ttl::Logged { default_ns } => {
            trace.ttl_max_ns().map_or(default_ns, |longest| longest.max(default_ns))
        }
    };
    ttl_ns.saturating_add(lifetime.swr_ns)
}
