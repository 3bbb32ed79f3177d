//! A finished run in the text format of OpenMetrics.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    record::Record,
    telemetry::{
        measurement::{RunSnapshot, resource},
        openmetrics::Exposition,
    },
};

use crate::metrics::Results;

/// Every figure with the labels `test`, `arm` and `repeat`.
#[must_use]
pub fn render(record: &Record, results: &Results) -> String {
    Exposition::OpenMetrics.render(&snapshot(record, results).families())
}

/// The figures of every measurement, and the verdicts.
#[must_use]
pub fn snapshot(record: &Record, results: &Results) -> RunSnapshot {
    let mut verdicts = BTreeMap::new();
    for hypothesis in &record.hypotheses {
        *verdicts.entry(hypothesis.verdict).or_default() += 1;
    }
    let mut resource = resource(&record.stockade, &record.host, Some(&record.experiment));
    if record.is_scaled() {
        resource.push(("stockade.scale", record.scale.to_string()));
    }
    RunSnapshot {
        planned: Some(record.planned as u64),
        finished: Some(record.runs.len() as u64),
        measurements: results.runs().iter().map(|evidence| Arc::new(evidence.telemetry())).collect(),
        verdicts,
        resource,
    }
}
