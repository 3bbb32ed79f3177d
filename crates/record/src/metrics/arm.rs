//! The figures of an arm over all its repeats.

use std::collections::BTreeMap;

use crate::{
    histogram::{Distribution, Histogram},
    record::{Audit, LoadFigures, OpenFigures, Role, Run},
};
use serde::Serialize;
use stockade_model::{
    outcome::Outcomes,
    units::{ByteFigures, milliseconds, ratio},
};

use super::{Evidence, Metric, Results, median, results::is_known, sent_while_due};

/// The figures of an arm over all its repeats, in the shape of the JSON contract: counts are added,
/// histograms merged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmFigures {
    pub requests: u64,
    /// Requests without a document.
    pub failed: u64,
    /// Requests per second of the schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub achieved_rate_per_s: Option<f64>,
    /// Mean number of requests in flight: the sum of service times over the elapsed time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<f64>,
    /// Answered requests / all requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_lag: Option<Distribution>,
    /// Requests by outcome, if the target reports outcomes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<Outcomes>,
    /// Sizes of responses.
    pub bytes_in: ByteFigures,
    /// Documents fetched from the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_loads: Option<u64>,
    /// Source loads / refill episodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amplification: Option<f64>,
    /// Source loads / requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads_per_request: Option<f64>,
    /// 1 - source loads / requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<f64>,
    /// Figures of open loads only.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenTotals>,
    /// Hits / lookups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stores: Option<Stores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<HeldFigures>,
    /// Requests that waited for another's load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiters: Option<u64>,
    /// Requests by HTTP status; 0: no response.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub status_codes: BTreeMap<u16, u64>,
    /// Resident memory of processes in MiB, over HTTP.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rss_mib: BTreeMap<Role, Rss>,
    /// Processor time of processes in cores, over HTTP.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu: BTreeMap<Role, Cpu>,
    /// Documents to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documents: Option<usize>,
    /// Distinct documents chosen. Bursts draw anew in each repeat: the sum. Open loads repeat their keys: the maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct_keys: Option<usize>,
    /// Median time until the last worker finished.
    pub finished_ms: f64,
    pub repeats: usize,
}

/// Figures of open loads only: counts are added, the maximum is that of any repeat.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpenTotals {
    /// Attempts after a request's first.
    pub retries: u64,
    /// Requests that were due and not sent.
    pub dropped: u64,
    /// Requests in flight at once, at most.
    pub in_flight_max: usize,
    /// Fetches inside the source at once, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_concurrent_max: Option<usize>,
    /// False answers of all repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
}

/// Resident memory in MiB: the maximum of all repeats, and the end of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub struct Rss {
    pub max: f64,
    pub last: f64,
}

/// Processor time in cores: the mean of all repeats, and the maximum of any second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub struct Cpu {
    pub mean: f64,
    pub max: f64,
}

/// Stores by whether a request waited for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub struct Stores {
    pub sync: u64,
    #[serde(rename = "async")]
    pub later: u64,
}

/// The maximum over the repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HeldFigures {
    /// Entries at the end of a repeat.
    pub entries_max: usize,
    /// Bytes at any time, if they are limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<usize>,
}

/// A service time never exceeds the response time: rounding to three digits must not claim that it does.
fn service_exact(service: &Histogram, response: Option<(f64, f64)>) -> Option<(f64, f64)> {
    let (_, most_ms) = response?;
    let at_most = |time| milliseconds(time).min(most_ms);
    Some((at_most(service.min()?), at_most(service.max()?)))
}

