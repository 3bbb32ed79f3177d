//! The files of a run: `record.json` and `intervals.jsonl`. Each report is a fold over them.
//!
//! Size per second of a run is small: no bodies, no line for each request. Times are milliseconds as floats. A figure
//! that does not apply is absent, never 0.

mod accounting;
mod agents;
mod audit;
mod http;

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use stockade_model::{outcome::Outcomes, seed::Seed};

pub use self::{
    accounting::{Accounting, ThreadShares},
    agents::{AgentClockFigures, AgentFigures, AgentReport, ShareMoveFigures},
    audit::{Audit, Example, Violation},
    http::{CacheContents, Disturbance, HttpFigures, ProbeFigures, Role, StatsProvider, Usage},
};
use crate::histogram::Histogram;

/// The version of the format. Each record contains it.
pub const SCHEMA: &str = "stockade.record/1";

/// The record of one `stockade run`: its input, its machine, its measurements and its verdicts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// The title of the experiment.
    pub experiment: String,
    /// The reason for the experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The text of the experiment file, so that the run can be repeated.
    pub spec: String,
    pub seed: Seed,
    /// The value of `--scale`.
    pub scale: f64,
    /// The requested repeats of each arm.
    pub repeats: u32,
    pub clock: ClockKind,
    /// In RFC 3339.
    pub started_at: String,
    /// Version and commit of Stockade.
    pub stockade: String,
    /// The commit of the repository that the experiment file is in, with `-dirty` if files differ from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    pub host: Host,
    /// The number of measurements that the experiment plans.
    pub planned: usize,
    /// True if the run was stopped, failed or was killed before its last measurement.
    pub interrupted: bool,
    /// True while the run goes on. Not stored: the reader of a record finds out.
    #[serde(skip)]
    pub in_progress: bool,
    /// The claim that could not hold any more and so ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<String>,
    /// In the order of the file.
    pub tests: Vec<String>,
    /// In the order of the file.
    pub arms: Vec<Arm>,
    /// The arm that repeats another one, so that the machine's own differences are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseArm>,
    /// In the order of the measurements.
    pub runs: Vec<Run>,
    /// When comparisons of times were judged; empty: once, after the last repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<Look>,
    /// Published figures to compare with, by metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    pub hypotheses: Vec<Hypothesis>,
    /// The worst verdict of the hypotheses.
    pub verdict: Verdict,
}

impl Record {
    /// True if the run measured a part of the experiment, or more than the whole of it.
    #[must_use]
    pub fn is_scaled(&self) -> bool {
        (self.scale - 1.0).abs() > f64::EPSILON
    }

    /// The figures of the machines that sent its loads; none if this machine sent all.
    pub fn agents(&self) -> impl Iterator<Item = &AgentFigures> {
        self.runs.iter().filter_map(|run| run.http.as_ref()).flat_map(|http| &http.agents)
    }

    /// The agents that ran servers, by role.
    #[must_use]
    pub fn servers(&self) -> BTreeMap<Role, &str> {
        let of_runs = self.runs.iter().filter_map(|run| run.http.as_ref()).flat_map(|http| &http.servers);
        of_runs.map(|(role, name)| (*role, name.as_str())).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockKind {
    Live,
    /// Timings are computed, not measured.
    Virtual,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub cpu: String,
    /// Logical processors that the run could use.
    pub cores: usize,
    /// Installed memory.
    pub memory_mib: u64,
    /// Name and release.
    pub os: String,
}

/// An arm that is measured twice (an A/A test).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoiseArm {
    /// The name of the second one.
    pub arm: String,
    /// The name of the first one.
    pub of: String,
}

/// A moment of a run at which its comparisons of times were judged. A verdict of an earlier look stays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Completed repeats.
    pub repeats: u32,
    /// The probability of any false verdict at this look, above 0 and below 1.
    pub error_rate: f64,
}

