//! Tables with a delimiter, of which the user names the columns.
//!
//! Its own splitter instead of a crate: lines come from the reader that all formats share, with its limits and counts, and a quoted
//! field with a line end is a bad line.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use memchr::{memchr, memchr_iter};
use stockade_model::{message::shown, nearest::remedy};

use super::{LineParser, Parsed, Visit};
use crate::{
    logged::{LoggedKey, LoggedRequest, Operation},
    request,
    time::TimeParser,
    value::{self, Problem},
};

/// The part of a request that a column of this name stands for.
const FIELDS: [(&str, Field); 13] = [
    ("key", Field::Key),
    ("url", Field::Url),
    ("host", Field::Host),
    ("method", Field::Method),
    ("operation", Field::Operation),
    ("time", Field::Time(1_000_000_000)),
    ("time_ms", Field::Time(1_000_000)),
    ("time_us", Field::Time(1_000)),
    ("time_ns", Field::Time(1)),
    ("status", Field::Status),
    ("size", Field::Size),
    ("ttl", Field::Ttl),
    ("service_time", Field::ServiceTime),
];

/// The delimiters, of which the first line has one.
const DELIMITERS: [u8; 3] = [b',', b'\t', b';'];

/// The most columns of a line that are read.
const POSITIONS_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
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
    ServiceTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// From 0.
    Position(usize),
    Header(String),
}

/// The columns of a table: `time=0,key=1,size=2` by position from 0, or `key=id,size=bytes` by the names of a header.
///
/// A column is `key` or `url`, `host`, `method`, `operation` (get, set, delete), `time` (seconds or a date), `time_ms`, `time_us`,
/// `time_ns`, `status`, `size` (bytes), `ttl` (seconds) or `service_time` (seconds).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvColumns(Vec<(Field, Place)>);

/// Why columns are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsvError {
    /// Neither a key nor a URL is among them.
    #[error("there is no column `key` or `url`: write for example `csv:time=0,key=1,size=2`")]
    NoKey,
    /// A part is not `COLUMN=POSITION`.
    #[error("`{0}` is no column: write for example `key=1` or `key=id`")]
    Malformed(String),
    /// A position is too large.
    #[error("`{0}` is not a position below 1,000")]
    Position(String),
    /// A column is there twice.
    #[error("the column `{0}` is there twice")]
    Twice(String),
    /// There is no such column.
    #[error("`{name}` is no column: {remedy}")]
    Unknown {
        /// The name.
        name: String,
        /// The nearest name, or all of them.
        remedy: String,
    },
}

impl FromStr for CsvColumns {
    type Err = CsvError;

    fn from_str(text: &str) -> Result<Self, CsvError> {
        let mut columns: Vec<(Field, Place)> = Vec::new();
        for part in text.split(',') {
            let (name, place) = part
                .split_once('=')
                .map(|(name, place)| (name.trim(), place.trim()))
                .filter(|(name, place)| !name.is_empty() && !place.is_empty())
                .ok_or_else(|| CsvError::Malformed(shown(part)))?;
            let known = FIELDS.iter().find(|(known, _)| *known == name);
            let (_, field) = known.ok_or_else(|| CsvError::Unknown {
                name: shown(name),
                remedy: remedy(name, FIELDS.iter().map(|(name, _)| *name)),
            })?;
            let is_same =
                |other: &Field| other == field || matches!((other, field), (Field::Time(_), Field::Time(_)));
            if columns.iter().any(|(other, _)| is_same(other)) {
                return Err(CsvError::Twice(name.to_owned()));
            }
            let place = if place.bytes().all(|byte| byte.is_ascii_digit()) {
                let position = place.parse().ok().filter(|position| *position < POSITIONS_MAX);
                Place::Position(position.ok_or_else(|| CsvError::Position(shown(place)))?)
            } else {
                Place::Header(place.to_owned())
            };
            columns.push((*field, place));
        }
        if columns.iter().any(|(field, _)| matches!(field, Field::Key | Field::Url)) {
            Ok(Self(columns))
        } else {
            Err(CsvError::NoKey)
        }
    }
}

