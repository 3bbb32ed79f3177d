//! Streams to clients. Large bodies go from the page cache to the socket by `sendfile`, without a copy.
//!
//! hyper writes slices of the body that it was given. A slice that lies within a [`MemfdBody`] is recognised by its
//! address, and the kernel sends the same bytes from the memfd.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustix::{
    fs::sendfile,
    net::{SendFlags, send},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use crate::{connection_state::OriginConnection, memfd::SENDFILE_BYTES_MIN};

/// A TCP stream that sends large bodies by `sendfile` and records activity.
pub(crate) struct SendfileStream {
    tcp: TcpStream,
    connection: Arc<OriginConnection>,
}

/// A stream to a client, encrypted or not.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    fn tcp(&self) -> &TcpStream;
}

impl SendfileStream {
    pub(crate) fn new(tcp: TcpStream, connection: Arc<OriginConnection>) -> Self {
        Self { tcp, connection }
    }

    /// Sends as much as the socket takes, if one of the slices lies within the body that is being sent. `None`: no slice
    /// does, or the body has no memfd.
    fn try_sendfile(&self, slices: &[IoSlice<'_>]) -> Option<io::Result<usize>> {
        let body = self.connection.sending()?;
        let (index, mut offset) = slices.iter().enumerate().find_map(|(index, slice)| {
            Some((index, body.offset_of(slice)?)).filter(|_| slice.len() >= SENDFILE_BYTES_MIN)
        })?;
        let file = body.file()?;
        let mut sent = 0;
        for slice in &slices[..index] {
            // MORE: the body follows in the same TCP segment.
            match self.tcp.try_io(Interest::WRITABLE, || {
                Ok(send(&self.tcp, slice, SendFlags::MORE | SendFlags::NOSIGNAL)?)
            }) {
                Ok(bytes) => {
                    sent += bytes;
                    if bytes < slice.len() {
                        return Some(Ok(sent));
                    }
                }
                Err(_) if sent > 0 => return Some(Ok(sent)),
                Err(error) => return Some(Err(error)),
            }
        }
        let result = self.tcp.try_io(Interest::WRITABLE, || {
            Ok(sendfile(&self.tcp, file, Some(&mut offset), slices[index].len())?)
        });
        Some(match result {
            Ok(bytes) => Ok(sent + bytes),
            Err(_) if sent > 0 => Ok(sent),
            Err(error) => Err(error),
        })
    }
}

impl AsyncRead for SendfileStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SendfileStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.try_sendfile(slices) {
                None => {
                    let sent = ready!(Pin::new(&mut self.tcp).poll_write_vectored(cx, slices));
                    self.connection.record_activity();
                    return Poll::Ready(sent);
                }
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_write_ready(cx))?;
                }
                Some(sent) => {
                    self.connection.record_activity();
                    return Poll::Ready(sent);
                }
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

impl ClientStream for SendfileStream {
    fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl ClientStream for TlsStream<SendfileStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0.tcp()
    }
}
