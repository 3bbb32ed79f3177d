//! Request templates: what a request sends, apart from the key in its path.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{self, Entry, HOST},
    uri::PathAndQuery,
};

use crate::url::{self, UrlError};

/// The content of a request: method, URL, headers and body (vegeta's target).
#[derive(Clone, Debug, PartialEq)]
pub struct RequestTemplate {
    /// The method; any except CONNECT.
    pub method: Method,
    /// An absolute URL: scheme, host and path. `{key}` in its path or query is a placeholder for a drawn key.
    pub url: Uri,
    /// Headers. `Host`, `User-Agent`, `Accept-Encoding` and `Content-Length` are added where they are missing.
    pub headers: HeaderMap,
    /// The body; empty for most requests.
    pub body: Bytes,
}

/// Headers that the connection sets itself. A template with one of them loses it, as in vegeta.
pub const CONNECTION_HEADERS: [HeaderName; 7] = [
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

impl RequestTemplate {
    /// A GET without headers and body.
    #[must_use]
    pub fn get(url: Uri) -> Self {
        Self::new(Method::GET, url)
    }

    /// A request without headers and body.
    #[must_use]
    pub fn new(method: Method, url: Uri) -> Self {
        Self { method, url, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// Sends the host of its URL as `Host`, wherever it connects to, unless it has one.
    pub fn keep_host(&mut self) {
        let host = self.url.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        if let (Some(host), Entry::Vacant(absent)) = (host, self.headers.entry(HOST)) {
            absent.insert(host);
        }
    }

    /// Path and query, `/` if the URL has none.
    pub(crate) fn path(&self) -> &str {
        self.url.path_and_query().map_or("/", PathAndQuery::as_str)
    }

    /// Checks the URL and drops [`CONNECTION_HEADERS`]: the connection states the length of a body once, since two
    /// lengths are how requests are smuggled.
    pub(crate) fn checked(mut self) -> Result<Self, UrlError> {
        self.url = url::checked(self.url)?;
        CONNECTION_HEADERS.iter().for_each(|name| drop(self.headers.remove(name)));
        Ok(self)
    }
}
