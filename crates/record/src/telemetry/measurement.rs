//! The figures of a run or a load, so far or finished, as other systems receive them.
//!
//! ```text
//! Interval, Tally, Record -> MeasurementSnapshot -> RunSnapshot -> Family -> OpenMetrics, Prometheus, OTLP
//! ```

use std::{collections::BTreeMap, sync::Arc};

use stockade_model::{
    outcome::{Outcome, Outcomes},
    snapshot,
    telemetry::MetricUnit,
};

use super::{
    HistogramDeclaration, TimeHistogram,
    family::{Family, FamilyKind, Labels, Series, SeriesValue, histogram_families, metric_families},
};
use crate::{
    histogram::Histogram,
    record::{Host, Interval, Role, Verdict},
};

/// Upper bounds of the buckets. Those from 5 ms on are the ones that OpenTelemetry advises for
/// `http.client.request.duration`; hits of a cache need the smaller ones, and overloads the larger ones.
pub const TIME_BOUNDS_SECONDS: [f64; 22] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5,
    0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0,
];

snapshot! {
    /// One measurement: a test with an arm and a repeat, or a load.
    pub struct MeasurementSnapshot {
        /// Requests that ended.
        requests: u64 = counter "stockade_load_requests_total",
        /// Requests that failed: without an answer, or over HTTP with a status other than 200 to 399.
        failed: u64 = counter "stockade_load_failed_requests_total",
        /// Fetches that reached the source behind the cache.
        source_loads: Option<u64> = counter "stockade_load_source_loads_total",
        /// Attempts after the first of a request.
        retries: Option<u64> = counter "stockade_load_retries_total",
        /// Requests that were due and not sent.
        dropped: Option<u64> = counter "stockade_load_dropped_requests_total",
        /// Bytes of the bodies of answers.
        response_bytes: Option<u64> = counter "stockade_load_response_body_bytes_total" in Bytes,
        /// Bytes of the bodies of requests.
        request_bytes: Option<u64> = counter "stockade_load_request_body_bytes_total" in Bytes,
        /// Connections that the load opened.
        connections: Option<u64> = counter "stockade_load_opened_connections_total",
        /// The most requests in flight at once.
        in_flight_max: Option<u64> = gauge "stockade_load_in_flight_requests_max",
        /// Entries in the cache.
        cache_entries: Option<u64> = gauge "stockade_load_cache_entries",
        /// Bytes in the cache, if it has a limit in bytes.
        cache_bytes: Option<u64> = gauge "stockade_load_cache_size_bytes" in Bytes,
        /// 1 if the times are valid evidence, 0 if the generator was the bottleneck; absent until the end.
        is_valid: Option<bool> = gauge "stockade_load_valid_measurements",
        +
        /// `""`: none.
        test: String,
        /// `""`: a load, which has no arms.
        arm: String,
        /// From 1; 0: a load, which has no repeats.
        repeat: u32,
        /// Sends HTTP: its service times have the name of the semantic conventions.
        is_over_http: bool,
        /// From the due time to the end.
        response: TimeHistogram,
        /// From sending to the end.
        service: TimeHistogram,
        /// From the due time to sending.
        send_lag: TimeHistogram,
        /// `None`: the cache reports none.
        outcomes: Option<Outcomes>,
        /// Answers by status; requests without an answer are in `failures`.
        status_codes: BTreeMap<u16, u64>,
        /// Requests without an answer, by the class of the failure.
        failures: BTreeMap<&'static str, u64>,
        /// The processes of a measurement over HTTP.
        processes: BTreeMap<Role, ProcessSnapshot>,
    }
}

snapshot! {
    /// The resources of one process.
    pub struct ProcessSnapshot {
        /// Processor time since the start of the measurement.
        cpu_seconds: Option<f64> = counter "process_cpu_time_seconds_total" in Seconds,
        /// Resident memory.
        memory_bytes: Option<u64> = gauge "process_memory_usage_bytes" in Bytes,
    }
}

snapshot! {
    /// Requests with one outcome.
    pub struct OutcomeCount {
        /// Requests by their outcome in the cache.
        requests: u64 = counter "stockade_load_outcomes_total",
    }
}

snapshot! {
    /// Answers with one status.
    pub struct StatusCount {
        /// Answers by HTTP status.
        responses: u64 = counter "stockade_load_responses_total",
    }
}

