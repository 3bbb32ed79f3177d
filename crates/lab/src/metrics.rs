//! What can be said of a run: the registry of metrics, and the figures of an arm.

use std::collections::BTreeMap;

use serde::Serialize;
use stockade_model::{
    histogram::Histogram,
    outcome::Outcomes,
    record::{Interval, Record, Run},
    units::milliseconds,
};

/// A run with the distributions of its seconds put together.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The run.
    pub run: Run,
    /// Its times.
    pub times: Times,
}

/// Distributions of a run's or an arm's times.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Finished - scheduled, of the answered.
    pub response: Histogram,
    /// Finished - started, of the answered.
    pub service: Histogram,
    /// Started - scheduled, of all.
    pub send_lag: Histogram,
}

impl Times {
    fn merge(&mut self, response: &Histogram, service: &Histogram, send_lag: &Histogram) {
        self.response.merge(response);
        self.service.merge(service);
        self.send_lag.merge(send_lag);
    }
}

impl Evidence {
    /// The runs of a record, each with its intervals.
    #[must_use]
    pub fn of(record: &Record, intervals: &[Interval]) -> Vec<Self> {
        let mut times: BTreeMap<(&str, &str, u32), Times> = BTreeMap::new();
        for interval in intervals {
            let of_run = times.entry((&interval.test, &interval.arm, interval.repeat)).or_default();
            of_run.merge(&interval.response, &interval.service, &interval.send_lag);
        }
        let with_times = |run: &Run| {
            let times = times.get(&(run.test.as_str(), run.arm.as_str(), run.repeat)).cloned();
            Self { run: run.clone(), times: times.unwrap_or_default() }
        };
        record.runs.iter().map(with_times).collect()
    }
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
    figure: fn(&Evidence) -> Option<f64>,
}

impl Metric {
    /// The metric with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// Its figure in one run; `None` where it does not apply.
    #[must_use]
    pub fn figure(&self, evidence: &Evidence) -> Option<f64> {
        (self.figure)(evidence)
    }
}

const fn count(name: &'static str, figure: fn(&Evidence) -> Option<f64>) -> Metric {
    Metric { name, unit: Unit::Number, is_timing: false, figure }
}

const fn timing(name: &'static str, figure: fn(&Evidence) -> Option<f64>) -> Metric {
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

const COUNTS: [Metric; 18] = [
    count("requests", |e| Some(e.run.outcomes.requests() as f64)),
    count("failed", |e| Some(e.run.burst.failed as f64)),
    count("success", |e| ratio(e.run.outcomes.requests() - e.run.outcomes.error, e.run.outcomes.requests())),
    count("outcomes.hit", |e| Some(e.run.outcomes.hit as f64)),
    count("outcomes.miss", |e| Some(e.run.outcomes.miss as f64)),
    count("outcomes.coalesced", |e| Some(e.run.outcomes.coalesced as f64)),
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
    count("waiters", |e| Some(e.run.burst.waiters as f64)),
    count("documents", |e| Some(e.run.burst.documents as f64)),
    count("distinct_keys", |e| Some(e.run.burst.distinct_keys as f64)),
];
const SPANS: [Metric; 2] = [
    timing("finished", |e| Some(e.run.burst.finished_ms)),
    timing("start_skew", |e| Some(e.run.burst.start_skew_ms)),
];
const RESPONSE: [Metric; 9] = distribution!("response", response);
const SERVICE: [Metric; 9] = distribution!("service", service);
const SEND_LAG: [Metric; 9] = distribution!("send_lag", send_lag);

/// Every metric.
pub static METRICS: [Metric; 47] = {
    let mut all = [COUNTS[0]; 47];
    let mut next = 0;
    let groups: [&[Metric]; 5] = [&COUNTS, &SPANS, &RESPONSE, &SERVICE, &SEND_LAG];
    let mut group = 0;
    while group < groups.len() {
        let mut i = 0;
        while i < groups[group].len() {
            all[next] = groups[group][i];
            next += 1;
            i += 1;
        }
        group += 1;
    }
    all
};

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
    /// Requests that another's load answered.
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

impl Distribution {
    fn of(histogram: &Histogram) -> Option<Self> {
        let at = |quantile| histogram.quantile(quantile).map(milliseconds);
        Some(Self {
            min_ms: histogram.min().map(milliseconds)?,
            p50_ms: at(0.50)?,
            p90_ms: at(0.90)?,
            p95_ms: at(0.95)?,
            p99_ms: at(0.99)?,
            p999_ms: at(0.999)?,
            max_ms: histogram.max().map(milliseconds)?,
            mean_ms: histogram.mean().map(milliseconds)?,
        })
    }
}

impl ArmFigures {
    /// Puts an arm's repeats together; `None` of none.
    #[must_use]
    pub fn of(repeats: &[&Evidence]) -> Option<Self> {
        let first = repeats.first()?;
        let sum = |of: fn(&Run) -> u64| repeats.iter().map(|evidence| of(&evidence.run)).sum::<u64>();
        let mut outcomes = Outcomes::default();
        let mut times = Times::default();
        for evidence in repeats {
            outcomes += evidence.run.outcomes;
            times.merge(&evidence.times.response, &evidence.times.service, &evidence.times.send_lag);
        }
        let requests = outcomes.requests();
        let (bytes, loads) = (sum(|run| run.bytes_in), sum(|run| run.burst.calls.fetch_doc));
        let elapsed_ms: f64 = repeats.iter().map(|evidence| evidence.run.burst.finished_ms).sum();
        let service_ms = times.service.mean().map(|mean| milliseconds(mean) * times.service.count() as f64);
        Some(Self {
            requests,
            failed: outcomes.error,
            concurrency: service_ms.filter(|_| elapsed_ms > 0.0).map(|service_ms| service_ms / elapsed_ms),
            success: ratio(requests - outcomes.error, requests),
            response: Distribution::of(&times.response),
            service: Distribution::of(&times.service),
            send_lag: Distribution::of(&times.send_lag),
            outcomes,
            bytes_in: Bytes { total: bytes, mean: ratio(bytes, requests) },
            source_loads: loads,
            amplification: ratio(loads, sum(|run| run.episodes)),
            hit_ratio: ratio(outcomes.hit, requests),
            stores: Stores {
                sync: sum(|run| run.burst.calls.store_local),
                later: sum(|run| run.burst.calls.store_local_async),
            },
            waiters: outcomes.coalesced,
            documents: first.run.burst.documents,
            distinct_keys: repeats.iter().map(|evidence| evidence.run.burst.distinct_keys).sum(),
            finished_ms: median(repeats.iter().map(|evidence| evidence.run.burst.finished_ms))?,
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
        let names: std::collections::BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
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
