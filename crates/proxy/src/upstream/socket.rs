//! A plain or encrypted connection to an origin, and its activity.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use stockade_model::time::{Runtime, Time};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use super::clock::UpstreamClock;

pub(super) struct OriginSocket {
    socket: SocketKind,
    clock: UpstreamClock,
    activity: Arc<SocketActivity>,
}

enum SocketKind {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

#[derive(Debug, Default)]
pub(super) struct SocketActivity {
    read_bytes: AtomicU64,
    /// In nanoseconds of the clock.
    written_at: AtomicU64,
}

impl SocketActivity {
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Relaxed)
    }

    /// When the peer last took bytes.
    pub(super) fn written_at(&self) -> Time {
        Time::from_nanos(self.written_at.load(Relaxed))
    }
}

impl OriginSocket {
    pub(super) fn plain(tcp: TcpStream, clock: UpstreamClock) -> Self {
        Self { socket: SocketKind::Plain(tcp), clock, activity: Arc::default() }
    }

    pub(super) fn encrypted(tls: TlsStream<TcpStream>, clock: UpstreamClock) -> Self {
        Self { socket: SocketKind::Encrypted(Box::new(tls)), clock, activity: Arc::default() }
    }

    pub(super) fn activity(&self) -> Arc<SocketActivity> {
        Arc::clone(&self.activity)
    }

    fn record_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let bytes = ready!(written)?;
        self.activity.written_at.store(self.clock.now().as_nanos(), Relaxed);
        Poll::Ready(Ok(bytes))
    }
}

impl SocketKind {
    fn read(&mut self) -> Pin<&mut (dyn AsyncRead + Send + Unpin)> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp),
            Self::Encrypted(tls) => Pin::new(tls),
        }
    }

    fn write(&mut self) -> Pin<&mut (dyn AsyncWrite + Send + Unpin)> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp),
            Self::Encrypted(tls) => Pin::new(tls),
        }
    }
}

impl AsyncRead for OriginSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.socket.read().poll_read(cx, buffer))?;
        self.activity.read_bytes.fetch_add((buffer.filled().len() - before) as u64, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for OriginSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.socket.write().poll_write(cx, bytes);
        self.record_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.socket.write().poll_write_vectored(cx, slices);
        self.record_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            SocketKind::Plain(tcp) => tcp.is_write_vectored(),
            SocketKind::Encrypted(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.write().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.write().poll_shutdown(cx)
    }
}
