//! Tables whose `#Fields` line names their columns: the W3C Extended Log File Format of IIS, and the standard logs of `CloudFront`.
//!
//! <https://www.w3.org/TR/WD-logfile>,
//! <https://learn.microsoft.com/windows/win32/http/w3c-logging>,
//! <https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html>
//!
//! The real-time logs of `CloudFront` have no `#Fields` line: <https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/real-time-logs.html>

use memchr::memchr;

use super::{
    LineParser, Parsed, Visit,
    table::{Field, read_row, visit_row},
};
use crate::{
    common::words,
    format::FormatKind,
    request,
    time::{TimeParser, has_form},
    value::{self, Problem},
};

/// The W3C Extended Log File Format.
pub(crate) const W3C: FormatKind = FormatKind::access_log(
    "w3c",
    "table whose `#Fields` line names its columns: Amazon CloudFront, IIS; CloudFront's real-time logs",
    || Box::new(W3cLines::default()),
);

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;

/// The columns that are read, in any case. Of the columns for one part of a request the first of these is used.
const NAMES: [(&str, Field); 24] = [
    ("timestamp(ms)", Field::Time(MILLISECOND_NS)),
    ("timestamp", Field::Time(SECOND_NS)),
    ("date", Field::Date),
    ("time", Field::TimeOfDay),
    // IIS Advanced Logging.
    ("date-local", Field::Date),
    ("time-local", Field::TimeOfDay),
    ("cs-method", Field::Method),
    ("cs-uri-stem", Field::Url),
    ("cs-uri", Field::Url),
    ("cs-uri-query", Field::Query),
    ("x-host-header", Field::Host),
    ("cs-host", Field::Host),
    ("cs(host)", Field::Host),
    ("sc-status", Field::Status),
    ("sc-bytes", Field::Size),
    ("bytes", Field::Size),
    // IIS. That of others is in seconds.
    ("time-taken", Field::ServiceTime(MILLISECOND_NS)),
    ("timetakenms", Field::ServiceTime(MILLISECOND_NS)),
    ("x-edge-response-result-type", Field::CacheStatus),
    ("x-edge-result-type", Field::CacheStatus),
    ("s-action", Field::CacheStatus),
    ("cs(user-agent)", Field::UserAgent),
    ("cs-user-agent", Field::UserAgent),
    ("sc-content-type", Field::ContentType),
];

/// The columns of `CloudFront`'s real-time logs with all fields, in their order. Their `cs-uri-stem` has the query.
const REAL_TIME: &str = "timestamp c-ip time-to-first-byte sc-status sc-bytes cs-method cs-protocol cs-host cs-uri-stem cs-bytes \
     x-edge-location x-edge-request-id x-host-header time-taken cs-protocol-version c-ip-version cs-user-agent cs-referer \
     cs-cookie cs-uri-query x-edge-response-result-type x-forwarded-for ssl-protocol ssl-cipher x-edge-result-type \
     fle-encrypted-fields fle-status sc-content-type";

/// Those of its standard logs, for a log whose header was lost, as by `grep -v '^#'`.
const STANDARD: &str = "date time x-edge-location sc-bytes c-ip cs-method cs(host) cs-uri-stem sc-status cs(referer) cs(user-agent) \
     cs-uri-query cs(cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for \
     ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status fle-encrypted-fields c-port \
     time-to-first-byte x-edge-detailed-result-type sc-content-type sc-content-len sc-range-start sc-range-end";

/// The fewest columns of a standard log, that of 2018.
const STANDARD_COLUMNS_MIN: usize = 24;

/// True if a line names columns that are read, or is one of `CloudFront`.
pub(crate) fn is_table_line(line: &[u8]) -> bool {
    directive(line, "#fields:").is_some_and(|names| !positions(names, false).is_empty())
        || columns_without_header(line).is_some()
}

/// The columns that a line of `CloudFront` has without a header. Newer columns were added at the end.
fn columns_without_header(line: &[u8]) -> Option<String> {
    let columns = [(REAL_TIME, is_real_time(line)), (STANDARD, is_standard(line))];
    let (names, _) = columns.into_iter().find(|(_, is)| *is)?;
    let count = line.split(|byte| *byte == b'\t').count();
    Some(names.split_ascii_whitespace().take(count).collect::<Vec<_>>().join(" "))
}

