//! A plain TCP stream that sends large bodies by `sendfile`, without a copy.
//!
//! hyper writes slices of heads and bodies. A slice in the [`BodyFile`] is recognised by its address, and the kernel sends the
//! same bytes from the file, unless [`SendChoice`](super::send_choice::SendChoice) finds a copy faster. All other slices are written as they are.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustix::{
    fs::sendfile,
    net::{SendAncillaryBuffer, SendFlags, sendmsg},
};
use stockade_model::time::Runtime;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::{send_choice::SendMethod, state::ThreadContext, stream::ClientStream};
use crate::body_file::{BodyFile, SENDFILE_BYTES_MIN};

/// The most bytes of one `sendfile`: other connections of the thread wait meanwhile. nginx sends 2 MiB.
const SENDFILE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct SendfileStream {
    tcp: TcpStream,
    file: Arc<BodyFile>,
    thread: Arc<ThreadContext>,
}

/// The first slices of a write, up to one in the file.
enum NextSlices<'a> {
    /// None is in the file.
    Memory,
    BeforeFile(&'a [IoSlice<'a>]),
    File {
        offset: u64,
        bytes: usize,
    },
}

impl ClientStream for SendfileStream {
    fn reset_on_close(&self) {
        self.tcp.reset_on_close();
    }
}

impl SendfileStream {
    pub(super) fn new(tcp: TcpStream, file: Arc<BodyFile>, thread: Arc<ThreadContext>) -> Self {
        Self { tcp, file, thread }
    }

    fn next<'a>(&self, slices: &'a [IoSlice<'a>]) -> NextSlices<'a> {
        let in_file = slices.iter().enumerate().find_map(|(index, slice)| {
            let offset = (slice.len() >= SENDFILE_BYTES_MIN).then(|| self.file.offset_of(slice))??;
            Some((index, offset, slice.len()))
        });
        match in_file {
            None => NextSlices::Memory,
            Some((0, offset, bytes)) => NextSlices::File { offset, bytes: bytes.min(SENDFILE_BYTES_MAX) },
            Some((index, ..)) => NextSlices::BeforeFile(&slices[..index]),
        }
    }

    fn poll_write_by(
        &mut self,
        method: SendMethod,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if method == SendMethod::Copy {
            return Pin::new(&mut self.tcp).poll_write_vectored(cx, slices);
        }
        loop {
            match self.try_send(slices) {
                None => return Pin::new(&mut self.tcp).poll_write_vectored(cx, slices),
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_write_ready(cx))?;
                }
                Some(sent) => return Poll::Ready(sent),
            }
        }
    }

    /// Sends as much as the socket takes, up to the end of a slice in the file. `None`: none is in the file.
    fn try_send(&self, mut slices: &[IoSlice<'_>]) -> Option<io::Result<usize>> {
        let mut sent = 0;
        if let NextSlices::BeforeFile(before) = self.next(slices) {
            // MORE: the body follows in the same segment.
            let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
            let result = self.tcp.try_io(Interest::WRITABLE, || {
                Ok(sendmsg(&self.tcp, before, &mut SendAncillaryBuffer::default(), flags)?)
            });
            match result {
                Ok(bytes) if bytes == before.iter().map(|slice| slice.len()).sum::<usize>() => sent = bytes,
                result => return Some(result),
            }
            slices = &slices[before.len()..];
        }
        let NextSlices::File { mut offset, bytes } = self.next(slices) else {
            return (sent > 0).then_some(Ok(sent));
        };
        self.file.mark_sent(offset, bytes);
        let result = self
            .tcp
            .try_io(Interest::WRITABLE, || Ok(sendfile(&self.tcp, &self.file, Some(&mut offset), bytes)?));
        match result {
            Ok(0) | Err(_) if sent > 0 => Some(Ok(sent)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(Err(error)),
            // The caller writes the slice from memory, which shows the error if it is one of the connection.
            Ok(0) | Err(_) => None,
            Ok(bytes) => {
                self.file.record_sent(bytes);
                Some(Ok(sent + bytes))
            }
        }
    }
}

impl AsyncRead for SendfileStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
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
        if matches!(self.next(slices), NextSlices::Memory) {
            return Pin::new(&mut self.tcp).poll_write_vectored(cx, slices);
        }
        // It also lets other tasks run after many writes.
        ready!(self.tcp.poll_write_ready(cx))?;
        let thread = Arc::clone(&self.thread);
        let (method, is_sampled) = thread.send_choice.lock().next();
        let started = is_sampled.then(|| thread.time.now());
        let written = self.poll_write_by(method, cx, slices);
        if let (Some(started), Poll::Ready(Ok(bytes))) = (started, &written) {
            thread.send_choice.lock().record(method, *bytes, thread.time.now() - started);
        }
        written
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
