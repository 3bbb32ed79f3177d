//! A load in progress: a line at a terminal, samples to their outputs.

use std::{
    fs::File,
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use stockade_lab::{http::LoadRecord, run::RunObserver};
use stockade_load::{
    generator::{LoadProgress, LoadStart, LoadTest, LoadTestError, Observer},
    report::{RunHeader, SampleEncoder, SampleWriter, openmetrics, results},
    sample::Sample,
    summary::Summary,
    traffic::Traffic,
};
use stockade_model::{
    record::Expectation,
    units::{format_count, format_duration, format_span},
};

use crate::{cli::Out, exit::CommandError, telemetry::LiveFigures};

/// Starts a stream of samples.
type Begin = fn(&RunHeader) -> Box<dyn SampleEncoder>;

/// The progress and the sample outputs of a load.
pub struct LiveReport {
    id: String,
    traffic: Arc<Traffic>,
    lasts: Option<Duration>,
    bar: ProgressBar,
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
        let lasts = load.plan.duration();
        let bar = ProgressBar::new(lasts.map_or(0, |lasts| lasts.as_secs().max(1)));
        let template = if lasts.is_some() { "{bar:24} {wide_msg}" } else { "{spinner} {wide_msg}" };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
        bar.enable_steady_tick(Duration::from_millis(250));
        bar.set_message("connecting");
        Ok(Self {
            id: load.id.clone(),
            traffic: Arc::clone(&load.traffic),
            lasts,
            bar,
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
    pub fn finish_page(&mut self, summary: &Summary, expectations: &[Expectation], was_cancelled: bool) {
        if let Some(record) = self.record.take() {
            record.finish(summary, expectations, was_cancelled);
        }
    }

    /// Writes the last samples.
    pub fn finish(&mut self) -> Result<(), CommandError> {
        self.bar.finish_and_clear();
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
        self.bar.set_message("");
    }

    fn on_second(&mut self, second: &LoadProgress<'_>) {
        let LoadProgress { elapsed, tally, is_warmup, requests, failed } = *second;
        if let Some(figures) = self.figures.as_ref().filter(|_| !is_warmup) {
            figures.add(&openmetrics::measurement(tally));
        }
        if let Some(record) = &mut self.record {
            record.second(second);
        }
        self.bar.set_position(elapsed.as_secs());
        let of = self.lasts.map_or_else(String::new, |lasts| format!("/{}", format_span(lasts)));
        let p99 = tally.latencies().quantile(0.99).map_or_else(|| "-".to_owned(), format_duration);
        let warmup = if is_warmup { " (warming up)" } else { "" };
        self.bar.set_message(format!(
            "{}{of}  {}/s  p99 {p99}  {} requests, {} failed{warmup}",
            format_span(elapsed),
            format_count(tally.requests()),
            format_count(requests),
            format_count(failed),
        ));
    }

    fn on_sample(&mut self, sample: &Sample) -> io::Result<()> {
        self.outputs.iter_mut().try_for_each(|output| output.write(sample))
    }
}

impl Drop for LiveReport {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
