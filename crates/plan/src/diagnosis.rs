//! Why a cache has few hits, and what would give more, with the evidence.

mod urls;

use std::{fmt, time::Duration};

use serde::Serialize;
use stockade_model::units::{format_count, format_span};

pub(crate) use self::urls::UrlSample;
use crate::{
    CacheSetup, Capacity, PlanOptions,
    curve::{CurveSettings, Lifetime, Point, TTL_GRID_S, sample},
    recommend::Recommendation,
    replay::Ttl,
    report::percent,
    trace::{Request, SECOND_NS, Trace},
};

/// The room for all keys, as a multiple of that of a cache.
const ROOM_FOR_ALL: f64 = 1_024.0;
/// With fewer hits the cache is hardly worth it.
const HITS_FEW: f64 = 0.1;
/// Most of the requests.
const MOST: f64 = 0.5;
/// Of requests for keys that are requested once: a cache is of no use.
pub(crate) const UNIQUE_MIN: f64 = 0.9;
/// Hit ratios that differ by less are the same.
const GAIN_MIN: f64 = 0.05;
/// A ttl is long enough with this share of the hits that no ttl at all gives.
const ENOUGH: f64 = 0.8;
/// Of requests for keys that several hosts share: they may be other pages.
const SHARED_MIN: f64 = 0.05;

/// A reason for few hits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    /// Keys differ in parameters that do not change the response.
    Parameters {
        /// Their names, as for `--drop-parameters`.
        names: Vec<String>,
        /// Keys of the sample that have one of them.
        keys: usize,
        /// Keys that are left of these without the parameters.
        keys_left: usize,
        /// The log has the sizes of the responses, and those of one key left are the same.
        same_size: bool,
        /// Requests of the sample.
        requests: usize,
        /// The hit ratio of the sample,
        hit_ratio: f64,
        /// and without the parameters.
        hit_ratio_without: f64,
    },
    /// Most responses may not be stored.
    NotStored {
        /// Their share.
        share: f64,
    },
    /// No key is requested twice.
    NoRepeats,
    /// Most requests are for keys that are requested once.
    UniqueKeys {
        /// Their share of the requests.
        share: f64,
    },
    /// Keys are requested again after the ttl.
    ShortTtl {
        /// Half of the repeats come after this time, in seconds.
        repeat_s: f64,
        /// The ttl that has most of the possible hits, in seconds.
        ttl_s: u64,
        /// Its hit ratio.
        hit_ratio: f64,
    },
    /// Several hosts share keys, with responses of other sizes.
    MergedHosts {
        /// Hosts of the sample.
        hosts: usize,
        /// The share of the requests for these keys.
        share: f64,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameters { names, keys, keys_left, same_size, requests, hit_ratio, hit_ratio_without } => {
                let names = names.join(",");
                let evidence = if *same_size {
                    ", and their responses have the same size"
                } else {
                    ", if these do not change the page"
                };
                write!(
                    f,
                    "{} keys differ in parameters only, {} are left without {names}{evidence}: \
                     --drop-parameters {names} has a hit ratio of {} instead of {} (among {} requests).",
                    format_count(*keys as u64),
                    format_count(*keys_left as u64),
                    percent(*hit_ratio_without),
                    percent(*hit_ratio),
                    format_count(*requests as u64),
                )
            }
            Self::NotStored { share } => write!(
                f,
                "No cache helps: the responses to {} of the requests may not be stored, for the reasons in the notes.",
                percent(*share)
            ),
            Self::NoRepeats => f.write_str(
                "Do not cache this: no key is requested twice. A longer log may have repeats, and --drop-parameters may merge keys.",
            ),
            Self::UniqueKeys { share } => {
                write!(f, "Do not cache this: {} of the requests are for keys that are requested once.", percent(*share))
            }
            Self::ShortTtl { repeat_s, ttl_s, hit_ratio } => {
                let ttl = format_span(Duration::from_secs(*ttl_s));
                write!(
                    f,
                    "The ttl is shorter than the time between requests for a key; half of these times are at least {}: --ttl {ttl} has a hit ratio of {}.",
                    format_span(Duration::from_secs_f64(*repeat_s)),
                    percent(*hit_ratio)
                )
            }
            Self::MergedHosts { hosts, share } => write!(
                f,
                "{} hosts have paths in common, with responses of other sizes, and the plan \
                 takes them for one page in {} of the requests: --by-host keeps them apart.",
                format_count(*hosts as u64),
                percent(*share)
            ),
        }
    }
}

