//! A plain or encrypted connection to an origin, and its activity.

use std::{
    io::{self, ErrorKind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
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
    /// See [`idle_max`](Self::idle_max), in nanoseconds. Zero: the peer does not say.
    idle_max: AtomicU64,
    /// The peer takes no more bytes, and some wait for it or were lost.
    is_write_blocked: AtomicBool,
    /// The next write begins a request on a connection that was idle.
    begins_request: AtomicBool,
    /// A request was not written, because bytes or the end of the connection had arrived before it.
    is_unusable: AtomicBool,
}

impl SocketActivity {
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Relaxed)
    }

    /// When the peer last took bytes.
    pub(super) fn written_at(&self) -> Time {
        Time::from_nanos(self.written_at.load(Relaxed))
    }

    /// How long the connection may be idle, if the peer says so.
    pub(super) fn idle_max(&self) -> Option<Duration> {
        match self.idle_max.load(Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    pub(super) fn set_idle_max(&self, idle_max: Duration) {
        let nanos = u64::try_from(idle_max.as_nanos()).unwrap_or(u64::MAX);
        self.idle_max.store(nanos.max(1), Relaxed);
    }

    pub(super) fn is_write_blocked(&self) -> bool {
        self.is_write_blocked.load(Relaxed)
    }

    /// Before a request on a connection that was idle: its first write fails if anything has arrived meanwhile.
    pub(super) fn begin_request(&self) {
        self.begins_request.store(true, Relaxed);
    }

    /// True if no byte of that request has been written.
    pub(super) fn is_unusable(&self) -> bool {
        self.is_unusable.load(Relaxed)
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

    /// Fails if an idle connection has become readable: the origin has closed it, or sends what no request has asked for. The
    /// kernel knows before the runtime does.
    fn check_idle(&self) -> io::Result<()> {
        if !self.activity.begins_request.swap(false, Relaxed) {
            return Ok(());
        }
        let tcp = match &self.socket {
            SocketKind::Plain(tcp) => tcp,
            SocketKind::Encrypted(tls) => tls.get_ref().0,
        };
        match recv(tcp, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => Ok(()),
            _ => {
                self.activity.is_unusable.store(true, Relaxed);
                Err(ErrorKind::NotConnected.into())
            }
        }
    }

    /// A write of `length` bytes to a peer that has closed its side seems to succeed: what it sent before, such as an early 413,
    /// is still to be read, and so is the error.
    fn record_write(&self, length: usize, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let is_written = matches!(written, Poll::Ready(Ok(_)));
        self.activity.is_write_blocked.store(!is_written, Relaxed);
        let bytes = match ready!(written) {
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                return Poll::Ready(Ok(length));
            }
            written => written?,
        };
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
        self.check_idle()?;
        let written = self.socket.write().poll_write(cx, bytes);
        self.record_write(bytes.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_idle()?;
        let written = self.socket.write().poll_write_vectored(cx, slices);
        self.record_write(slices.iter().map(|slice| slice.len()).sum(), written)
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
