//! What a run leaves on disk: `record.json` and `intervals.jsonl`. Every report is a fold over them.
//!
//! The record stays small per second of run: no bodies, no line per request. Times are float
//! milliseconds; a figure that does not apply is absent, never 0.

mod http;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::http::{Holds, HttpFigures, Probe, Role, Tells, Usage};
use crate::{histogram::Histogram, outcome::Outcomes, seed::Seed};

/// The version of the format, written into every record.
pub const SCHEMA: &str = "stockade.record/1";

/// The whole of one `stockade run`: what was asked, where it ran, what happened, what it means.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// The experiment's title.
    pub experiment: String,
    /// Why it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The experiment file as it was read, so that the run can be repeated.
    pub spec: String,
    /// Where every random choice came from.
    pub seed: Seed,
    /// What `--scale` multiplied.
    pub scale: f64,
    /// The repeats asked for of each arm.
    pub repeats: u32,
    /// `live` or `virtual`.
    pub clock: Clock,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Version and commit of the Stockade that ran it.
    pub stockade: String,
    /// The machine.
    pub host: Host,
    /// How many measurements were to be made.
    pub planned: usize,
    /// Whether it ended before they were: stopped, failed, or killed.
    pub interrupted: bool,
    /// Every test in the file's order.
    pub tests: Vec<String>,
    /// Every arm in the file's order.
    pub arms: Vec<Arm>,
    /// Every measurement in the order in which they were made.
    pub runs: Vec<Run>,
    /// Figures published elsewhere, by metric, to stand beside ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// What became of each hypothesis.
    pub hypotheses: Vec<Hypothesis>,
    /// The worst of them.
    pub verdict: Verdict,
}

impl Record {
    /// Whether it was made by a part of the experiment, or by more than all of it.
    #[must_use]
    pub fn is_scaled(&self) -> bool {
        (self.scale - 1.0).abs() > f64::EPSILON
    }
}

/// Whose time a run lived by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Real time on this machine.
    Live,
    /// Virtual time: timings are computed, not measured.
    Virtual,
}

/// The machine that a run was measured on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The processor's name.
    pub cpu: String,
    /// Logical processors that the run could use.
    pub cores: usize,
    /// Installed memory, MiB.
    pub memory_mib: u64,
    /// Operating system and release.
    pub os: String,
}

/// One of the alternatives that an experiment compares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name in the file.
    pub name: String,
}

/// One measurement: one test, one arm, one repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The test, `""` where the experiment has none.
    pub test: String,
    /// The arm.
    pub arm: String,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// What the load was, and the figures that only such a load has.
    #[serde(flatten)]
    pub load: Load,
    /// The sum of the answered workers' whole milliseconds, as the published report of a burst adds
    /// them up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_ms_sum: Option<u64>,
    /// What the cache did for how many requests.
    pub outcomes: Outcomes,
    /// Bytes of all answers.
    pub bytes_in: u64,
    /// Service times of all requests, failed ones too, added up.
    pub service_ms_sum: f64,
    /// Stores skipped because another load had claimed the same entry version.
    pub stores_skipped: u64,
    /// Async stores dropped because the mailbox was full.
    pub stores_dropped: u64,
    /// Refill episodes: an episode opens at a key's first load and closes when an answer is
    /// published or its deadline passes.
    pub episodes: u64,
    /// What the cache held and refused.
    #[serde(default)]
    pub cache: CacheFigures,
    /// What the failed requests were told, and how many were.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// What only a run over HTTP has, whose parts are processes of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpFigures>,
}

impl Run {
    /// Whether it does not tell what it seems to tell.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.http.as_ref().is_some_and(|http| !http.invalid.is_empty())
    }
}

/// What a run's load was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Workers that ask for one document each, all at once.
    Burst(BurstFigures),
    /// Requests that come when they are due.
    Open(OpenFigures),
}

impl Load {
    /// The burst's figures, if it was one.
    #[must_use]
    pub fn burst(&self) -> Option<&BurstFigures> {
        match self {
            Self::Burst(burst) => Some(burst),
            Self::Open(_) => None,
        }
    }

