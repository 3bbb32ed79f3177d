//! The observer of an agent's load: seconds to the coordinator, samples to a file.

use std::{
    fs::File,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use stockade_load::{
    generator::{CancellationToken, LoadProgress, LoadStart, Observer},
    report::{RunHeader, SampleWriter, results::JsonEncoder},
    sample::Sample,
    traffic::Traffic,
};
use stockade_model::time::Time;
use tokio::sync::mpsc;

use crate::{clock::Nanos, wire::RecordPart};

/// The first fault of an agent's load, which ends it.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    reason: Arc<Mutex<Option<String>>>,
    /// Cancels the load.
    stop: CancellationToken,
}

impl Fault {
    pub(crate) fn none(stop: CancellationToken) -> Self {
        Self { reason: Arc::default(), stop }
    }

    pub(crate) fn note(&self, reason: impl Into<String>) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason.into());
        self.stop.cancel();
    }

    pub(crate) fn take(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Observes a load for its coordinator.
pub(crate) struct RecordObserver {
    pub(crate) records: mpsc::Sender<RecordPart>,
    pub(crate) fault: Fault,
    pub(crate) warmup: Duration,
    /// The start by the clock of the load.
    pub(crate) start: Time,
    /// The number of complete seconds.
    pub(crate) seconds: u64,
    /// The start by the coordinator's clock, once it is known.
    pub(crate) started: Arc<Mutex<Nanos>>,
    pub(crate) samples: Option<SampleFile>,
}

/// A file of samples, whose times are by the coordinator's clock.
pub(crate) struct SampleFile {
    pub(crate) id: String,
    pub(crate) traffic: Arc<Traffic>,
    /// Until the start.
    pub(crate) file: Option<File>,
    pub(crate) writer: Option<SampleWriter<File>>,
}

impl RecordObserver {
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
            let file = samples.file.take();
            samples.writer = file.map(|file| SampleWriter::new(Box::new(JsonEncoder::new(&head)), file));
        }
    }

    fn on_second(&mut self, progress: &LoadProgress<'_>) {
        self.seconds += 1;
        let second = progress.second.clone().since(self.start);
        // The load never waits.
        if self.records.try_send(RecordPart::Second(Box::new(second))).is_err() {
            self.fault.note("NATS does not take its record in time, and it stopped");
        }
    }

    fn on_sample(&mut self, sample: &Sample) -> io::Result<()> {
        let writer = self.samples.as_mut().and_then(|samples| samples.writer.as_mut());
        writer.map_or(Ok(()), |writer| writer.write(sample))
    }
}
