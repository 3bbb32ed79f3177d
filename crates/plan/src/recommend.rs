//! The cache for a log: a size, a policy and a lifetime, and what they give. All three are chosen by loads at the origin: from
//! 98 % of hits to 98.8 % is a small step of the hit ratio, and two fifths of the loads.
//!
//! - **Lifetime**: of those given, the one with the fewest loads among those that keep to the bound on staleness.
//! - **Size**: the given one; else the smallest to which twice the size saves less than [`SAVED_MIN`] of the loads, and the
//!   largest size less than [`SAVED_BY_LARGEST_MIN`].
//! - **Policy**: of those that ship, the one with the fewest loads; of those with at most [`TIE`] more, the first of the registry.
//! - **Routes** with a ttl of their own, where they [save loads](crate::routes); the size is then the one for all of it, and is doubled
//!   beyond the sizes of the curves as long as that saves [`SAVED_MIN`] of the loads.

use crate::{
    curve::{Curve, CurveSettings, Lifetime, Point, curves},
    outlook::{self, counted_s, span_s},
    peaks::Peaks,
    policy::Policy,
    replay::{Capacity, Replay, Ttl},
    routes::{Candidates, PlannedCache, RouteTtlPlan, RouteTtls},
    trace::Trace,
};

/// Twice the size has to save this share of the loads.
pub const SAVED_MIN: f64 = 0.05;
/// Or the largest size this one.
pub const SAVED_BY_LARGEST_MIN: f64 = 0.1;
/// A size that saves fewer loads for each request does not count as a saving: one of 10,000.
pub const SAVED_LOADS_MIN: f64 = 0.000_1;
/// More loads that do not count, as a share of the fewest.
pub const TIE: f64 = 0.01;
/// How often the largest size of the curves is doubled for the sake of routes, at most.
const DOUBLINGS_MAX: i32 = 6;

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
    /// The loads that twice the room would save, as a share of the loads; 0 without loads.
    pub loads_saved_by_double: f64,
    /// Loads for each request with half of the room.
    pub load_ratio_of_half: f64,
    /// Loads in the second with most of them, after the warm-up.
    pub loads_per_s_max: Peak,
    /// Loads a second in the minute with most of them, after the warm-up.
    pub loads_per_s_in_busiest_minute: Peak,
    /// Loads a second after the warm-up, on average.
    pub loads_per_s: f64,
    /// Loads while the cache fills; `None` without a warm-up.
    pub cold_start: Option<ColdStart>,
    /// Requests in the second with most of them: the loads of no cache.
    pub requests_per_s_max: Peak,
    /// The greatest age that a response can have, in nanoseconds; `u64::MAX`: any.
    pub age_max_ns: u64,
    /// The largest entry that is stored, in bytes; `None`: the default of the cache.
    pub max_object: Option<u64>,
    /// Routes with a ttl of their own. All figures are with them.
    pub routes: RouteTtlPlan,
}

/// The loads of an empty cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColdStart {
    /// From the first request to the end of the warm-up, a minute at least, in nanoseconds.
    pub span_ns: u64,
    /// Loads in the second with most of them.
    pub loads_per_s_max: Peak,
    /// Loads a second in the minute with most of them.
    pub loads_per_s_in_busiest_minute: Peak,
}

/// The rate of the busiest time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Events a second.
    pub per_s: f64,
    /// Of an estimate twice the standard error, as a share of the rate; `None`: counted.
    pub error: Option<f64>,
}

impl Peak {
    /// The rate of a count in a number of seconds of a sample of the keys. Requests of a second are in the sample or not by the chance of
    /// their keys, so that the standard error of a count is about its root.
    pub(crate) fn of(count: u64, seconds: f64, sampled_share: f64) -> Self {
        let error = (sampled_share < 1.0).then(|| 2.0 / (count.max(1) as f64).sqrt());
        Self { per_s: count as f64 / sampled_share / seconds, error }
    }

    /// The rate of a count in a minute, or in a log that is shorter.
    pub(crate) fn in_minute(count: u64, log_s: f64, sampled_share: f64) -> Self {
        Self::of(count, log_s.min(60.0), sampled_share)
    }
}

/// Why there is no recommendation. The message is a sentence with the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRecommendation {
    /// All lifetimes are longer than the bound.
    #[error("No lifetime keeps to the bound on staleness: give a shorter --ttl, or a longer --staleness.")]
    Staleness,
    /// No entry fits into any size.
    #[error("No entry fits into any of the sizes: give larger --sizes, or a larger --max-object.")]
    NoSize,
    /// No policy of the curves is one of the cache.
    #[error(
        "No cache to recommend, since no policy of these ships with it: add one to --policy, such as sieve."
    )]
    NoShippedPolicy,
}

