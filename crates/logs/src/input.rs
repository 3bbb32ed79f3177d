//! The bytes of a log: plain, gzip or zstd, by lines or by records.

use std::{
    fmt,
    io::{self, BufReader, Cursor, Read},
};

use memchr::memchr;

use crate::gzip::GzipMembers;

/// The longest line, with its end.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// A longer line ends the reading: text has line ends before.
const SKIPPED_BYTES_MAX: u64 = 64 << 20;

/// Holds a line of the greatest length, and enough after it to read in large parts.
const BUFFER_BYTES: usize = 256 << 10;

/// The most bytes that can be looked at before they are handed out.
pub(crate) const PEEKED_BYTES_MAX: usize = BUFFER_BYTES - LINE_BYTES_MAX;

/// RFC 1952, 2.3.1.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Why reading ended early. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReadError {
    /// The line or record that could not be read, from 1.
    pub line: u64,
    /// The error and its remedy.
    pub message: String,
}

/// A line without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// From 1.
    pub number: u64,
    /// None: the line is longer than [`LINE_BYTES_MAX`].
    pub text: Option<&'a [u8]>,
}

/// How the bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    #[cfg(feature = "zstd")]
    Zstd,
}

/// Decompresses bytes, and hands them out by lines, by records of one length, or as they are. Its memory is constant.
pub struct InputReader<'a> {
    from: Box<dyn Read + 'a>,
    compression: Compression,
    buffer: Vec<u8>,
    /// The bytes that were read and not handed out.
    start: usize,
    end: usize,
    /// Lines or records handed out.
    count: u64,
    /// Bytes handed out, after decompression.
    bytes: u64,
    /// The last line was too long, and its rest is still to be skipped.
    is_within_long_line: bool,
    /// An error after bytes that were not handed out yet.
    error: Option<ReadError>,
}

