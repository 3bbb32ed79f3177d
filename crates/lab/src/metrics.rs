//! What can be said of a run: the registry of metrics, and the figures of an arm.

use std::collections::BTreeMap;

use serde::Serialize;
use stockade_model::{
    histogram::Histogram,
    outcome::Outcomes,
    record::{Run, Times},
    units::milliseconds,
};

/// Everything that verdicts and reports are folded from: the figures of every run, and the
/// distributions of every arm, put together as the runs come in. It grows by scalars with the runs,
/// by histograms only with tests and arms.
#[derive(Debug, Default)]
pub struct Results {
    runs: Vec<Evidence>,
    times: BTreeMap<(String, String), Times>,
}

/// A run and its figures.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The run.
    pub run: Run,
    figures: BTreeMap<&'static str, f64>,
}

impl Results {
    /// Adds a run and the times of all its seconds.
    pub fn add(&mut self, run: &Run, times: &Times) {
        let raw = Raw { run, times };
        let figures = metrics().filter_map(|metric| Some((metric.name, (metric.figure)(&raw)?))).collect();
        self.runs.push(Evidence { run: run.clone(), figures });
        self.times.entry((run.test.clone(), run.arm.clone())).or_default().merge(times);
    }

    /// Every run in the order in which they came.
    #[must_use]
    pub fn runs(&self) -> &[Evidence] {
        &self.runs
    }

    /// The repeats of one arm of one test.
    #[must_use]
    pub fn repeats(&self, test: &str, arm: &str) -> Vec<&Evidence> {
        self.runs.iter().filter(|e| e.run.test == test && e.run.arm == arm).collect()
    }

    /// The times of all its repeats; `None` if there was none.
    #[must_use]
    pub fn times(&self, test: &str, arm: &str) -> Option<&Times> {
        self.times.get(&(test.to_owned(), arm.to_owned()))
    }
}

impl Evidence {
    /// A metric's figure in this run; `None` where it does not apply.
    #[must_use]
    pub fn figure(&self, metric: &Metric) -> Option<f64> {
        self.figures.get(metric.name).copied()
    }
}

/// What a figure is computed from.
struct Raw<'a> {
    run: &'a Run,
    times: &'a Times,
}

/// What a metric's figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count or a ratio.
    Number,
    /// Milliseconds.
    Time,
}

/// Something that every run has a figure of.
#[derive(Clone, Copy)]
pub struct Metric {
    /// Its name in expressions and references.
    pub name: &'static str,
    /// What its figures are.
    pub unit: Unit,
    /// Whether it is measured with a clock, and so differs from run to run.
    pub is_timing: bool,
    figure: fn(&Raw<'_>) -> Option<f64>,
}

impl Metric {
    /// The metric with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        metrics().find(|metric| metric.name == name)
    }
}

/// Every metric.
pub fn metrics() -> impl Iterator<Item = &'static Metric> + Clone {
    [COUNTS, SPANS, RESPONSE, SERVICE, SEND_LAG].into_iter().flatten()
}

const fn count(name: &'static str, figure: fn(&Raw<'_>) -> Option<f64>) -> Metric {
    Metric { name, unit: Unit::Number, is_timing: false, figure }
}

const fn timing(name: &'static str, figure: fn(&Raw<'_>) -> Option<f64>) -> Metric {
    Metric { name, unit: Unit::Time, is_timing: true, figure }
}

macro_rules! distribution {
    ($name:literal, $field:ident) => {
        [
            timing(concat!($name, ".min"), |e| e.times.$field.min().map(milliseconds)),
            timing(concat!($name, ".mean"), |e| e.times.$field.mean().map(milliseconds)),
            timing(concat!($name, ".p50"), |e| e.times.$field.quantile(0.50).map(milliseconds)),
            timing(concat!($name, ".p75"), |e| e.times.$field.quantile(0.75).map(milliseconds)),
            timing(concat!($name, ".p90"), |e| e.times.$field.quantile(0.90).map(milliseconds)),
            timing(concat!($name, ".p95"), |e| e.times.$field.quantile(0.95).map(milliseconds)),
            timing(concat!($name, ".p99"), |e| e.times.$field.quantile(0.99).map(milliseconds)),
            timing(concat!($name, ".p999"), |e| e.times.$field.quantile(0.999).map(milliseconds)),
            timing(concat!($name, ".max"), |e| e.times.$field.max().map(milliseconds)),
        ]
    };
}

