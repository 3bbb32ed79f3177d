//! Bytes to and from a client. Large bodies go from the page cache to the socket, as a file server sends its files.
//!
//! hyper hands over slices of the body that it was given. Where a slice lies in a body that is also in memory the
//! kernel knows (a memfd), the kernel is told to send that: nothing is copied. The bytes are the same.

use std::{
    io::{self, IoSlice},
    os::fd::OwnedFd,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use rustix::{
    fs::{MemfdFlags, memfd_create, sendfile},
    net::{SendFlags, send},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use crate::session::Session;

/// Below this a copy is cheaper than a second system call.
const LARGE: usize = 24 << 10;

/// A body, and the same bytes where the kernel can send them from.
#[derive(Debug)]
pub(crate) struct FiledBody {
    body: Bytes,
    /// Made when it is needed first. None: it is small, or there are no file descriptors left.
    file: OnceLock<Option<OwnedFd>>,
}

/// Bytes to and from a client, as they are on the network.
pub(crate) struct Wire {
    tcp: TcpStream,
    session: Arc<Session>,
}

/// A wire, or what encrypts over one.
pub(crate) trait Wired: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    fn tcp(&self) -> &TcpStream;
}

impl FiledBody {
    pub(crate) fn new(body: Bytes) -> Self {
        Self { body, file: OnceLock::new() }
    }

    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    pub(crate) fn is_large(&self) -> bool {
        self.body.len() >= LARGE
    }

    fn file(&self) -> Option<&OwnedFd> {
        let make = || {
            let file = memfd_create("stockade-body", MemfdFlags::CLOEXEC).ok()?;
            let mut rest = &self.body[..];
            while !rest.is_empty() {
                let written = rustix::io::write(&file, rest).ok().filter(|written| *written > 0)?;
                rest = &rest[written..];
            }
            Some(file)
        };
        self.file.get_or_init(make).as_ref()
    }

    /// Where in the body a slice begins that is a part of it.
    fn offset_of(&self, slice: &[u8]) -> Option<u64> {
        let body = self.body.as_ptr_range();
        let part = slice.as_ptr_range();
        let is_part = body.start <= part.start && part.end <= body.end;
        is_part.then(|| (part.start.addr() - body.start.addr()) as u64)
    }
}

impl Wire {
    pub(crate) fn new(tcp: TcpStream, session: Arc<Session>) -> Self {
        Self { tcp, session }
    }

    /// Once as much as the socket takes; slices of the body by reference.
    fn send(&self, slices: &[IoSlice<'_>]) -> Option<io::Result<usize>> {
        let sending = self.session.sending()?;
        let (at, offset) = slices
            .iter()
            .enumerate()
            .find_map(|(at, slice)| Some((at, sending.offset_of(slice)?)).filter(|_| slice.len() >= LARGE))?;
        let file = sending.file()?;
        let mut sent = 0;
        for slice in &slices[..at] {
            // What follows goes into the same segment.
            match self.tcp.try_io(Interest::WRITABLE, || {
                Ok(send(&self.tcp, slice, SendFlags::MORE | SendFlags::NOSIGNAL)?)
            }) {
                Ok(some) => {
                    sent += some;
                    if some < slice.len() {
                        return Some(Ok(sent));
                    }
                }
                Err(_) if sent > 0 => return Some(Ok(sent)),
                Err(error) => return Some(Err(error)),
            }
        }
        let mut offset = offset;
        let body = self.tcp.try_io(Interest::WRITABLE, || {
            Ok(sendfile(&self.tcp, file, Some(&mut offset), slices[at].len())?)
        });
        Some(match body {
            Ok(some) => Ok(sent + some),
            Err(_) if sent > 0 => Ok(sent),
            Err(error) => Err(error),
        })
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.send(slices) {
                None => {
                    let sent = ready!(Pin::new(&mut self.tcp).poll_write_vectored(cx, slices));
                    self.session.touch();
                    return Poll::Ready(sent);
                }
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_write_ready(cx))?;
                }
                Some(sent) => {
                    self.session.touch();
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

impl Wired for Wire {
    fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl Wired for TlsStream<Wire> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0.tcp()
    }
}
