//! The lines of a plain or gzip log.

use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, Cursor, Read},
};

use flate2::read::MultiGzDecoder;

use super::{super::LINE_BYTES_MAX, LINES_MAX, LineError};

/// RFC 1952, 2.3.1.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reads line by line into one buffer.
pub(super) struct LogLines<'a> {
    from: Box<dyn BufRead + 'a>,
    is_gzip: bool,
    line: Vec<u8>,
    count: u32,
}

impl<'a> LogLines<'a> {
    /// The first bytes decide whether it is gzip.
    pub fn new(mut from: impl Read + 'a) -> Result<Self, LineError> {
        let mut head = Vec::new();
        let mut first = from.by_ref().take(GZIP_MAGIC.len() as u64);
        first.read_to_end(&mut head).map_err(|error| read_error(1, &error, false))?;
        let is_gzip = head == GZIP_MAGIC;
        let whole = Cursor::new(head).chain(from);
        let from: Box<dyn BufRead + 'a> = if is_gzip {
            // Appended logs are several gzip members.
            Box::new(BufReader::with_capacity(64 << 10, MultiGzDecoder::new(BufReader::new(whole))))
        } else {
            Box::new(BufReader::with_capacity(64 << 10, whole))
        };
        Ok(Self { from, is_gzip, line: Vec::new(), count: 0 })
    }

    /// The next line and its number, from 1.
    pub fn next(&mut self) -> Result<Option<(u32, Cow<'_, str>)>, LineError> {
        self.line.clear();
        let number = self.count + 1;
        let read = self.from.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut self.line);
        if read.map_err(|error| read_error(number, &error, self.is_gzip))? == 0 {
            return Ok(None);
        }
        let error = |message: &str| Err(LineError::new(number.into(), message));
        if self.line.len() > LINE_BYTES_MAX {
            return error("the line has more than 64 KiB: leave it out");
        }
        if number > LINES_MAX {
            return error(
                "there are more than 20,000,000 lines: replay a part of the log, such as its first hour",
            );
        }
        self.count = number;
        let line = if number == 1 {
            self.line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.line)
        } else {
            &self.line
        };
        Ok(Some((number, String::from_utf8_lossy(line))))
    }

    /// The number of lines read.
    pub fn count(&self) -> u32 {
        self.count
    }
}

fn read_error(line: u32, error: &io::Error, is_gzip: bool) -> LineError {
    let remedy = if is_gzip { ": the gzip is damaged, check it with `gzip -t`" } else { "" };
    LineError::new(line.into(), format!("cannot read on from here ({error}){remedy}"))
}