/// Chooses a cache. `all_curves` have the sizes, policies and lifetimes of the settings, at least one each. `route_ttl_max_ns`: the longest ttl
/// of a route, since one that is longer than stated is nothing to propose, and one that is longer than the log is a guess; `None`: no route has
/// its own.
pub fn recommend(
    whole: &Trace,
    all_curves: &[Curve],
    settings: &CurveSettings,
    memory: Option<Capacity>,
    staleness_ns: Option<u64>,
    route_ttl_max_ns: Option<u64>,
) -> Result<Recommendation, NoRecommendation> {
    if settings.sizes.is_empty() {
        return Err(NoRecommendation::NoSize);
    }
    let shipped: Vec<&Curve> = all_curves.iter().filter(|curve| curve.policy.shipped.is_some()).collect();
    if shipped.is_empty() {
        return Err(NoRecommendation::NoShippedPolicy);
    }
    let sizes = &settings.sizes;
    let compared = memory.map_or(sizes.len() - 1, |memory| nearest(sizes, memory));
    let is_allowed =
        |curve: &&&Curve| staleness_ns.is_none_or(|bound| age_max_ns(curve.lifetime, whole) <= bound);
    let lifetime = shipped
        .iter()
        .filter(is_allowed)
        .min_by(|one, other| loads(one, compared).total_cmp(&loads(other, compared)))
        .ok_or(NoRecommendation::Staleness)?
        .lifetime;
    let candidates: Vec<&Curve> = shipped.into_iter().filter(|curve| curve.lifetime == lifetime).collect();
    let fewest: Vec<f64> = (0..sizes.len())
        .map(|size| candidates.iter().map(|curve| loads(curve, size)).fold(f64::INFINITY, f64::min))
        .collect();
    let at = memory.map_or_else(|| enough(sizes, &fewest), |memory| nearest(sizes, memory));
    let best = candidates.iter().find(|curve| loads(curve, at) <= fewest[at] * (1.0 + TIE));
    let curve = best.unwrap_or(&candidates[0]);
    let policy = curve.policy;
    let (capacity, routes) = match route_ttl_max_ns {
        Some(ttl_max_ns) => size_and_routes(whole, curve, settings, memory, ttl_max_ns),
        None => {
            let chosen = || sizes[enough(sizes, &exact_loads(whole, curve, settings))];
            (memory.unwrap_or_else(chosen), RouteTtlPlan::default())
        }
    };
    let settings = &CurveSettings { routes: routes.ttls(whole), ..settings.clone() };
    let replay = |capacity| policy.replay(whole, &settings.setup(capacity, lifetime));
    let (chosen, double) = (replay(capacity), replay(capacity.times(2.0)));
    let point = |capacity, replay: &Replay| Point::of(capacity, replay, whole);
    let (double, half) = (point(capacity.times(2.0), &double), capacity.times(0.5));
    let (half, point) = (point(half, &replay(half)), point(capacity, &chosen));
    let in_second = |peaks: &Peaks| Peak::of(peaks.in_second(), 1.0, whole.sampled_share());
    let in_minute =
        |peaks: &Peaks, log_s: f64| Peak::in_minute(peaks.in_minute(), log_s, whole.sampled_share());
    let cold_start = (whole.counted().from_ns > 0).then(|| ColdStart {
        span_ns: whole.counted().cold_until_ns(),
        loads_per_s_max: in_second(&chosen.cold_peaks),
        loads_per_s_in_busiest_minute: in_minute(&chosen.cold_peaks, span_s(whole)),
    });
    let mut requests = Peaks::default();
    whole.requests().iter().for_each(|request| requests.add(request.at_ns));
    let of_all = whole.requests_per_s_max().filter(|_| !whole.is_whole());
    let counted = |count: u32| Peak { per_s: count.into(), error: None };
    Ok(Recommendation {
        policy,
        capacity,
        lifetime,
        point,
        gain_of_double: point.miss_ratio - double.miss_ratio,
        loss_of_half: half.miss_ratio - point.miss_ratio,
        loads_saved_by_double: saved(point.load_ratio, double.load_ratio),
        load_ratio_of_half: half.load_ratio,
        loads_per_s_max: in_second(&chosen.peaks),
        loads_per_s_in_busiest_minute: in_minute(&chosen.peaks, counted_s(whole)),
        loads_per_s: whole.counted().requests as f64 * point.load_ratio / counted_s(whole),
        cold_start,
        requests_per_s_max: of_all.map_or_else(|| in_second(&requests), counted),
        age_max_ns: routes
            .ttl_max_ns()
            .map_or(0, |ttl_ns| ttl_ns.saturating_add(lifetime.swr_ns))
            .max(age_max_ns(lifetime, whole)),
        routes,
        max_object: settings.max_object,
    })
}

