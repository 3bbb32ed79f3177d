//! Bytes that any position of a body can be computed from, and a body made of them.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use stockade_model::seed::mixed;
use tokio::time::{Instant, Sleep, sleep_until};

/// The largest part that is generated at once.
const PART_BYTES_MAX: u64 = 65_536;
const WORD_BYTES: u64 = 8;

/// An endless sequence of bytes, named by 64 bits: the outputs of `SplitMix64` (Steele, Lea, Flood 2014), whose nth word
/// is a function of n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern(pub u64);

impl Pattern {
    fn word(self, index: u64) -> [u8; 8] {
        let state = self.0.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        mixed(state).to_le_bytes()
    }

    /// The bytes from `offset` on.
    #[must_use]
    pub fn bytes(self, offset: u64, length: usize) -> Vec<u8> {
        let (first, skipped) = (offset / WORD_BYTES, offset % WORD_BYTES);
        let mut bytes = Vec::with_capacity(length + 16);
        let words = (length as u64 + skipped).div_ceil(WORD_BYTES);
        (first..first + words).for_each(|index| bytes.extend_from_slice(&self.word(index)));
        // Less than a word.
        bytes.drain(..usize::from(skipped.to_le_bytes()[0]));
        bytes.truncate(length);
        bytes
    }

    /// Whether `received` are the bytes from `offset` on.
    #[must_use]
    pub fn has(self, offset: u64, received: &[u8]) -> bool {
        self.bytes(offset, received.len()) == received
    }
}

/// How a body is sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Without a length: chunked in HTTP/1.1.
    pub is_unsized: bool,
    /// Before each part but the first.
    pub pause: Duration,
    /// Parts are this long at most; 0: no bound.
    pub part_bytes: u64,
}

/// A part of a pattern as a body.
pub struct PatternBody {
    pattern: Pattern,
    next: u64,
    end: u64,
    pace: Pace,
    pause: Option<Pin<Box<Sleep>>>,
}

impl PatternBody {
    #[must_use]
    pub fn new(pattern: Pattern, part: std::ops::Range<u64>, pace: Pace) -> Self {
        Self { pattern, next: part.start, end: part.end, pace, pause: None }
    }

    #[must_use]
    pub fn empty() -> Self {
        Self::new(Pattern(0), 0..0, Pace::default())
    }
}

impl Body for PatternBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.next >= self.end {
            return Poll::Ready(None);
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
        }
        let most = if self.pace.part_bytes == 0 { PART_BYTES_MAX } else { self.pace.part_bytes };
        let length = (self.end - self.next).min(most);
        let bytes = self.pattern.bytes(self.next, usize::try_from(length).unwrap_or(usize::MAX));
        self.next += length;
        self.pause =
            (!self.pace.pause.is_zero()).then(|| Box::pin(sleep_until(Instant::now() + self.pace.pause)));
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }

    fn is_end_stream(&self) -> bool {
        // An empty body ends at once, also without a length.
        self.next >= self.end
    }

    fn size_hint(&self) -> SizeHint {
        if self.pace.is_unsized && self.next < self.end {
            SizeHint::default()
        } else {
            SizeHint::with_exact(self.end - self.next)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_equals_the_same_part_of_the_whole() {
        let whole = Pattern(7).bytes(0, 100);
        for from in 0..40 {
            for length in 0..40 {
                let part = &whole[from..from + length];
                assert_eq!(Pattern(7).bytes(from as u64, length), part, "{from} {length}");
                assert!(Pattern(7).has(from as u64, part));
            }
        }
    }

    #[test]
    fn one_wrong_byte_is_found() {
        let mut bytes = Pattern(7).bytes(5, 1_000);
        bytes[999] ^= 1;
        assert!(!Pattern(7).has(5, &bytes));
        assert!(!Pattern(8).has(5, &Pattern(7).bytes(5, 8)));
        assert!(!Pattern(7).has(6, &Pattern(7).bytes(5, 8)));
    }
}
