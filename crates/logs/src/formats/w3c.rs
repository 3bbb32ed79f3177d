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
    request,
    time::TimeParser,
    value::{self, Problem},
};

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;

/// The columns that are read, in any case. Of the columns for one part of a request the first of these is used.
const NAMES: [(&str, Field); 20] = [
    ("timestamp(ms)", Field::Time(MILLISECOND_NS)),
    ("timestamp", Field::Time(SECOND_NS)),
    ("date", Field::Date),
    ("time", Field::TimeOfDay),
    ("cs-method", Field::Method),
    ("cs-uri-stem", Field::Url),
    ("cs-uri", Field::Url),
    ("cs-uri-query", Field::Query),
    ("x-host-header", Field::Host),
    ("cs-host", Field::Host),
    ("cs(host)", Field::Host),
    ("sc-status", Field::Status),
    ("sc-bytes", Field::Size),
    // IIS. That of CloudFront is in seconds.
    ("time-taken", Field::ServiceTime(MILLISECOND_NS)),
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

/// True if a line names columns that are read, or is one of `CloudFront`'s real-time logs.
pub(crate) fn is_table_line(line: &[u8]) -> bool {
    directive(line, "#fields:").is_some_and(|names| !positions(names).is_empty()) || is_real_time(line)
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
    times: TimeParser,
}

impl LineParser for W3cLines {
    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        if line.starts_with(b"#") {
            if let Some(names) = directive(line, "#fields:") {
                self.positions = positions(names);
            } else if let Some(date) = directive(line, "#date:") {
                self.date = date.split(u8::is_ascii_whitespace).next().unwrap_or_default().to_vec();
            }
            return Ok(Parsed::Comment);
        }
        if self.positions.is_empty() && is_real_time(line) {
            self.positions = positions(REAL_TIME.as_bytes());
        }
        if !self.positions.iter().any(|(field, _)| *field == Field::Url) {
            return Err("no `#Fields` line with a `cs-uri-stem` comes before the line".into());
        }
        let delimiter = if memchr(b'\t', line).is_some() { b'\t' } else { b' ' };
        let mut row = read_row(line.trim_ascii_end(), delimiter, &self.positions, &mut self.times)?;
        row.join_time(&self.date, &mut self.times)?;
        Ok(visit_row(&row, visit))
    }
}

/// The text after the name of a directive, which is in lower case here and in any case there.
fn directive<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name.as_bytes()).then(|| rest.trim_ascii())
}

fn positions(names: &[u8]) -> Vec<(Field, usize)> {
    let names: Vec<_> = names.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty()).collect();
    let position = |known: &str| names.iter().position(|name| name.eq_ignore_ascii_case(known.as_bytes()));
    let is_cloudfront = position("x-edge-location").is_some() || position("x-edge-result-type").is_some();
    let mut positions: Vec<(Field, usize)> = Vec::new();
    for (name, field) in NAMES {
        let is_same = |other: &Field| std::mem::discriminant(other) == std::mem::discriminant(&field);
        if let Some(position) = position(name)
            && !positions.iter().any(|(other, _)| is_same(other))
        {
            let field = match field {
                Field::ServiceTime(_) if is_cloudfront => Field::ServiceTime(SECOND_NS),
                field => field,
            };
            positions.push((field, position));
        }
    }
    positions
}
