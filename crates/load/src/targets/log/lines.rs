//! The lines of a log, packed or not.

use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, Cursor, Read},
};

use flate2::read::MultiGzDecoder;

use super::{super::LINE_BYTES_MAX, LINES_MAX, Wrong};

/// What gzip begins with (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// One line after the other, in one buffer.
pub(super) struct Lines<'a> {
    from: Box<dyn BufRead + 'a>,
    is_packed: bool,
    line: Vec<u8>,
    count: u32,
}

impl<'a> Lines<'a> {
    /// Those of a text, or of a text in gzip. Its first bytes tell.
    pub fn of(mut from: impl Read + 'a) -> Result<Self, Wrong> {
        let mut head = Vec::new();
        let mut first = from.by_ref().take(GZIP.len() as u64);
        first.read_to_end(&mut head).map_err(|error| unread(1, &error, false))?;
        let is_packed = head == GZIP;
        let whole = Cursor::new(head).chain(from);
        let from: Box<dyn BufRead + 'a> = if is_packed {
            // Logs that were appended to each other are several members.
            Box::new(BufReader::with_capacity(64 << 10, MultiGzDecoder::new(BufReader::new(whole))))
        } else {
            Box::new(BufReader::with_capacity(64 << 10, whole))
        };
        Ok(Self { from, is_packed, line: Vec::new(), count: 0 })
    }

    /// The next one and its number, from 1 on.
    pub fn next(&mut self) -> Result<Option<(u32, Cow<'_, str>)>, Wrong> {
        self.line.clear();
        let number = self.count + 1;
        let read = self.from.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut self.line);
        if read.map_err(|error| unread(number, &error, self.is_packed))? == 0 {
            return Ok(None);
        }
        let wrong = |message: &str| Err(Wrong::new(number.into(), message));
        if self.line.len() > LINE_BYTES_MAX {
            return wrong("the line has more than 64 KiB: leave it out");
        }
        if number > LINES_MAX {
            return wrong(
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

    /// How many there were.
    pub fn count(&self) -> u32 {
        self.count
    }
}

fn unread(line: u32, error: &io::Error, is_packed: bool) -> Wrong {
    let remedy = if is_packed { ": the gzip is broken, see what `gunzip` makes of it" } else { "" };
    Wrong::new(line.into(), format!("cannot read on from here ({error}){remedy}"))
}
