//! The observer of an agent's load: seconds to the coordinator, samples to a file.

use std::{
    fs::File,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use stockade_load::{
    generator::{LoadProgress, LoadStart, Observer},
    report::{RunHeader, SampleWriter, results::JsonEncoder},
    sample::Sample,
    traffic::Traffic,
};
use stockade_model::time::Time;
use tokio::sync::mpsc;

use crate::{clock::Nanos, wire::Record};

/// Observes a load for its coordinator.
pub(crate) struct RecordObserver {
    records: mpsc::Sender<Record>,
    warmup: Duration,
    start: Time,
    seconds: u64,
    /// The start by the coordinator's clock, once it is known.
    started: Arc<Mutex<Nanos>>,
    samples: Option<SampleFile>,
}

/// A file of samples, whose times are by the coordinator's clock.
pub(crate) struct SampleFile {
    pub(crate) path: PathBuf,
    pub(crate) id: String,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) writer: Option<SampleWriter<File>>,
}

impl RecordObserver {
    pub(crate) fn new(
        records: mpsc::Sender<Record>,
        warmup: Duration,
        started: Arc<Mutex<Nanos>>,
        samples: Option<SampleFile>,
    ) -> Self {
        Self { records, warmup, start: Time::ZERO, seconds: 0, started, samples }
    }

    /// The start by the clock of the load.
    pub(crate) fn start(&self) -> Time {
        self.start
    }

    /// The number of complete seconds.
    pub(crate) fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Writes the rest of the samples.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self.samples.and_then(|samples| samples.writer) {
            Some(writer) => writer.finish().map(drop),
            None => Ok(()),
        }
    }
}

impl Observer for RecordObserver {
    fn on_start(&mut self, start: LoadStart) {
        self.start = start.measured_from.back(self.warmup);
        if let Some(samples) = &mut self.samples {
            let started = *self.started.lock().unwrap_or_else(PoisonError::into_inner);
            let started = Duration::from_nanos(u64::try_from(started).unwrap_or_default());
            let head = RunHeader {
                id: samples.id.clone(),
                clock_zero: SystemTime::UNIX_EPOCH + started.saturating_sub(self.start.elapsed()),
                measured_from: start.measured_from,
                traffic: Arc::clone(&samples.traffic),
            };
            let file = File::create(&samples.path).ok();
            samples.writer = file.map(|file| SampleWriter::new(Box::new(JsonEncoder::new(&head)), file));
        }
    }

    fn on_second(&mut self, progress: &LoadProgress<'_>) {
        self.seconds += 1;
        let second = progress.second.clone().since(self.start);
        // The load never waits: the coordinator finds the gap, and the run is invalid.
        let _ = self.records.try_send(Record::Second(Box::new(second)));
    }

    fn on_sample(&mut self, sample: &Sample) -> io::Result<()> {
        let Some(samples) = &mut self.samples else { return Ok(()) };
        match &mut samples.writer {
            Some(writer) => writer.write(sample),
            None => Err(io::Error::other(format!("cannot create {}", samples.path.display()))),
        }
    }
}