/// One of the alternatives that an experiment compares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    pub name: String,
    /// Its `[cache]` in TOML, without secrets, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
}

/// One measurement: one test, one arm, one repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// `""` if the experiment has no tests.
    pub test: String,
    pub arm: String,
    /// From 1.
    pub repeat: u32,
    /// The kind of load and its figures.
    #[serde(flatten)]
    pub load: LoadFigures,
    /// The sum of the successful workers' response times, each rounded down to a millisecond, as in the published report
    /// of a burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_ms_sum: Option<u64>,
    /// The number of requests for each outcome.
    pub outcomes: Outcomes,
    /// Bytes of all response bodies.
    pub bytes_in: u64,
    /// The sum of the service times of all requests, including failed ones.
    pub service_ms_sum: f64,
    /// Stores skipped because another load had claimed the same entry version.
    pub stores_skipped: u64,
    /// Async stores dropped because the mailbox was full.
    pub stores_dropped: u64,
    /// Refill episodes: an episode opens at a key's first load and closes when an answer is
    /// published or its deadline passes.
    pub episodes: u64,
    #[serde(default)]
    pub cache: CacheFigures,
    /// Every gauge of the cache, and every counter above 0, by the name of its field; empty if the cache does not report
    /// them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<Cow<'static, str>, f64>,
    /// The number of failed requests for each error message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// The behavior of the origin from the start of the load on, if it changes; in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<OriginStage>,
    /// The events of its load, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventFigures>,
    /// Figures of a run over HTTP, with a process for each part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpFigures>,
}

/// The behavior of an origin until its next stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OriginStage {
    /// Start, since that of the load.
    pub at_ms: f64,
    /// In words: `latency 1000ms, errors 50%`.
    pub behavior: String,
}

/// Something that a run did to one of its parts during a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventFigures {
    /// Its begin, since the start of the load.
    pub at_ms: f64,
    pub took_ms: f64,
    /// As in the experiment: `restart cache`, `purge PURGE /page`.
    pub event: String,
    /// Why it failed; absent: it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Run {
    /// True if its times are not valid evidence.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.http.as_ref().is_some_and(|http| !http.invalid.is_empty())
    }

    /// True if its counts are not valid evidence either: a late generator changes times, and not counts.
    #[must_use]
    pub fn has_invalid_counts(&self) -> bool {
        self.http.as_ref().is_some_and(|http| http.has_invalid_counts)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadFigures {
    /// Workers that start at once and request one document each.
    Burst(BurstFigures),
    /// Any other load: requests on a schedule, or closed loops.
    Open(OpenFigures),
}

impl LoadFigures {
    #[must_use]
    pub fn burst(&self) -> Option<&BurstFigures> {
        match self {
            Self::Burst(burst) => Some(burst),
            Self::Open(_) => None,
        }
    }

    /// How long requests are due; `None`: all at once.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        self.open().map(|open| Duration::from_secs_f64(open.duration_ms.max(0.0) / 1e3))
    }

    #[must_use]
    pub fn open(&self) -> Option<&OpenFigures> {
        match self {
            Self::Open(open) => Some(open),
            Self::Burst(_) => None,
        }
    }

    /// The shortest and the longest response time, if a request succeeded.
    #[must_use]
    pub fn response(&self) -> Option<Extremes> {
        match self {
            Self::Burst(burst) => {
                burst.times.as_ref().map(|times| Extremes { min_ms: times.min_ms, max_ms: times.max_ms })
            }
            Self::Open(open) => open.response,
        }
    }

    /// The number of documents that the load chose from, if known.
    #[must_use]
    pub fn documents(&self) -> Option<usize> {
        match self {
            Self::Burst(burst) => Some(burst.documents),
            Self::Open(open) => open.documents,
        }
    }

    /// The number of distinct documents that were requested, if known.
    #[must_use]
    pub fn distinct_keys(&self) -> Option<usize> {
        match self {
            Self::Burst(burst) => Some(burst.distinct_keys),
            Self::Open(open) => open.distinct_keys,
        }
    }

    /// Time from the start to the end of the last request.
    #[must_use]
    pub fn finished_ms(&self) -> f64 {
        match self {
            Self::Burst(burst) => burst.finished_ms,
            Self::Open(open) => open.finished_ms,
        }
    }

    /// Calls that a strategy is meant to reduce.
    #[must_use]
    pub fn calls(&self) -> Calls {
        match self {
            Self::Burst(burst) => burst.calls,
            Self::Open(open) => open.calls,
        }
    }

    /// Requests that waited for another request's load, also if that load failed.
    #[must_use]
    pub fn waiters(&self) -> usize {
        match self {
            Self::Burst(burst) => burst.waiters,
            Self::Open(open) => open.waiters,
        }
    }
}

