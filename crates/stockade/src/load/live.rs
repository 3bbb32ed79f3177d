//! A load while it goes on: a line at a terminal, samples to where they go.

use std::{
    fs::File,
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use stockade_load::{
    drive::{Begins, Load, LoadError, Observer, Progress},
    report::{Head, Output, Stream, results},
    sample::Sample,
    traffic::Traffic,
};
use stockade_model::units::{format_count, format_duration, format_span};

use crate::{cli::Out, exit::Failure};

/// How a stream is begun.
type Begin = fn(&Head) -> Box<dyn Stream>;

/// Follows a load.
pub struct Live {
    id: String,
    traffic: Arc<Traffic>,
    lasts: Option<Duration>,
    bar: ProgressBar,
    waiting: Vec<(Begin, Box<dyn Write>)>,
    outputs: Vec<Output<Box<dyn Write>>>,
}

impl Live {
    /// With a report on standard output that is written as it comes, and a file, if there are any.
    pub fn new(load: &Load, stream: Option<Begin>, out: Option<&Out>) -> Result<Self, Failure> {
        let mut waiting: Vec<(Begin, Box<dyn Write>)> = Vec::new();
        if let Some(stream) = stream {
            waiting.push((stream, Box::new(io::stdout())));
        }
        if let Some(out) = out {
            let file = File::create(&out.path).map_err(|error| out.unwritable(&error))?;
            let begin: Begin = if out.is_csv {
                |head| Box::new(results::Csv::new(head))
            } else {
                |head| Box::new(results::Json::new(head))
            };
            waiting.push((begin, Box::new(file)));
        }
        let lasts = load.plan.lasts();
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
        })
    }

    /// Writes all that is left to write.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        for output in self.outputs.drain(..) {
            output.finish().map_err(LoadError::Samples)?;
        }
        Ok(())
    }
}

impl Observer for Live {
    fn begins(&mut self, begins: Begins) {
        let head = Head {
            id: self.id.clone(),
            clock_zero: begins.clock_zero,
            began: begins.at,
            traffic: Arc::clone(&self.traffic),
        };
        self.outputs = self.waiting.drain(..).map(|(begin, to)| Output::new(begin(&head), to)).collect();
        self.bar.set_message("");
    }

    fn second(&mut self, second: &Progress<'_>) {
        let Progress { elapsed, tally, is_warmup, requests, failed } = *second;
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

    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        self.outputs.iter_mut().try_for_each(|output| output.sample(sample))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
