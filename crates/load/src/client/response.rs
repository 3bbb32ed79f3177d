//! A response whose body is read, checked and dropped.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use flate2::write::MultiGzDecoder;
use sha2::{Digest as _, Sha256};

use crate::{
    sample::{Deviation, FailureClass, RequestFailure, Response},
    truth::StatedAnswer,
};

/// A SHA-256 that bodies have to have.
pub type Sha256Digest = [u8; 32];

/// A complete response, and what becomes of its connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompletedResponse {
    pub(crate) response: Response,
    /// True if the connection can take another request.
    pub(crate) keeps_alive: bool,
    /// `Location`, if the status redirects.
    pub(crate) location: Option<Box<str>>,
}

/// Why there is no complete response.
pub(crate) struct ExchangeError {
    pub(crate) failure: RequestFailure,
    /// True if the server cannot have processed the request.
    pub(crate) may_resend: bool,
}

impl ExchangeError {
    pub(crate) fn permanent(failure: impl Into<RequestFailure>) -> Self {
        Self { failure: failure.into(), may_resend: false }
    }
}

/// Properties of the response's body that follow from the request.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpectedBody {
    /// The method is HEAD: no body follows, even if the head announces one.
    pub(crate) is_head: bool,
    /// True if a gzip body is decoded: the client asked for it, not the template.
    pub(crate) decodes: bool,
    /// The SHA-256 of the decoded body of a success.
    pub(crate) digest: Option<Sha256Digest>,
    /// True if a response with a [`Deviation`] is malformed.
    pub(crate) is_strict: bool,
    /// True if the response is checked against what its origin states.
    pub(crate) is_checked: bool,
}

impl ExpectedBody {
    /// Accepts a deviation, unless the client is strict.
    pub(crate) fn accept(&self, deviation: Deviation) -> Result<Deviation, RequestFailure> {
        if self.is_strict {
            return Err(RequestFailure::new(FailureClass::Malformed, deviation.text()));
        }
        Ok(deviation)
    }

    /// True if a response with this status has a body (RFC 9112, 6.3).
    pub(crate) fn has_body(&self, status: u16) -> bool {
        !self.is_head && !matches!(status, 101 | 204 | 304)
    }

    /// The verifier of the body that follows a head with this `Content-Encoding`.
    pub(crate) fn verifier(
        &self,
        status: u16,
        encoding: Option<&[u8]>,
        stated: Option<&StatedAnswer>,
    ) -> BodyVerifier {
        // The status already reports an error page.
        let digest = self.digest.filter(|_| (200..300).contains(&status) && self.has_body(status));
        let is_decodable = self.decodes || encoding.is_none();
        let has_checksum = stated.is_some_and(|stated| stated.statement.body.is_some());
        let crc32 = (has_checksum && is_decodable && status == 200 && self.has_body(status))
            .then(crc32fast::Hasher::new);
        BodyVerifier::new(self.decodes && encoding.is_some_and(is_gzip), digest, crc32)
    }
}

/// The text of a `Location`, with bytes that no URL has percent-encoded as common clients do; true if there are such.
pub(crate) fn location(value: &[u8]) -> (Box<str>, bool) {
    let is_plain = |byte: &u8| byte.is_ascii_graphic();
    let mut text = String::with_capacity(value.len());
    for byte in value {
        if is_plain(byte) {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    (text.into(), !value.iter().all(is_plain))
}

/// True if a `Content-Encoding` is gzip.
pub(crate) fn is_gzip(encoding: &[u8]) -> bool {
    encoding.eq_ignore_ascii_case(b"gzip") || encoding.eq_ignore_ascii_case(b"x-gzip")
}

/// Counts, decodes and hashes a body, and stores nothing of it.
pub(crate) struct BodyVerifier {
    wire_bytes: u64,
    decoder: BodyDecoder,
}

enum BodyDecoder {
    Identity(BodySink),
    Gzip(Box<MultiGzDecoder<BodySink>>),
}

/// Takes decoded bytes.
struct BodySink {
    bytes: u64,
    digest: Option<(Sha256, Sha256Digest)>,
    crc32: Option<crc32fast::Hasher>,
}

/// The bytes of a body, decoded and as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodySizes {
    pub(crate) bytes: u64,
    pub(crate) wire_bytes: u64,
    /// Of the decoded body, if its origin states one.
    pub(crate) crc32: Option<u32>,
}

impl BodySizes {
    /// The statement of the origin, with the body that arrived.
    pub(crate) fn compared_with(&self, stated: Option<StatedAnswer>) -> Option<Box<StatedAnswer>> {
        let body = self.crc32.map(|crc32| (self.bytes, crc32));
        stated.map(|stated| Box::new(StatedAnswer { body, ..stated }))
    }
}

impl BodyVerifier {
    pub(crate) fn new(is_gzip: bool, digest: Option<Sha256Digest>, crc32: Option<crc32fast::Hasher>) -> Self {
        let sink = BodySink { bytes: 0, digest: digest.map(|digest| (Sha256::new(), digest)), crc32 };
        let decoder = if is_gzip {
            BodyDecoder::Gzip(Box::new(MultiGzDecoder::new(sink)))
        } else {
            BodyDecoder::Identity(sink)
        };
        Self { wire_bytes: 0, decoder }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), RequestFailure> {
        self.wire_bytes += bytes.len() as u64;
        let written = match &mut self.decoder {
            BodyDecoder::Identity(sink) => sink.write_all(bytes),
            BodyDecoder::Gzip(gzip) => gzip.write_all(bytes),
        };
        written.map_err(|error| RequestFailure::new(FailureClass::Encoding, error.to_string()))
    }

    /// Checks the end of the encoding and the digest.
    pub(crate) fn finish(self) -> Result<BodySizes, RequestFailure> {
        let sink = match self.decoder {
            BodyDecoder::Identity(sink) => sink,
            // An empty body is not gzip, but a response without a body may be labelled so.
            BodyDecoder::Gzip(gzip) if self.wire_bytes == 0 => {
                let BodySink { digest, crc32, .. } = gzip.get_ref();
                let digest = digest.as_ref().map(|(_, expected)| (Sha256::new(), *expected));
                BodySink { bytes: 0, digest, crc32: crc32.as_ref().map(|_| crc32fast::Hasher::new()) }
            }
            BodyDecoder::Gzip(gzip) => gzip
                .finish()
                .map_err(|error| RequestFailure::new(FailureClass::Encoding, error.to_string()))?,
        };
        if let Some((hash, expected)) = sink.digest
            && hash.finalize()[..] != expected
        {
            return Err(FailureClass::Digest.into());
        }
        let crc32 = sink.crc32.map(crc32fast::Hasher::finalize);
        Ok(BodySizes { bytes: sink.bytes, wire_bytes: self.wire_bytes, crc32 })
    }
}

impl Write for BodySink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        if let Some((hash, _)) = &mut self.digest {
            hash.update(bytes);
        }
        if let Some(crc32) = &mut self.crc32 {
            crc32.update(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