impl fmt::Display for CsvColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (field, place)) in self.0.iter().enumerate() {
            let name = FIELDS.iter().find(|(_, known)| known == field).map_or("", |(name, _)| *name);
            write!(f, "{}{name}=", if index == 0 { "" } else { "," })?;
            match place {
                Place::Position(position) => write!(f, "{position}")?,
                Place::Header(name) => f.write_str(name)?,
            }
        }
        Ok(())
    }
}

impl CsvColumns {
    /// The position of each field, if the header has all names.
    fn positions(&self, header: &[Cow<'_, [u8]>]) -> Result<Vec<(Field, usize)>, Problem> {
        let position = |(field, place): &(Field, Place)| match place {
            Place::Position(position) => Ok((*field, *position)),
            Place::Header(name) => {
                let position = header.iter().position(|column| column.trim_ascii() == name.as_bytes());
                position.map(|position| (*field, position)).ok_or_else(|| {
                    let names: Vec<_> = header.iter().map(|name| String::from_utf8_lossy(name)).collect();
                    let remedy = remedy(name, names.iter().map(|name| &**name));
                    format!("the header has no column `{}`: {}", shown(name), shown(&remedy)).into()
                })
            }
        };
        self.0.iter().map(position).collect()
    }

    fn has_names(&self) -> bool {
        self.0.iter().any(|(_, place)| matches!(place, Place::Header(_)))
    }
}

/// The delimiter of a line: that of which it has most.
fn delimiter(line: &[u8]) -> u8 {
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
        // Text after the closing mark is no part of the column.
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

/// The lines of a table.
#[derive(Debug)]
pub(crate) struct CsvLines {
    columns: CsvColumns,
    /// After the first line: the delimiter, and the position of each field.
    layout: Option<(u8, Vec<(Field, usize)>)>,
    is_first_line: bool,
    times: TimeParser,
}

/// The columns of a line.
#[derive(Default)]
struct Row<'a> {
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
}

impl CsvLines {
    pub fn new(columns: CsvColumns) -> Self {
        Self { columns, layout: None, is_first_line: true, times: TimeParser::default() }
    }
}

impl LineParser for CsvLines {
    fn start_file(&mut self) {
        self.is_first_line = true;
    }

    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        if self.is_first_line {
            self.is_first_line = false;
            if self.read_header(line)? {
                return Ok(Parsed::Comment);
            }
        }
        let (delimiter, positions) = self.layout.as_ref().ok_or("the table has no header")?;
        let row = read_row(line, *delimiter, positions, &mut self.times)?;
        Ok(visit_row(&row, visit))
    }
}

impl CsvLines {
    /// Reads the first line of a file; false: it is no header. Of several files only the first may have one.
    fn read_header(&mut self, line: &[u8]) -> Result<bool, Problem> {
        let delimiter = delimiter(line);
        let header = split_columns(line).ok_or("a quotation mark is not closed")?;
        match self.columns.positions(&header) {
            Ok(positions) => {
                // Without names a header is a line whose numbers are none.
                let is_header = self.columns.has_names()
                    || read_row(line, delimiter, &positions, &mut self.times).is_err();
                self.layout = Some((delimiter, positions));
                Ok(is_header)
            }
            Err(_) if self.layout.is_some() => Ok(false),
            Err(problem) => Err(problem),
        }
    }
}

fn read_row<'a>(
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
            Field::ServiceTime => self.service_time = value::duration(text, 1_000_000_000),
        }
        Ok(())
    }
}

fn visit_row(row: &Row<'_>, visit: &mut Visit<'_>) -> Parsed {
    let text = |column: &Option<Cow<'_, [u8]>>| {
        column.as_deref().map(|column| value::lossy(column).trim().to_owned())
    };
    let (method, host, url);
    let (key, operation) = match (&row.key, &row.url) {
        (None, Some(_)) => {
            (method, host, url) = (text(&row.method), text(&row.host), text(&row.url).unwrap_or_default());
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
        service_time: row.service_time,
        ..LoggedRequest::read(key)
    });
    Parsed::Requests
}
