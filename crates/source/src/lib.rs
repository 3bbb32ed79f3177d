//! Where documents truly live.
//!
//! A cache stands in front of a [`Source`]; the lab opens one by [`SourceUrl`] and may slow it
//! down, fail it and bound it as a [`Conduct`] has it, with [`Staged`]. One file a source, and [`SOURCES`] lists them:
//!
//! ```
//! use stockade_source::SourceUrl;
//!
//! let url: SourceUrl = "simulated:3".parse()?;
//! let source = url.open()?;
//! # Ok::<(), stockade_source::OpenError>(())
//! ```

pub mod documents;
mod latency;
mod simulated;
mod sqlite;
mod staged;
mod stages;

use std::{path::PathBuf, str::FromStr, sync::Arc};

use documents::NamedDocument;
use stockade_model::{nearest::remedy, source::Source};

pub use latency::{Latency, LatencyError};
pub use sqlite::Sqlite;
pub use staged::{Staged, Stamped};
pub use stages::{Capacity, Conduct, Stage, Stages, State};

/// A kind of source, chosen by the scheme of its URL.
#[derive(Debug)]
pub struct Kind {
    /// What stands before the colon.
    pub scheme: &'static str,
    /// How its URLs look.
    pub form: &'static str,
    /// What it is.
    pub summary: &'static str,
    /// Whether it answers without the real world, so that experiments on it run in virtual time.
    pub is_simulated: bool,
    check: fn(&str) -> Result<(), OpenError>,
    open: fn(&str) -> Opened,
    fill: fn(&str, &[NamedDocument]) -> Opened,
}

/// A source, or why there is none.
pub type Opened = Result<Arc<dyn Source>, OpenError>;

/// Every kind of source.
pub const SOURCES: &[Kind] = &[
    Kind {
        scheme: "sqlite",
        form: "sqlite:PATH",
        summary: "a SQLite database; without a path one with 680 generated documents",
        is_simulated: false,
        check: |_| Ok(()),
        open: sqlite::open,
        fill: sqlite::fill,
    },
    Kind {
        scheme: "simulated",
        form: "simulated:COUNT",
        summary: "generated documents in memory (680 without a count), in virtual time",
        is_simulated: true,
        check: |rest| simulated::count(rest).map(drop),
        open: simulated::open,
        fill: simulated::fill,
    },
];

/// Which source to open: a [`Kind`] and what it is told.
#[derive(Clone, Debug)]
pub struct SourceUrl {
    kind: &'static Kind,
    rest: String,
}

/// A source could not be opened or filled. The message names the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No source has this scheme.
    #[error("unknown source `{url}`: {remedy}")]
    UnknownScheme {
        /// As written.
        url: String,
        /// What to write instead.
        remedy: String,
    },
    /// The part after the scheme makes no sense.
    #[error("`{0}` is no count of documents: write a number from 1 to 1000000")]
    BadCount(String),
    /// There is no such database.
    #[error("no database at {}: check the path, or fill a new one with --docs-from FILE.jsonl", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// There is a file, but not the database that it should be.
    #[error("{} cannot be used: {reason}", path.display())]
    Unusable {
        /// Where it is.
        path: PathBuf,
        /// What is wrong, and what to do about it.
        reason: String,
    },
    /// A file of documents could not be read.
    #[error(transparent)]
    Documents(#[from] documents::ReadError),
}

impl OpenError {
    /// Whether it was asked for wrongly, rather than something that went wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::UnknownScheme { .. } | Self::BadCount(_))
    }
}

impl SourceUrl {
    /// What kind of source it is.
    #[must_use]
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Opens the source, which has to be there already (generated ones always are).
    pub fn open(&self) -> Opened {
        (self.kind.open)(&self.rest)
    }

    /// Opens the source with these documents in it. A database that holds others is refused; SQLite
    /// without a path is a temporary one.
    pub fn fill(&self, documents: &[NamedDocument]) -> Opened {
        (self.kind.fill)(&self.rest, documents)
    }
}

impl Default for SourceUrl {
    /// The generated SQLite documents.
    fn default() -> Self {
        Self { kind: &SOURCES[0], rest: String::new() }
    }
}

impl FromStr for SourceUrl {
    type Err = OpenError;

    fn from_str(url: &str) -> Result<Self, OpenError> {
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        let Some(kind) = SOURCES.iter().find(|kind| kind.scheme == scheme) else {
            let remedy = remedy(scheme, SOURCES.iter().map(|kind| kind.scheme));
            return Err(OpenError::UnknownScheme { url: url.to_owned(), remedy });
        };
        (kind.check)(rest)?;
        Ok(Self { kind, rest: rest.to_owned() })
    }
}

impl std::fmt::Display for SourceUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind.scheme, self.rest)
    }
}
