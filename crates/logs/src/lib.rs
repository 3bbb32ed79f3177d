//! Access logs and cache traces in.
//!
//! ```text
//! files, plain, gzip or zstd -> InputReader -> lines, records -> (wrapper) -> a format -> LoggedRequest -> visitor
//! ```
//!
//! [`LogReader`] opens logs, tells their [`Format`] if it is not named, and visits each [`LoggedRequest`] once, in constant memory.
//! A request borrows from its line. Bad lines are counted, and a log of which more than 10 % are bad is refused.
//!
//! [`FORMATS`] lists the formats. The lines of a container are read as the lines in them. The modules [`common`], [`json`], [`time`] and [`input`] are for programs that
//! need the parts of a line as logged, such as the replay of a log.

pub mod common;
pub mod input;
pub mod json;
pub mod request;
pub mod time;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;

mod format;
mod formats;
mod guess;
mod gzip;
mod logged;
mod neighbors;
mod reader;
mod value;
mod wrapper;
#[cfg(feature = "zstd")]
mod zstd;

pub use format::{FORMATS, Format, FormatError, FormatName};
pub use formats::{CsvColumns, CsvError, Layout, Pattern, PatternError};
pub use logged::{LoggedKey, LoggedRequest, Operation, SIZE_BYTES_MAX};
pub use reader::{BAD_PERCENT_MAX, BadLine, Input, KnownValues, LogError, LogReader, LogSummary};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
