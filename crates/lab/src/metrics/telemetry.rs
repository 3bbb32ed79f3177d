//! The figures of a finished measurement for other systems.

use std::collections::BTreeMap;

use stockade_model::{
    record::Run,
    telemetry::{
        TimeHistogram,
        measurement::{MeasurementSnapshot, ProcessSnapshot},
    },
};

use super::{FoldPart, results::is_known};

/// A measurement of which `whole` has the seconds.
pub(super) fn measurement(run: &Run, whole: &FoldPart) -> MeasurementSnapshot {
    let (open, http) = (run.load.open(), run.http.as_ref());
    let mut status_codes = http.map(|http| http.status_codes.clone()).unwrap_or_default();
    // The record has no class of these failures.
    let unanswered = status_codes.remove(&0).filter(|count| *count > 0);
    let processes = whole.usage.iter().map(|(role, used)| {
        let (cpu_seconds, memory_bytes) = (Some(used.cpu_sum), Some(used.rss_last_bytes));
        (*role, ProcessSnapshot { cpu_seconds, memory_bytes })
    });
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
        response: TimeHistogram::of(&whole.times.response),
        service: TimeHistogram::of(&whole.times.service),
        send_lag: TimeHistogram::of(&whole.times.send_lag),
        outcomes: is_known(run, "outcomes.hit").then_some(run.outcomes),
        status_codes,
        failures: unanswered.map(|count| BTreeMap::from([("_OTHER", count)])).unwrap_or_default(),
        processes: processes.collect(),
    }
}
