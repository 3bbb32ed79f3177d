//! Figures that Vegeta's report lacks, for JSON. A figure that does not apply is absent, never 0.

use std::collections::BTreeMap;

use serde::Serialize;
use stockade_model::{
    outcome::Outcomes,
    units::{ByteFigures, ratio},
};
use stockade_record::{
    histogram::Distribution,
    record::{AgentReport, Expectation},
};

use crate::{
    summary::{GeneratorHealth, Summary},
    tally::Tally,
};

/// The figures of an arm of `stockade run`, and those that only a load has.
#[derive(Serialize)]
pub(super) struct StockadeFigures<'a> {
    #[serde(flatten)]
    load: TallyFigures<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rss_mib: Option<ByRole<MemoryFigures>>,
    cpu: ByRole<CpuFigures>,
    schema: &'static str,
    id: &'a str,
    schedule: &'a str,
    achieved_rate_per_s_each: Vec<f64>,
    dropped: u64,
    in_flight_at_end: u64,
    in_flight_max: u64,
    connections: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    warmup: Option<TallyFigures<'a>>,
    generator: GeneratorFigures<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<AgentReport>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    expect: &'a [Expectation],
}

#[derive(Serialize)]
struct TallyFigures<'a> {
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
    /// Hits that may be stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    hits_of_unknown_freshness: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hit_ratio: Option<f64>,
    failures: &'a BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    deviations: &'a BTreeMap<&'static str, u64>,
    retries: u64,
    resent: u64,
    bytes_in: ByteFigures,
    wire_bytes_in: ByteFigures,
}

/// Figures by role. A load knows only its own.
#[derive(Serialize)]
struct ByRole<T> {
    load: T,
}

/// MiB in memory.
#[derive(Serialize)]
struct MemoryFigures {
    max: f64,
    last: f64,
}

/// Processor time; 1.0 is one core.
#[derive(Serialize)]
struct CpuFigures {
    mean: f64,
    max: f64,
}

#[derive(Serialize)]
struct GeneratorFigures<'a> {
    cpu: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    steal: Option<f64>,
    valid: bool,
    reasons: &'a [String],
}

/// Requests sent in each whole second of the schedule; the scaled rate if the schedule is shorter than a second.
pub(super) fn rates(summary: &Summary) -> Vec<f64> {
    let lasted = summary.schedule_end - summary.measured_from;
    let whole = usize::try_from(lasted.as_secs()).unwrap_or(usize::MAX);
    let sent = summary.seconds.iter().map(|second| second.sent as f64);
    match (whole, lasted.is_zero()) {
        (_, true) => Vec::new(),
        (0, _) => sent.take(1).map(|sent| sent / lasted.as_secs_f64()).collect(),
        _ => sent.take(whole).collect(),
    }
}

/// The mean number of requests in flight: the sum of service times, divided by the duration of the run.
fn concurrency(tally: &Tally) -> Option<f64> {
    let elapsed = (tally.end? - tally.earliest?).as_secs_f64();
    (elapsed > 0.0).then(|| tally.response_sum.saturating_sub(tally.send_lag_sum).as_secs_f64() / elapsed)
}

impl<'a> TallyFigures<'a> {
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
            outcomes: (tally.outcomes.reported() > 0).then_some(tally.outcomes),
            hit_ratio: tally.hit_ratio(),
            hits_of_unknown_freshness: Some(tally.hits_of_unknown_freshness).filter(|hits| *hits > 0),
            failures: &tally.failures,
            deviations: &tally.deviations,
            retries: tally.retries,
            resent: tally.resent,
            bytes_in: ByteFigures::of(tally.bytes_in, requests),
            wire_bytes_in: ByteFigures::of(tally.wire_bytes_in, requests),
        }
    }
}

impl<'a> StockadeFigures<'a> {
    pub fn of(summary: &'a Summary, expect: &'a [Expectation]) -> Self {
        let GeneratorHealth {
            cpu_mean,
            cpu_max,
            resident_bytes_max,
            resident_bytes_last,
            steal,
            invalid_reasons,
            ..
        } = &summary.generator;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let resident = resident_bytes_max.zip(*resident_bytes_last);
        Self {
            load: TallyFigures {
                achieved_rate_per_s: summary.achieved_rate(),
                ..TallyFigures::of(&summary.measured)
            },
            rss_mib: resident
                .map(|(max, last)| ByRole { load: MemoryFigures { max: mib(max), last: mib(last) } }),
            cpu: ByRole { load: CpuFigures { mean: *cpu_mean, max: *cpu_max } },
            schema: "stockade.load/1",
            id: &summary.id,
            schedule: &summary.schedule,
            achieved_rate_per_s_each: rates(summary),
            dropped: summary.dropped,
            in_flight_at_end: summary.in_flight_at_end,
            in_flight_max: summary.in_flight_max,
            connections: summary.connections,
            warmup: summary.warmup.as_ref().map(TallyFigures::of),
            generator: GeneratorFigures {
                cpu: *cpu_mean,
                steal: *steal,
                valid: summary.generator.is_valid(),
                reasons: invalid_reasons,
            },
            agents: AgentReport::of_all(&summary.agents),
            expect,
        }
    }
}