    /// The open load's figures, if it was one.
    #[must_use]
    pub fn open(&self) -> Option<&OpenFigures> {
        match self {
            Self::Open(open) => Some(open),
            Self::Burst(_) => None,
        }
    }

    /// The shortest and the longest response time, where anybody was answered.
    #[must_use]
    pub fn response(&self) -> Option<Extremes> {
        match self {
            Self::Burst(burst) => {
                burst.times.as_ref().map(|times| Extremes { min_ms: times.min_ms, max_ms: times.max_ms })
            }
            Self::Open(open) => open.response,
        }
    }

    /// How many documents there were to choose from, where that is known.
    #[must_use]
    pub fn documents(&self) -> Option<usize> {
        match self {
            Self::Burst(burst) => Some(burst.documents),
            Self::Open(open) => open.documents,
        }
    }

    /// How many different documents were asked for, where that is known.
    #[must_use]
    pub fn distinct_keys(&self) -> Option<usize> {
        match self {
            Self::Burst(burst) => Some(burst.distinct_keys),
            Self::Open(open) => open.distinct_keys,
        }
    }

    /// From the start until the last request was done.
    #[must_use]
    pub fn finished_ms(&self) -> f64 {
        match self {
            Self::Burst(burst) => burst.finished_ms,
            Self::Open(open) => open.finished_ms,
        }
    }

    /// Calls that the strategy exists to save.
    #[must_use]
    pub fn calls(&self) -> Calls {
        match self {
            Self::Burst(burst) => burst.calls,
            Self::Open(open) => open.calls,
        }
    }

    /// Requests that waited for another's load, in vain or not.
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
    /// The strategy's name.
    pub strategy: String,
    /// The rates, and how long each was kept up: `60s at 425/s`.
    pub schedule: String,
    /// How long the load went on.
    pub duration_ms: f64,
    /// How many documents the requests could be for, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<usize>,
    /// How many different ones they were for, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_keys: Option<usize>,
    /// From the start until the last request was done.
    pub finished_ms: f64,
    /// Calls that the strategy exists to save.
    pub calls: Calls,
    /// Requests that waited for another's load, in vain or not.
    pub waiters: usize,
    /// The shortest and the longest response time, exact. Failed requests are in neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Extremes>,
    /// Attempts after the first, of all requests.
    pub retries: u64,
    /// Requests that were not sent: too many were under way.
    pub dropped: u64,
    /// The most requests under way at once.
    pub in_flight_max: usize,
    /// The most fetches inside the source at once, those in its queue included, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_concurrent_max: Option<usize>,
    /// Whether anything was served that should not have been, where every answer was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
}

/// The ends of a distribution, known better than a histogram tells them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extremes {
    /// The shortest.
    pub min_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// What an audit of every answer found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Answers older than the strategy may ever serve.
    pub too_old: u64,
    /// Answers of a version that had been invalidated before the request began.
    pub after_invalidation: u64,
    /// The age of the oldest answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_max_ms: Option<f64>,
}

/// What a cache held, and what its limits did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheFigures {
    /// Entries at the end of the run.
    pub entries: usize,
    /// The most bytes that its limit counted at any time, where it has one in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<usize>,
    /// Entries that left because others needed their room.
    pub evicted: u64,
    /// Entries that were invalidated.
    pub invalidated: u64,
    /// Values that the limit had no room for.
    pub stores_refused: u64,
    /// Loads that did not begin: the queue was full, or their deadline came while they were in it.
    pub loads_rejected: u64,
    /// Loads that did not begin because the breaker left the source alone.
    pub loads_refused: u64,
    /// Loads of what could still be answered with: early, by chance, while stale, or a breaker's probes.
    pub refreshes: u64,
}

impl CacheFigures {
    /// What it holds, and what it has counted since it had counted `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            entries: self.entries,
            bytes_max: self.bytes_max,
            evicted: self.evicted - before.evicted,
            invalidated: self.invalidated - before.invalidated,
            stores_refused: self.stores_refused - before.stores_refused,
            loads_rejected: self.loads_rejected - before.loads_rejected,
            loads_refused: self.loads_refused - before.loads_refused,
            refreshes: self.refreshes - before.refreshes,
        }
    }
}

