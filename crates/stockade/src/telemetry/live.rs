//! The figures of a run so far.

use std::sync::{Arc, Mutex, PoisonError};

use stockade_record::progress::{RunObserver, RunProgress};
use stockade_record::telemetry::{
    family::Labels,
    measurement::{MeasurementSnapshot, RunSnapshot},
};

/// The figures so far, shared by the run and the exporters.
#[derive(Clone, Debug)]
pub struct LiveFigures(Arc<Mutex<RunSnapshot>>);

impl LiveFigures {
    pub fn new(resource: Labels) -> Self {
        Self(Arc::new(Mutex::new(RunSnapshot { resource, ..RunSnapshot::default() })))
    }

    /// Copies references, so that it holds the lock for microseconds.
    pub fn snapshot(&self) -> RunSnapshot {
        self.with(|run| run.clone())
    }

    /// Adds a second of a measurement.
    pub fn add(&self, second: &MeasurementSnapshot) {
        self.with(|run| run.add(second));
    }

    /// Replaces the figures by those of the finished run, and keeps the resource.
    pub fn finish(&self, finished: RunSnapshot) {
        self.with(|run| {
            let resource = std::mem::take(&mut run.resource);
            *run = RunSnapshot { resource, ..finished };
            let excess = run.measurements.len().saturating_sub(RunSnapshot::LIVE_MEASUREMENTS_MAX);
            run.measurements.drain(..excess);
        });
    }

    fn with<T>(&self, change: impl FnOnce(&mut RunSnapshot) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Adds the seconds of a run to figures.
pub struct FiguresOfRun(pub LiveFigures);

impl RunObserver for FiguresOfRun {
    fn on(&mut self, progress: &RunProgress<'_>) {
        match progress {
            RunProgress::Measuring { record, .. } => {
                let (planned, finished) = (record.planned as u64, record.runs.len() as u64);
                self.0.with(|run| (run.planned, run.finished) = (Some(planned), Some(finished)));
            }
            RunProgress::Second { interval, .. } => self.0.add(&MeasurementSnapshot::of(interval)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_run_keeps_the_resource_and_the_bound() {
        let figures = LiveFigures::new(vec![("service.name", "stockade".to_owned())]);
        let measurement = |repeat| Arc::new(MeasurementSnapshot { repeat, ..MeasurementSnapshot::default() });
        let measurements = (1..=300).map(measurement).collect();
        figures.finish(RunSnapshot { measurements, finished: Some(300), ..RunSnapshot::default() });
        let run = figures.snapshot();
        assert_eq!((run.resource.len(), run.finished, run.measurements.len()), (1, Some(300), 256));
        assert_eq!(run.measurements[255].repeat, 300);
    }

    #[test]
    fn reader_has_the_figures_of_its_moment() {
        let figures = LiveFigures::new(Vec::new());
        let one = MeasurementSnapshot { requests: 1, ..MeasurementSnapshot::default() };
        figures.add(&one);
        let before = figures.snapshot();
        figures.add(&one);
        assert_eq!((before.measurements[0].requests, figures.snapshot().measurements[0].requests), (1, 2));
    }
}
