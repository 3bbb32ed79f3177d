//! The comparison of a plan with a run of its [experiment](crate::experiment), cache by cache.
//!
//! ```text
//! prediction + measurement -- it is not the replay of the log --> not measured, with the reasons
//!                          -- else ------------------------------> differences
//! ```
//!
//! A run replays the log only if each of its requests was sent and answered as in the log, at its time, and each load took about as long
//! as the plan assumes. Whether a measurement counts never depends on how far it is from the prediction.

use std::{collections::BTreeMap, time::Duration};

use stockade_model::units::{format_count, format_duration};
use stockade_record::record::Verdict;

use crate::experiment::{Experiment, PredictedArm, TOLERANCE};

/// Of the shortest lifetime of a cache, requests may be late by this part, and responses may take so much longer than a load: of that many
/// requests another one may find a fresh response.
const LATE_SHARE: f64 = 0.05;
/// The same without lifetimes, which leaves the order of evictions.
const LATE_MAX: Duration = Duration::from_millis(100);
/// The share of requests that may have another answer than in the log. Each may change the figures by as much.
const UNEXPECTED_MAX: f64 = 0.001;
/// The remedy for requests and responses that are late.
const REMEDY: &str = "run it on a quiet machine, or slower with --verify-time";

/// The figures of one cache that was measured.
#[derive(Clone, Debug, Default)]
pub struct MeasuredArm {
    /// Requests that were sent.
    pub requests: u64,
    /// Hits / lookups, if known.
    pub hit_ratio: Option<f64>,
    /// Loads, if known.
    pub loads: Option<u64>,
    /// How late 1 % of the requests were sent, or later.
    pub send_lag_p99: Duration,
    /// How long 1 % of the requests took from there on, or longer.
    pub service_p99: Duration,
    /// Requests by status; 0: no response.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests without a response, by the reason.
    pub failures: BTreeMap<String, u64>,
    /// Loads that the proxy refused.
    pub loads_refused: u64,
    /// Why the run is invalid, by the judgement of the load generator.
    pub invalid: Vec<String>,
    /// The seconds that something else disturbed.
    pub disturbed: Option<String>,
}

/// All caches of a run.
#[derive(Clone, Debug)]
pub struct Verification {
    /// Requests to each cache.
    pub requests: u64,
    /// In the order of the experiment.
    pub arms: Vec<VerifiedArm>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct VerifiedArm {
    /// The name of its arm.
    pub name: &'static str,
    /// The cache, for people.
    pub cache: String,
    /// Hits of all lookups.
    pub hit_ratio: Option<Figure>,
    /// Loads of all requests.
    pub loads_per_request: Figure,
    /// Why it is not a measurement of the log, each with what to do; none: it counts.
    pub not_measured: Vec<String>,
    /// Facts of a measurement that counts.
    pub notes: Vec<String>,
}

/// A predicted share, and the measured one if the measurement counts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub struct Figure {
    pub predicted: f64,
    pub measured: Option<f64>,
}

impl Figure {
    /// Measured minus predicted.
    #[must_use]
    pub fn difference(self) -> Option<f64> {
        Some(self.measured? - self.predicted)
    }

    /// True if the measured figure is further from the predicted one than [`TOLERANCE`].
    #[must_use]
    pub fn is_off(self) -> bool {
        self.difference().is_some_and(|difference| difference.abs() > TOLERANCE)
    }
}

impl VerifiedArm {
    /// True if the measurement counts.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.not_measured.is_empty()
    }

    /// The figures with their names.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, Figure)> {
        let hit_ratio = self.hit_ratio.map(|figure| ("hit ratio", figure));
        hit_ratio.into_iter().chain([("loads per request", self.loads_per_request)])
    }
}

impl Verification {
    /// Judges each arm. `measured`: the arm of this name, `None` if it did not run to its end.
    #[must_use]
    pub fn of(experiment: &Experiment, measured: impl Fn(&str) -> Option<MeasuredArm>) -> Self {
        let arms = experiment.arms.iter().map(|arm| verify(experiment, arm, measured(arm.name)));
        Self { requests: experiment.requests_count, arms: arms.collect() }
    }

    /// The result for all.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let is_off = |arm: &VerifiedArm| arm.figures().any(|(_, figure)| figure.is_off());
        if self.arms.iter().any(is_off) {
            Verdict::Refuted
        } else if self.arms.iter().all(VerifiedArm::is_measured) {
            Verdict::Supported
        } else {
            Verdict::Invalid
        }
    }
}

