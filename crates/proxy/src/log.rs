//! The access log: a line for each request, written by a thread of its own.
//!
//! ```text
//! Logger::record(Entry) -- a line of text --> the serving thread's buffer
//!                                               writer: takes all buffers, writes them, every 20 ms at most
//! ```
//!
//! Whoever serves never waits: the line is written into a buffer that nobody else writes to but threads beyond the
//! 64th, and that the writer holds for as long as it takes to swap it for an empty one. A buffer holds 1 MiB. What does
//! not fit, because the disk is full or whoever reads standard output does not, is dropped and [counted](Log::dropped);
//! it is tried again with the next lines, and standard error is told once a minute. Lines of one thread are in order;
//! those of several stand as their buffers were taken, so that their times may differ by 20 ms.
//!
//! Nothing that a client sends can look like another line or field: controls, quotation marks and backslashes are
//! escaped, and what is not text is, too. Long values are cut, with `...` at their end: a line has 16 KiB or so at
//! most.

mod combined;
mod entry;
mod escape;
mod json;
mod lines;
mod sink;
mod stamp;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use lines::Lines;
use sink::{Sink, Target};

pub use entry::{Entry, OriginAnswer};

use crate::config;

/// How long lines are gathered before they are written.
const GATHER: Duration = Duration::from_millis(20);
/// How long the end waits for what has not been written yet.
const FLUSH: Duration = Duration::from_secs(5);

/// An access log that is written until it is dropped, and then to its end: five seconds are taken for that.
#[derive(Debug)]
pub struct Log {
    lines: Arc<Lines>,
    /// Hangs up when the writer has ended.
    ended: Mutex<Receiver<()>>,
}

/// Where requests are recorded: as many as wanted, for any thread.
#[derive(Clone, Debug)]
pub struct Logger(Arc<Lines>);

/// The log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Its file cannot be written to.
    #[error("cannot write the access log to {path}: {error}")]
    Open {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// There is no thread left to write it.
    #[error("cannot start the thread that writes the access log: {0}")]
    Thread(io::Error),
}

impl Log {
    /// Opens the log, and begins to write it.
    pub fn start(settings: &config::Log) -> Result<Self, LogError> {
        Self::start_with(settings.format, Target::of(settings.path.as_deref()))
    }

    fn start_with(format: config::Format, target: Target) -> Result<Self, LogError> {
        let sink = Sink::open(target)?;
        let lines = Arc::new(Lines::new(format));
        let (end, ended) = mpsc::channel();
        let writer = Arc::clone(&lines);
        let write = move || {
            // Hung up when the thread ends, in whatever way.
            let _end: mpsc::Sender<()> = end;
            writer.write(sink);
        };
        let thread = thread::Builder::new().name("access-log".to_owned()).spawn(write);
        lines.set_writer(thread.map_err(LogError::Thread)?.thread().clone());
        Ok(Self { lines, ended: Mutex::new(ended) })
    }

    /// Where requests are recorded.
    #[must_use]
    pub fn logger(&self) -> Logger {
        Logger(Arc::clone(&self.lines))
    }

    /// Opens its file anew, for whoever has moved it away; what has been recorded until now is written before. A file
    /// that cannot be opened is told on standard error, and the old one is kept.
    pub fn reopen(&self) {
        self.lines.reopen();
    }

    /// Goes on in another format and file, in the same way. Requests that are recorded at that very moment may be
    /// written to the new file in the old format.
    pub fn change(&self, settings: &config::Log) {
        self.lines.turn_to(Target::of(settings.path.as_deref()), settings.format);
    }

    /// How many lines were dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lines.dropped()
    }
}

impl Logger {
    /// Records a request. It never waits: where there is no room, it is dropped and counted.
    pub fn record(&self, entry: &Entry<'_>) {
        self.0.record(entry);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.lines.end();
        // Whoever reads standard output may never do so again.
        let _ = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(FLUSH);
    }
}

#[cfg(test)]
mod tests;
