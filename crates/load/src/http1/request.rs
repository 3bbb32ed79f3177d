//! A request in HTTP/1.1, written once and sent often.

use bytes::Bytes;
use http::{HeaderName, Method, header};

use crate::{endpoint::Endpoint, target::Target, traffic::Asked};

/// What a target's requests are made of; only their path may vary.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// The whole head, with the target's own path.
    whole: Vec<u8>,
    /// Where in it the path is.
    path: std::ops::Range<usize>,
    pub(crate) body: Bytes,
    pub(crate) is_head: bool,
    /// It asks for gzip because we do, not because the target does: what comes is decoded.
    pub(crate) decodes: bool,
}

/// What every request has that does not say otherwise.
pub(crate) const USER_AGENT: &str = concat!("stockade/", env!("CARGO_PKG_VERSION"));

impl Prepared {
    pub(crate) fn new(target: &Target, endpoint: &Endpoint, keeps_alive: bool) -> Self {
        let mut whole = target.method.as_str().as_bytes().to_vec();
        whole.push(b' ');
        let begins = whole.len();
        let path = target.url.path_and_query().map_or("/", |path| path.as_str());
        whole.extend_from_slice(path.as_bytes());
        let path = begins..whole.len();
        whole.extend_from_slice(b" HTTP/1.1\r\n");
        let mut add = |name: &str, value: &[u8]| {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                whole.extend_from_slice(part);
            }
        };
        let has = |name: HeaderName| target.headers.contains_key(name);
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
        if !target.body.is_empty() || matches!(target.method, Method::POST | Method::PUT | Method::PATCH) {
            add("Content-Length", target.body.len().to_string().as_bytes());
        }
        for (name, value) in &target.headers {
            add(name.as_str(), value.as_bytes());
        }
        whole.extend_from_slice(b"\r\n");
        Self { whole, path, body: target.body.clone(), is_head: target.method == Method::HEAD, decodes }
    }

    /// The head of this request, in `room` where it is not the target's own.
    pub(crate) fn head<'a>(&'a self, asked: &Asked<'_>, room: &'a mut Vec<u8>) -> &'a [u8] {
        match &asked.path {
            std::borrow::Cow::Borrowed(_) => &self.whole,
            std::borrow::Cow::Owned(path) => {
                room.clear();
                room.extend_from_slice(&self.whole[..self.path.start]);
                room.extend_from_slice(path.as_bytes());
                room.extend_from_slice(&self.whole[self.path.end..]);
                room
            }
        }
    }
}
