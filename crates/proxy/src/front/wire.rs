//! The bytes of a connection, and what they tell about it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{scan::Scan, session::Progress};

/// A stream whose bytes are noted, and read beside hyper.
#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    /// What was read to learn which protocol it is.
    first: Vec<u8>,
    progress: Arc<Progress>,
    /// Where the bytes are HTTP/1.
    scan: Option<Scan>,
    has_ended: bool,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S, first: Vec<u8>, progress: Arc<Progress>, scan: Option<Scan>) -> Self {
        Self { stream, first, progress, scan, has_ended: false }
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

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = &mut *self;
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
        // What is wrong in a body must not be believed: whoever reads it is told, and the connection ends.
        Poll::Ready(fed.map_err(|wrong| io::Error::new(io::ErrorKind::InvalidData, wrong.reason)))
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
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
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