snapshot! {
    /// Failures of one class.
    pub struct FailureCount {
        /// Requests without an answer, by the class of the failure.
        failures: u64 = counter "stockade_load_failures_total",
    }
}

snapshot! {
    /// Hypotheses with one verdict.
    pub struct VerdictCount {
        /// Hypotheses by verdict, at the end of a run.
        hypotheses: u64 = gauge "stockade_run_hypotheses",
    }
}

snapshot! {
    /// A run or a load.
    pub struct RunSnapshot {
        /// Measurements that the experiment plans.
        planned: Option<u64> = gauge "stockade_run_planned_measurements",
        /// Measurements that have ended.
        finished: Option<u64> = gauge "stockade_run_finished_measurements",
        +
        /// In the order of the measurements.
        measurements: Vec<Arc<MeasurementSnapshot>>,
        /// Empty before the end.
        verdicts: BTreeMap<Verdict, u64>,
        /// Attributes of the resource: `service.name` and the like.
        resource: Labels,
    }
}

impl MeasurementSnapshot {
    /// The distributions.
    pub const HISTOGRAMS: &'static [HistogramDeclaration<Self>] = &[
        HistogramDeclaration {
            field: "service",
            family: "http_client_request_duration_seconds",
            help: "Time from sending a request to the end of its answer, over HTTP.",
            read: |snapshot| snapshot.is_over_http.then_some(&snapshot.service),
        },
        HistogramDeclaration {
            field: "service",
            family: "stockade_load_service_time_seconds",
            help: "Time from sending a request to its answer, in the engine.",
            read: |snapshot| (!snapshot.is_over_http).then_some(&snapshot.service),
        },
        HistogramDeclaration {
            field: "response",
            family: "stockade_load_response_time_seconds",
            help: "Time from the due time of a request to the end of its answer.",
            read: |snapshot| Some(&snapshot.response),
        },
        HistogramDeclaration {
            field: "send_lag",
            family: "stockade_load_send_lag_seconds",
            help: "Time from the due time of a request to sending it.",
            read: |snapshot| Some(&snapshot.send_lag),
        },
    ];

    /// One second.
    #[must_use]
    pub fn of(interval: &Interval) -> Self {
        let usage = interval.usage.iter().map(|(role, usage)| {
            let (cpu_seconds, memory_bytes) = (Some(usage.cpu), Some(usage.rss_bytes));
            (*role, ProcessSnapshot { cpu_seconds, memory_bytes })
        });
        Self {
            test: interval.test.clone(),
            arm: interval.arm.clone(),
            repeat: interval.repeat,
            requests: interval.outcomes.requests(),
            failed: interval.outcomes.error,
            outcomes: interval.outcomes.are_known().then_some(interval.outcomes),
            source_loads: interval.source_loads,
            retries: interval.retries,
            dropped: interval.dropped,
            cache_entries: interval.holds.map(|holds| holds.entries),
            cache_bytes: interval.holds.and_then(|holds| holds.bytes),
            // Only runs over HTTP have processes.
            is_over_http: !interval.usage.is_empty(),
            response: TimeHistogram::of(&interval.times.response),
            service: TimeHistogram::of(&interval.times.service),
            send_lag: TimeHistogram::of(&interval.times.send_lag),
            processes: usage.collect(),
            ..Self::default()
        }
    }

    /// True if both are parts of one measurement.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.repeat == other.repeat && self.arm == other.arm && self.test == other.test
    }

    /// Adds a later part of the same measurement: counts are added, gauges replaced.
    pub fn merge(&mut self, later: &Self) {
        fn sum<K: Ord + Copy>(all: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
            more.iter().for_each(|(key, count)| *all.entry(*key).or_default() += count);
        }
        let add = |all: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *all.get_or_insert_default() += more;
            }
        };
        self.requests += later.requests;
        self.failed += later.failed;
        add(&mut self.source_loads, later.source_loads);
        add(&mut self.retries, later.retries);
        add(&mut self.dropped, later.dropped);
        add(&mut self.response_bytes, later.response_bytes);
        add(&mut self.request_bytes, later.request_bytes);
        add(&mut self.connections, later.connections);
        self.in_flight_max = self.in_flight_max.max(later.in_flight_max);
        self.cache_entries = later.cache_entries.or(self.cache_entries);
        self.cache_bytes = later.cache_bytes.or(self.cache_bytes);
        self.is_valid = later.is_valid.or(self.is_valid);
        self.is_over_http |= later.is_over_http;
        self.response.merge(&later.response);
        self.service.merge(&later.service);
        self.send_lag.merge(&later.send_lag);
        if let Some(outcomes) = later.outcomes {
            *self.outcomes.get_or_insert_default() += outcomes;
        }
        sum(&mut self.status_codes, &later.status_codes);
        sum(&mut self.failures, &later.failures);
        for (role, more) in &later.processes {
            let process = self.processes.entry(*role).or_default();
            if let Some(more) = more.cpu_seconds {
                *process.cpu_seconds.get_or_insert_default() += more;
            }
            process.memory_bytes = more.memory_bytes.or(process.memory_bytes);
        }
    }

    fn labels(&self) -> Labels {
        let repeat = if self.repeat == 0 { String::new() } else { self.repeat.to_string() };
        let labels = [("test", self.test.clone()), ("arm", self.arm.clone()), ("repeat", repeat)];
        labels.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    fn labels_with(&self, name: &'static str, value: &dyn ToString) -> Labels {
        let mut labels = self.labels();
        labels.push((name, value.to_string()));
        labels
    }
}

