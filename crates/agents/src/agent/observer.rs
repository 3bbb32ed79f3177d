//! The observer of an agent's load: seconds to the coordinator, samples to a file.

use std::{
    fs::File,
    io,
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

use super::fault::Fault;
use crate::{
    clock::{Nanos, duration},
    wire::RecordPart,
};

/// Observes a load for its coordinator.
pub(super) struct RecordObserver {
    pub(super) records: mpsc::Sender<RecordPart>,
    pub(super) fault: Fault,
    pub(super) warmup: Duration,
    /// The start by the clock of the load.
    pub(super) start: Time,
    /// The number of complete seconds.
    pub(super) seconds: u64,
    /// The start by the coordinator's clock, once it is known.
    pub(super) started: Arc<Mutex<Nanos>>,
    pub(super) samples: Option<SampleFile>,
}

/// A file of samples, whose times are by the coordinator's clock.
pub(super) struct SampleFile {
    pub(super) id: String,
    pub(super) traffic: Arc<Traffic>,
    /// Until the start.
    pub(super) file: Option<File>,
    pub(super) writer: Option<SampleWriter<File>>,
}

impl RecordObserver {
    /// Writes the rest of the samples.
    pub(super) fn finish(self) -> io::Result<()> {
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
            let started = duration(started);
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