fn verify(experiment: &Experiment, arm: &PredictedArm, measured: Option<MeasuredArm>) -> VerifiedArm {
    let mut notes = Vec::new();
    let not_measured = match &measured {
        None => vec!["the run ended before its end: run it again".to_owned()],
        Some(measured) => reasons(experiment, arm, measured, &mut notes),
    };
    let counts = measured.filter(|_| not_measured.is_empty());
    let per_request = |loads: u64| loads as f64 / experiment.requests_count as f64;
    VerifiedArm {
        name: arm.name,
        cache: arm.cache.clone(),
        hit_ratio: arm.hit_ratio.map(|predicted| Figure {
            predicted,
            measured: counts.as_ref().and_then(|measured| measured.hit_ratio),
        }),
        loads_per_request: Figure {
            predicted: per_request(arm.loads),
            measured: counts.as_ref().and_then(|measured| measured.loads).map(per_request),
        },
        not_measured,
        notes,
    }
}

/// The reasons against a measurement. Problems that do not matter go to the notes.
fn reasons(
    experiment: &Experiment,
    arm: &PredictedArm,
    measured: &MeasuredArm,
    notes: &mut Vec<String>,
) -> Vec<String> {
    let planned = experiment.requests_count;
    let mut reasons = Vec::new();
    if measured.requests != planned {
        reasons.push(format!(
            "{} of {} requests were sent: the replay ended early; run it again",
            format_count(measured.requests),
            format_count(planned)
        ));
    }
    reasons.extend(measured.invalid.iter().cloned());
    let late = late(experiment, arm, measured);
    match &measured.disturbed {
        Some(disturbed) if late.is_empty() => notes.push(disturbed.clone()),
        Some(disturbed) => reasons.extend(late.into_iter().map(|late| format!("{late}; {disturbed}"))),
        None => reasons.extend(late),
    }
    let refused = measured.loads_refused;
    if refused > 0 {
        reasons.push(format!(
            "the proxy refused {} loads, by a breaker or a bound: see its counters in the record",
            format_count(refused)
        ));
    }
    let unexpected = unexpected_answers(&experiment.statuses, measured);
    let count: u64 = unexpected.iter().map(|(_, count)| count).sum();
    if count > 0 {
        let kinds: Vec<String> =
            unexpected.iter().map(|(what, count)| format!("{} {what}", format_count(*count))).collect();
        let text = format!(
            "{} of {} requests had another answer than in the log: {}",
            format_count(count),
            format_count(planned),
            kinds.join(", ")
        );
        if count as f64 > UNEXPECTED_MAX * planned as f64 {
            reasons.push(format!("{text}; see the logs of proxy and origin in the record"));
        } else {
            notes.push(text);
        }
    }
    if measured.loads.is_none() || arm.hit_ratio.is_some() && measured.hit_ratio.is_none() {
        reasons.push("the proxy has not reported its counters: run it again".to_owned());
    }
    reasons
}

/// That requests were late, and that responses took too long.
fn late(experiment: &Experiment, arm: &PredictedArm, measured: &MeasuredArm) -> Vec<String> {
    let allowed = arm.shortest_lifetime.map_or(LATE_MAX, |ttl| ttl.mul_f64(LATE_SHARE).min(LATE_MAX));
    let of = arm
        .shortest_lifetime
        .map_or_else(String::new, |ttl| format!(" where responses are fresh for {}", format_duration(ttl)));
    let (lag, service, load) = (measured.send_lag_p99, measured.service_p99, experiment.latency);
    let [allowed_text, lag_text, service_text, load_text] =
        [allowed, lag, service, load].map(format_duration);
    let late = (lag > allowed).then(|| {
        format!("the load generator was {lag_text} late at p99, and {allowed_text} are allowed{of}: {REMEDY}")
    });
    let slow = (service > load + allowed).then(|| {
        format!(
            "responses took {service_text} at p99, and {allowed_text} more than a load of {load_text} are allowed{of}: {REMEDY}"
        )
    });
    late.into_iter().chain(slow).collect()
}

/// Answers beyond those that are expected, by kind.
fn unexpected_answers(expected: &BTreeMap<u16, u64>, measured: &MeasuredArm) -> Vec<(String, u64)> {
    let beyond = |status: u16, count: u64| count.saturating_sub(expected.get(&status).copied().unwrap_or(0));
    let with_status = measured.statuses.iter().filter(|(status, _)| **status > 0);
    let with_status = with_status
        .map(|(status, count)| (format!("with status {status}"), beyond(*status, *count)))
        .filter(|(_, count)| *count > 0);
    let failed = measured.failures.iter().map(|(class, count)| (format!("without one ({class})"), *count));
    with_status.chain(failed).collect()
}

#[cfg(test)]
mod tests;
