//! Lines that are rows of a table: their columns, and the part of a request that each column stands for.

use std::{borrow::Cow, time::Duration};

use memchr::{memchr, memchr_iter};

use super::{Parsed, Visit};
use crate::{
    logged::{LoggedKey, LoggedRequest, Operation},
    request,
    time::TimeParser,
    value::{self, Problem},
};

/// The characters that may separate columns. A table uses one of them.
const DELIMITERS: [u8; 3] = [b',', b'\t', b';'];

/// The most columns of a line that are read.
pub(super) const POSITIONS_MAX: usize = 1_000;

/// The part of a request that a column stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Key,
    Url,
    Host,
    Method,
    Operation,
    /// The unit in nanoseconds.
    Time(u64),
    Status,
    Size,
    Ttl,
    /// The unit in nanoseconds.
    ServiceTime(u64),
    /// Without its question mark.
    Query,
    /// A date in UTC: `2026-01-01`.
    Date,
    /// A time of day in UTC: `00:00:00`.
    TimeOfDay,
    /// `Hit`, `TCP_HIT`: whether a cache answered.
    CacheStatus,
    UserAgent,
    ContentType,
}

/// The delimiter that occurs most often in a line; a comma if the line has no delimiter.
pub(super) fn delimiter(line: &[u8]) -> u8 {
    let count = |delimiter: &u8| memchr_iter(*delimiter, line).count();
    let most = DELIMITERS.iter().max_by_key(|delimiter| (count(delimiter), std::cmp::Reverse(**delimiter)));
    most.copied().filter(|most| count(most) > 0).unwrap_or(b',')
}

/// The columns of a line, with the delimiter that it has.
pub(crate) fn split_columns(line: &[u8]) -> Option<Vec<Cow<'_, [u8]>>> {
    let mut columns = Columns { rest: Some(line), delimiter: delimiter(line) };
    columns.by_ref().take(POSITIONS_MAX).collect()
}

/// The columns of a line; none: a quotation mark is not closed.
struct Columns<'a> {
    rest: Option<&'a [u8]>,
    delimiter: u8,
}

impl<'a> Iterator for Columns<'a> {
    type Item = Option<Cow<'a, [u8]>>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest?;
        // Spaces align the columns.
        let text = if self.delimiter == b' ' { text.trim_ascii_start() } else { text };
        let (column, after) = match text.strip_prefix(b"\"") {
            Some(quoted) => match quoted_column(quoted) {
                Some(split) => split,
                None => {
                    self.rest = None;
                    return Some(None);
                }
            },
            None => (Cow::Borrowed(&text[..0]), text),
        };
        // Text between the closing mark and the next delimiter is ignored.
        let end = memchr(self.delimiter, after);
        self.rest = end.map(|end| &after[end + 1..]);
        let is_quoted = after.len() < text.len();
        Some(Some(if is_quoted { column } else { (&after[..end.unwrap_or(after.len())]).into() }))
    }
}

/// The text before the closing quotation mark, and what follows the mark. Two marks stand for one.
fn quoted_column(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let end = memchr(b'"', text)?;
    let after = &text[end + 1..];
    if !after.starts_with(b"\"") {
        return Some((text[..end].into(), after));
    }
    let mut column = text[..=end].to_vec();
    let mut rest = &after[1..];
    loop {
        let end = memchr(b'"', rest)?;
        column.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(b"\"") {
            Some(more) => {
                column.push(b'"');
                rest = more;
            }
            None => return Some((column.into(), rest)),
        }
    }
}

/// The columns of a line.
#[derive(Default)]
pub(super) struct Row<'a> {
    key: Option<Cow<'a, [u8]>>,
    url: Option<Cow<'a, [u8]>>,
    host: Option<Cow<'a, [u8]>>,
    method: Option<Cow<'a, [u8]>>,
    operation: Option<Operation>,
    at_ns: Option<u64>,
    status: Option<u16>,
    bytes: Option<u64>,
    ttl: Option<Duration>,
    service_time: Option<Duration>,
    query: Option<Cow<'a, [u8]>>,
    date: Option<Cow<'a, [u8]>>,
    time_of_day: Option<Cow<'a, [u8]>>,
    is_hit: bool,
    user_agent: Option<Cow<'a, [u8]>>,
    content_type: Option<Cow<'a, [u8]>>,
}

