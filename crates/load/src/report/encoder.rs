//! Encoders of samples, and the writer that buffers their output.

use std::{fmt, io, sync::Arc, time::SystemTime};

use stockade_model::time::Time;

use crate::{sample::Sample, traffic::Traffic};

/// The facts of a run that are known before its first sample.
#[derive(Clone, Debug)]
pub struct RunHeader {
    /// The id of the run; Vegeta's `attack`.
    pub id: String,
    /// The time of day at the clock's zero.
    pub clock_zero: SystemTime,
    /// The start of the measured part: the end of the warm-up.
    pub measured_from: Time,
    /// Maps a request's number to its method and URL.
    pub traffic: Arc<Traffic>,
}

/// Encodes the samples of a run one by one.
pub trait SampleEncoder: Send {
    /// Appends what precedes the first sample.
    fn begin(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Appends what is complete with this sample. Samples arrive roughly in the order in which they finished.
    fn encode(&mut self, sample: &Sample, out: &mut Vec<u8>);

    /// Appends what follows the last sample.
    fn finish(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }
}

/// Writes an encoder's output in pieces of 64 KiB.
pub struct SampleWriter<W> {
    encoder: Box<dyn SampleEncoder>,
    pending: Vec<u8>,
    output: W,
}

impl<W> fmt::Debug for SampleWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleWriter").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

impl<W: io::Write> SampleWriter<W> {
    const PIECE_BYTES: usize = 64 << 10;

    /// Begins the encoding; writes nothing yet.
    #[must_use]
    pub fn new(mut encoder: Box<dyn SampleEncoder>, output: W) -> Self {
        let mut pending = Vec::with_capacity(Self::PIECE_BYTES + 4096);
        encoder.begin(&mut pending);
        Self { encoder, pending, output }
    }

    /// Encodes a sample, and writes when 64 KiB are pending.
    pub fn write(&mut self, sample: &Sample) -> io::Result<()> {
        self.encoder.encode(sample, &mut self.pending);
        if self.pending.len() < Self::PIECE_BYTES { Ok(()) } else { self.write_pending() }
    }

    /// Ends the encoding, writes the rest, flushes and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.encoder.finish(&mut self.pending);
        self.write_pending()?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn write_pending(&mut self) -> io::Result<()> {
        self.output.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }
}
