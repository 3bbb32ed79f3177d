//! A measurement in the form of its record.

use std::collections::BTreeMap;

use stockade_model::units::milliseconds;
use stockade_record::record::{self, Interval, OriginStage, Run};

use crate::{
    engine::CancellationToken,
    metrics::Fold,
    spec::Cell,
    storage::{Recorder, StorageError},
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
            source_loads: open.map(|open| open.source_loads),
            retries: open.map(|open| open.retries),
            dropped: open.map(|open| open.dropped),
            age_max_ms: open.and_then(|open| open.age_max).map(milliseconds),
            usage: second.usage,
            holds: second.holds,
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
pub(crate) fn run_record(
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
            bytes_max: measured.bytes_max,
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
        http: measured.http,
    }
}
