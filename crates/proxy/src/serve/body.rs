//! The body of an answer to a client.

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

use super::arriving::Reader;
use super::origin::OriginBody;

/// What a client is sent.
#[derive(Debug)]
pub enum Body {
    /// Nothing.
    Empty,
    /// What is there, in one piece.
    Whole(Option<Bytes>),
    /// What is there, in several.
    Pieces(VecDeque<Bytes>),
    /// A part of what is arriving.
    Along(Along),
    /// What an origin sends, as it comes.
    Passing(Box<OriginBody>),
}

/// Bytes that are sent with one call, however many pieces they are in.
#[derive(Debug, Default)]
pub struct Parcel {
    first: Bytes,
    /// Behind the first; none of them is empty.
    others: VecDeque<Bytes>,
    /// Of the others.
    bytes: usize,
}

impl Parcel {
    /// All of these.
    #[must_use]
    pub fn of(mut pieces: VecDeque<Bytes>) -> Self {
        pieces.retain(|piece| !piece.is_empty());
        let first = pieces.pop_front().unwrap_or_default();
        let bytes = pieces.iter().map(Bytes::len).sum();
        Self { first, others: pieces, bytes }
    }
}

impl From<Bytes> for Parcel {
    fn from(first: Bytes) -> Self {
        Self { first, ..Self::default() }
    }
}

impl Buf for Parcel {
    fn remaining(&self) -> usize {
        self.first.len() + self.bytes
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pieces = std::iter::once(&self.first).chain(&self.others).filter(|piece| !piece.is_empty());
        let filled = slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece));
        filled.count()
    }

    /// # Panics
    /// Beyond its end.
    fn advance(&mut self, mut bytes: usize) {
        while bytes >= self.first.len() {
            bytes -= self.first.len();
            let Some(next) = self.others.pop_front() else {
                assert!(bytes == 0, "there is no more");
                self.first = Bytes::new();
                return;
            };
            self.bytes -= next.len();
            self.first = next;
        }
        self.first.advance(bytes);
    }
}

/// A reader's part of a body, in bytes.
#[derive(Debug)]
pub struct Along {
    reader: Reader,
    /// Before the part.
    skip: u64,
    /// Of the part; `None`: as much as comes.
    left: Option<u64>,
}

impl Body {
    /// So much of what is there.
    #[must_use]
    pub fn part(pieces: &[Bytes], part: Range<u64>) -> Self {
        let mut parts: VecDeque<_> = cut(pieces, part).collect();
        match parts.len() {
            0 => Self::Empty,
            1 => Self::Whole(parts.pop_front()),
            _ => Self::Pieces(parts),
        }
    }

    /// So much of what arrives; `None`: all of it, `length` says how much that is if somebody knows.
    #[must_use]
    pub fn along(reader: Reader, part: Option<Range<u64>>, length: Option<u64>) -> Self {
        let (skip, left) = part.map_or((0, length), |part| (part.start, Some(part.end - part.start)));
        Self::Along(Along { reader, skip, left })
    }
}

/// So much of what is there, in pieces.
pub fn cut(pieces: &[Bytes], part: Range<u64>) -> impl Iterator<Item = Bytes> + '_ {
    let mut at = 0;
    let pieces = pieces.iter().map(move |piece| {
        let length = piece.len() as u64;
        let from = part.start.saturating_sub(at).min(length);
        let to = part.end.saturating_sub(at).min(length);
        at += length;
        piece.slice(index(from)..index(to))
    });
    pieces.filter(|piece| !piece.is_empty())
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Whole(Some(bytes)) }
    }
}

impl Along {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Parcel>>>> {
        loop {
            if self.left == Some(0) {
                return Poll::Ready(None);
            }
            let Some(piece) = ready!(self.reader.poll_next(cx)) else {
                // It is shorter than it said.
                return Poll::Ready(self.left.map(|_| Err(io::ErrorKind::UnexpectedEof.into())));
            };
            let mut piece = piece?;
            let skipped = self.skip.min(piece.len() as u64);
            piece.advance(index(skipped));
            self.skip -= skipped;
            if let Some(left) = &mut self.left {
                piece.truncate(index((*left).min(piece.len() as u64)));
                *left -= piece.len() as u64;
            }
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(piece.into()))));
            }
        }
    }
}

/// No more than a piece has.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl http_body::Body for Body {
    type Data = Parcel;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Parcel>>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes.into())))),
            Self::Pieces(pieces) if pieces.is_empty() => Poll::Ready(None),
            Self::Pieces(pieces) => Poll::Ready(Some(Ok(Frame::data(Parcel::of(mem::take(pieces)))))),
            Self::Along(along) => along.poll_frame(cx),
            Self::Passing(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(Parcel::from))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty | Self::Whole(None) => true,
            Self::Whole(Some(_)) => false,
            Self::Pieces(pieces) => pieces.is_empty(),
            Self::Along(along) => along.left == Some(0),
            Self::Passing(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty | Self::Whole(None) => SizeHint::with_exact(0),
            Self::Whole(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(pieces) => SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum()),
            Self::Along(along) => along.left.map(SizeHint::with_exact).unwrap_or_default(),
            Self::Passing(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However a client takes it: a parcel is its pieces, one behind the other.
        #[test]
        fn a_parcel_is_its_pieces(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..12),
            taken in prop::collection::vec(1_usize..40, 0..40), slices in 1_usize..6,
        ) {
            let all = pieces.concat();
            let mut parcel = Parcel::of(pieces.into_iter().map(Bytes::from).collect());
            let mut at = 0;
            for most in taken {
                prop_assert_eq!(parcel.remaining(), all.len() - at);
                prop_assert_eq!(parcel.chunk().is_empty(), parcel.remaining() == 0);
                let mut seen = vec![IoSlice::new(&[]); slices];
                let filled = parcel.chunks_vectored(&mut seen);
                let seen: Vec<u8> = seen[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
                prop_assert_eq!(&seen[..], &all[at..at + seen.len()]);
                prop_assert!(filled == slices || seen.len() == parcel.remaining());
                let most = most.min(seen.len());
                parcel.advance(most);
                at += most;
            }
            prop_assert_eq!(parcel.copy_to_bytes(parcel.remaining()), &all[at..]);
        }
    }
}
