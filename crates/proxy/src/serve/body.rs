//! The body of an answer to a client.

use std::{
    collections::VecDeque,
    io,
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
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
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
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
    }
}

/// No more than a piece has.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Pieces(pieces) => Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece)))),
            Self::Along(along) => along.poll_frame(cx),
            Self::Passing(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame)
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
