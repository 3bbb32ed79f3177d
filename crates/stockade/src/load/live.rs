//! A load in progress: its seconds to the record and the exporters, its samples to their outputs.

use std::{
    fs::File,
    io::{self, Write},
    sync::Arc,
};

use stockade_load::{
    LoadRecord,
    generator::{LoadProgress, LoadStart, LoadTest, LoadTestError, Observer},
    report::{RunHeader, SampleEncoder, SampleWriter, openmetrics, results},
    sample::Sample,
    traffic::Traffic,
};

use crate::{cli::Out, exit::CommandError, telemetry::LiveFigures};

/// Starts a stream of samples.
type Begin = fn(&RunHeader) -> Box<dyn SampleEncoder>;

/// The outputs of a load in progress.
pub struct LiveReport {
    id: String,
    traffic: Arc<Traffic>,
    waiting: Vec<(Begin, Box<dyn Write>)>,
    outputs: Vec<SampleWriter<Box<dyn Write>>>,
    /// For other systems.
    figures: Option<LiveFigures>,
    record: LoadRecord<'static>,
}

impl LiveReport {
    /// Creates the file of `--out`, if there is one. `stream` writes samples to standard output. Each second of the measured part is added
    /// to the record, and to these figures.
    pub fn new(
        load: &LoadTest,
        (stream, out): (Option<Begin>, Option<&Out>),
        figures: Option<&LiveFigures>,
        record: LoadRecord<'static>,
    ) -> Result<Self, CommandError> {
        let mut waiting: Vec<(Begin, Box<dyn Write>)> = Vec::new();
        if let Some(stream) = stream {
            waiting.push((stream, Box::new(io::stdout())));
        }
        if let Some(out) = out {
            let file = File::create(&out.path).map_err(|error| out.unwritable(&error))?;
            let begin: Begin = if out.is_csv {
                |head| Box::new(results::CsvEncoder::new(head))
            } else {
                |head| Box::new(results::JsonEncoder::new(head))
            };
            waiting.push((begin, Box::new(file)));
        }
        Ok(Self {
            id: load.id.clone(),
            traffic: Arc::clone(&load.traffic),
            waiting,
            outputs: Vec::new(),
            figures: figures.cloned(),
            record,
        })
    }

    /// Writes the last samples, and gives the record back.
    pub fn finish(self) -> (LoadRecord<'static>, Result<(), CommandError>) {
        let written = self.outputs.into_iter().try_for_each(|output| output.finish().map(drop));
        (self.record, written.map_err(|error| LoadTestError::Samples(error).into()))
    }
}

impl Observer for LiveReport {
    fn on_start(&mut self, start: LoadStart) {
        let head = RunHeader {
            id: self.id.clone(),
            clock_zero: start.clock_zero,
            measured_from: start.measured_from,
            traffic: Arc::clone(&self.traffic),
        };
        self.outputs =
            self.waiting.drain(..).map(|(begin, to)| SampleWriter::new(begin(&head), to)).collect();
    }

    fn on_second(&mut self, second: &LoadProgress<'_>) {
        if let Some(figures) = self.figures.as_ref().filter(|_| !second.is_warmup()) {
            figures.add(&openmetrics::measurement(second.tally));
        }
        self.record.second(second);
    }

    fn on_sample(&mut self, sample: &Sample) -> io::Result<()> {
        self.outputs.iter_mut().try_for_each(|output| output.write(sample))
    }
}
