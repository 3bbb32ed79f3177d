//! A measurement in the form of its record.

use std::collections::BTreeMap;

use stockade_model::units::milliseconds;
use stockade_record::{
    metrics::Fold,
    record::{self, Interval, OriginStage, Run},
    storage::{Recorder, StorageError},
};

use crate::{
    engine::CancellationToken,
    spec::Cell,
    target::{CacheCounters, Measurement, Second},
};

/// Receives the seconds of a measurement: writes them to disk and folds them.
pub(super) struct IntervalSink<'a> {
    cell: &'a Cell,
    repeat: u32,
    recorder: &'a mut Recorder,
    pub(super) fold: Fold,
    /// The first storage error.
    failed: Result<(), StorageError>,
    /// Cancelled on a storage error.
    stop: CancellationToken,
}

impl<'a> IntervalSink<'a> {
    pub(super) fn new(
        cell: &'a Cell,
        repeat: u32,
        recorder: &'a mut Recorder,
        fold: Fold,
        stop: CancellationToken,
    ) -> Self {
        Self { cell, repeat, recorder, fold, failed: Ok(()), stop }
    }

    pub(super) fn take(&mut self, second: Second) -> Interval {
        let open = second.open;
        let interval = Interval {
            test: self.cell.test.clone(),
            arm: self.cell.arm.clone(),
            repeat: self.repeat,
            second: second.second,
            outcomes: second.outcomes,
            source_loads: open.and_then(|open| open.source_loads),
            retries: open.map(|open| open.retries),
            dropped: open.map(|open| open.dropped),
            age_max_ms: open.and_then(|open| open.age_max).map(milliseconds),
            usage: second.usage,
            holds: second.holds,
            status_codes: second.status_codes,
            errors: second.errors,
            disturbance: second.disturbance,
            times: second.times,
        };
        if self.failed.is_ok() {
            self.failed = self.recorder.second(&interval);
            if self.failed.is_err() {
                self.stop.cancel();
            }
        }
        self.fold.add(&interval);
        interval
    }

    pub(super) fn done(self) -> Result<Fold, StorageError> {
        self.failed?;
        self.recorder.flush()?;
        Ok(self.fold)
    }
}

/// A measurement in the form of the record.
pub(super) fn run_record(
    (test, arm): (&str, &str),
    repeat: u32,
    stages: Vec<OriginStage>,
    measured: Measurement,
) -> Run {
    let CacheCounters { requests, store } = &measured.counters;
    let is_reported =
        measured.http.as_ref().is_none_or(|http| http.stats_provider == record::StatsProvider::Cache);
    Run {
        test: test.to_owned(),
        arm: arm.to_owned(),
        repeat,
        load: measured.load,
        whole_ms_sum: measured.whole_ms_sum,
        outcomes: measured.outcomes,
        bytes_in: measured.bytes_in,
        service_ms_sum: milliseconds(measured.service_sum),
        stores_skipped: requests.stores_skipped,
        stores_dropped: requests.stores_dropped,
        episodes: requests.episodes,
        cache: record::CacheFigures {
            entries: usize::try_from(store.entries).unwrap_or(usize::MAX),
            bytes_max: measured.peak_bytes,
            evicted: store.evicted_size,
            invalidated: store.invalidated,
            stores_refused: store.stores_refused,
            loads_rejected: requests.loads_rejected,
            loads_refused: requests.loads_refused,
            refreshes: requests.refreshes(),
        },
        counters: if is_reported { measured.counters.by_name() } else { BTreeMap::new() },
        errors: measured.errors,
        stages,
        events: measured.events,
        http: measured.http,
    }
}

#[cfg(test)]
mod tests {
    use stockade_record::{
        judge::{Case, judge},
        metrics::Results,
        record::{Audit, Calls, ClockKind, LoadFigures, OpenFigures, Verdict, Violation},
    };

    use std::time::Duration;

    use stockade_model::outcome::Outcomes;

    use super::*;
    use crate::spec::Experiment;

    fn measured(audit: Audit) -> Measurement {
        let open = OpenFigures {
            strategy: "stampede".to_owned(),
            schedule: String::new(),
            duration_ms: 10_000.0,
            documents: None,
            distinct_keys: None,
            finished_ms: 10_000.0,
            calls: Calls::default(),
            waiters: 0,
            response: None,
            retries: 0,
            dropped: 0,
            in_flight_max: 1,
            source_concurrent_max: None,
            audit: Some(audit),
        };
        Measurement {
            load: LoadFigures::Open(open),
            whole_ms_sum: None,
            outcomes: Outcomes { miss: 10, ..Outcomes::default() },
            bytes_in: 0,
            service_sum: Duration::ZERO,
            counters: CacheCounters::default(),
            peak_bytes: None,
            errors: BTreeMap::new(),
            events: Vec::new(),
            http: None,
        }
    }

    #[test]
    fn open_loads_are_audited_without_a_claim() {
        let text = "title = \"t\"\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:9\"\n[[test]]\nname = \"b\"\n\
                    load.burst = 7\n[[test]]\nname = \"o\"\nload = { rate = \"10/s\", duration = \"10s\" }\n";
        let experiment = Experiment::parse("test.toml", text).unwrap();
        let verdict = |too_old, after_purge| {
            let counts = [(Violation::TooOld, too_old), (Violation::AfterPurge, after_purge)];
            let audit = Audit { counts: counts.into(), ..Audit::default() };
            let mut results = Results::watching(experiment.windows());
            let run = run_record(("o", "cache"), 1, Vec::new(), measured(audit));
            results.add(&run, results.fold(None));
            let cells = experiment.cells.iter().map(|cell| (cell.test.clone(), cell.arm.clone())).collect();
            let names = experiment.names();
            let case =
                Case { names, cells: &cells, repeats: 1, looks: &[], noise: None, clock: ClockKind::Virtual };
            let judged = judge(&experiment.claims, case, &results).hypotheses;
            assert_eq!((judged.len(), judged[0].text.as_str()), (1, "nothing was served beyond its limit"));
            judged[0].verdict
        };
        assert_eq!(
            [verdict(0, 0), verdict(1, 0), verdict(0, 1)],
            [Verdict::Supported, Verdict::Refuted, Verdict::Refuted]
        );
    }
}
