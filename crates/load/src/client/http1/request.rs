//! The HTTP/1.1 head of a request, built once per template.

use bytes::Bytes;
use http::{HeaderName, Method, header};

use crate::{endpoint::Endpoint, template::RequestTemplate, traffic::RequestSpec};

/// The constant parts of a template's requests; only the path may vary.
#[derive(Clone, Debug)]
pub(crate) struct PreparedRequest {
    /// The head with the path of the template.
    head: Vec<u8>,
    /// The path within `head`.
    path: std::ops::Range<usize>,
    pub(crate) body: Bytes,
    pub(crate) is_head: bool,
    /// The client adds `Accept-Encoding`, not the template: gzip is decoded.
    pub(crate) decodes: bool,
}

/// The default `User-Agent`.
const USER_AGENT: &str = concat!("stockade/", env!("CARGO_PKG_VERSION"));
/// Fields that a request has unless its template sets them.
pub(crate) const ADDED_FIELDS: [(HeaderName, &str); 2] =
    [(header::USER_AGENT, USER_AGENT), (header::ACCEPT_ENCODING, "gzip")];

impl PreparedRequest {
    pub(crate) fn new(template: &RequestTemplate, endpoint: &Endpoint, keeps_alive: bool) -> Self {
        let mut head = template.method.as_str().as_bytes().to_vec();
        head.push(b' ');
        let path_start = head.len();
        let path = template.url.path_and_query().map_or("/", |path| path.as_str());
        head.extend_from_slice(path.as_bytes());
        let path = path_start..head.len();
        head.extend_from_slice(b" HTTP/1.1\r\n");
        let mut add = |name: &str, value: &[u8]| {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                head.extend_from_slice(part);
            }
        };
        let has = |name: HeaderName| template.headers.contains_key(name);
        if !has(header::HOST) {
            add("Host", endpoint.authority().as_bytes());
        }
        if !has(header::USER_AGENT) {
            add("User-Agent", USER_AGENT.as_bytes());
        }
        let decodes = !has(header::ACCEPT_ENCODING);
        if decodes {
            add("Accept-Encoding", b"gzip");
        }
        if !keeps_alive && !has(header::CONNECTION) {
            add("Connection", b"close");
        }
        if !template.body.is_empty() || matches!(template.method, Method::POST | Method::PUT | Method::PATCH)
        {
            add("Content-Length", template.body.len().to_string().as_bytes());
        }
        for (name, value) in &template.headers {
            add(name.as_str(), value.as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        Self { head, path, body: template.body.clone(), is_head: template.method == Method::HEAD, decodes }
    }

    /// The head of one request; written to `buffer` where the path differs from the template's.
    pub(crate) fn head<'a>(&'a self, spec: &RequestSpec<'_>, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        match &spec.path {
            std::borrow::Cow::Borrowed(_) => &self.head,
            std::borrow::Cow::Owned(path) => {
                buffer.clear();
                buffer.extend_from_slice(&self.head[..self.path.start]);
                buffer.extend_from_slice(path.as_bytes());
                buffer.extend_from_slice(&self.head[self.path.end..]);
                buffer
            }
        }
    }
}