impl<'a> InputReader<'a> {
    /// The first bytes decide how it is compressed.
    pub fn new(mut from: impl Read + 'a) -> Result<Self, ReadError> {
        let mut head = Vec::new();
        let mut first = from.by_ref().take(4);
        first.read_to_end(&mut head).map_err(|error| read_error(1, &error, Compression::None))?;
        let compression = compression(&head);
        let whole = Cursor::new(head).chain(from);
        let from: Box<dyn Read + 'a> = match compression {
            Compression::None => Box::new(whole),
            // Appended logs are several gzip members.
            Compression::Gzip => Box::new(GzipMembers::new(BufReader::with_capacity(64 << 10, whole))),
            #[cfg(feature = "zstd")]
            Compression::Zstd => {
                Box::new(crate::zstd::ZstdFrames::new(BufReader::with_capacity(64 << 10, whole)))
            }
        };
        let buffer = vec![0; BUFFER_BYTES];
        Ok(Self {
            from,
            compression,
            buffer,
            start: 0,
            end: 0,
            count: 0,
            bytes: 0,
            is_within_long_line: false,
            error: None,
        })
    }

    /// The next line; none: the input has ended.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>, ReadError> {
        if self.is_within_long_line {
            self.skip_long_line()?;
        }
        self.skip_zeros()?;
        let mut searched = 0;
        let length = loop {
            let unsearched = &self.buffer[self.start + searched..self.end];
            if let Some(at) = memchr(b'\n', unsearched) {
                break searched + at + 1;
            }
            searched += unsearched.len();
            if searched > LINE_BYTES_MAX || !self.fill()? {
                break searched;
            }
        };
        if length == 0 {
            return Ok(None);
        }
        self.count += 1;
        let number = self.count;
        if length > LINE_BYTES_MAX {
            self.is_within_long_line = true;
            return Ok(Some(Line { number, text: None }));
        }
        let text = self.consume(length);
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        // Each of the files that were concatenated may have its mark.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        Ok(Some(Line { number, text: Some(text) }))
    }

    /// The next record of `length` bytes, at most [`LINE_BYTES_MAX`]. The last one may be shorter; an empty one is the end.
    pub fn next_record(&mut self, length: usize) -> Result<&[u8], ReadError> {
        let length = self.peek(length)?.len().min(length);
        self.count += u64::from(length > 0);
        Ok(self.consume(length))
    }

    /// The bytes that come next, at least `length` of them (at most [`PEEKED_BYTES_MAX`]) if the input does not end before. An error is
    /// returned when the bytes before it have been handed out.
    pub fn peek(&mut self, length: usize) -> Result<&[u8], ReadError> {
        while self.end - self.start < length.min(PEEKED_BYTES_MAX) {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if self.start == self.end => return Err(error),
                Err(error) => {
                    self.error = Some(error);
                    break;
                }
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// The number of lines or records handed out.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of bytes handed out, after decompression.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes
    }

    fn consume(&mut self, length: usize) -> &[u8] {
        let taken = &self.buffer[self.start..self.start + length];
        self.start += length;
        self.bytes += length as u64;
        taken
    }

    /// Reads more behind the bytes that are not handed out, which are fewer than [`PEEKED_BYTES_MAX`]; false: the input has ended.
    fn fill(&mut self) -> Result<bool, ReadError> {
        if let Some(error) = self.error.take() {
            return Err(ReadError { line: self.count + 1, ..error });
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < LINE_BYTES_MAX {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let read = read(&mut self.from, &mut self.buffer[self.end..]);
        let read = read.map_err(|error| read_error(self.count + 1, &error, self.compression))?;
        self.end += read;
        Ok(read > 0)
    }

    /// Skips the zeros that come next. A file has them where it was truncated while its writer went on, and at the end of a block.
    pub(crate) fn skip_zeros(&mut self) -> Result<(), ReadError> {
        loop {
            let zeros = self.buffer[self.start..self.end].iter().take_while(|byte| **byte == 0).count();
            self.consume(zeros);
            if self.start < self.end || !self.fill()? {
                return Ok(());
            }
        }
    }

    fn skip_long_line(&mut self) -> Result<(), ReadError> {
        let from = self.bytes;
        loop {
            let found = memchr(b'\n', &self.buffer[self.start..self.end]);
            self.consume(found.map_or(self.end - self.start, |at| at + 1));
            if found.is_some() || !self.fill()? {
                self.is_within_long_line = false;
                return Ok(());
            }
            if self.bytes - from > SKIPPED_BYTES_MAX {
                let message = "the line has no end within 64 MiB: it is not the text of a log".to_owned();
                return Err(ReadError { line: self.count, message });
            }
        }
    }
}

/// The bytes that come next, without counting lines.
impl Read for InputReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            self.fill().map_err(io::Error::other)?;
        }
        let length = buffer.len().min(self.end - self.start);
        buffer[..length].copy_from_slice(self.consume(length));
        Ok(length)
    }
}

impl fmt::Debug for InputReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputReader")
            .field("compression", &self.compression)
            .field("count", &self.count)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// The line without the zeros before it, which a file has where it was truncated while its writer went on.
pub(crate) fn without_zeros(line: &[u8]) -> &[u8] {
    let zeros = line.iter().take_while(|byte| **byte == 0).count();
    &line[zeros..]
}

fn compression(head: &[u8]) -> Compression {
    #[cfg(feature = "zstd")]
    if crate::zstd::begins_frame(head) {
        return Compression::Zstd;
    }
    if head.starts_with(&GZIP_MAGIC) { Compression::Gzip } else { Compression::None }
}

fn read(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn read_error(line: u64, error: &io::Error, compression: Compression) -> ReadError {
    let remedy = match compression {
        Compression::None => "",
        Compression::Gzip => ": the gzip is damaged, check it with `gzip -t`",
        #[cfg(feature = "zstd")]
        Compression::Zstd => ": the zstd file is damaged, check it with `zstd -t`",
    };
    ReadError { line, message: format!("cannot read on from here ({error}){remedy}") }
}
