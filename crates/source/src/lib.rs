//! Where documents truly live.
//!
//! A cache stands in front of a [`Source`]; the lab opens one by [`SourceUrl`] and may slow it
//! down, fail it and bound it as a [`Conduct`] has it, with [`Staged`]. One file a source, and [`SOURCES`] lists them:
//!
//! ```
//! use stockade_source::SourceUrl;
//!
//! # async fn example() -> Result<(), stockade_source::OpenError> {
//! let url: SourceUrl = "simulated:3".parse()?;
//! let source = url.open().await?;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "http")]
mod client;
#[cfg(feature = "http")]
mod couchdb;
pub mod documents;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "http", feature = "mongodb", feature = "postgres"))]
#[cfg_attr(
    not(all(feature = "http", feature = "mongodb", feature = "postgres")),
    allow(dead_code, reason = "no source needs all of it")
)]
mod remote;
pub mod secrets;
mod simulated;
mod sqlite;
mod staged;
mod stages;

use std::{future::Future, pin::Pin, str::FromStr, sync::Arc};

use documents::NamedDocument;
use stockade_model::{nearest::remedy, source::Source};

pub use sqlite::Sqlite;
pub use staged::{Staged, Stamped};
pub use stages::{Conduct, Stage, Stages, State};

/// A kind of source, chosen by the scheme of its URL.
#[derive(Debug)]
pub struct Kind {
    /// What stands before the colon.
    pub schemes: &'static [&'static str],
    /// How its URLs look.
    pub form: &'static str,
    /// What it is.
    pub summary: &'static str,
    /// Whether it answers without the real world, so that experiments on it run in virtual time.
    pub is_simulated: bool,
    /// Reads a URL of one of its schemes.
    read: fn(scheme: &str, rest: &str) -> Read,
}

/// Where a source is, or what is wrong with its URL.
type Read = Result<Arc<dyn Place>, OpenError>;

/// Where documents are, as read from a URL; nobody has been asked yet. Displayed without secrets.
pub(crate) trait Place: std::fmt::Display + Send + Sync {
    /// Opens the source there.
    fn open(&self) -> Opening<'_>;

    /// Opens it with these documents in it.
    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> Opening<'a>;
}

/// A source, or why there is none.
pub type Opened = Result<Arc<dyn Source>, OpenError>;

/// A source that is being opened.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Opened> + Send + 'a>>;

/// Every kind of source.
pub const SOURCES: &[Kind] = &[
    Kind {
        schemes: &["sqlite"],
        form: "sqlite:PATH",
        summary: "a SQLite database; without a path one with 680 generated documents",
        is_simulated: false,
        read: sqlite::read,
    },
    Kind {
        schemes: &["simulated"],
        form: "simulated:COUNT",
        summary: "generated documents in memory (680 without a count), in virtual time",
        is_simulated: true,
        read: simulated::read,
    },
    #[cfg(feature = "http")]
    Kind {
        schemes: &["http", "https"],
        form: "https://HOST/{id}",
        summary: "any HTTP server: one URL a document; ids=FILE-OR-URL lists them",
        is_simulated: false,
        read: http::read,
    },
    #[cfg(feature = "http")]
    Kind {
        schemes: &["couchdb", "couchdbs"],
        form: "couchdb://HOST/DATABASE",
        summary: "a CouchDB database; couchdbs: with TLS",
        is_simulated: false,
        read: couchdb::read,
    },
    #[cfg(feature = "mongodb")]
    Kind {
        schemes: &["mongodb", "mongodb+srv"],
        form: "mongodb://USER@HOST/DATABASE",
        summary: "a MongoDB collection, in extended JSON",
        is_simulated: false,
        read: mongodb::read,
    },
    #[cfg(feature = "postgres")]
    Kind {
        schemes: &["postgres", "postgresql"],
        form: "postgres://USER@HOST/DATABASE",
        summary: "a table of a PostgreSQL database",
        is_simulated: false,
        read: postgres::read,
    },
];

/// Schemes of sources that are there only if a feature of this crate is.
const FEATURES: [(&str, &[&str]); 3] = [
    ("http", &["http", "https", "couchdb", "couchdbs"]),
    ("mongodb", &["mongodb", "mongodb+srv"]),
    ("postgres", &["postgres", "postgresql"]),
];

/// Which source to open: a [`Kind`] and what it is told. It may hold secrets, and shows none.
#[derive(Clone)]
pub struct SourceUrl {
    kind: &'static Kind,
    place: Arc<dyn Place>,
    /// As it was written: what two URLs differ in may be what is not shown.
    written: Arc<str>,
}

/// A source could not be opened or filled. The message names the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No source has this scheme.
    #[error("unknown source `{scheme}`: {remedy}")]
    UnknownScheme {
        /// What stands before its colon; what comes after may be a secret.
        scheme: String,
        /// What to write instead.
        remedy: String,
    },
    /// The part after the scheme makes no sense.
    #[error("`{0}` is no count of documents: write a number from 1 to 1000000")]
    BadCount(String),
    /// A URL could not be read. It is not shown: it may hold a secret.
    #[error("{scheme}: {what}")]
    BadUrl {
        /// Its scheme.
        scheme: String,
        /// What is wrong with it, and what to write instead.
        what: String,
    },
    /// There is no such database.
    #[error("no database at {place}: check the path, or fill a new one with --docs-from FILE.jsonl")]
    Missing {
        /// Where it should be.
        place: String,
    },
    /// There is something, but not what it should be.
    #[error("{place} cannot be used: {reason}")]
    Unusable {
        /// Where it is, without secrets.
        place: String,
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
        matches!(self, Self::UnknownScheme { .. } | Self::BadCount(_) | Self::BadUrl { .. })
    }
}

impl SourceUrl {
    /// What kind of source it is.
    #[must_use]
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Opens the source, which has to be there already (generated ones always are), on the runtime of the
    /// caller.
    #[must_use]
    pub fn open(&self) -> Opening<'_> {
        self.place.open()
    }

    /// Opens the source with these documents in it. A database that holds others is refused; SQLite
    /// without a path is a temporary one.
    #[must_use]
    pub fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> Opening<'a> {
        self.place.fill(documents)
    }
}

impl PartialEq for SourceUrl {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for SourceUrl {}

impl std::hash::Hash for SourceUrl {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.written.hash(state);
    }
}

impl Default for SourceUrl {
    /// The generated SQLite documents.
    fn default() -> Self {
        Self { kind: &SOURCES[0], place: sqlite::generated_documents(), written: "sqlite:".into() }
    }
}

impl FromStr for SourceUrl {
    type Err = OpenError;

    fn from_str(url: &str) -> Result<Self, OpenError> {
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        let Some(kind) = SOURCES.iter().find(|kind| kind.schemes.contains(&scheme)) else {
            let remedy = match FEATURES.into_iter().find(|(_, schemes)| schemes.contains(&scheme)) {
                Some((feature, _)) => {
                    format!("this program was built without it, build it with --features {feature}")
                }
                None => remedy(scheme, SOURCES.iter().flat_map(|kind| kind.schemes).copied()),
            };
            return Err(OpenError::UnknownScheme { scheme: scheme.to_owned(), remedy });
        };
        Ok(Self { kind, place: (kind.read)(scheme, rest)?, written: url.into() })
    }
}

impl std::fmt::Display for SourceUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.place.fmt(f)
    }
}

impl std::fmt::Debug for SourceUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.place.fmt(f)
    }
}
