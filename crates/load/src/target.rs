//! What one request asks for.

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};

/// One request: everything but when, and on which connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its method.
    pub method: Method,
    /// Whole: scheme, host and path. In its path and query `{key}` stands for a key that is drawn.
    pub url: Uri,
    /// Its headers; those that every request has (`Host`, `Content-Length`, ...) are added where they are not here.
    pub headers: HeaderMap,
    /// Its body; most have none.
    pub body: Bytes,
}

impl Target {
    /// A plain GET.
    #[must_use]
    pub fn get(url: Uri) -> Self {
        Self { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() }
    }
}