static COUNTS: &[Metric] = &[
    count("requests", |e| Some(e.run.outcomes.requests() as f64)),
    count("failed", |e| Some(e.run.burst.failed as f64)),
    count("success", |e| ratio(e.run.outcomes.requests() - e.run.outcomes.error, e.run.outcomes.requests())),
    count("outcomes.hit", |e| Some(e.run.outcomes.hit as f64)),
    count("outcomes.stale", |e| Some(e.run.outcomes.stale as f64)),
    count("outcomes.miss", |e| Some(e.run.outcomes.miss as f64)),
    count("outcomes.coalesced", |e| Some(e.run.outcomes.coalesced as f64)),
    count("outcomes.fallback", |e| Some(e.run.outcomes.fallback as f64)),
    count("outcomes.negative", |e| Some(e.run.outcomes.negative as f64)),
    count("outcomes.bypass", |e| Some(e.run.outcomes.bypass as f64)),
    count("outcomes.error", |e| Some(e.run.outcomes.error as f64)),
    count("bytes_in.total", |e| Some(e.run.bytes_in as f64)),
    count("bytes_in.mean", |e| ratio(e.run.bytes_in, e.run.outcomes.requests())),
    count("source_loads", |e| Some(e.run.burst.calls.fetch_doc as f64)),
    count("amplification", |e| ratio(e.run.burst.calls.fetch_doc, e.run.episodes)),
    count("hit_ratio", |e| ratio(e.run.outcomes.hit, e.run.outcomes.requests())),
    count("stores.sync", |e| Some(e.run.burst.calls.store_local as f64)),
    count("stores.async", |e| Some(e.run.burst.calls.store_local_async as f64)),
    count("stores.total", |e| {
        Some((e.run.burst.calls.store_local + e.run.burst.calls.store_local_async) as f64)
    }),
    count("stores.skipped", |e| Some(e.run.stores_skipped as f64)),
    count("stores.dropped", |e| Some(e.run.stores_dropped as f64)),
    count("stores.refused", |e| Some(e.run.cache.stores_refused as f64)),
    count("loads_rejected", |e| Some(e.run.cache.loads_rejected as f64)),
    count("cache.entries", |e| Some(e.run.cache.entries as f64)),
    count("cache.bytes_max", |e| e.run.cache.bytes_max.map(|bytes| bytes as f64)),
    count("cache.evicted", |e| Some(e.run.cache.evicted as f64)),
    count("waiters", |e| Some(e.run.burst.waiters as f64)),
    count("documents", |e| Some(e.run.burst.documents as f64)),
    count("distinct_keys", |e| Some(e.run.burst.distinct_keys as f64)),
];
static SPANS: &[Metric] = &[
    timing("finished", |e| Some(e.run.burst.finished_ms)),
    timing("start_skew", |e| Some(e.run.burst.start_skew_ms)),
];
static RESPONSE: &[Metric] = &[
    timing("response.min", |e| e.run.burst.times.as_ref().map(|times| times.min_ms)),
    timing("response.mean", |e| e.run.burst.times.as_ref().map(|times| times.mean_ms)),
    timing("response.p50", |e| response(e, 0.50)),
    timing("response.p75", |e| response(e, 0.75)),
    timing("response.p90", |e| response(e, 0.90)),
    timing("response.p95", |e| response(e, 0.95)),
    timing("response.p99", |e| response(e, 0.99)),
    timing("response.p999", |e| response(e, 0.999)),
    timing("response.max", |e| e.run.burst.times.as_ref().map(|times| times.max_ms)),
];
static SERVICE: &[Metric] = &distribution!("service", service);
static SEND_LAG: &[Metric] = &distribution!("send_lag", send_lag);

/// Response times are known exactly at both ends; the histogram's three digits stay between them.
fn response(raw: &Raw<'_>, quantile: f64) -> Option<f64> {
    let exact = raw.run.burst.times.as_ref()?;
    let read = milliseconds(raw.times.response.quantile(quantile)?);
    Some(read.clamp(exact.min_ms, exact.max_ms))
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// An arm's figures over all its repeats, in the JSON contract's shape: counts are added up,
/// histograms merged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmFigures {
    /// Workers of all repeats.
    pub requests: u64,
    /// Those without a document.
    pub failed: u64,
    /// Mean number of requests under way: the sum of service times over the elapsed time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<f64>,
    /// Answered / all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<f64>,
    /// Response times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Distribution>,
    /// Service times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Distribution>,
    /// Send lags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_lag: Option<Distribution>,
    /// Requests by outcome.
    pub outcomes: Outcomes,
    /// Sizes of the answers.
    pub bytes_in: Bytes,
    /// Documents fetched from the source.
    pub source_loads: u64,
    /// Source loads / refill episodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amplification: Option<f64>,
    /// Hits / lookups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    /// Stores.
    pub stores: Stores,
    /// What the cache held.
    pub cache: Held,
    /// Requests that waited for another's load.
    pub waiters: u64,
    /// Documents to choose from.
    pub documents: usize,
    /// Different documents chosen, all repeats together.
    pub distinct_keys: usize,
    /// Median time until the last worker was done.
    pub finished_ms: f64,
    /// How often it was measured.
    pub repeats: usize,
}

