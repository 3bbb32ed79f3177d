//! An HTTP/1.1 connection: one write per request, responses parsed in the read buffer.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
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

use self::reader::ResponseReader;
pub(crate) use self::request::{ADDED_FIELDS, PreparedRequest};
use super::{
    connect::{Stream, connection_failure},
    deadline::DeadlineTimer,
    response::{CompletedResponse, ExchangeError, ExpectedBody},
};
use crate::sample::{FailureClass, RequestFailure};

/// A connection that takes one request at a time.
pub(crate) struct Http1Connection {
    stream: Stream,
}

/// The bytes of a request.
#[derive(Clone, Copy)]
pub(crate) struct RequestBytes<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
    pub(crate) expected: ExpectedBody,
}

const SCRATCH_BYTES: usize = 128 << 10;

/// The read buffer that all connections of a thread share; empty between reads.
pub(crate) type ReadScratch = RefCell<Box<[u8]>>;

pub(crate) fn read_scratch() -> ReadScratch {
    RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice())
}

impl Http1Connection {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream }
    }

    /// True if the peer has neither closed the connection nor sent anything since its last response.
    pub(crate) fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Sends a request and reads its response. The connection is unusable after an error.
    pub(crate) async fn exchange(
        &mut self,
        request: RequestBytes<'_>,
        timer: &mut DeadlineTimer<Precise>,
        scratch: &ReadScratch,
    ) -> Result<CompletedResponse, ExchangeError> {
        let mut reader = ResponseReader::new(request.expected);
        let result = self.send_and_read(request, &mut reader, timer, scratch).await;
        result.map_err(|failure| {
            let is_closed = matches!(failure.class, FailureClass::Closed | FailureClass::Reset);
            ExchangeError { failure, may_resend: is_closed && !reader.has_data() }
        })
    }

    async fn send_and_read(
        &mut self,
        request: RequestBytes<'_>,
        reader: &mut ResponseReader,
        timer: &mut DeadlineTimer<Precise>,
        scratch: &ReadScratch,
    ) -> Result<CompletedResponse, RequestFailure> {
        let mut unsent = request;
        poll_fn(|cx| {
            let sent = self.poll_send(cx, &mut unsent);
            // A server may respond, and close its end, before it has read the whole request.
            match self.poll_response(cx, reader, scratch) {
                Poll::Ready(Ok(mut completed)) => {
                    completed.keeps_alive &= matches!(sent, Poll::Ready(Ok(())));
                    return Poll::Ready(Ok(completed));
                }
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
                Poll::Pending => {}
            }
            if let Poll::Ready(Err(error)) = sent
                && !reader.has_data()
            {
                return Poll::Ready(Err(connection_failure(&error)));
            }
            timer.poll(cx).map(|()| Err(FailureClass::Timeout.into()))
        })
        .await
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, unsent: &mut RequestBytes<'_>) -> Poll<io::Result<()>> {
        while !unsent.head.is_empty() || !unsent.body.is_empty() {
            let stream = Pin::new(&mut self.stream);
            let slices = [io::IoSlice::new(unsent.head), io::IoSlice::new(unsent.body)];
            let slices = if unsent.body.is_empty() { &slices[..1] } else { &slices };
            let written = match ready!(stream.poll_write_vectored(cx, slices)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => written,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let head_bytes = written.min(unsent.head.len());
            unsent.head = &unsent.head[head_bytes..];
            unsent.body = &unsent.body[written - head_bytes..];
        }
        // TLS buffers what it encrypts.
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut ResponseReader,
        scratch: &ReadScratch,
    ) -> Poll<Result<CompletedResponse, RequestFailure>> {
        let mut scratch = scratch.borrow_mut();
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            let completed = match read {
                Ok(()) if buffer.filled().is_empty() => reader.close().map(Some),
                Ok(()) => reader.push(buffer.filled()),
                // Without close_notify, a body that ends with the connection may be cut short.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    if reader.ends_with_connection() {
                        Err(RequestFailure::new(FailureClass::Truncated, "TLS ended without close_notify"))
                    } else {
                        reader.close().map(Some)
                    }
                }
                Err(error) => Err(connection_failure(&error)),
            };
            if let Some(completed) = completed.transpose() {
                return Poll::Ready(completed);
            }
        }
    }
}