pub(super) fn read_row<'a>(
    line: &'a [u8],
    delimiter: u8,
    positions: &[(Field, usize)],
    times: &mut TimeParser,
) -> Result<Row<'a>, Problem> {
    let last = positions.iter().map(|(_, position)| *position).max().unwrap_or(0);
    let mut row = Row::default();
    let mut count = 0;
    for (index, column) in (Columns { rest: Some(line), delimiter }).take(last + 1).enumerate() {
        count = index + 1;
        let column = column.ok_or("a quotation mark is not closed")?;
        for (field, _) in positions.iter().filter(|(_, position)| *position == index) {
            row.set(*field, column.clone(), times)?;
        }
    }
    if count <= last {
        return Err(format!("the line has {count} columns, and column {last} (from 0) is needed").into());
    }
    Ok(row)
}

impl<'a> Row<'a> {
    fn set(&mut self, field: Field, column: Cow<'a, [u8]>, times: &mut TimeParser) -> Result<(), Problem> {
        let text = column.trim_ascii();
        let is_none = matches!(text, b"" | b"-");
        match field {
            Field::Key => self.key = Some(column),
            Field::Url => self.url = Some(column),
            Field::Host => self.host = (!is_none).then_some(column),
            Field::Method => self.method = (!is_none).then_some(column),
            Field::Operation => {
                let operation = value::operation(text);
                self.operation = Some(operation.ok_or("the operation is not get, set or delete")?);
            }
            Field::Time(unit_ns) => {
                let time = value::decimal_ns(text, unit_ns)
                    .or_else(|| times.parse_any(str::from_utf8(text).ok()?).ok());
                self.at_ns = Some(time.ok_or("the time is neither a number nor a date")?);
            }
            Field::Status => self.status = value::status(text),
            Field::Size => self.bytes = value::size(text)?,
            Field::Ttl => self.ttl = value::duration(text, 1_000_000_000),
            Field::ServiceTime(unit_ns) => self.service_time = value::duration(text, unit_ns),
            Field::Query => self.query = (!is_none).then_some(column),
            Field::Date => self.date = (!is_none).then_some(column),
            Field::TimeOfDay => self.time_of_day = (!is_none).then_some(column),
            Field::CacheStatus => self.is_hit = value::is_hit(text),
            Field::UserAgent => self.user_agent = (!is_none).then_some(column),
            Field::ContentType => self.content_type = (!is_none).then_some(column),
        }
        Ok(())
    }

    /// Sets the time from a date and a time of day, which are two columns. `date` is that of a row without one, and `zone` is `Z` or
    /// empty.
    pub(super) fn join_time(
        &mut self,
        date: &[u8],
        zone: &str,
        times: &mut TimeParser,
    ) -> Result<(), Problem> {
        let Some(time) = &self.time_of_day else { return Ok(()) };
        let date = self.date.as_deref().unwrap_or(date).trim_ascii();
        let text = format!("{}T{}{zone}", value::lossy(date), value::lossy(time.trim_ascii()));
        let at_ns = times
            .parse_any(&text)
            .map_err(|_| "the date and the time are not like 2026-01-31 and 23:59:59")?;
        self.at_ns = Some(at_ns);
        Ok(())
    }

    fn url_with_query(&self, url: String) -> String {
        match &self.query {
            Some(query) if !url.contains('?') => format!("{url}?{}", value::lossy(query.trim_ascii())),
            _ => url,
        }
    }
}

pub(super) fn visit_row(row: &Row<'_>, visit: &mut Visit<'_>) -> Parsed {
    let text = |column: &Option<Cow<'_, [u8]>>| {
        column.as_deref().map(|column| value::lossy(column).trim().to_owned())
    };
    let (method, host, url);
    let (key, operation) = match (&row.key, &row.url) {
        (None, Some(_)) => {
            (method, host) = (text(&row.method), text(&row.host));
            url = row.url_with_query(text(&row.url).unwrap_or_default());
            let method = method.as_deref().unwrap_or("GET");
            if !request::is_request(method, &url) {
                return Parsed::NoRequest;
            }
            (LoggedKey::Url { method, host: host.as_deref(), url: &url }, Operation::of_method(method))
        }
        (key, _) => (LoggedKey::Text(key.as_deref().unwrap_or_default()), Operation::Read),
    };
    visit(LoggedRequest {
        at_ns: row.at_ns,
        operation: row.operation.unwrap_or(operation),
        status: row.status,
        bytes: row.bytes,
        ttl: row.ttl.filter(|ttl| !ttl.is_zero()),
        // The time of a hit is that of the cache.
        service_time: row.service_time.filter(|_| !row.is_hit),
        user_agent: row.user_agent.as_deref(),
        content_type: row.content_type.as_deref(),
        ..LoggedRequest::read(key)
    });
    Parsed::Requests
}
