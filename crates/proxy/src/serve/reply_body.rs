//! The body that a client is sent.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    mem,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};

use super::{body_chunks::CHUNK_BYTES, fetched_body::FetchedBody, spool::SpoolReader};

#[derive(Debug)]
pub enum ReplyBody {
    Empty,
    /// One chunk; `None` once it has been sent.
    Single(Option<Bytes>),
    /// One frame.
    Chunks(VecDeque<Bytes>),
    /// A frame each.
    Pieces(VecDeque<Bytes>),
    /// Read along with a body that is still arriving.
    Spooled(SpoolRange),
    /// Passed through from the origin.
    Fetched(Box<FetchedBody>),
}

/// Chunks that are written with one system call.
#[derive(Debug, Default)]
pub struct ChunkBuf {
    first: Bytes,
    /// After the first chunk; none is empty.
    others: VecDeque<Bytes>,
    others_bytes: usize,
}

impl ChunkBuf {
    #[must_use]
    pub fn new(mut chunks: VecDeque<Bytes>) -> Self {
        chunks.retain(|chunk| !chunk.is_empty());
        let first = chunks.pop_front().unwrap_or_default();
        let others_bytes = chunks.iter().map(Bytes::len).sum();
        Self { first, others: chunks, others_bytes }
    }
}

impl From<Bytes> for ChunkBuf {
    fn from(first: Bytes) -> Self {
        Self { first, ..Self::default() }
    }
}

impl Buf for ChunkBuf {
    fn remaining(&self) -> usize {
        self.first.len() + self.others_bytes
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let chunks = std::iter::once(&self.first).chain(&self.others).filter(|chunk| !chunk.is_empty());
        let filled = slices.iter_mut().zip(chunks).map(|(slice, chunk)| *slice = IoSlice::new(chunk));
        filled.count()
    }

    /// # Panics
    /// Past the end.
    fn advance(&mut self, mut bytes: usize) {
        while bytes >= self.first.len() {
            bytes -= self.first.len();
            let Some(next) = self.others.pop_front() else {
                assert!(bytes == 0, "advanced past the end");
                self.first = Bytes::new();
                return;
            };
            self.others_bytes -= next.len();
            self.first = next;
        }
        self.first.advance(bytes);
    }
}

/// A byte range of a spooled body.
#[derive(Debug)]
pub struct SpoolRange {
    reader: SpoolReader,
    /// Bytes to discard before the range.
    skip: u64,
    /// Bytes of the range still to send; `None`: up to the end of the body.
    left: Option<u64>,
}

impl ReplyBody {
    /// A byte range of stored chunks.
    #[must_use]
    pub fn range(chunks: &[Bytes], range: Range<u64>) -> Self {
        let mut parts: VecDeque<_> = slice_chunks(chunks, range).collect();
        match parts.len() {
            0 => Self::Empty,
            1 => Self::Single(parts.pop_front()),
            _ => Self::Chunks(parts),
        }
    }

    /// The same body in frames of at most [`CHUNK_BYTES`], for HTTP/2: h2 holds a whole frame for as long as its client
    /// does not read.
    #[must_use]
    pub fn in_pieces(self) -> Self {
        match self {
            Self::Single(Some(bytes)) if bytes.len() > CHUNK_BYTES => Self::Pieces(pieces(bytes).collect()),
            Self::Chunks(chunks) => Self::Pieces(chunks.into_iter().flat_map(pieces).collect()),
            body => body,
        }
    }

    /// A byte range of a spooled body, or all of it; `length` is then its `Content-Length`.
    #[must_use]
    pub fn spooled(reader: SpoolReader, range: Option<Range<u64>>, length: Option<u64>) -> Self {
        let (skip, left) = range.map_or((0, length), |range| (range.start, Some(range.end - range.start)));
        Self::Spooled(SpoolRange { reader, skip, left })
    }
}

fn pieces(mut bytes: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || (!bytes.is_empty()).then(|| bytes.split_to(bytes.len().min(CHUNK_BYTES))))
}

/// The chunks of a byte range.
pub fn slice_chunks(chunks: &[Bytes], range: Range<u64>) -> impl Iterator<Item = Bytes> + '_ {
    let mut start = 0;
    let slices = chunks.iter().map(move |chunk| {
        let length = chunk.len() as u64;
        let from = range.start.saturating_sub(start).min(length);
        let to = range.end.saturating_sub(start).min(length);
        start += length;
        chunk.slice(index(from)..index(to))
    });
    slices.filter(|slice| !slice.is_empty())
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Single(Some(bytes)) }
    }
}

impl SpoolRange {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<ChunkBuf>>>> {
        loop {
            if self.left == Some(0) {
                return Poll::Ready(None);
            }
            let Some(chunk) = ready!(self.reader.poll_next(cx)) else {
                // The body is shorter than its declared length.
                return Poll::Ready(self.left.map(|_| Err(io::ErrorKind::UnexpectedEof.into())));
            };
            let mut chunk = chunk?;
            let skipped = self.skip.min(chunk.len() as u64);
            chunk.advance(index(skipped));
            self.skip -= skipped;
            if let Some(left) = &mut self.left {
                chunk.truncate(index((*left).min(chunk.len() as u64)));
                *left -= chunk.len() as u64;
            }
            if !chunk.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(chunk.into()))));
            }
        }
    }
}

/// `bytes` is at most the length of a chunk.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl http_body::Body for ReplyBody {
    type Data = ChunkBuf;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<ChunkBuf>>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Single(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes.into())))),
            Self::Chunks(chunks) if chunks.is_empty() => Poll::Ready(None),
            Self::Chunks(chunks) => Poll::Ready(Some(Ok(Frame::data(ChunkBuf::new(mem::take(chunks)))))),
            Self::Pieces(pieces) => {
                Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece.into()))))
            }
            Self::Spooled(range) => range.poll_frame(cx),
            Self::Fetched(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(ChunkBuf::from))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty | Self::Single(None) => true,
            Self::Single(Some(_)) => false,
            Self::Chunks(chunks) | Self::Pieces(chunks) => chunks.is_empty(),
            Self::Spooled(range) => range.left == Some(0),
            Self::Fetched(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty | Self::Single(None) => SizeHint::with_exact(0),
            Self::Single(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Self::Chunks(chunks) | Self::Pieces(chunks) => {
                SizeHint::with_exact(chunks.iter().map(|chunk| chunk.len() as u64).sum())
            }
            Self::Spooled(range) => range.left.map(SizeHint::with_exact).unwrap_or_default(),
            Self::Fetched(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In whatever steps it is read, a buffer is its chunks, concatenated.
        #[test]
        fn chunk_buf_equals_its_chunks(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..12),
            steps in prop::collection::vec(1_usize..40, 0..40), slices in 1_usize..6,
        ) {
            let all = chunks.concat();
            let mut buf = ChunkBuf::new(chunks.into_iter().map(Bytes::from).collect());
            let mut at = 0;
            for step in steps {
                prop_assert_eq!(buf.remaining(), all.len() - at);
                prop_assert_eq!(buf.chunk().is_empty(), buf.remaining() == 0);
                let mut seen = vec![IoSlice::new(&[]); slices];
                let filled = buf.chunks_vectored(&mut seen);
                let seen: Vec<u8> = seen[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
                prop_assert_eq!(&seen[..], &all[at..at + seen.len()]);
                prop_assert!(filled == slices || seen.len() == buf.remaining());
                let step = step.min(seen.len());
                buf.advance(step);
                at += step;
            }
            prop_assert_eq!(buf.copy_to_bytes(buf.remaining()), &all[at..]);
        }
    }
}
