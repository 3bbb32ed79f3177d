//! A load in progress: a view at a terminal, samples to their outputs.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    sync::Arc,
};

use stockade_lab::http::LoadRecord;
use stockade_load::{
    generator::{LoadProgress, LoadStart, LoadTest, LoadTestError, Observer},
    report::{RunHeader, SampleEncoder, SampleWriter, openmetrics, results},
    sample::Sample,
    summary::Summary,
    traffic::Traffic,
};
use stockade_record::{
    events::RunObserver,
    record::{Expectation, Verdict},
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
    /// For a page.
    record: Option<LoadRecord>,
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

    /// Adds each second of the measured part to a record, which goes to this observer at the end.
    pub fn with_page(mut self, load: &LoadTest, title: &str, observer: Option<Box<dyn RunObserver>>) -> Self {
        self.record = observer.map(|observer| LoadRecord::start(load, title, observer));
        self
    }

    /// Hands the record to its observer.
    pub fn finish_page(
        &mut self,
        summary: &Summary,
        expectations: &[Expectation],
        verdict: Verdict,
        was_cancelled: bool,
    ) {
        if let Some(record) = self.record.take() {
            record.finish(summary, expectations, verdict, was_cancelled);
        }
    }

    /// Writes the last samples.
    pub fn finish(&mut self) -> Result<(), CommandError> {
        self.live = None;
        for output in self.outputs.drain(..) {
            output.finish().map_err(LoadTestError::Samples)?;
        }
        Ok(())
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
