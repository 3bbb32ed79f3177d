//! The figures of a finished measurement for other systems.

use std::collections::BTreeMap;

use crate::{
    histogram::Histogram,
    record::{Role, Run},
    telemetry::{
        TimeHistogram,
        measurement::{MeasurementSnapshot, ProcessSnapshot},
    },
};

use super::{FoldPart, results::is_known};

/// The times and processes of a measurement, in some hundred bytes: a run may have many thousand measurements.
#[derive(Clone, Debug)]
pub(super) struct RunTelemetry {
    response: SparseTimes,
    service: SparseTimes,
    send_lag: SparseTimes,
    processes: BTreeMap<Role, ProcessSnapshot>,
}

/// A [`TimeHistogram`] without its empty buckets.
#[derive(Clone, Debug)]
struct SparseTimes {
    sum_seconds: f64,
    /// Counts by the index of their bucket.
    buckets: Box<[(usize, u64)]>,
}

impl SparseTimes {
    fn of(histogram: &Histogram) -> Self {
        let times = TimeHistogram::of(histogram);
        let buckets = times.counts.into_iter().enumerate().filter(|(_, count)| *count > 0).collect();
        Self { sum_seconds: times.sum_seconds, buckets }
    }

    fn whole(&self) -> TimeHistogram {
        let mut times = TimeHistogram::of(&Histogram::new());
        self.buckets.iter().for_each(|(bucket, count)| times.counts[*bucket] = *count);
        TimeHistogram { sum_seconds: self.sum_seconds, ..times }
    }
}

impl RunTelemetry {
    /// Of all seconds of a measurement.
    pub(super) fn of(whole: &FoldPart) -> Self {
        let processes = whole.usage.iter().map(|(role, used)| {
            let (cpu_seconds, memory_bytes) = (Some(used.cpu_sum), Some(used.rss_last_bytes));
            (*role, ProcessSnapshot { cpu_seconds, memory_bytes })
        });
        Self {
            response: SparseTimes::of(&whole.times.response),
            service: SparseTimes::of(&whole.times.service),
            send_lag: SparseTimes::of(&whole.times.send_lag),
            processes: processes.collect(),
        }
    }
}

/// The figures of a finished measurement.
pub(super) fn measurement(run: &Run, telemetry: &RunTelemetry) -> MeasurementSnapshot {
    let (open, http) = (run.load.open(), run.http.as_ref());
    let mut status_codes = http.map(|http| http.status_codes.clone()).unwrap_or_default();
    // The record has no class of these failures.
    let unanswered = status_codes.remove(&0).filter(|count| *count > 0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number of bytes")]
    let bytes = run.counters.get("bytes").map(|bytes| *bytes as u64);
    MeasurementSnapshot {
        requests: run.outcomes.requests(),
        failed: run.outcomes.error,
        source_loads: is_known(run, "source_loads").then_some(run.load.calls().fetch_doc),
        retries: open.map(|open| open.retries),
        dropped: open.map(|open| open.dropped),
        response_bytes: Some(run.bytes_in),
        request_bytes: None,
        connections: http.map(|http| http.connections),
        in_flight_max: open.map(|open| open.in_flight_max as u64),
        cache_entries: is_known(run, "cache.entries").then_some(run.cache.entries as u64),
        cache_bytes: bytes,
        is_valid: Some(!run.is_invalid()),
        test: run.test.clone(),
        arm: run.arm.clone(),
        repeat: run.repeat,
        is_over_http: http.is_some(),
        response: telemetry.response.whole(),
        service: telemetry.service.whole(),
        send_lag: telemetry.send_lag.whole(),
        outcomes: is_known(run, "outcomes.hit").then_some(run.outcomes),
        status_codes,
        failures: unanswered.map(|count| BTreeMap::from([("_OTHER", count)])).unwrap_or_default(),
        processes: telemetry.processes.clone(),
    }
}
