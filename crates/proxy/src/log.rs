//! The access log: one line a request, written by a separate thread.
//!
//! ```text
//! AccessLogger::record(AccessRecord) --- a line of text --> the serving thread's buffer
//!                                                             writer: takes all buffers, writes them, every 20 ms
//! ```
//!
//! A serving thread never waits for the disk. It appends its line to a buffer of its own (threads beyond the 64th share
//! theirs); the writer locks a buffer only to swap it for an empty one. A buffer holds 1 MiB. Lines that do not fit,
//! because the disk is full or the reader of standard output does not read, are dropped and
//! [counted](AccessLogWriter::dropped); the next lines are tried again, and standard error gets a warning a minute.
//! Lines of one thread are in order. Lines of several threads stand in the order in which their buffers were taken, so
//! their times may differ by 20 ms.
//!
//! No bytes of a client can look like another line or field: controls, quotation marks, backslashes and bytes that are
//! not text are escaped. Secrets in queries are masked. Long values are cut, with `...` at their end: a line has at most some 16 KiB.

mod buffers;
mod escape;
mod format;
mod mask;
mod output;
mod record;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

pub(crate) use mask::mask_query;

use buffers::LineBuffers;
use output::{LogDestination, LogOutput};

pub use record::{AccessRecord, OriginResult};

use crate::config;

/// How long a drop waits for the lines that are not written yet.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes the access log until it is dropped; a drop waits up to 5 s for the last lines.
#[derive(Debug)]
pub struct AccessLogWriter {
    buffers: Arc<LineBuffers>,
    /// Disconnected when the writer thread has ended.
    ended: Mutex<Receiver<()>>,
}

/// Records requests from any thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AccessLogger(Arc<LineBuffers>);

#[derive(Debug, thiserror::Error)]
pub enum AccessLogError {
    #[error("cannot write the access log to {path}: {error}")]
    Open { path: String, error: io::Error },
    #[error("cannot start the thread that writes the access log: {0}")]
    Thread(io::Error),
}

impl AccessLogWriter {
    pub fn start(config: &config::LogConfig) -> Result<Self, AccessLogError> {
        let writer = Self::start_with(config.format, LogDestination::from_path(config.path.as_deref()))?;
        writer.buffers.set_mask(config.mask_query.clone());
        Ok(writer)
    }

    fn start_with(format: config::LogFormat, destination: LogDestination) -> Result<Self, AccessLogError> {
        let output = LogOutput::open(destination)?;
        let buffers = Arc::new(LineBuffers::new(format));
        let (sender, ended) = mpsc::channel();
        let thread_buffers = Arc::clone(&buffers);
        let run = move || {
            // Disconnects when the thread ends, by a panic too.
            let _sender: mpsc::Sender<()> = sender;
            thread_buffers.run_writer(output);
        };
        let thread = thread::Builder::new().name("access-log".to_owned()).spawn(run);
        buffers.set_writer(thread.map_err(AccessLogError::Thread)?.thread().clone());
        Ok(Self { buffers, ended: Mutex::new(ended) })
    }

    #[must_use]
    pub fn logger(&self) -> AccessLogger {
        AccessLogger(Arc::clone(&self.buffers))
    }

    /// Opens the log's file again, after a rotation has moved it; earlier records go to the old file. If that fails, the
    /// old file stays open and standard error gets a warning.
    pub fn reopen(&self) {
        self.buffers.reopen();
    }

    /// Switches to another format and file, as [`Self::reopen`] does. Requests recorded at the same moment may be
    /// written to the new file in the old format. The names of secrets apply at once.
    pub fn reconfigure(&self, config: &config::LogConfig) {
        self.buffers.set_mask(config.mask_query.clone());
        self.buffers.switch_to(LogDestination::from_path(config.path.as_deref()), config.format);
    }

    /// Lines dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.buffers.dropped()
    }
}

impl AccessLogger {
    /// Never waits: a record that does not fit is dropped and counted.
    pub fn record(&self, record: &AccessRecord<'_>) {
        self.0.record(record);
    }
}

impl Drop for AccessLogWriter {
    fn drop(&mut self) {
        self.buffers.stop();
        // The reader of standard output may never read again.
        let _ = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(FLUSH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests;