/// A distribution's figures in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Distribution {
    pub min_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub mean_ms: f64,
}

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bytes {
    /// Of all answers.
    pub total: u64,
    /// Of one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
}

/// Stores by whether anybody waited for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Stores {
    pub sync: u64,
    #[serde(rename = "async")]
    pub later: u64,
}

/// The most that any of the repeats held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Entries at the end of a repeat.
    pub entries_max: usize,
    /// Bytes at any time, where they are limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<usize>,
}

impl Distribution {
    /// `exact` are the shortest and the longest, where they are known better than to three digits.
    fn of(histogram: &Histogram, exact: Option<(f64, f64)>) -> Option<Self> {
        let (min_ms, max_ms) = match exact {
            Some(exact) => exact,
            None => (milliseconds(histogram.min()?), milliseconds(histogram.max()?)),
        };
        let at = |quantile| Some(milliseconds(histogram.quantile(quantile)?).clamp(min_ms, max_ms));
        Some(Self {
            min_ms,
            p50_ms: at(0.50)?,
            p90_ms: at(0.90)?,
            p95_ms: at(0.95)?,
            p99_ms: at(0.99)?,
            p999_ms: at(0.999)?,
            max_ms,
            mean_ms: histogram.mean().map(milliseconds)?,
        })
    }
}

impl ArmFigures {
    /// Puts an arm's repeats together; `None` of none.
    #[must_use]
    pub fn of(results: &Results, test: &str, arm: &str) -> Option<Self> {
        let repeats = results.repeats(test, arm);
        let times = results.times(test, arm)?;
        let runs = || repeats.iter().map(|evidence| &evidence.run);
        let first = runs().next()?;
        let sum = |of: fn(&Run) -> u64| runs().map(of).sum::<u64>();
        let mut outcomes = Outcomes::default();
        runs().for_each(|run| outcomes += run.outcomes);
        let requests = outcomes.requests();
        let (bytes, loads) = (sum(|run| run.bytes_in), sum(|run| run.burst.calls.fetch_doc));
        let elapsed_ms: f64 = runs().map(|run| run.burst.finished_ms).sum();
        let service_ms: f64 = runs().map(|run| run.service_ms_sum).sum();
        let exact = runs().filter_map(|run| run.burst.times.as_ref());
        let exact =
            exact.map(|times| (times.min_ms, times.max_ms)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        Some(Self {
            requests,
            failed: outcomes.error,
            concurrency: (elapsed_ms > 0.0).then(|| service_ms / elapsed_ms),
            success: ratio(requests - outcomes.error, requests),
            response: Distribution::of(&times.response, exact),
            service: Distribution::of(&times.service, None),
            send_lag: Distribution::of(&times.send_lag, None),
            outcomes,
            bytes_in: Bytes { total: bytes, mean: ratio(bytes, requests) },
            source_loads: loads,
            amplification: ratio(loads, sum(|run| run.episodes)),
            hit_ratio: ratio(outcomes.hit, requests),
            stores: Stores {
                sync: sum(|run| run.burst.calls.store_local),
                later: sum(|run| run.burst.calls.store_local_async),
            },
            cache: Held {
                entries_max: runs().map(|run| run.cache.entries).max()?,
                bytes_max: runs().filter_map(|run| run.cache.bytes_max).max(),
            },
            waiters: sum(|run| run.burst.waiters as u64),
            documents: first.burst.documents,
            distinct_keys: runs().map(|run| run.burst.distinct_keys).sum(),
            finished_ms: median(runs().map(|run| run.burst.finished_ms))?,
            repeats: repeats.len(),
        })
    }
}

/// The middle figure, or the mean of the two in the middle; `None` of none.
#[must_use]
pub fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(figures[middle]),
        _ => Some(f64::midpoint(figures[middle - 1], figures[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = metrics().map(|metric| metric.name).collect();
        assert_eq!(names.len(), metrics().count());
        assert!(Metric::named("response.p999").is_some_and(|metric| metric.is_timing));
        assert!(Metric::named("stores.async").is_some_and(|metric| !metric.is_timing));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }
}
