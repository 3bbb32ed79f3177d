//! Guesses the format of a log from its name and its first bytes.

use std::path::Path;

use memchr::memchr;

use crate::{
    format::{FORMATS, Format},
    formats::{
        RECORD_BYTES,
        access::{CLF, JSON, is_json_line},
        blocks::{ARC, KEYS, LIRS},
        har::HAR,
        key_value::{META, is_meta_header},
        oracle_general::ORACLE_GENERAL,
        split_columns,
        w3c::{W3C, is_table_line},
    },
    input::without_zeros,
    wrapper::{Wrapper, unwrap_head},
};

/// The first bytes that decide.
pub(crate) const HEAD_BYTES: usize = 32 << 10;

/// The first lines that decide.
const LINES: usize = 20;

/// Other names of the columns of a table.
const COLUMN_NAMES: [(&str, &str); 19] = [
    ("key", "key"),
    ("obj_id", "key"),
    ("object_id", "key"),
    ("id", "key"),
    ("url", "url"),
    ("host", "host"),
    ("method", "method"),
    ("operation", "operation"),
    ("op", "operation"),
    ("time", "time"),
    ("timestamp", "time"),
    ("time_ms", "time_ms"),
    ("time_us", "time_us"),
    ("time_ns", "time_ns"),
    ("status", "status"),
    ("size", "size"),
    ("obj_size", "size"),
    ("bytes", "size"),
    ("ttl", "ttl"),
];

/// The format of a log with this name and these first bytes (all of them, if there are fewer than [`HEAD_BYTES`]). An error says why it
/// cannot be told.
pub(crate) fn guess(name: &str, head: &[u8]) -> Result<Format, &'static str> {
    let whole = head.len() < HEAD_BYTES;
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    if let Some(format) = by_name(name) {
        return Ok(format);
    }
    if memchr(0, head).is_some() && is_oracle_general(head) {
        return Ok(Format::from(&ORACLE_GENERAL));
    }
    if is_har(head) {
        return Ok(Format::from(&HAR));
    }
    let whole = if whole { head } else { &head[..memchr::memrchr(b'\n', head).unwrap_or(head.len())] };
    match Wrapper::of(whole) {
        Some(wrapper) => {
            let lines = unwrap_head(whole, wrapper);
            // A container starts with other lines than those of requests.
            let mut lines = lines_of(&lines);
            guess_of_lines(lines.split_off(lines.len().saturating_sub(LINES)), 5)
        }
        None => {
            let lines = lines_of(whole);
            let first = guess_of_lines(lines[..lines.len().min(LINES)].to_vec(), 9);
            // A server that writes all to one place starts with other lines, too.
            first.or_else(|reason| {
                let last = &lines[lines.len().saturating_sub(LINES)..];
                guess_of_lines(last.to_vec(), 5).ok().filter(Format::is_access_log).ok_or(reason)
            })
        }
    }
}

/// The lines that are not blank, without the zeros before them.
pub(crate) fn lines_of(head: &[u8]) -> Vec<&[u8]> {
    let lines = head.split(|byte| *byte == b'\n').map(|line| without_zeros(line).trim_ascii_end());
    lines.filter(|line| !line.trim_ascii().is_empty()).collect()
}

/// The first format that can read at least this many tenths of the lines.
fn guess_of_lines(mut lines: Vec<&[u8]>, tenths: usize) -> Result<Format, &'static str> {
    let Some(first) = lines.first() else { return Err("its first lines are blank") };
    if lines.iter().any(|line| memchr(0, line).is_some()) {
        return Err("it is binary");
    }
    if first.trim_ascii_start().starts_with(b"{") {
        return Ok(Format::from(&JSON));
    }
    if lines.iter().any(|line| is_table_line(line)) {
        return Ok(Format::from(&W3C));
    }
    if lines.iter().any(|line| !line.starts_with(b"#")) {
        lines.retain(|line| !line.starts_with(b"#"));
    }
    let first = lines[0];
    if is_meta_header(first) {
        return Ok(Format::from(&META));
    }
    let formats = FORMATS.iter().filter(|kind| kind.is_guessed).map(Format::from);
    let fitting = formats.filter_map(|format| Some((requests_as(&format, &lines, tenths)?, format)));
    // The one with most requests, since messages and lines without a request fit in several.
    if let Some((_, format)) = fitting.min_by_key(|(requests, _)| std::cmp::Reverse(*requests)) {
        let json = lines.iter().filter(|line| is_json_line(line)).count();
        let is_json = format == Format::from(&CLF) && json * 2 > lines.len();
        return Ok(if is_json { Format::from(&JSON) } else { format });
    }
    if let Some(columns) = table_columns(first) {
        return Ok(columns);
    }
    let is_key = |line: &&[u8]| {
        str::from_utf8(line).is_ok_and(|key| !key.contains([' ', '\t']) && !key.contains(char::is_control))
    };
    if lines.iter().all(is_key) {
        Ok(Format::from(&KEYS))
    } else {
        Err("its first lines are not in a known format")
    }
}

fn by_name(name: &str) -> Option<Format> {
    let name = name.to_ascii_lowercase();
    let name = Path::new(&name).file_name()?.to_str()?;
    let name = [".gz", ".zst", ".zstd"].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    if name.contains("oraclegeneral") {
        return Some(Format::from(&ORACLE_GENERAL));
    }
    match Path::new(name).extension()?.to_str()? {
        "har" => Some(Format::from(&HAR)),
        "lirs" => Some(Format::from(&LIRS)),
        "arc" => Some(Format::from(&ARC)),
        _ => None,
    }
}

/// The lines that have requests, if the format can read at least this many tenths of the lines.
fn requests_as(format: &Format, lines: &[&[u8]], tenths: usize) -> Option<usize> {
    let mut parser = format.line_parser()?;
    let (mut good, mut requests) = (0, 0);
    for line in lines {
        let mut has_request = false;
        good += usize::from(parser.parse(line, &mut |_| has_request = true).is_ok());
        requests += usize::from(has_request);
    }
    (good * 10 >= lines.len() * tenths).then_some(requests)
}

/// True if the document begins with `{"log": {`. A log of Docker has a string there.
fn is_har(head: &[u8]) -> bool {
    let mut rest = head;
    for token in [&b"{"[..], b"\"log\"", b":", b"{"] {
        match rest.trim_ascii_start().strip_prefix(token) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    true
}

/// True if these are records of a trace: times ascend, and the position of each next request is -1 or a later one.
fn is_oracle_general(head: &[u8]) -> bool {
    let (records, _) = head.as_chunks::<RECORD_BYTES>();
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    let is_next = |next: u64| next == u64::MAX || next < 1 << 48;
    !records.is_empty()
        && head.iter().any(|byte| *byte != 0)
        && records.iter().is_sorted_by_key(|record| number(&record[..4]))
        && records.iter().all(|record| is_next(number(&record[16..])))
}

/// A table whose header has known names.
fn table_columns(header: &[u8]) -> Option<Format> {
    let columns = split_columns(header)?;
    let mut text = String::new();
    for column in &columns {
        let name = str::from_utf8(column).ok()?.trim();
        let known = COLUMN_NAMES.iter().find(|(other, _)| name.eq_ignore_ascii_case(other));
        if let Some((_, field)) = known {
            text += if text.is_empty() { "csv:" } else { "," };
            text.extend([field, "=", name]);
        }
    }
    text.parse().ok()
}
