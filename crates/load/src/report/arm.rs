//! The figures of a run that Vegeta does not know, in the JSON contract's shape: what does not apply
//! is absent, never 0.

use std::collections::BTreeMap;

use serde::Serialize;
use stockade_model::{histogram::Distribution, outcome::Outcomes};

use crate::{
    summary::{Generator, Summary},
    tally::Tally,
};

/// An arm, as `stockade run` has it, and what only a load has besides.
#[derive(Serialize)]
pub(super) struct Stockade<'a> {
    #[serde(flatten)]
    arm: Arm<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rss_mib: Option<Roles<Resident>>,
    cpu: Roles<Cores>,
    schema: &'static str,
    id: &'a str,
    schedule: &'a str,
    achieved_rate_per_s_each: Vec<f64>,
    dropped: u64,
    in_flight_at_end: u64,
    in_flight_max: u64,
    connections: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    warmup: Option<Arm<'a>>,
    generator: Verdict<'a>,
}

#[derive(Serialize)]
struct Arm<'a> {
    requests: u64,
    failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    achieved_rate_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    success: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_lag: Option<Distribution>,
    status_codes: &'a BTreeMap<u16, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcomes: Option<Outcomes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hit_ratio: Option<f64>,
    failures: &'a BTreeMap<&'static str, u64>,
    retries: u64,
    resent: u64,
    bytes_in: Bytes,
    wire_bytes_in: Bytes,
}

#[derive(Serialize)]
struct Bytes {
    total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<f64>,
}

/// Figures by role; the load is the one that it knows.
#[derive(Serialize)]
struct Roles<T> {
    load: T,
}

/// MiB in memory.
#[derive(Serialize)]
struct Resident {
    max: f64,
    last: f64,
}

/// Cores' worth of processor time.
#[derive(Serialize)]
struct Cores {
    mean: f64,
    max: f64,
}

#[derive(Serialize)]
struct Verdict<'a> {
    cpu: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    steal: Option<f64>,
    valid: bool,
    reasons: &'a [String],
}

/// What part of `whole` is; of nothing there is none.
pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Requests a second, of those that were sent while any were due; none if all were due at once.
pub(super) fn achieved_rate(summary: &Summary) -> Option<f64> {
    let lasted = (summary.ended - summary.began).as_secs_f64();
    let in_time = summary.measured.requests() - summary.sent_after_end;
    (lasted > 0.0).then(|| in_time as f64 / lasted)
}

/// Requests sent in each whole second in which any were due; scaled, if that is not even one.
pub(super) fn rates(summary: &Summary) -> Vec<f64> {
    let lasted = summary.ended - summary.began;
    let whole = usize::try_from(lasted.as_secs()).unwrap_or(usize::MAX);
    let sent = summary.seconds.iter().map(|second| second.sent as f64);
    match (whole, lasted.is_zero()) {
        (_, true) => Vec::new(),
        (0, _) => sent.take(1).map(|sent| sent / lasted.as_secs_f64()).collect(),
        _ => sent.take(whole).collect(),
    }
}

/// Mean number of requests under way: the sum of service times over the time until the last was done.
fn concurrency(tally: &Tally) -> Option<f64> {
    let elapsed = (tally.end? - tally.earliest?).as_secs_f64();
    (elapsed > 0.0).then(|| tally.response_sum.saturating_sub(tally.send_lag_sum).as_secs_f64() / elapsed)
}

impl<'a> Arm<'a> {
    fn of(tally: &'a Tally) -> Self {
        let requests = tally.requests();
        Self {
            requests,
            failed: tally.failed(),
            achieved_rate_per_s: None,
            concurrency: concurrency(tally),
            success: ratio(tally.successes, requests),
            response: Distribution::of(&tally.times.response, None),
            service: Distribution::of(&tally.times.service, None),
            send_lag: Distribution::of(&tally.times.send_lag, None),
            status_codes: &tally.status_codes,
            outcomes: (tally.outcomes.requests() > 0).then_some(tally.outcomes),
            hit_ratio: tally.outcomes.hit_ratio(),
            failures: &tally.failures,
            retries: tally.retries,
            resent: tally.resent,
            bytes_in: Bytes { total: tally.bytes_in, mean: ratio(tally.bytes_in, requests) },
            wire_bytes_in: Bytes { total: tally.wire_bytes_in, mean: ratio(tally.wire_bytes_in, requests) },
        }
    }
}

impl<'a> Stockade<'a> {
    pub fn of(summary: &'a Summary) -> Self {
        let Generator { cpu_mean, cpu_max, resident_max, resident_last, steal, reasons } = &summary.generator;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let resident = resident_max.zip(*resident_last);
        Self {
            arm: Arm { achieved_rate_per_s: achieved_rate(summary), ..Arm::of(&summary.measured) },
            rss_mib: resident.map(|(max, last)| Roles { load: Resident { max: mib(max), last: mib(last) } }),
            cpu: Roles { load: Cores { mean: *cpu_mean, max: *cpu_max } },
            schema: "stockade.load/1",
            id: &summary.id,
            schedule: &summary.schedule,
            achieved_rate_per_s_each: rates(summary),
            dropped: summary.dropped,
            in_flight_at_end: summary.in_flight_at_end,
            in_flight_max: summary.in_flight_max,
            connections: summary.connections,
            warmup: summary.warmup.as_ref().map(Arm::of),
            generator: Verdict {
                cpu: *cpu_mean,
                steal: *steal,
                valid: summary.generator.is_valid(),
                reasons,
            },
        }
    }
}