/// The size, unless it is given, and the routes with a ttl of their own. A longer ttl needs more room: the size is that
/// for all candidates, and then those stay that save loads in it.
fn size_and_routes(
    whole: &Trace,
    curve: &Curve,
    settings: &CurveSettings,
    memory: Option<Capacity>,
    ttl_max_ns: u64,
) -> (Capacity, RouteTtlPlan) {
    let sampled = outlook::sample(whole);
    let trace = sampled.as_ref().unwrap_or(whole);
    let cache =
        |capacity| PlannedCache { settings, policy: curve.policy, capacity, lifetime: curve.lifetime };
    let candidates = Candidates::of(trace, curve.lifetime, ttl_max_ns);
    let capacity = memory.unwrap_or_else(|| {
        let longer = candidates.longer().map(|route| (&*route.name, route.ttl_ns));
        let routes = RouteTtls::of(whole, longer);
        let mut sizes = settings.sizes.clone();
        if let Some(largest) = sizes.last().copied().filter(|_| !routes.is_none()) {
            sizes.extend((1..=DOUBLINGS_MAX).map(|power| largest.times(2.0_f64.powi(power))));
        }
        // A long log would be replayed fifteen times for the routes alone.
        let replayed = if routes.is_none() { whole } else { trace };
        let with_routes = CurveSettings { sizes, routes, ..settings.clone() };
        let sizes = &with_routes.sizes;
        sizes[enough(sizes, &exact_loads(replayed, curve, &with_routes))]
    });
    let routes = cache(capacity).routes(trace, &candidates).with_shares_of(whole);
    if routes.routes.is_empty() && memory.is_none() {
        return (settings.sizes[enough(&settings.sizes, &exact_loads(whole, curve, settings))], routes);
    }
    (capacity, routes)
}

fn loads(curve: &Curve, size: usize) -> f64 {
    curve.points[size].load_ratio
}

/// The loads for each request at each size, of all requests: a sample may be off by more than the loads of a good cache.
fn exact_loads(whole: &Trace, curve: &Curve, settings: &CurveSettings) -> Vec<f64> {
    let of = |curve: &Curve| curve.points.iter().map(|point| point.load_ratio).collect();
    if settings.routes.is_none() && curve.points.iter().all(|point| point.is_exact) {
        return of(curve);
    }
    let one =
        CurveSettings { policies: vec![curve.policy], lifetimes: vec![curve.lifetime], ..settings.clone() };
    curves(whole, None, &one, &|_, _| {}).first().map_or_else(|| of(curve), of)
}

/// The size that is nearest to this one, by its number.
fn nearest(sizes: &[Capacity], capacity: Capacity) -> usize {
    let distance = |size: &usize| sizes[*size].size().abs_diff(capacity.size());
    (0..sizes.len()).min_by_key(distance).unwrap_or(0)
}

/// The smallest size to which more room saves too little, by its number. `sizes` ascend, with the loads for each request.
fn enough(sizes: &[Capacity], loads: &[f64]) -> usize {
    let last = sizes.len() - 1;
    // The first size of at least twice the room, else the largest.
    let double = |size: usize| {
        (size..last).find(|larger| sizes[*larger].size() / 2 >= sizes[size].size()).unwrap_or(last)
    };
    let is_enough = |size: &usize| {
        let saved_by = |larger: usize| match loads[*size] - loads[larger] {
            few if few < SAVED_LOADS_MIN => 0.0,
            _ => saved(loads[*size], loads[larger]),
        };
        saved_by(double(*size)) < SAVED_MIN && saved_by(last) < SAVED_BY_LARGEST_MIN
    };
    (0..last).find(is_enough).unwrap_or(last)
}

/// The share of the loads that a change saves; below 0 if it adds some.
fn saved(before: f64, after: f64) -> f64 {
    if before > 0.0 { 1.0 - after / before } else { 0.0 }
}

/// The greatest age that a response can have, in nanoseconds; `u64::MAX`: any.
fn age_max_ns(lifetime: Lifetime, trace: &Trace) -> u64 {
    let ttl_ns = match lifetime.ttl {
        Ttl::Never => u64::MAX,
        Ttl::Fixed(ttl_ns) => trace.declared_ttl_max_ns().map_or(ttl_ns, |longest| longest.max(ttl_ns)),
        Ttl::Logged { default_ns } => {
            trace.ttl_max_ns().map_or(default_ns, |longest| longest.max(default_ns))
        }
    };
    ttl_ns.saturating_add(lifetime.swr_ns)
}

#[cfg(test)]
mod tests;
