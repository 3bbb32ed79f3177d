//! Reports of a load, one file each, and the registry that lists them.
//!
//! Most are folds over a [`Summary`], rendered when the run is over. Some are a [`Stream`] of the run's samples, written
//! while it goes on, in constant memory: [`Output`] writes such a stream to wherever it is to go.

mod arm;
mod buckets;
mod clock;
mod go;
mod hdrplot;
mod hgrm;
mod hist;
mod hlog;
mod json;
pub mod results;
pub mod siege;
mod siege_json;
mod text;
pub mod vegeta;

use std::{fmt, io, sync::Arc, time::SystemTime};

use stockade_model::time::Time;

pub use buckets::{Buckets, BucketsError};
pub use hlog::Hlog;

use crate::{sample::Sample, summary::Summary, traffic::Traffic};

/// A format that a load can be reported in.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// As the command line calls it.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// How it is made.
    pub render: Render,
}

/// How a report is made.
#[derive(Clone, Copy, Debug)]
pub enum Render {
    /// From what the run has come to, when it is over.
    Fold(fn(&Summary, &Options) -> String),
    /// From its samples, while it goes on.
    Stream(fn(&Head) -> Box<dyn Stream>),
}

/// What can be chosen about reports.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Of `vegeta-hist`, which has some of its own; where they are given, `json` has them, too.
    pub buckets: Option<Buckets>,
}

/// Every format.
pub const FORMATS: &[Format] = &[
    fold("text", "what was asked and what became of it, for people", text::render),
    fold("json", "Vegeta's JSON report, and all that we know besides", json::render),
    fold("vegeta", "the text of `vegeta report`", vegeta::render),
    fold("vegeta-hist", "the text of `vegeta report -type=hist[...]`", hist::render),
    fold("hdrplot", "the text of `vegeta report -type=hdrplot`", hdrplot::render),
    fold("hgrm", "an HDR histogram's percentiles in ms, as its Java library prints them", hgrm::render),
    stream("hlog", "a log of intervals: an HDR histogram a second, in ns", |head| Box::new(Hlog::new(head))),
    fold("siege", "what siege prints at its end (until 4.1.6)", siege::render),
    fold("siege-json", "what `siege -j` prints", siege_json::render),
    stream("csv", "every sample as `vegeta encode -to=csv` has it", |head| Box::new(results::Csv::new(head))),
];

/// The format of that name.
#[must_use]
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

const fn fold(name: &'static str, about: &'static str, render: fn(&Summary, &Options) -> String) -> Format {
    Format { name, about, render: Render::Fold(render) }
}

const fn stream(name: &'static str, about: &'static str, new: fn(&Head) -> Box<dyn Stream>) -> Format {
    Format { name, about, render: Render::Stream(new) }
}

/// What is known of a run before its first sample.
#[derive(Clone, Debug)]
pub struct Head {
    /// Tells this run from all others.
    pub id: String,
    /// The time of day at the clock's zero.
    pub clock_zero: SystemTime,
    /// When the measured part begins.
    pub began: Time,
    /// What is asked for.
    pub traffic: Arc<Traffic>,
}

/// A report that is written sample by sample.
pub trait Stream: Send {
    /// Appends what comes before the first sample.
    fn begin(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Appends what is to be written now that this request has ended.
    fn sample(&mut self, sample: &Sample, out: &mut Vec<u8>);

    /// Appends what comes after the last sample.
    fn end(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }
}

/// Writes a stream, a large piece at a time.
pub struct Output<W> {
    stream: Box<dyn Stream>,
    pending: Vec<u8>,
    to: W,
}

impl<W> fmt::Debug for Output<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

impl<W: io::Write> Output<W> {
    /// So many bytes are written at once.
    const PIECE: usize = 64 << 10;

    /// Begins the stream; nothing is written yet.
    #[must_use]
    pub fn new(mut stream: Box<dyn Stream>, to: W) -> Self {
        let mut pending = Vec::with_capacity(Self::PIECE + 4096);
        stream.begin(&mut pending);
        Self { stream, pending, to }
    }

    /// Adds a sample, and writes if enough has come together.
    pub fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        self.stream.sample(sample, &mut self.pending);
        if self.pending.len() < Self::PIECE { Ok(()) } else { self.write() }
    }

    /// Ends the stream and writes all that is left of it.
    pub fn finish(mut self) -> io::Result<W> {
        self.stream.end(&mut self.pending);
        self.write()?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn write(&mut self) -> io::Result<()> {
        self.to.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
