//! Access logs and cache traces in.
//!
//! ```text
//! files, plain, gzip or zstd -> InputReader -> lines, records -> (wrapper) -> a format -> LoggedRequest -> visitor
//! ```
//!
//! [`LogReader`] opens logs, tells their [`Format`] if it is not named, and visits each [`LoggedRequest`] once, in constant memory.
//! A request borrows from its line. Bad lines are counted, and a log with more than 10 % of them is refused.
//!
//! [`FORMATS`] lists the formats, and [`JSON_FIELDS`] the fields of lines in JSON. The lines of a container are read as the lines in them.

pub mod request;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;

mod common;
mod format;
mod formats;
mod guess;
mod gzip;
mod input;
mod json;
mod logged;
mod neighbors;
mod reader;
mod time;
mod value;
mod wrapper;
#[cfg(feature = "zstd")]
mod zstd;

pub use format::{FORMATS, Format, FormatError, FormatKind};
pub use formats::{CsvError, PatternError};
pub use json::JSON_FIELDS;
pub use logged::{LoggedKey, LoggedRequest, Operation, SIZE_BYTES_MAX};
pub use reader::{BAD_PERCENT_MAX, BadLine, Input, KnownValues, LogError, LogReader, LogSummary};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
