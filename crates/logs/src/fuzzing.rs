//! Properties that hold for every input. The target in `fuzz/` calls them with random inputs, the tests with the kept corpus.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use std::{
    fmt::Write,
    io::{self, Read},
};

use crate::{Format, LogError, LogReader, LogSummary, SIZE_BYTES_MAX};

/// A line with a format, which is empty to tell it, and a log.
///
/// - A format is refused with a message of one line, or written as a text that gives the same format.
/// - The result does not depend on how the log is split into reads.
/// - The requests visited are those counted; lines add up; sizes, counts and messages are within their bounds.
pub fn log(data: &[u8]) {
    let (format, log) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let log = log.strip_prefix(b"\n").unwrap_or_default();
    let format = String::from_utf8_lossy(format);
    let format = match format.parse::<Format>() {
        _ if format.is_empty() => None,
        Ok(format) => {
            assert_eq!(format.to_string().parse(), Ok(format.clone()));
            Some(format)
        }
        Err(error) => return assert_one_line(&error.to_string()),
    };
    let (whole, split) = (read(log, format.clone()), read(OneByte(log), format));
    // The lines before the damage of a compressed log are read or not, depending on the reads.
    let is_damaged = matches!(
        (&whole, &split),
        (Err(LogError::Read { .. }), Err(_)) | (Err(_), Err(LogError::Read { .. }))
    );
    assert!(is_damaged || whole == split, "{whole:?} {split:?}");
    match whole {
        Ok((summary, _)) => check(&summary, log.len()),
        Err(error) => assert_one_line(&error.to_string()),
    }
}

fn check(summary: &LogSummary, bytes: usize) {
    assert!(summary.bad_lines + summary.without_request <= summary.lines);
    assert_eq!(summary.first_bad.len() as u64, summary.bad_lines.min(3));
    assert!(summary.first_bad.is_sorted_by_key(|bad| bad.line));
    summary.first_bad.iter().for_each(|bad| assert_one_line(&bad.to_string()));
    // One byte more can be a line more; decompressed logs have more bytes.
    assert!(summary.lines <= summary.bytes_read + 1 && (summary.bytes_read > 0 || bytes < 32), "{summary:?}");
    assert!(summary.time_reversals < summary.requests.max(1));
}

fn read(from: impl Read, format: Option<Format>) -> Result<(LogSummary, String), LogError> {
    let mut shown = String::new();
    let mut requests = 0_u64;
    let summary = LogReader::from_reader("log", from, format)?.for_each(|request| {
        assert!(request.repeats > 0 && request.bytes.is_none_or(|bytes| bytes <= SIZE_BYTES_MAX));
        requests += 1;
        // A few bytes of an ARC trace are a million requests.
        if requests < 1_000 {
            let _ = writeln!(shown, "{request:?}");
        }
    })?;
    assert_eq!(summary.requests, requests);
    Ok((summary, shown))
}

fn assert_one_line(message: &str) {
    assert!(!message.contains(char::is_control), "{message:?}");
}

/// Reads a byte at a time.
struct OneByte<'a>(&'a [u8]);

impl Read for OneByte<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(1);
        self.0.read(&mut buffer[..length])
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_has_the_properties() {
        super::replay::replay("log", super::log);
    }

    #[test]
    fn logs_of_vendors_have_the_properties() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/fixtures");
        for entry in std::fs::read_dir(folder).expect("the fixtures") {
            let log = std::fs::read(entry.expect("an entry").path()).expect("readable");
            for format in ["", "w3c", "envoy", "alb", "elb", "s3", "haproxy", "squid", "json", "clf"] {
                for cut in [0, 1, 77, log.len() / 2, log.len() - 1] {
                    super::log(&[format.as_bytes(), b"\n", &log[cut..]].concat());
                    super::log(&[format.as_bytes(), b"\n", &log[..cut]].concat());
                }
            }
        }
    }
}