/// An open load against one strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenFigures {
    pub strategy: String,
    /// The rates and their durations: `60s at 425/s`.
    pub schedule: String,
    /// The duration of the load.
    pub duration_ms: f64,
    /// The number of documents that the load chose from, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<usize>,
    /// The number of distinct documents that were requested, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_keys: Option<usize>,
    /// Time from the start to the end of the last request.
    pub finished_ms: f64,
    /// Calls that a strategy is meant to reduce.
    pub calls: Calls,
    /// Requests that waited for another request's load, also if that load failed.
    pub waiters: usize,
    /// Exact response times. Failed requests are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Extremes>,
    /// Attempts after the first, of all requests.
    pub retries: u64,
    /// Requests that were not sent because too many were in flight.
    pub dropped: u64,
    /// The peak of requests in flight.
    pub in_flight_max: usize,
    /// The peak of fetches inside the source, including its queue, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_concurrent_max: Option<usize>,
    /// False answers, if all answers were audited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
}

/// The exact ends of a distribution; a histogram knows them to three digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extremes {
    pub min_ms: f64,
    pub max_ms: f64,
}

/// The state of a cache and the counters of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheFigures {
    /// Entries at the end of the run.
    pub entries: usize,
    /// The peak of bytes, if the cache has a limit in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<usize>,
    /// Entries removed to make room for others.
    pub evicted: u64,
    pub invalidated: u64,
    /// Values that did not fit into the limit.
    pub stores_refused: u64,
    /// Loads that did not start: the queue was full, or their deadline passed in the queue.
    pub loads_rejected: u64,
    /// Loads that did not start because the breaker was open.
    pub loads_refused: u64,
    /// Loads of entries that could still be served: early, by chance, while stale, or as a breaker's probe.
    pub refreshes: u64,
}

/// A burst of workers against one strategy: the figures of the published Kazoo load test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstFigures {
    pub strategy: String,
    /// The number of workers. Each requests one document.
    pub workers: usize,
    /// The number of documents that the workers chose from.
    pub documents: usize,
    /// The number of distinct documents that were requested.
    pub distinct_keys: usize,
    /// Time from the start to the end of the last worker.
    pub finished_ms: f64,
    /// Response times. Failed workers are not counted.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub times: Option<BurstTimes>,
    /// Calls that a strategy is meant to reduce.
    pub calls: Calls,
    /// Workers without a document.
    pub failed: usize,
    /// Workers that waited for another worker's load, also if that load failed.
    pub waiters: usize,
    /// With a barrier: time from its opening until the last held load has passed it. Without a barrier: time between the
    /// starts of the first and the last worker.
    pub start_skew_ms: f64,
}

/// Response times of the successful workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstTimes {
    pub min_ms: f64,
    pub mean_ms: f64,
    pub max_ms: f64,
    pub sum_ms: f64,
    /// Exact, by nearest rank: 50, 75, 90, 95 and 99.
    pub percentiles: Percentiles,
}

