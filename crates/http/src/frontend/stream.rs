//! The byte stream of a connection, which the scanner reads before hyper does.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::net::sockopt::set_socket_linger;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use super::{head::Rejection, scan::FramingScanner, state::ConnectionState};

/// Head and body of at most this many bytes are copied together: cheaper than a vectored write.
const COPY_BYTES_MAX: usize = 4_096;

thread_local! {
    static COPY_BUFFER: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(COPY_BYTES_MAX));
}

/// The stream of a connection: plain, or in TLS.
pub(super) trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes the close of the connection a reset, if it would otherwise look like the end of a body.
    fn reset_on_close(&self);
}

impl ClientStream for TcpStream {
    fn reset_on_close(&self) {
        // Fails only if the connection is closed.
        let _ = set_socket_linger(self, Some(Duration::ZERO));
    }
}

impl ClientStream for TlsStream<TcpStream> {
    /// The end of TLS without `close_notify` is not the end of a body (RFC 8446, 6.1).
    fn reset_on_close(&self) {}
}

#[derive(Debug)]
pub(super) struct InspectedStream<S> {
    inner: S,
    /// Bytes that were read to detect the protocol.
    prefix: Vec<u8>,
    state: Arc<ConnectionState>,
    /// `None` for HTTP/2.
    scanner: Option<FramingScanner>,
    /// Why a request body is rejected.
    rejection: Option<Rejection>,
    has_ended: bool,
}

impl<S> InspectedStream<S> {
    pub(super) fn new(
        inner: S,
        prefix: Vec<u8>,
        state: Arc<ConnectionState>,
        scanner: Option<FramingScanner>,
    ) -> Self {
        Self { inner, prefix, state, scanner, rejection: None, has_ended: false }
    }

    pub(super) fn inner(&mut self) -> &mut S {
        &mut self.inner
    }

    /// True if the client may be sending bytes that were not read.
    pub(super) fn may_have_unread_input(&self) -> bool {
        let is_between_requests = self.scanner.as_ref().is_none_or(FramingScanner::is_between_requests);
        !self.has_ended && !is_between_requests
    }

    /// Starts and restarts the stall timeout.
    fn record_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => self.state.set_write_blocked(),
            Poll::Ready(Ok(bytes)) => self.state.record_written(bytes),
            Poll::Ready(Err(_)) => {}
        }
        written
    }

    /// Ends the stall timeout: hyper and h2 flush when they have written all that they hold.
    fn record_flush(&self, flushed: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if flushed.is_pending() {
            self.state.set_write_blocked();
        } else {
            self.state.clear_write_blocked();
        }
        flushed
    }
}

fn invalid_data(rejection: Rejection) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, rejection.reason)
}

impl<S: AsyncRead + Unpin> AsyncRead for InspectedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(rejection) = this.rejection {
            return Poll::Ready(Err(invalid_data(rejection)));
        }
        let before = buf.filled().len();
        if this.prefix.is_empty() {
            ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        } else {
            let taken = this.prefix.len().min(buf.remaining());
            buf.put_slice(&this.prefix[..taken]);
            this.prefix.drain(..taken);
        }
        let read = &buf.filled()[before..];
        this.has_ended = read.is_empty();
        let Some(scanner) = &mut this.scanner else { return Poll::Ready(Ok(())) };
        let scanned = scanner.feed(read);
        this.state.record_scan(scanner);
        if let Err((valid, rejection)) = scanned {
            // The reader of the body gets its valid part, then the error; the connection ends.
            this.rejection = Some(rejection);
            if valid == 0 {
                return Poll::Ready(Err(invalid_data(rejection)));
            }
            buf.set_filled(before + valid);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for InspectedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.record_write(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let inner = Pin::new(&mut self.inner);
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let result = if length > COPY_BYTES_MAX {
            inner.poll_write_vectored(cx, slices)
        } else {
            COPY_BUFFER.with_borrow_mut(|copy| {
                copy.clear();
                slices.iter().for_each(|slice| copy.extend_from_slice(slice));
                inner.poll_write(cx, copy)
            })
        };
        self.record_write(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.record_flush(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.record_flush(result)
    }
}