/// The findings of a log, the most useful first.
pub(crate) fn diagnose(
    trace: &Trace,
    urls: &UrlSample,
    settings: &CurveSettings,
    chosen: &Recommendation,
    options: &PlanOptions,
    is_by_host: bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(parameters(urls, settings, chosen, options));
    if findings.is_empty() && 1.0 - chosen.point.miss_ratio < HITS_FEW {
        findings.extend(few_hits(trace, settings, chosen));
    }
    if !is_by_host
        && let Some(shared) = urls.shared_keys()
        && shared.share >= SHARED_MIN
    {
        findings.push(Finding::MergedHosts { hosts: shared.hosts, share: shared.share });
    }
    findings
}

/// The parameters that make keys of one page, where they cost hits.
fn parameters(
    urls: &UrlSample,
    settings: &CurveSettings,
    chosen: &Recommendation,
    options: &PlanOptions,
) -> Option<Finding> {
    let found = urls.parameters()?;
    let (requests, share) = urls.requests_and_share();
    let hit_ratio = |without: &[String], capacity: Capacity| {
        let trace = urls.trace(without).with_warmup(options.warmup);
        hit_ratio(&trace, settings, chosen, chosen.lifetime, (capacity, share))
    };
    // Fewer keys deserve another size, unless it is stated.
    let room = options.memory.unwrap_or_else(|| chosen.capacity.times(ROOM_FOR_ALL));
    let (before, after) = (hit_ratio(&[], chosen.capacity), hit_ratio(&found.names, room));
    (after - before >= GAIN_MIN).then_some(Finding::Parameters {
        names: found.names,
        keys: found.keys,
        keys_left: found.keys_left,
        same_size: found.has_sizes,
        requests,
        hit_ratio: before,
        hit_ratio_without: after,
    })
}

/// The hit ratio of the chosen cache with another lifetime, or with a share of another size.
fn hit_ratio(
    trace: &Trace,
    settings: &CurveSettings,
    chosen: &Recommendation,
    lifetime: Lifetime,
    (capacity, share): (Capacity, f64),
) -> f64 {
    let whole = settings.setup(capacity, lifetime);
    let setup = CacheSetup { capacity: capacity.times(share), ..whole };
    1.0 - Point::of(capacity, &chosen.policy.replay(trace, &setup), trace).miss_ratio
}

fn few_hits(whole: &Trace, settings: &CurveSettings, chosen: &Recommendation) -> Option<Finding> {
    let sampled = sample(whole);
    let trace = sampled.as_ref().unwrap_or(whole);
    let requests = trace.requests();
    let is_never_stored = |request: &&Request| request.exchange().is_never_stored();
    let share = requests.iter().filter(is_never_stored).count() as f64 / requests.len().max(1) as f64;
    if share >= MOST {
        return Some(Finding::NotStored { share });
    }
    let mut gaps = gaps(trace);
    if gaps.repeats.is_empty() {
        return Some(Finding::NoRepeats);
    }
    let share = gaps.once as f64 / requests.len() as f64;
    if share >= UNIQUE_MIN {
        return Some(Finding::UniqueKeys { share });
    }
    let ttl_ns = chosen.lifetime.ttl.default_ns()?;
    let hits = |ttl: Ttl| {
        hit_ratio(trace, settings, chosen, Lifetime { ttl, ..chosen.lifetime }, (chosen.capacity, 1.0))
    };
    let (now, most) = (hits(chosen.lifetime.ttl), hits(Ttl::Never));
    if most - now < GAIN_MIN {
        return None;
    }
    let ttls = TTL_GRID_S.into_iter().filter(|ttl_s| ttl_s * SECOND_NS > ttl_ns);
    let (ttl_s, hit_ratio) = ttls
        .map(|ttl_s| (ttl_s, hits(Ttl::Fixed(ttl_s * SECOND_NS))))
        .find(|(_, hits)| *hits >= ENOUGH * most)?;
    let middle = gaps.repeats.len() / 2;
    let repeat_s = *gaps.repeats.select_nth_unstable(middle).1 as f64 / SECOND_NS as f64;
    Some(Finding::ShortTtl { repeat_s, ttl_s, hit_ratio })
}

struct Gaps {
    /// The times between requests for a key, in nanoseconds.
    repeats: Vec<u64>,
    /// Requests for keys that are requested once.
    once: usize,
}

fn gaps(trace: &Trace) -> Gaps {
    let mut last: Vec<Option<u64>> = vec![None; trace.key_count()];
    let mut is_repeated = vec![false; trace.key_count()];
    let mut repeats = Vec::new();
    for request in trace.requests() {
        let key = request.key() as usize;
        if let Some(last_ns) = last[key].replace(request.at_ns) {
            repeats.push(request.at_ns - last_ns);
            is_repeated[key] = true;
        }
    }
    let once = last.iter().zip(&is_repeated).filter(|(last, repeated)| last.is_some() && !**repeated).count();
    Gaps { repeats, once }
}

#[cfg(test)]
mod tests;