impl ArmFigures {
    /// Merges the repeats of an arm; `None` without a repeat.
    #[must_use]
    pub fn of(results: &Results, test: &str, arm: &str) -> Option<Self> {
        let repeats = results.repeats(test, arm);
        let times = results.times(test, arm)?;
        let runs = || repeats.iter().map(|evidence| &evidence.run);
        let first = runs().next()?;
        let sum = |of: fn(&Run) -> u64| runs().map(of).sum::<u64>();
        // A metric that is unknown for a run is absent here, too.
        let is_known = |metric: &str| runs().all(|run| is_known(run, metric));
        let mut outcomes = Outcomes::default();
        runs().for_each(|run| outcomes += run.outcomes);
        let requests = outcomes.requests();
        let (bytes, loads) = (sum(|run| run.bytes_in), sum(|run| run.load.calls().fetch_doc));
        let elapsed_ms: f64 = runs().map(|run| run.load.finished_ms()).sum();
        let due_ms: f64 = runs().filter_map(|run| Some(run.load.open()?.duration_ms)).sum();
        let service_ms: f64 = runs().map(|run| run.service_ms_sum).sum();
        let exact = runs().filter_map(|run| run.load.response());
        let exact =
            exact.map(|times| (times.min_ms, times.max_ms)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        Some(Self {
            requests,
            failed: outcomes.error,
            achieved_rate_per_s: (due_ms > 0.0).then(|| sum(sent_while_due) as f64 / due_ms * 1e3),
            concurrency: (elapsed_ms > 0.0).then(|| service_ms / elapsed_ms),
            success: ratio(requests - outcomes.error, requests),
            response: Distribution::of(&times.response, exact),
            service: Distribution::of(&times.service, service_exact(&times.service, exact)),
            send_lag: Distribution::of(&times.send_lag, None),
            outcomes: is_known("outcomes.hit").then_some(outcomes),
            bytes_in: ByteFigures::of(bytes, requests),
            source_loads: is_known("source_loads").then_some(loads),
            amplification: ratio(loads, sum(|run| run.episodes)).filter(|_| is_known("amplification")),
            loads_per_request: ratio(loads, requests).filter(|_| is_known("loads_per_request")),
            offload: ratio(loads, requests).map(|loads| 1.0 - loads).filter(|_| is_known("offload")),
            open: runs().filter_map(|run| run.load.open()).map(OpenTotals::of).reduce(OpenTotals::with),
            hit_ratio: outcomes.hit_ratio().filter(|_| is_known("hit_ratio")),
            stores: is_known("stores.sync").then(|| Stores {
                sync: sum(|run| run.load.calls().store_local),
                later: sum(|run| run.load.calls().store_local_async),
            }),
            cache: is_known("cache.entries").then_some(HeldFigures {
                entries_max: runs().map(|run| run.cache.entries).max()?,
                bytes_max: runs().filter_map(|run| run.cache.bytes_max).max(),
            }),
            waiters: is_known("waiters").then(|| sum(|run| run.load.waiters() as u64)),
            status_codes: status_codes(runs()),
            rss_mib: of_roles(|role| {
                let max = figures(&repeats, role, "rss.max").reduce(f64::max)?;
                Some(Rss { max, last: figures(&repeats, role, "rss.last").last()? })
            }),
            cpu: of_roles(|role| {
                let means: Vec<f64> = figures(&repeats, role, "cpu.mean").collect();
                let max = figures(&repeats, role, "cpu.max").reduce(f64::max)?;
                Some(Cpu { mean: means.iter().sum::<f64>() / means.len() as f64, max })
            }),
            documents: first.load.documents(),
            distinct_keys: match first.load {
                LoadFigures::Burst(_) => runs().map(|run| run.load.distinct_keys()).sum(),
                LoadFigures::Open(_) => runs().map(|run| run.load.distinct_keys()).max()?,
            },
            finished_ms: median(runs().map(|run| run.load.finished_ms()))?,
            repeats: repeats.len(),
        })
    }
}

fn status_codes<'a>(runs: impl Iterator<Item = &'a Run>) -> BTreeMap<u16, u64> {
    let mut all = BTreeMap::new();
    for (status, count) in runs.filter_map(|run| run.http.as_ref()).flat_map(|http| &http.status_codes) {
        *all.entry(*status).or_default() += count;
    }
    all
}

fn of_roles<T>(of: impl Fn(Role) -> Option<T>) -> BTreeMap<Role, T> {
    Role::ALL.into_iter().filter_map(|role| Some((role, of(role)?))).collect()
}

/// The figure of a process in each repeat.
fn figures<'a>(repeats: &'a [&Evidence], role: Role, what: &str) -> impl Iterator<Item = f64> + 'a {
    let metric = Metric::named(&format!("{}.{what}", role.name()));
    repeats.iter().filter_map(move |evidence| evidence.figure(metric?, None))
}

impl OpenTotals {
    fn of(open: &OpenFigures) -> Self {
        Self {
            retries: open.retries,
            dropped: open.dropped,
            in_flight_max: open.in_flight_max,
            source_concurrent_max: open.source_concurrent_max,
            audit: open.audit.clone(),
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            retries: self.retries + other.retries,
            dropped: self.dropped + other.dropped,
            in_flight_max: self.in_flight_max.max(other.in_flight_max),
            source_concurrent_max: self.source_concurrent_max.max(other.source_concurrent_max),
            audit: self.audit.into_iter().chain(other.audit).reduce(|a, b| a.with(&b)),
        }
    }
}
