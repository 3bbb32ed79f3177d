//! The bytes of a connection, and what they tell about it.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{head::Refusal, scan::Scan, session::Progress};

/// Head and body of so few bytes are cheaper copied together than sent from two places.
const SMALL: usize = 4_096;

thread_local! {
    static COPY: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(SMALL));
}

/// A stream whose bytes are noted, and read beside hyper.
#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    /// What was read to learn which protocol it is.
    first: Vec<u8>,
    progress: Arc<Progress>,
    /// Where the bytes are HTTP/1.
    scan: Option<Scan>,
    /// What is wrong with a body.
    wrong: Option<Refusal>,
    has_ended: bool,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S, first: Vec<u8>, progress: Arc<Progress>, scan: Option<Scan>) -> Self {
        Self { stream, first, progress, scan, wrong: None, has_ended: false }
    }

    pub(super) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Whether the client may be sending something that nobody has read.
    pub(super) fn may_hold_more(&self) -> bool {
        let is_over = self.scan.as_ref().is_none_or(Scan::is_between_requests);
        !self.has_ended && !is_over
    }

    /// Notes how it went: a client that takes nothing has its time.
    fn note<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            self.progress.blocked();
        } else {
            self.progress.unblocked();
        }
        written
    }
}

fn broken(wrong: Refusal) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, wrong.reason)
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = &mut *self;
        if let Some(wrong) = wire.wrong {
            return Poll::Ready(Err(broken(wrong)));
        }
        let before = buf.filled().len();
        if wire.first.is_empty() {
            ready!(Pin::new(&mut wire.stream).poll_read(cx, buf))?;
        } else {
            let taken = wire.first.len().min(buf.remaining());
            buf.put_slice(&wire.first[..taken]);
            wire.first.drain(..taken);
        }
        let read = &buf.filled()[before..];
        wire.has_ended = read.is_empty();
        let Some(scan) = &mut wire.scan else { return Poll::Ready(Ok(())) };
        let fed = scan.feed(read);
        wire.progress.heed(scan);
        if let Err((believed, wrong)) = fed {
            // Whoever reads the body is told, behind what can be believed of it, and the connection ends.
            wire.wrong = Some(wrong);
            if believed == 0 {
                return Poll::Ready(Err(broken(wrong)));
            }
            buf.set_filled(before + believed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = if length > SMALL {
            stream.poll_write_vectored(cx, slices)
        } else {
            COPY.with_borrow_mut(|copy| {
                copy.clear();
                slices.iter().for_each(|slice| copy.extend_from_slice(slice));
                stream.poll_write(cx, copy)
            })
        };
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.note(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.note(shut)
    }
}
