//! Tables with a delimiter, whose columns the user names.
//!
//! Its own splitter instead of a crate: lines come from the reader that all formats share, with its limits and counts, and a quoted
//! field with a line end is a bad line.

use std::{borrow::Cow, fmt, str::FromStr};

use stockade_model::{message::shown, nearest::remedy};

use super::{
    LineParser, Parsed, Visit,
    table::{Field, POSITIONS_MAX, delimiter, read_row, split_columns, visit_row},
};
use crate::{
    format::{Content, FormatError, FormatKind, StatedFormat, new_parser},
    time::TimeParser,
    value::Problem,
};

pub(crate) const CSV: FormatKind = FormatKind {
    name: "csv:COLUMNS",
    summary: "table with columns by position or header, such as csv:time=0,key=1,size=2",
    is_access_log: false,
    is_forward: false,
    is_guessed: false,
    is_free_text: true,
    content: Content::Stated(stated),
};

fn stated(text: &str) -> Option<StatedFormat> {
    let text = text.trim();
    let columns = if text == "csv" { Err(CsvError::NoKey) } else { text.strip_prefix("csv:")?.parse() };
    Some(columns.map_err(FormatError::from).map(|columns: CsvColumns| {
        let text = format!("csv:{columns}");
        (text, new_parser(move || CsvLines::new(columns.clone())))
    }))
}

/// The part of a request that a column of this name stands for.
const FIELDS: [(&str, Field); 15] = [
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
    ("service_time", Field::ServiceTime(1_000_000_000)),
    ("user_agent", Field::UserAgent),
    ("content_type", Field::ContentType),
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// From 0.
    Position(usize),
    Header(String),
}

/// The columns of a table: `time=0,key=1,size=2` by position from 0, or `key=id,size=bytes` by the names of a header.
///
/// A column is `key` or `url`, `host`, `method`, `operation` (get, set, delete), `time` (seconds or a date), `time_ms`, `time_us`,
/// `time_ns`, `status`, `size` (bytes), `ttl` (seconds), `service_time` (seconds), `user_agent` or `content_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvColumns(Vec<(Field, Place)>);

/// Why columns are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsvError {
    /// Neither a key nor a URL is among them.
    #[error("there is no column `key` or `url`: write for example `csv:time=0,key=1,size=2`")]
    NoKey,
    /// A part is not `COLUMN=POSITION`.
    #[error("`{0}` is not a column: write for example `key=1` or `key=id`")]
    Malformed(String),
    /// A position is too large.
    #[error("`{0}` is not a position below 1,000")]
    Position(String),
    /// A column is there twice.
    #[error("the column `{0}` is there twice")]
    Twice(String),
    /// There is no such column.
    #[error("`{name}` is not a column: {remedy}")]
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

/// The lines of a table.
#[derive(Debug)]
pub(crate) struct CsvLines {
    columns: CsvColumns,
    /// After the first line: the delimiter, and the position of each field.
    layout: Option<(u8, Vec<(Field, usize)>)>,
    is_first_line: bool,
    times: TimeParser,
}

impl CsvLines {
    pub fn new(columns: CsvColumns) -> Self {
        Self { columns, layout: None, is_first_line: true, times: TimeParser::default() }
    }
}

impl LineParser for CsvLines {
    fn times_without_offset(&self) -> u64 {
        self.times.times_without_offset()
    }

    fn start_file(&mut self) {
        self.is_first_line = true;
    }

    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        if self.is_first_line {
            let is_header = self.read_header(line);
            // A comment may precede the header.
            self.is_first_line = is_header.is_err() && line.starts_with(b"#");
            if is_header? {
                return Ok(Parsed::Comment);
            }
        }
        let (delimiter, positions) = self.layout.as_ref().ok_or("the table has no header")?;
        let row = read_row(line, *delimiter, positions, &mut self.times)?;
        Ok(visit_row(&row, visit))
    }
}

impl CsvLines {
    /// Reads the first line of a file; false: it is not a header. Of several files only the first may have one.
    fn read_header(&mut self, line: &[u8]) -> Result<bool, Problem> {
        let delimiter = delimiter(line);
        let header = split_columns(line).ok_or("a quotation mark is not closed")?;
        match self.columns.positions(&header) {
            Ok(positions) => {
                // Without names, a line is a header if its numeric columns hold other text.
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
