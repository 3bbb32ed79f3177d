//! HTTP/1.1 as a client that has to be fast: requests are written in one piece, answers are read where they lie.

mod reader;
mod request;

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use stockade_model::time::Precise;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::reader::Reader;
pub(crate) use self::{
    reader::Done,
    request::{Prepared, USER_AGENT},
};
use crate::{
    alarm::Alarm,
    body::Expected,
    connect::Stream,
    sample::{Class, Failure},
};

/// A connection, which takes one request after the other.
pub(crate) struct Http1 {
    stream: Stream,
}

/// A request as it is sent.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
    pub(crate) expected: Expected,
}

/// How many bytes a thread reads at once, whichever connection they come from.
const SCRATCH_BYTES: usize = 128 << 10;

/// Where a thread's connections read into: nothing of it is kept.
pub(crate) type Scratch = RefCell<Box<[u8]>>;

pub(crate) fn scratch() -> Scratch {
    RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice())
}

impl Http1 {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream }
    }

    /// Whether the peer has left it alone since its last answer: what it closed takes no request.
    pub(crate) fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Sends a request and reads its answer. The connection is of no use after a failure; with it comes whether anything
    /// of an answer had come.
    pub(crate) async fn exchange(
        &mut self,
        sent: Sent<'_>,
        alarm: &mut Alarm<Precise>,
        scratch: &Scratch,
    ) -> Result<Done, (Failure, bool)> {
        let mut reader = Reader::new(sent.expected);
        let done = self.send_and_read(sent, &mut reader, alarm, scratch).await;
        done.map_err(|failure| (failure, reader.has_begun()))
    }

    async fn send_and_read(
        &mut self,
        sent: Sent<'_>,
        reader: &mut Reader,
        alarm: &mut Alarm<Precise>,
        scratch: &Scratch,
    ) -> Result<Done, Failure> {
        let mut unsent = sent;
        poll_fn(|cx| {
            let is_sent = self.poll_send(cx, &mut unsent);
            // Who has sent an answer may have stopped reading: what it says counts, not that it did.
            match self.poll_answer(cx, reader, scratch) {
                Poll::Ready(Ok(mut done)) => {
                    done.keeps_alive &= matches!(is_sent, Poll::Ready(Ok(())));
                    return Poll::Ready(Ok(done));
                }
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
                Poll::Pending => {}
            }
            if let Poll::Ready(Err(error)) = is_sent
                && !reader.has_begun()
            {
                return Poll::Ready(Err(broken(&error)));
            }
            alarm.poll(cx).map(|()| Err(Class::Timeout.into()))
        })
        .await
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, unsent: &mut Sent<'_>) -> Poll<io::Result<()>> {
        while !unsent.head.is_empty() || !unsent.body.is_empty() {
            let stream = Pin::new(&mut self.stream);
            let slices = [io::IoSlice::new(unsent.head), io::IoSlice::new(unsent.body)];
            let slices = if unsent.body.is_empty() { &slices[..1] } else { &slices };
            let sent = match ready!(stream.poll_write_vectored(cx, slices)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(sent) => sent,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let of_head = sent.min(unsent.head.len());
            unsent.head = &unsent.head[of_head..];
            unsent.body = &unsent.body[sent - of_head..];
        }
        // What is encrypted may still be on its way to the socket; a plain one has nothing to flush.
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut Reader,
        scratch: &Scratch,
    ) -> Poll<Result<Done, Failure>> {
        let mut scratch = scratch.borrow_mut();
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            let done = match read {
                Ok(()) if buffer.filled().is_empty() => reader.close().map(Some),
                Ok(()) => reader.feed(buffer.filled()),
                // Encryption would have told an end that was meant.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    if reader.ends_with_connection() {
                        Err(Failure::new(Class::Truncated, "without the end that TLS tells"))
                    } else {
                        reader.close().map(Some)
                    }
                }
                Err(error) => Err(broken(&error)),
            };
            if let Some(done) = done.transpose() {
                return Poll::Ready(done);
            }
        }
    }
}

/// What became of a connection that worked before.
pub(crate) fn broken(error: &io::Error) -> Failure {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, TimedOut, WriteZero};
    match error.kind() {
        TimedOut => Failure::new(Class::Timeout, "the connection's own"),
        ConnectionReset | ConnectionAborted | BrokenPipe | WriteZero => Class::Reset.into(),
        InvalidData => Failure::new(Class::Tls, error.to_string()),
        _ => Failure::new(Class::Reset, error.to_string()),
    }
}
