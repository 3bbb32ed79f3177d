//! The interface of document sources.

use std::{future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;

/// The bytes of one document. Clones share them.
pub type Document = Bytes;

/// A boxed future, so that a source can be chosen by name at run time.
pub type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SourceError>> + Send + 'a>>;

/// An origin or a database behind a cache.
pub trait Source: Send + Sync + 'static {
    /// Fetches a document. `None`: it does not exist.
    fn fetch<'a>(&'a self, id: &'a str) -> SourceFuture<'a, Option<Document>>;

    /// The ids of all documents, sorted.
    fn ids(&self) -> SourceFuture<'_, Vec<Arc<str>>>;
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The source refused the request or is unreachable.
    #[error("{source_name}: {reason}")]
    Failed {
        /// Contains no secrets.
        source_name: String,
        /// The message of the source, or the cause.
        reason: String,
    },
    #[error("{source_name} did not answer within {}", crate::units::format_duration(*.after))]
    TimedOut {
        /// Contains no secrets.
        source_name: String,
        /// The timeout.
        after: std::time::Duration,
    },
}
