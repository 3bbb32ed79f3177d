//! The text format of OpenMetrics, and the figures of a load for other systems.

use std::{collections::BTreeMap, sync::Arc};

use stockade_record::{
    record::Role,
    telemetry::{
        TimeHistogram,
        measurement::{MeasurementSnapshot, ProcessSnapshot, RunSnapshot},
        openmetrics::Exposition,
    },
};

use super::ReportOptions;
use crate::{summary::Summary, tally::Tally};

/// The measured part of a load.
#[must_use]
pub fn render(summary: &Summary, _: &ReportOptions) -> String {
    Exposition::OpenMetrics.render(&snapshot(summary).families())
}

/// The figures of a finished load, of its measured part only.
#[must_use]
pub fn snapshot(summary: &Summary) -> RunSnapshot {
    let generator = &summary.generator;
    let generator = ProcessSnapshot {
        cpu_seconds: Some(generator.cpu_total.as_secs_f64()),
        memory_bytes: generator.resident_bytes_last,
    };
    let measurement = MeasurementSnapshot {
        dropped: Some(summary.dropped),
        connections: Some(summary.connections),
        in_flight_max: Some(summary.in_flight_max),
        is_valid: Some(summary.generator.is_valid()),
        processes: BTreeMap::from([(Role::Load, generator)]),
        ..measurement(&summary.measured)
    };
    RunSnapshot { measurements: vec![Arc::new(measurement)], ..RunSnapshot::default() }
}

/// The figures of a part of a load.
#[must_use]
pub fn measurement(tally: &Tally) -> MeasurementSnapshot {
    let mut status_codes = tally.status_codes.clone();
    status_codes.remove(&0);
    MeasurementSnapshot {
        requests: tally.requests(),
        failed: tally.failed(),
        retries: Some(tally.retries),
        response_bytes: Some(tally.bytes_in),
        request_bytes: Some(tally.bytes_out),
        is_over_http: true,
        response: TimeHistogram::of(&tally.times.response),
        service: TimeHistogram::of(&tally.times.service),
        send_lag: TimeHistogram::of(&tally.times.send_lag),
        outcomes: (tally.outcomes.reported() > 0).then_some(tally.outcomes),
        status_codes,
        failures: tally.failures.clone(),
        ..MeasurementSnapshot::default()
    }
}
