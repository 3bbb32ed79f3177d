//! The part of a response that a fault lets through, and how its connection ends. Pure.

use bytes::Bytes;
use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_LENGTH, DATE, HeaderValue},
};

use crate::{
    response::{BufferedResponse, is_without_body},
    stages::Fault,
};

/// A head whose status, length and name of a header are invalid.
const MALFORMED_HEAD: &[u8] = b"HTTP/1.1 2x0 maybe\r\nContent-Length: many\r\n: nameless\r\n\r\n";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokenResponse {
    pub(crate) head: BrokenHead,
    /// The first bytes of the body.
    pub(crate) body_start: Bytes,
    pub(crate) termination: Termination,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BrokenHead {
    /// Nothing is sent.
    None,
    Malformed,
    Complete(StatusCode, HeaderMap),
    /// The head ends without its empty line: there is no body that could break off.
    Truncated(StatusCode, HeaderMap),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Termination {
    /// The connection is reset, and unsent bytes are discarded.
    Reset,
    /// The connection is closed normally.
    Close,
}

impl BrokenResponse {
    pub(crate) fn new(fault: Fault, response: BufferedResponse, is_head_request: bool) -> Self {
        let termination = match fault {
            Fault::Refuse | Fault::Reset => Termination::Reset,
            Fault::Silent | Fault::Malformed | Fault::Cut => Termination::Close,
        };
        let without_body = |head| Self { head, body_start: Bytes::new(), termination };
        match fault {
            Fault::Refuse | Fault::Silent => return without_body(BrokenHead::None),
            Fault::Malformed => return without_body(BrokenHead::Malformed),
            Fault::Reset | Fault::Cut => {}
        }
        let bytes = response.body.len() / 2;
        Self::cut(response, bytes, termination, is_head_request)
    }

    /// A response that ends after this many bytes of its body, or within its head if it has no body.
    pub(crate) fn cut(
        response: BufferedResponse,
        bytes: usize,
        termination: Termination,
        is_head_request: bool,
    ) -> Self {
        let BufferedResponse { status, mut headers, body } = response;
        if !is_without_body(status) {
            headers.insert(CONTENT_LENGTH, body.len().into());
        }
        if is_head_request || body.is_empty() || is_without_body(status) {
            let head = BrokenHead::Truncated(status, headers);
            return Self { head, body_start: Bytes::new(), termination };
        }
        let body_start = body.slice(..bytes.min(body.len()));
        Self { head: BrokenHead::Complete(status, headers), body_start, termination }
    }
}

impl BrokenHead {
    /// The head as HTTP/1.1.
    pub(crate) fn encode(&self, date: &HeaderValue) -> Vec<u8> {
        let (status, headers) = match self {
            Self::None => return Vec::new(),
            Self::Malformed => return MALFORMED_HEAD.to_vec(),
            Self::Complete(status, headers) | Self::Truncated(status, headers) => (status, headers),
        };
        let mut bytes =
            format!("HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default())
                .into_bytes();
        for (name, value) in headers.iter().chain([(&DATE, date)]) {
            for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                bytes.extend_from_slice(piece);
            }
        }
        if let Self::Complete(..) = self {
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_lets_half_of_the_body_through_or_part_of_the_head() {
        let response =
            |status, body: &'static str| BufferedResponse::text(StatusCode::from_u16(status).unwrap(), body);
        let date = HeaderValue::from_static("today");
        for (fault, status, body, is_head_request, head, body_start, termination) in [
            (
                Fault::Reset,
                200,
                "12345",
                false,
                "HTTP/1.1 200 OK\r\nct: 5\r\ndate: today\r\n\r\n",
                "12",
                Termination::Reset,
            ),
            (
                Fault::Cut,
                200,
                "12345",
                false,
                "HTTP/1.1 200 OK\r\nct: 5\r\ndate: today\r\n\r\n",
                "12",
                Termination::Close,
            ),
            (
                Fault::Cut,
                200,
                "",
                false,
                "HTTP/1.1 200 OK\r\nct: 0\r\ndate: today\r\n",
                "",
                Termination::Close,
            ),
            (
                Fault::Cut,
                200,
                "12345",
                true,
                "HTTP/1.1 200 OK\r\nct: 5\r\ndate: today\r\n",
                "",
                Termination::Close,
            ),
            (
                Fault::Reset,
                304,
                "",
                false,
                "HTTP/1.1 304 Not Modified\r\ndate: today\r\n",
                "",
                Termination::Reset,
            ),
            (Fault::Refuse, 200, "12345", false, "", "", Termination::Reset),
            (Fault::Silent, 200, "12345", false, "", "", Termination::Close),
        ] {
            let broken = BrokenResponse::new(fault, response(status, body), is_head_request);
            let encoded = String::from_utf8(broken.head.encode(&date)).unwrap();
            let encoded = encoded
                .replace("content-type: text/plain; charset=utf-8\r\n", "")
                .replace("content-length", "ct");
            assert_eq!(
                (encoded.as_str(), &broken.body_start[..], broken.termination),
                (head, body_start.as_bytes(), termination),
                "{fault:?} {status}"
            );
        }
        let broken = BrokenResponse::new(Fault::Malformed, response(200, "b"), false);
        assert_eq!(broken.head.encode(&date), MALFORMED_HEAD);
    }
}
