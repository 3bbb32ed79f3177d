//! Responses that a program chooses, in place of recipes: an audit knows what each request has to get.

use std::{fmt::Debug, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, request::Parts};

use crate::{
    fault::{BrokenHead, BrokenResponse, Termination},
    response::BufferedResponse,
};

/// Chooses the response to each request, except those for admin pages. An origin with a script has no recipes.
pub trait Script: Debug + Send + Sync + 'static {
    /// Called when the whole request has arrived.
    fn respond(&self, request: &Parts) -> ScriptedResponse;
}

/// A response, and how it ends.
#[derive(Clone, Debug)]
pub struct ScriptedResponse {
    /// From the request to the first byte.
    pub latency: Duration,
    /// Sent as it is, whatever the request says.
    pub status: StatusCode,
    /// Without `Content-Length`.
    pub headers: HeaderMap,
    /// For a HEAD request, the body that a GET request would get.
    pub body: Bytes,
    /// How it ends.
    pub ending: ResponseEnding,
}

/// How a response ends. All but `Complete` close the connection (HTTP/1.1) or the stream (HTTP/2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResponseEnding {
    /// The whole body is sent.
    #[default]
    Complete,
    /// Closed after this many bytes of the body. `Content-Length` is that of the whole.
    Cut(usize),
    /// Reset after this many bytes of the body. `Content-Length` is that of the whole.
    Reset(usize),
    /// No byte is sent, for 15 minutes.
    Silent,
    /// Reset without a byte.
    Refused,
    /// These bytes in place of a response, and a close. HTTP/1.1.
    Raw(Bytes),
}

impl ScriptedResponse {
    /// A complete response with status 200.
    #[must_use]
    pub fn ok(body: impl Into<Bytes>) -> Self {
        let (latency, status) = (Duration::ZERO, StatusCode::OK);
        Self {
            latency,
            status,
            headers: HeaderMap::new(),
            body: body.into(),
            ending: ResponseEnding::Complete,
        }
    }

    /// What is sent of it: the response of hyper, or what the connection sends in its place.
    pub(crate) fn sent(self, is_head_request: bool) -> Result<BufferedResponse, Box<BrokenResponse>> {
        let Self { status, headers, body, ending, .. } = self;
        let response = BufferedResponse { status, headers, body };
        let nothing =
            |termination| BrokenResponse { head: BrokenHead::None, body_start: Bytes::new(), termination };
        Err(Box::new(match ending {
            ResponseEnding::Complete => return Ok(response),
            ResponseEnding::Cut(bytes) => {
                BrokenResponse::cut(response, bytes, Termination::Close, is_head_request)
            }
            ResponseEnding::Reset(bytes) => {
                BrokenResponse::cut(response, bytes, Termination::Reset, is_head_request)
            }
            ResponseEnding::Silent => nothing(Termination::Close),
            ResponseEnding::Refused => nothing(Termination::Reset),
            ResponseEnding::Raw(bytes) => BrokenResponse { body_start: bytes, ..nothing(Termination::Close) },
        }))
    }
}