/// True if the columns of a line can be those of [`STANDARD`].
fn is_standard(line: &[u8]) -> bool {
    let columns: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
    let [date, time, _, bytes, _, method, _, stem, status, ..] = columns[..] else { return false };
    columns.len() >= STANDARD_COLUMNS_MIN
        && has_form(date, b"0000-00-00")
        && has_form(time, b"00:00:00")
        && value::number(bytes).is_some()
        && str::from_utf8(method).is_ok_and(request::is_method)
        && stem.starts_with(b"/")
        && value::number(status).is_some()
}

/// True if the columns of a line can be those of [`REAL_TIME`].
fn is_real_time(line: &[u8]) -> bool {
    let columns: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
    let [time, _, first_byte, status, bytes, method, ..] = columns[..] else { return false };
    let is_decimal = |text| value::decimal_ns(text, 1).is_some();
    columns.len() >= REAL_TIME.split_ascii_whitespace().count()
        && [time, first_byte].into_iter().all(is_decimal)
        && value::status(status).is_some()
        && value::number(bytes).is_some()
        && str::from_utf8(method).is_ok_and(request::is_method)
}

/// Lines in the order of the last `#Fields` line. Directives may be anywhere, as in files that were concatenated.
#[derive(Debug, Default)]
pub(crate) struct W3cLines {
    /// The position of each field, ascending in the order of [`NAMES`]. Empty before the first `#Fields` line.
    positions: Vec<(Field, usize)>,
    /// That of the last `#Date` line, for tables whose rows have a time of day alone.
    date: Vec<u8>,
    /// The times are local, without an offset.
    is_local: bool,
    /// The last `#Software` line names another server than IIS. The unit of its `time-taken` is that of W3C, seconds.
    is_other_software: bool,
    times: TimeParser,
}

impl LineParser for W3cLines {
    fn times_without_offset(&self) -> u64 {
        self.times.times_without_offset()
    }

    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        if line.starts_with(b"#") {
            if let Some(names) = directive(line, "#fields:") {
                self.positions = positions(names, self.is_other_software);
                self.is_local = has_word(names, "time-local");
            } else if let Some(software) = directive(line, "#software:") {
                self.is_other_software = !has_word(software, "Microsoft") && !has_word(software, "IIS");
            } else if let Some(date) = directive(line, "#date:") {
                self.date = date.split(u8::is_ascii_whitespace).next().unwrap_or_default().to_vec();
            }
            return Ok(Parsed::Comment);
        }
        if self.positions.is_empty()
            && let Some(columns) = columns_without_header(line)
        {
            self.positions = positions(columns.as_bytes(), false);
        }
        if !self.positions.iter().any(|(field, _)| *field == Field::Url) {
            return Err("no `#Fields` line with a `cs-uri-stem` comes before the line".into());
        }
        let delimiter = if memchr(b'\t', line).is_some() { b'\t' } else { b' ' };
        let mut row = read_row(line.trim_ascii_end(), delimiter, &self.positions, &mut self.times)?;
        row.join_time(&self.date, if self.is_local { "" } else { "Z" }, &mut self.times)?;
        Ok(visit_row(&row, visit))
    }
}

/// The text after the name of a directive, which is in lower case here and in any case there.
fn directive<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name.as_bytes()).then(|| rest.trim_ascii())
}

fn has_word(text: &[u8], word: &str) -> bool {
    words(text).any(|other| other.eq_ignore_ascii_case(word.as_bytes()))
}

fn positions(names: &[u8], is_in_seconds: bool) -> Vec<(Field, usize)> {
    let names: Vec<_> = words(names).collect();
    let position = |known: &str| names.iter().position(|name| name.eq_ignore_ascii_case(known.as_bytes()));
    let is_in_seconds =
        is_in_seconds || position("x-edge-location").is_some() || position("x-edge-result-type").is_some();
    let mut positions: Vec<(Field, usize)> = Vec::new();
    for (name, field) in NAMES {
        let is_same = |other: &Field| std::mem::discriminant(other) == std::mem::discriminant(&field);
        if let Some(position) = position(name)
            && !positions.iter().any(|(other, _)| is_same(other))
        {
            let field = match field {
                Field::ServiceTime(_) if is_in_seconds && name == "time-taken" => {
                    Field::ServiceTime(SECOND_NS)
                }
                field => field,
            };
            positions.push((field, position));
        }
    }
    positions
}
