//! A load in progress: a view at a terminal, samples to their outputs.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    sync::Arc,
};

use stockade_load::{
    LoadRecord,
    generator::{LoadProgress, LoadStart, LoadTest, LoadTestError, Observer},
    report::{RunHeader, SampleEncoder, SampleWriter, openmetrics, results},
    sample::Sample,
    traffic::Traffic,
};

use crate::{
    cli::Out,
    exit::CommandError,
    progress::{LiveScreen, LoadView},
    telemetry::LiveFigures,
};

/// Starts a stream of samples.
type Begin = fn(&RunHeader) -> Box<dyn SampleEncoder>;

/// The progress and the sample outputs of a load.
pub struct LiveReport {
    id: String,
    traffic: Arc<Traffic>,
    /// `None`: closed.
    live: Option<LiveScreen<LoadView>>,
    waiting: Vec<(Begin, Box<dyn Write>)>,
    outputs: Vec<SampleWriter<Box<dyn Write>>>,
    /// For other systems.
    figures: Option<LiveFigures>,
    record: Option<LoadRecord<'static>>,
}

impl LiveReport {
    /// Creates the file of `--out`, if there is one. `stream` writes samples to standard output.
    pub fn new(load: &LoadTest, stream: Option<Begin>, out: Option<&Out>) -> Result<Self, CommandError> {
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
        // Samples on the same terminal would break its lines.
        let is_quiet = stream.is_some() && io::stdout().is_terminal();
        let live = (!is_quiet).then(|| LiveScreen::open(LoadView::new(&load.plan)));
        Ok(Self {
            id: load.id.clone(),
            traffic: Arc::clone(&load.traffic),
            live,
            waiting,
            outputs: Vec::new(),
            figures: None,
            record: None,
        })
    }

    /// Adds each second of the measured part to these figures.
    pub fn with_figures(mut self, figures: Option<&LiveFigures>) -> Self {
        self.figures = figures.cloned();
        self
    }

    /// Adds each second of the measured part to the record.
    pub fn with_record(self, record: LoadRecord<'static>) -> Self {
        Self { record: Some(record), ..self }
    }

    /// Writes the last samples, and gives the record back.
    pub fn finish(mut self) -> (Option<LoadRecord<'static>>, Result<(), CommandError>) {
        // The view leaves the terminal.
        self.live = None;
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
        if let Some(live) = &self.live {
            live.update(|view, _| view.start());
        }
    }

    fn on_second(&mut self, second: &LoadProgress<'_>) {
        if let Some(figures) = self.figures.as_ref().filter(|_| !second.is_warmup()) {
            figures.add(&openmetrics::measurement(second.tally));
        }
        if let Some(live) = &self.live {
            live.update(|view, now| view.add(second, now));
        }
        if let Some(record) = &mut self.record {
            record.second(second);
        }
    }

    fn on_sample(&mut self, sample: &Sample) -> io::Result<()> {
        self.outputs.iter_mut().try_for_each(|output| output.write(sample))
    }
}
