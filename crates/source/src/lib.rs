//! Document sources: databases, HTTP servers and simulations.
//!
//! A cache stands in front of a [`Source`]. A [`SourceUrl`] names a source and opens it. [`StagedSource`] adds latency,
//! errors and a capacity to any source, as described by a [`SourceBehavior`]:
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
//!
//! A new source needs a file with its `mod` line, a line in the registry below, and a cargo feature.

#![allow(missing_docs, reason = "used by this workspace alone; a comment states what a name cannot")]

#[cfg(feature = "http-client")]
mod client;
#[cfg(feature = "couchdb")]
mod couchdb;
pub mod documents;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "remote")]
#[allow(dead_code, reason = "each source over a network uses a part of it")]
mod remote;
pub mod secrets;
mod simulated;
#[cfg(feature = "sqlite")]
mod sqlite;
mod staged;
mod stages;

use std::{future::Future, pin::Pin, str::FromStr, sync::Arc};

use documents::NamedDocument;
use stockade_model::{
    registry::{Named, Registry, UnknownName},
    source::Source,
};

pub use staged::{StagedSource, VersionedDocument};
pub use stages::{Availability, SourceBehavior, SourceStage, SourceStages};

/// A kind of source. The scheme of a URL selects it.
#[derive(Debug)]
pub struct SourceKind {
    pub schemes: &'static [&'static str],
    /// The form of its URLs.
    pub form: &'static str,
    pub summary: &'static str,
    /// It needs no network and no disk, so experiments run in virtual time.
    pub is_simulated: bool,
    /// Parses what follows the colon of a URL.
    parse: fn(scheme: &str, rest: &str) -> ParseResult,
}

impl Named for SourceKind {
    const KIND: &'static str = "source";

    fn name(&self) -> &'static str {
        self.form
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn parsed(&self) -> &'static [&'static str] {
        self.schemes
    }
}

type ParseResult = Result<Arc<dyn SourceLocation>, OpenError>;

/// A parsed URL. Displayed without secrets.
pub(crate) trait SourceLocation: std::fmt::Display + Send + Sync {
    fn open(&self) -> OpenFuture<'_>;

    /// Opens the source and fills it with the documents.
    fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> OpenFuture<'a>;
}

pub type OpenResult = Result<Arc<dyn Source>, OpenError>;

pub type OpenFuture<'a> = Pin<Box<dyn Future<Output = OpenResult> + Send + 'a>>;

/// Each line: a module, its schemes, and its cargo feature.
macro_rules! registry {
    ($($module:ident: $schemes:expr $(, $feature:literal)?;)+) => {
        /// The sources of this build.
        pub static SOURCES: Registry<SourceKind> =
            Registry::new(&[$($(#[cfg(feature = $feature)])? $module::kind(&$schemes)),+]);
        /// Schemes of all sources, with the cargo feature that each needs.
        const SCHEMES: &[(&[&str], &str)] = &[$((&$schemes, concat!($($feature)?))),+];
    };
}

registry! {
    sqlite: ["sqlite"], "sqlite";
    simulated: ["simulated"];
    http: ["http", "https"], "http";
    couchdb: ["couchdb", "couchdbs"], "couchdb";
    mongodb: ["mongodb", "mongodb+srv"], "mongodb";
    postgres: ["postgres", "postgresql"], "postgres";
}

/// The URL of a source. It may contain secrets, which `Display` and `Debug` omit.
#[derive(Clone)]
pub struct SourceUrl {
    kind: &'static SourceKind,
    location: Arc<dyn SourceLocation>,
    /// Two URLs may differ only in a part that is not displayed.
    text: Arc<str>,
}

/// A source could not be opened or filled. Messages name the place and the remedy, and contain no secrets.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    UnknownScheme(#[from] UnknownName),
    /// The source exists, but this build does not contain it.
    #[error("this build has no source `{scheme}`: build with `--features {feature}`")]
    NotCompiled { scheme: String, feature: &'static str },
    #[error("`{0}` is not a count of documents: write a number from 1 to 1000000")]
    BadCount(String),
    #[error("{scheme}: {what}")]
    BadUrl { scheme: String, what: String },
    #[error("no database at {place}: check the path, or fill a new one with --docs-from FILE.jsonl")]
    Missing { place: String },
    #[error("{place} cannot be used: {reason}")]
    Unusable { place: String, reason: String },
    #[error(transparent)]
    Documents(#[from] documents::ReadError),
}

impl OpenError {
    /// True if the URL is wrong, false if the source failed.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::UnknownScheme(_) | Self::NotCompiled { .. } | Self::BadCount(_) | Self::BadUrl { .. }
        )
    }
}

impl SourceUrl {
    #[must_use]
    pub fn kind(&self) -> &'static SourceKind {
        self.kind
    }

    /// Opens an existing source on the runtime of the caller. Generated documents always exist.
    #[must_use]
    pub fn open(&self) -> OpenFuture<'_> {
        self.location.open()
    }

    /// Opens the source and fills it with the documents. A database with other documents is refused.
    /// SQLite without a path is a temporary database.
    #[must_use]
    pub fn fill<'a>(&'a self, documents: &'a [NamedDocument]) -> OpenFuture<'a> {
        self.location.fill(documents)
    }
}

impl PartialEq for SourceUrl {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SourceUrl {}

impl std::hash::Hash for SourceUrl {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Default for SourceUrl {
    /// Generated documents in SQLite, or in memory if this build has no SQLite.
    fn default() -> Self {
        let sqlite = "sqlite:".parse();
        sqlite.or_else(|_| "simulated:".parse()).expect("no count means the default count")
    }
}

impl FromStr for SourceUrl {
    type Err = OpenError;

    fn from_str(url: &str) -> Result<Self, OpenError> {
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        let kind = SOURCES.named(scheme).map_err(|unknown| {
            match SCHEMES.iter().find(|(schemes, _)| schemes.contains(&scheme)) {
                Some((_, feature)) => OpenError::NotCompiled { scheme: scheme.to_owned(), feature },
                None => unknown.into(),
            }
        })?;
        Ok(Self { kind, location: (kind.parse)(scheme, rest)?, text: url.into() })
    }
}

impl std::fmt::Display for SourceUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.location.fmt(f)
    }
}

impl std::fmt::Debug for SourceUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.location.fmt(f)
    }
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
