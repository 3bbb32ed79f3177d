//! The seam between connections and the code that answers requests.

use std::{error::Error as StdError, future::Future, pin::Pin};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body;

use super::{body::ClientBody, state::ConnectionInfo};

/// Answers requests.
///
/// Each thread clones it, and so does each connection: a large handler is an `Arc`.
pub trait Handler: Clone + Send + Sync + 'static {
    /// The body of a response. One frame is written with one call, as far as the client takes it. An error closes the
    /// connection, so that no client takes a part for the whole.
    type Body: Body<Data: From<Bytes> + Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static;

    /// Receives the end of each response.
    type Record: ResponseRecord;

    /// Answers `request`.
    ///
    /// Its head has been checked: it has one host (HTTP/1.0 may have none), in the target or in `Host`, and no
    /// `Content-Length` together with `Transfer-Encoding`. The frontend sets `Connection`, `Transfer-Encoding` and `Date` of
    /// the response. A response to `HEAD` may have a body; the frontend does not send it.
    fn handle(
        &self,
        request: Request<ClientBody>,
        connection: ConnectionInfo,
    ) -> HandlerResponse<Self::Body, Self::Record>;

    /// Notes a request that the frontend has refused.
    fn note_refusal(&self, _refused: &RefusedRequest<'_>, _connection: ConnectionInfo) {}
}

/// A request that no handler sees, and the response of the frontend.
#[derive(Clone, Copy, Debug)]
pub struct RefusedRequest<'a> {
    /// `None`: its head could not be parsed.
    pub head: Option<RefusedHead<'a>>,
    pub status: StatusCode,
    pub reason: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub struct RefusedHead<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub version: Version,
    pub headers: &'a HeaderMap,
}

impl<'a, B> From<&'a Request<B>> for RefusedHead<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
        }
    }
}

/// Notes the end of one response.
pub trait ResponseRecord: Send + Sync + 'static {
    /// Called once: all bytes are sent, or no more will be.
    fn end(&mut self, sent: SentBody);
}

impl ResponseRecord for () {
    fn end(&mut self, _: SentBody) {}
}

/// What the operating system took of a response's body; of HTTP/2, what was written as DATA frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentBody {
    pub bytes: u64,
    /// True if that is the whole body.
    pub is_complete: bool,
}

pub enum HandlerResponse<B, R> {
    Ready(Response<B>, R),
    /// The future is dropped when the client closes its connection.
    Pending(PendingHandler<B, R>),
}

pub(super) type PendingHandler<B, R> = Pin<Box<dyn Future<Output = (Response<B>, R)> + Send>>;
