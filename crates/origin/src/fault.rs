//! What leaves of an answer that goes wrong, and how it ends. Pure; connections do it.

use bytes::Bytes;
use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_LENGTH, DATE, HeaderValue},
};

use crate::{
    answer::{Answer, has_no_body},
    stages::Fault,
};

/// A head that is none: no status, no length, no name.
const MALFORMED: &[u8] = b"HTTP/1.1 2x0 maybe\r\nContent-Length: many\r\n: nameless\r\n\r\n";

/// What leaves, and then nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The head as it was to be, or what there is of it.
    pub(crate) head: Head,
    /// What there is of the body.
    pub(crate) part: Bytes,
    pub(crate) end: End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Not a byte.
    None,
    /// One that nobody can read.
    Malformed,
    Whole(StatusCode, HeaderMap),
    /// It breaks off: where there is no body, nothing else can.
    Cut(StatusCode, HeaderMap),
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At once, with whatever is on its way.
    Reset,
    /// As if that were all.
    Close,
}

impl Broken {
    pub(crate) fn new(fault: Fault, answer: Answer, is_head: bool) -> Self {
        let end = match fault {
            Fault::Refuse | Fault::Reset => End::Reset,
            Fault::Silent | Fault::Malformed | Fault::Cut => End::Close,
        };
        let without_body = |head| Self { head, part: Bytes::new(), end };
        match fault {
            Fault::Refuse | Fault::Silent => return without_body(Head::None),
            Fault::Malformed => return without_body(Head::Malformed),
            Fault::Reset | Fault::Cut => {}
        }
        let Answer { status, mut head, body } = answer;
        if !has_no_body(status) {
            head.insert(CONTENT_LENGTH, body.len().into());
        }
        if is_head || body.is_empty() || has_no_body(status) {
            return without_body(Head::Cut(status, head));
        }
        Self { head: Head::Whole(status, head), part: body.slice(..body.len() / 2), end }
    }
}

impl Head {
    /// As it is written on the wire of HTTP/1.
    pub(crate) fn bytes(&self, date: &HeaderValue) -> Vec<u8> {
        let (status, head) = match self {
            Self::None => return Vec::new(),
            Self::Malformed => return MALFORMED.to_vec(),
            Self::Whole(status, head) | Self::Cut(status, head) => (status, head),
        };
        let mut bytes =
            format!("HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default())
                .into_bytes();
        for (name, value) in head.iter().chain([(&DATE, date)]) {
            for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                bytes.extend_from_slice(piece);
            }
        }
        if let Self::Whole(..) = self {
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_body_leaves_and_where_there_is_none_a_part_of_the_head() {
        let answer = |status, body: &'static str| Answer::text(StatusCode::from_u16(status).unwrap(), body);
        let date = HeaderValue::from_static("today");
        for (fault, status, body, is_head, head, part, end) in [
            (
                Fault::Reset,
                200,
                "12345",
                false,
                "HTTP/1.1 200 OK\r\nct: 5\r\ndate: today\r\n\r\n",
                "12",
                End::Reset,
            ),
            (
                Fault::Cut,
                200,
                "12345",
                false,
                "HTTP/1.1 200 OK\r\nct: 5\r\ndate: today\r\n\r\n",
                "12",
                End::Close,
            ),
            (Fault::Cut, 200, "", false, "HTTP/1.1 200 OK\r\nct: 0\r\ndate: today\r\n", "", End::Close),
            (Fault::Cut, 200, "12345", true, "HTTP/1.1 200 OK\r\nct: 5\r\ndate: today\r\n", "", End::Close),
            (Fault::Reset, 304, "", false, "HTTP/1.1 304 Not Modified\r\ndate: today\r\n", "", End::Reset),
            (Fault::Refuse, 200, "12345", false, "", "", End::Reset),
            (Fault::Silent, 200, "12345", false, "", "", End::Close),
        ] {
            let broken = Broken::new(fault, answer(status, body), is_head);
            let written = String::from_utf8(broken.head.bytes(&date)).unwrap();
            let written = written
                .replace("content-type: text/plain; charset=utf-8\r\n", "")
                .replace("content-length", "ct");
            assert_eq!(
                (written.as_str(), &broken.part[..], broken.end),
                (head, part.as_bytes(), end),
                "{fault:?} {status}"
            );
        }
        assert_eq!(Broken::new(Fault::Malformed, answer(200, "b"), false).head.bytes(&date), MALFORMED);
    }
}