/// A burst of workers against one strategy: the figures of the published Kazoo load test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstFigures {
    /// The strategy's name.
    pub strategy: String,
    /// How many workers asked for one document each.
    pub workers: usize,
    /// How many documents they could choose from.
    pub documents: usize,
    /// How many different documents they chose.
    pub distinct_keys: usize,
    /// From the start until the last worker was done.
    pub finished_ms: f64,
    /// The workers' response times. Failed workers are in none of these.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub times: Option<BurstTimes>,
    /// Calls that the strategy exists to save.
    pub calls: Calls,
    /// Workers that got no document.
    pub failed: usize,
    /// Workers that waited for another's load, in vain or not.
    pub waiters: usize,
    /// With a barrier: from its opening until the last held load had passed it; without one, from
    /// the first worker's start to the last one's.
    pub start_skew_ms: f64,
}

/// Response times of the workers that got their document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstTimes {
    /// The shortest.
    pub min_ms: f64,
    /// The mean.
    pub mean_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// All of them together.
    pub sum_ms: f64,
    /// By nearest rank, exact: 50, 75, 90, 95 and 99.
    pub percentiles: Percentiles,
}

/// Nearest-rank percentiles in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half take no longer.
    #[serde(rename = "50")]
    pub p50: f64,
    /// Three quarters take no longer.
    #[serde(rename = "75")]
    pub p75: f64,
    /// Nine tenths take no longer.
    #[serde(rename = "90")]
    pub p90: f64,
    /// 95 % take no longer.
    #[serde(rename = "95")]
    pub p95: f64,
    /// 99 % take no longer.
    #[serde(rename = "99")]
    pub p99: f64,
}

/// Calls to the source and messages to the cache's writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Documents fetched from the source, counted at its door.
    pub fetch_doc: u64,
    /// Stores that were waited for.
    pub store_local: u64,
    /// Stores that nobody waited for.
    pub store_local_async: u64,
}

/// One second of one run: a line of `intervals.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The run's test.
    pub test: String,
    /// The run's arm.
    pub arm: String,
    /// The run's repeat.
    pub repeat: u32,
    /// Seconds since the load began; requests count where they finish.
    pub second: u64,
    /// What the cache did for how many requests.
    pub outcomes: Outcomes,
    /// Fetches that came to the source's door. Only of open loads, as the next three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_loads: Option<u64>,
    /// Attempts after a request's first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// Requests that were due and not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// The age of the oldest answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_max_ms: Option<f64>,
    /// What the processes used. Only of runs over HTTP, as the next.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<Role, Usage>,
    /// What the cache held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Holds>,
    /// How long they took.
    #[serde(flatten)]
    pub times: Times,
}

/// Distributions of requests' times: of a second, a run or an arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Finished - scheduled, of answered requests.
    pub response: Histogram,
    /// Finished - started, of answered requests.
    pub service: Histogram,
    /// Started - scheduled, of all requests.
    pub send_lag: Histogram,
}

impl Times {
    /// Adds all that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.send_lag.merge(&other.send_lag);
    }
}

/// Figures published elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Who published them, when, on what machine.
    pub source: String,
    /// By metric path: milliseconds for times, else the number.
    pub figures: BTreeMap<String, f64>,
}

/// A claim and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hypothesis {
    /// The claim in words.
    pub text: String,
    /// The worst of its expectations.
    pub verdict: Verdict,
    /// What has to hold for it.
    pub expect: Vec<Expectation>,
}

/// One comparison and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// As written in the file.
    pub expr: String,
    /// The left side where it failed, or else where it was last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<f64>,
    /// The right side there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<f64>,
    /// What became of it.
    pub verdict: Verdict,
    /// Where and how often it held, or why nothing can be said.
    pub reason: String,
}

/// What the evidence says of a claim, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The evidence is for it.
    Supported,
    /// The evidence is not enough.
    Inconclusive,
    /// The evidence is against it.
    Refuted,
    /// The run cannot be evidence.
    Invalid,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Supported => "supported",
            Self::Inconclusive => "inconclusive",
            Self::Refuted => "refuted",
            Self::Invalid => "invalid",
        })
    }
}
