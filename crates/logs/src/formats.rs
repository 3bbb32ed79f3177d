//! One file for each format.

mod access;
mod blocks;
mod csv;
mod har;
mod key_value;
mod layouts;
mod oracle_general;
mod pattern;
mod table;
mod w3c;

use crate::{logged::LoggedRequest, value::Problem};

pub(crate) use self::{
    access::{AccessLines, is_json_line},
    blocks::{ArcLines, KeyLines, LirsLines},
    csv::CsvLines,
    har::{HarError, read as read_har},
    key_value::{MetaLines, TwitterLines, is_meta_header},
    layouts::LayoutLines,
    oracle_general::{RECORD_BYTES, parse as parse_oracle_general},
    pattern::PatternLines,
    table::split_columns,
    w3c::{W3cLines, is_table_line},
};
pub use self::{
    csv::{CsvColumns, CsvError},
    layouts::Layout,
    pattern::{Pattern, PatternError},
};

/// Takes the requests of a log, one after the other.
pub(crate) type Visit<'v> = dyn FnMut(LoggedRequest<'_>) + 'v;

/// Parses the lines of a format.
pub(crate) trait LineParser {
    /// The next line is the first of another file.
    fn start_file(&mut self) {}

    /// How many of the times had no offset, and were taken as UTC.
    fn times_without_offset(&self) -> u64 {
        0
    }

    /// Parses a line that is not blank, and visits its requests.
    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem>;
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// One request or several.
    Requests,
    /// None: `-` for its request, or the bytes of a TLS handshake.
    NoRequest,
    /// None: a message of a program that writes its requests to the same log. If no line of a log has a request, its lines are in
    /// another format, and the problem is the reason.
    Message(Problem),
    /// A comment or a header.
    Comment,
}
