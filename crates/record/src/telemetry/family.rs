//! Metric families: the form of a snapshot from which every exporter writes.

use stockade_model::telemetry::{Declaration, MetricKind, MetricUnit};

use super::{HistogramDeclaration, TimeHistogram};

/// Labels of a series. Names are attributes of OpenTelemetry, such as `error.type`; the text formats write `error_type`.
pub type Labels = Vec<(&'static str, String)>;

/// A metric with all of its series.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The name in Prometheus, with unit and, for a counter, `_total`.
    pub name: &'static str,
    pub kind: FamilyKind,
    pub unit: MetricUnit,
    pub help: String,
    /// At least one.
    pub series: Vec<Series>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
    /// Facts as labels of a series with the value 1.
    Info,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub labels: Labels,
    pub value: SeriesValue,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SeriesValue {
    Number(f64),
    Times(TimeHistogram),
}

/// Metrics whose names come from the semantic conventions of OpenTelemetry, by their names in Prometheus.
const CONVENTIONS: [(&str, &str); 3] = [
    ("http_client_request_duration_seconds", "http.client.request.duration"),
    ("process_cpu_time_seconds_total", "process.cpu.time"),
    ("process_memory_usage_bytes", "process.memory.usage"),
];

/// Parts of names that OpenTelemetry separates by dots; within a part, `_` stays.
const NAMESPACES: [(&str, &str); 2] =
    [("stockade_load_", "stockade.load."), ("stockade_run_", "stockade.run.")];

/// Units of metrics that do not count requests, by a part of their names.
const COUNTED: [(&str, &str); 6] = [
    ("_measurements", "{measurement}"),
    ("_hypotheses", "{hypothesis}"),
    ("_connections", "{connection}"),
    ("_entries", "{entry}"),
    ("_responses", "{response}"),
    ("_retries", "{retry}"),
];

/// The name of a metric in OpenTelemetry: `stockade.load.failed_requests` for `stockade_load_failed_requests_total`.
#[must_use]
pub fn otel_name(family: &str) -> String {
    if let Some((_, name)) = CONVENTIONS.iter().find(|(known, _)| *known == family) {
        return (*name).to_owned();
    }
    let name = family.strip_suffix("_total").unwrap_or(family);
    let name = name.strip_suffix("_seconds").or_else(|| name.strip_suffix("_bytes")).unwrap_or(name);
    let namespace = NAMESPACES.iter().find_map(|(from, to)| Some((*to, name.strip_prefix(from)?)));
    namespace.map_or_else(|| name.to_owned(), |(namespace, rest)| format!("{namespace}{rest}"))
}

/// The unit in UCUM, as OpenTelemetry writes it: `s`, `By`, or what is counted in braces.
#[must_use]
pub fn ucum(family: &str, unit: MetricUnit) -> &'static str {
    match unit {
        MetricUnit::Seconds => "s",
        MetricUnit::Bytes => "By",
        MetricUnit::Count => {
            let counted = COUNTED.into_iter().find(|(part, _)| family.contains(part));
            counted.map_or("{request}", |(_, unit)| unit)
        }
    }
}

/// Every metric of some snapshots, each with its labels. Families without a series are left out.
pub(super) fn metric_families<S>(metrics: &[Declaration<S>], snapshots: &[(Labels, &S)]) -> Vec<Family> {
    let family = |declared: &[Declaration<S>]| {
        let first = declared.first()?;
        let mut series = Vec::new();
        for (labels, snapshot) in snapshots {
            for metric in declared {
                let Some(value) = (metric.read)(snapshot) else { continue };
                let own = metric.label.map(|(name, value)| (name, value.to_owned()));
                let labels = labels.iter().cloned().chain(own).collect();
                series.push(Series { labels, value: SeriesValue::Number(value) });
            }
        }
        let kind = match first.kind {
            MetricKind::Counter => FamilyKind::Counter,
            MetricKind::Gauge => FamilyKind::Gauge,
        };
        let help = first.help.trim().to_owned();
        Some(Family { name: first.family, kind, unit: first.unit, help, series })
    };
    let families = metrics.chunk_by(|a, b| a.family == b.family).filter_map(family);
    families.filter(|family| !family.series.is_empty()).collect()
}

/// Every histogram of some snapshots, each with its labels.
pub(super) fn histogram_families<S>(
    declared: &[HistogramDeclaration<S>],
    snapshots: &[(Labels, &S)],
) -> Vec<Family> {
    let family = |histogram: &HistogramDeclaration<S>| {
        let series = snapshots.iter().filter_map(|(labels, snapshot)| {
            let times = (histogram.read)(snapshot)?.clone();
            Some(Series { labels: labels.clone(), value: SeriesValue::Times(times) })
        });
        Family {
            name: histogram.family,
            kind: FamilyKind::Histogram,
            unit: MetricUnit::Seconds,
            help: histogram.help.trim().to_owned(),
            series: series.collect(),
        }
    };
    declared.iter().map(family).filter(|family| !family.series.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for (family, name, unit) in [
            ("http_client_request_duration_seconds", "http.client.request.duration", "s"),
            ("process_cpu_time_seconds_total", "process.cpu.time", "s"),
            ("stockade_load_failed_requests_total", "stockade.load.failed_requests", "{request}"),
            ("stockade_load_response_time_seconds", "stockade.load.response_time", "s"),
            ("stockade_load_response_body_bytes_total", "stockade.load.response_body", "By"),
            ("stockade_load_cache_entries", "stockade.load.cache_entries", "{entry}"),
            ("stockade_load_retries_total", "stockade.load.retries", "{retry}"),
            ("stockade_run_hypotheses", "stockade.run.hypotheses", "{hypothesis}"),
        ] {
            let of = if unit == "s" {
                MetricUnit::Seconds
            } else if unit == "By" {
                MetricUnit::Bytes
            } else {
                MetricUnit::Count
            };
            assert_eq!((otel_name(family).as_str(), ucum(family, of)), (name, unit));
        }
    }
}