impl RunSnapshot {
    /// The most measurements that a run in progress holds, the last ones.
    pub const LIVE_MEASUREMENTS_MAX: usize = 256;

    /// Adds a second of a measurement in progress. Above the bound, the oldest measurement leaves.
    pub fn add(&mut self, part: &MeasurementSnapshot) {
        match self.measurements.last_mut() {
            Some(last) if last.is_same(part) => Arc::make_mut(last).merge(part),
            _ => {
                if self.measurements.len() >= Self::LIVE_MEASUREMENTS_MAX {
                    self.measurements.remove(0);
                }
                self.measurements.push(Arc::new(part.clone()));
            }
        }
    }

    /// Every metric that has a value.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        fn referenced<S>(owned: &[(Labels, S)]) -> Vec<(Labels, &S)> {
            owned.iter().map(|(labels, snapshot)| (labels.clone(), snapshot)).collect()
        }
        let whole: Vec<_> = self.measurements.iter().map(|one| (one.labels(), &**one)).collect();
        let verdicts: Vec<_> = self
            .verdicts
            .iter()
            .map(|(verdict, count)| {
                (vec![("verdict", verdict.to_string())], VerdictCount { hypotheses: *count })
            })
            .collect();
        let (mut outcomes, mut statuses, mut failures, mut processes) = (vec![], vec![], vec![], vec![]);
        for one in &self.measurements {
            if let Some(all) = &one.outcomes {
                outcomes.extend(Outcome::ALL.into_iter().map(|outcome| {
                    let count = OutcomeCount { requests: all.of(outcome) };
                    (one.labels_with("outcome", &outcome.name()), count)
                }));
            }
            for (status, count) in &one.status_codes {
                let labels = one.labels_with("http.response.status_code", status);
                statuses.push((labels, StatusCount { responses: *count }));
            }
            for (class, count) in &one.failures {
                failures.push((one.labels_with("error.type", class), FailureCount { failures: *count }));
            }
            for (role, process) in &one.processes {
                processes.push((one.labels_with("role", &role.name()), process.clone()));
            }
        }
        let mut families: Vec<Family> = self.info().into_iter().collect();
        families.extend(metric_families(Self::METRICS, &[(Vec::new(), self)]));
        families.extend(metric_families(VerdictCount::METRICS, &referenced(&verdicts)));
        families.extend(metric_families(MeasurementSnapshot::METRICS, &whole));
        families.extend(metric_families(OutcomeCount::METRICS, &referenced(&outcomes)));
        families.extend(metric_families(StatusCount::METRICS, &referenced(&statuses)));
        families.extend(metric_families(FailureCount::METRICS, &referenced(&failures)));
        families.extend(histogram_families(MeasurementSnapshot::HISTOGRAMS, &whole));
        families.extend(metric_families(ProcessSnapshot::METRICS, &referenced(&processes)));
        families
    }

    /// The attributes of the resource, as a family of the text formats.
    fn info(&self) -> Option<Family> {
        let series = Series { labels: self.resource.clone(), value: SeriesValue::Number(1.0) };
        (!self.resource.is_empty()).then(|| Family {
            name: "target_info",
            kind: FamilyKind::Info,
            unit: MetricUnit::Count,
            help: "Program and machine.".to_owned(),
            series: vec![series],
        })
    }
}

