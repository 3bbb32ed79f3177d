//! A body that is read, checked and dropped.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use sha2::{Digest as _, Sha256};

use crate::sample::{Class, Failure};

/// What a body has to be, as SHA-256.
pub type Digest = [u8; 32];

/// What has to be known of a request to read its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected {
    /// It was HEAD: no body follows, whatever the head says.
    pub(crate) is_head: bool,
    /// Bodies in gzip are decoded: it was us who asked for them.
    pub(crate) decodes: bool,
    /// What the body of a success has to be.
    pub(crate) digest: Option<Digest>,
}

impl Expected {
    /// Whether an answer with this status has a body (RFC 9112, 6.3).
    pub(crate) fn has_body(&self, status: u16) -> bool {
        !self.is_head && !matches!(status, 101 | 204 | 304)
    }

    /// The body of an answer with this status, as its head has it.
    pub(crate) fn body(&self, status: u16, is_gzip: bool) -> Body {
        // An error page is not the body that was expected, and says so by its status.
        let digest = self.digest.filter(|_| (200..300).contains(&status) && self.has_body(status));
        Body::new(is_gzip && self.decodes, digest)
    }
}

/// Whether a `Content-Encoding` is gzip.
pub(crate) fn is_gzip(encoding: &[u8]) -> bool {
    encoding.eq_ignore_ascii_case(b"gzip") || encoding.eq_ignore_ascii_case(b"x-gzip")
}

/// Counts what comes, decodes it where it is gzip, and keeps nothing of it.
pub(crate) struct Body {
    wire_bytes: u64,
    decoded: Decoded,
}

enum Decoded {
    Plain(Sink),
    Gzip(Box<MultiGzDecoder<Sink>>),
}

/// The end of every body.
struct Sink {
    bytes: u64,
    digest: Option<(Sha256, Digest)>,
}

/// How large a body was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) bytes: u64,
    pub(crate) wire_bytes: u64,
}

impl Body {
    pub(crate) fn new(is_gzip: bool, digest: Option<Digest>) -> Self {
        let sink = Sink { bytes: 0, digest: digest.map(|digest| (Sha256::new(), digest)) };
        let decoded =
            if is_gzip { Decoded::Gzip(Box::new(MultiGzDecoder::new(sink))) } else { Decoded::Plain(sink) };
        Self { wire_bytes: 0, decoded }
    }

    /// The next piece of it.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), Failure> {
        self.wire_bytes += piece.len() as u64;
        let taken = match &mut self.decoded {
            Decoded::Plain(sink) => sink.write_all(piece),
            Decoded::Gzip(gzip) => gzip.write_all(piece),
        };
        taken.map_err(|error| Failure::new(Class::Encoding, error.to_string()))
    }

    /// Nothing more comes.
    pub(crate) fn finish(self) -> Result<Sizes, Failure> {
        let sink = match self.decoded {
            Decoded::Plain(sink) => sink,
            // No bytes at all are nobody's gzip, and what an answer without a body has.
            Decoded::Gzip(gzip) if self.wire_bytes == 0 => {
                let Sink { digest, .. } = gzip.get_ref();
                Sink { bytes: 0, digest: digest.as_ref().map(|(_, wanted)| (Sha256::new(), *wanted)) }
            }
            Decoded::Gzip(gzip) => {
                gzip.finish().map_err(|error| Failure::new(Class::Encoding, error.to_string()))?
            }
        };
        if let Some((hash, wanted)) = sink.digest
            && hash.finalize()[..] != wanted
        {
            return Err(Class::Digest.into());
        }
        Ok(Sizes { bytes: sink.bytes, wire_bytes: self.wire_bytes })
    }
}

impl Write for Sink {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.bytes += piece.len() as u64;
        if let Some((hash, _)) = &mut self.digest {
            hash.update(piece);
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
