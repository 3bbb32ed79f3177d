//! One file for each format.

pub(crate) mod access;
pub(crate) mod blocks;
pub(crate) mod csv;
pub(crate) mod har;
pub(crate) mod key_value;
pub(crate) mod layouts;
pub(crate) mod oracle_general;
pub(crate) mod pattern;
mod table;
pub(crate) mod w3c;

use crate::{logged::LoggedRequest, value::Problem};

pub use self::{csv::CsvError, pattern::PatternError};
pub(crate) use self::{
    har::{HarError, read as read_har},
    oracle_general::{RECORD_BYTES, parse as parse_oracle_general},
    table::split_columns,
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
    ProgramMessage(Problem),
    /// A comment or a header.
    Comment,
}
