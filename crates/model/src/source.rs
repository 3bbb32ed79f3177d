//! Where documents truly live.

use std::{future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;

/// The bytes of one document. Clones share them.
pub type Document = Bytes;

/// What a source's calls return: a boxed future, so that sources can be chosen by name at run time.
pub type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SourceError>> + Send + 'a>>;

/// An origin or a database that a cache stands in front of.
pub trait Source: Send + Sync + 'static {
    /// Fetches the document with this id. A document that does not exist is an answer: `None`.
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>>;

    /// The ids of all documents, sorted.
    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>>;
}

/// A source could not answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The source refused or could not be reached.
    #[error("{source_name}: {reason}")]
    Failed {
        /// Which source, without secrets.
        source_name: String,
        /// What it said.
        reason: String,
    },
    /// The source did not answer in its time.
    #[error("{source_name} did not answer within {}", crate::units::format_duration(*.after))]
    TimedOut {
        /// Which source, without secrets.
        source_name: String,
        /// How long it was given.
        after: std::time::Duration,
    },
}