/// The attributes of the resource: program, version and machine, and the title of the experiment, if it is one.
#[must_use]
pub fn resource(version: &str, host: &Host, experiment: Option<&str>) -> Labels {
    // Version and commit.
    let version = version.split(' ').next().unwrap_or_default();
    let attributes = [
        ("service.name", "stockade".to_owned()),
        ("service.version", version.to_owned()),
        ("host.arch", arch(std::env::consts::ARCH).to_owned()),
        ("host.cpu.model.name", host.cpu.clone()),
        ("os.type", "linux".to_owned()),
        ("os.description", host.os.clone()),
        ("stockade.experiment", experiment.unwrap_or_default().to_owned()),
    ];
    attributes.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// The architecture, as the semantic conventions name it.
fn arch(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "x86",
        other => other,
    }
}

impl TimeHistogram {
    /// The durations of a histogram, in the buckets of [`TIME_BOUNDS_SECONDS`]: one that exceeds a bound by less than a
    /// thousandth counts as equal to it.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Self {
        let mut times = Self {
            bounds_seconds: TIME_BOUNDS_SECONDS.to_vec(),
            counts: vec![0; TIME_BOUNDS_SECONDS.len() + 1],
            sum_seconds: histogram.mean().map_or(0.0, |mean| mean.as_secs_f64() * histogram.count() as f64),
        };
        for (time, count) in histogram.cells() {
            // The histogram knows the end of each cell, which is a 1024th of it wide at most.
            let time = time.as_secs_f64() * (1.0 - 1.0 / 1024.0);
            times.counts[TIME_BOUNDS_SECONDS.partition_point(|bound| *bound < time)] += count;
        }
        times
    }

    /// Adds the times of a histogram with the same buckets; an empty one takes them over.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.bounds_seconds.clone_from(&other.bounds_seconds);
            self.counts = vec![0; other.counts.len()];
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(all, more)| *all += more);
        self.sum_seconds += other.sum_seconds;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::Times;

    fn second(repeat: u32, outcomes: Outcomes) -> MeasurementSnapshot {
        let times =
            || [Duration::from_millis(1), Duration::from_millis(40)].into_iter().collect::<Histogram>();
        let times = Times { response: times(), service: times(), send_lag: Histogram::new() };
        MeasurementSnapshot::of(&Interval {
            arm: "a".to_owned(),
            repeat,
            outcomes,
            times,
            ..Interval::default()
        })
    }

    #[test]
    fn seconds_of_a_measurement_add_up() {
        let mut run = RunSnapshot::default();
        let (first, later) =
            (Outcomes { hit: 2, ..Outcomes::default() }, Outcomes { error: 2, ..Outcomes::default() });
        run.add(&second(1, first));
        run.add(&second(1, later));
        run.add(&second(2, first));
        let [one, two] = &run.measurements[..] else { panic!("{run:?}") };
        assert_eq!((one.requests, one.failed, two.requests, two.failed), (4, 2, 2, 0));
        assert_eq!(one.response.count(), 4);
        assert!((one.response.sum_seconds - 0.082).abs() < 1e-4, "{}", one.response.sum_seconds);
        let at = |bound: f64| TIME_BOUNDS_SECONDS.iter().position(|known| *known >= bound).unwrap();
        assert_eq!((one.response.counts[at(0.001)], one.response.counts[at(0.05)]), (2, 2));
    }

    #[test]
    fn run_in_progress_is_bounded() {
        let mut run = RunSnapshot::default();
        for repeat in 1..=300 {
            run.add(&second(repeat, Outcomes::default()));
        }
        assert_eq!(run.measurements.len(), RunSnapshot::LIVE_MEASUREMENTS_MAX);
        assert_eq!(run.measurements[0].repeat, 45);
    }

    #[test]
    fn names_are_unique_and_values_without_a_source_are_absent() {
        let mut run =
            RunSnapshot { resource: vec![("service.name", "stockade".to_owned())], ..RunSnapshot::default() };
        run.add(&second(1, Outcomes { hit: 1, ..Outcomes::default() }));
        let families = run.families();
        let names: std::collections::BTreeSet<_> = families.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), families.len());
        assert!(names.contains("stockade_load_service_time_seconds") && names.contains("target_info"));
        assert!(
            !names.contains("http_client_request_duration_seconds")
                && !names.contains("stockade_load_retries_total")
        );
    }
}