/// Nearest-rank percentiles in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    #[serde(rename = "50")]
    pub p50: f64,
    #[serde(rename = "75")]
    pub p75: f64,
    #[serde(rename = "90")]
    pub p90: f64,
    #[serde(rename = "95")]
    pub p95: f64,
    #[serde(rename = "99")]
    pub p99: f64,
}

/// Calls to the source and messages to the cache's writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Fetches, counted on arrival at the source.
    pub fetch_doc: u64,
    /// Synchronous stores.
    pub store_local: u64,
    /// Stores without a waiting request.
    pub store_local_async: u64,
}

/// One second of one run: a line of `intervals.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub test: String,
    pub arm: String,
    pub repeat: u32,
    /// Seconds since the start of the load. A request counts in the second of its end.
    pub second: u64,
    /// The number of requests for each outcome.
    pub outcomes: Outcomes,
    /// Fetches that arrived at the source. This field and the next three are present only for open loads: `dropped` for all of them, this
    /// one where the source is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_loads: Option<u64>,
    /// Attempts after a request's first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// Requests that were due and not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// The age of the oldest response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_max_ms: Option<f64>,
    /// Resources of each process. This field and the next one are present only for runs over HTTP.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<Role, Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<CacheContents>,
    /// Requests by status; 0: no response. Over HTTP.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub status_codes: BTreeMap<u16, u64>,
    /// Failed requests by their failure, such as `connection refused`, or by their status. Over HTTP.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// Present if it was large enough to change the times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<Disturbance>,
    #[serde(flatten)]
    pub times: Times,
}

/// Distributions of request times in a second, a run or an arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// `finished - scheduled` of successful requests.
    pub response: Histogram,
    /// `finished - started` of successful requests.
    pub service: Histogram,
    /// `started - scheduled` of all requests.
    pub send_lag: Histogram,
}

impl Times {
    pub fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.send_lag.merge(&other.send_lag);
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Author, date and machine.
    pub source: String,
    /// By metric path: milliseconds for times, else the number.
    pub figures: BTreeMap<String, f64>,
}

/// A claim and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hypothesis {
    pub text: String,
    /// The worst verdict of its expectations.
    pub verdict: Verdict,
    pub expect: Vec<Expectation>,
}

/// A comparison and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// As written in the file.
    pub expr: String,
    /// The left side at the first failure, or at the last evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<f64>,
    /// The right side at the same place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<f64>,
    pub verdict: Verdict,
    /// Of a comparison of times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Place and number of the passes, or the reason for an inconclusive verdict.
    pub reason: String,
}

/// How many times as large the left side of a comparison is as the right side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The geometric mean of the repeats.
    pub ratio: f64,
    /// The interval of the ratio.
    pub low: f64,
    pub high: f64,
    /// The share of such intervals that contain the ratio, above 0 and below 1.
    pub level: f64,
    /// Repeats with a valid figure.
    pub repeats: u32,
    /// True if it rests on an assumed spread between runs, and not on that of the repeats.
    pub is_assumed: bool,
    /// The repeats that would decide the comparison, if its verdict is open and the number is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats_to_decide: Option<u32>,
}

/// The verdict on a claim. Of several, the last in this order counts: a counterexample refutes, whatever else is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The claim is about the whole experiment, and the run is scaled.
    #[serde(rename = "not_judged")]
    NotJudged,
    /// The evidence supports the claim.
    Supported,
    /// The evidence is insufficient.
    Inconclusive,
    /// The run is not valid evidence.
    Invalid,
    /// The evidence contradicts the claim.
    Refuted,
}

impl Verdict {
    /// The worst of several verdicts; `Supported` without a verdict.
    #[must_use]
    pub fn worst(verdicts: impl Iterator<Item = Self>) -> Self {
        verdicts.max().unwrap_or(Self::Supported)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::NotJudged => "not judged",
            Self::Supported => "supported",
            Self::Inconclusive => "inconclusive",
            Self::Refuted => "refuted",
            Self::Invalid => "invalid",
        })
    }
}
