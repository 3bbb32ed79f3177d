//! An HTTP/2 connection: many concurrent requests.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{
    Reason, SendStream,
    client::{Builder, SendRequest},
};
use http::{HeaderValue, Request, header};
use tokio::task::spawn_local;

use super::{
    cache_headers::{CacheHeaders, CacheReport},
    connect::{Stream, connection_failure},
    response::{CompletedResponse, ExchangeError, ExpectedBody},
};
use crate::{
    follow::is_redirect,
    sample::{Deviation, FailureClass, RequestFailure, Response},
    truth::StatementFields,
};

const HEAD_BYTES_MAX: u32 = 64 << 10;
/// Large windows: bodies are read and dropped at once, so flow control must not slow the server down.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// A connection that takes many requests at once.
#[derive(Clone)]
pub(crate) struct Http2Connection {
    requests: SendRequest<Bytes>,
    /// The number of requests in flight.
    active: Rc<Cell<usize>>,
    /// True if it takes no new requests.
    is_retired: Rc<Cell<bool>>,
    /// Why the connection ended, once it has.
    end: Rc<RefCell<Option<RequestFailure>>>,
}

/// A request body that is being sent.
struct BodyUpload {
    stream: SendStream<Bytes>,
    unsent: Bytes,
}

impl BodyUpload {
    /// Sends what flow control admits, and registers for more capacity.
    fn poll(&mut self, cx: &mut Context<'_>) {
        while !self.unsent.is_empty() {
            self.stream.reserve_capacity(self.unsent.len());
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(capacity))) => {
                    let chunk = self.unsent.split_to(capacity.min(self.unsent.len()));
                    if self.stream.send_data(chunk, self.unsent.is_empty()).is_ok() {
                        continue;
                    }
                }
                Poll::Pending => return,
                Poll::Ready(_) => {}
            }
            // The stream is closed. The response states the reason.
            self.unsent.clear();
        }
    }
}

/// True if the request itself cannot be sent, to any server.
fn is_local_error(error: &h2::Error) -> bool {
    !(error.is_io() || error.is_reset() || error.is_go_away() || error.is_library())
}

/// True if the server states that it has not processed the request (RFC 9113, 8.7).
fn is_unprocessed(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (is_refused || error.is_go_away())
}

/// Counts one request in flight until it is dropped.
struct ActiveRequest(Rc<Cell<usize>>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Http2Connection {
    pub(crate) async fn handshake(stream: Stream) -> Result<Self, RequestFailure> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .max_header_list_size(HEAD_BYTES_MAX)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let (requests, connection) =
            builder.handshake::<_, Bytes>(stream).await.map_err(|error| http2_failure(&error))?;
        let end = Rc::new(RefCell::new(None));
        let end_of_task = Rc::clone(&end);
        spawn_local(async move {
            let failure = match connection.await {
                Ok(()) => FailureClass::Closed.into(),
                Err(error) => http2_failure(&error),
            };
            *end_of_task.borrow_mut() = Some(failure);
        });
        Ok(Self { requests, active: Rc::default(), is_retired: Rc::default(), end })
    }

    /// True if it takes no new requests, though responses may still arrive.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_retired.get() || self.end.borrow().is_some()
    }

    /// Takes no new requests from now on; those in flight continue.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
    }

    /// True if one more request can be sent at once, with at most `streams_max` in flight.
    pub(crate) fn has_capacity(&self, streams_max: usize) -> bool {
        !self.is_closing() && self.active.get() < self.requests.current_max_send_streams().min(streams_max)
    }

    /// Sends a request and reads its response. Calls `on_start` when the request can be sent.
    pub(crate) async fn exchange(
        &self,
        request: Request<()>,
        body: Bytes,
        expected: ExpectedBody,
        on_start: impl FnOnce(),
    ) -> Result<CompletedResponse, ExchangeError> {
        self.active.set(self.active.get() + 1);
        let _active = ActiveRequest(Rc::clone(&self.active));
        let error =
            |error: &h2::Error, may_resend| ExchangeError { failure: self.failure(error), may_resend };
        let mut requests = self.requests.clone().ready().await.map_err(|unready| error(&unready, true))?;
        on_start();
        let (response, stream) = requests
            .send_request(request, body.is_empty())
            .map_err(|unsent| error(&unsent, !is_local_error(&unsent)))?;
        let mut upload = BodyUpload { stream, unsent: body };
        let mut response = std::pin::pin!(response);
        // A server may respond before it has read the whole body, and may read on meanwhile.
        let head = poll_fn(|cx| {
            upload.poll(cx);
            response.as_mut().poll(cx)
        });
        let head = head.await.map_err(|failed| error(&failed, is_unprocessed(&failed)))?;
        let (head, mut body) = head.into_parts();
        let mut caches = CacheHeaders::default();
        let mut statement = StatementFields::default();
        for (name, value) in &head.headers {
            if !caches.record(name.as_str(), value.as_bytes()) && expected.is_checked {
                statement.record(name.as_str(), value.as_bytes());
            }
        }
        let status = head.status.as_u16();
        let encoding = head.headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let report = caches.report();
        let stated = statement.stated(|| caches.age_s(), report.is_none_or(CacheReport::may_be_fallback));
        let mut verifier = expected.verifier(status, encoding, stated.as_ref());
        while let Some(chunk) = poll_fn(|cx| {
            upload.poll(cx);
            body.poll_data(cx)
        })
        .await
        {
            let has_length = head.headers.contains_key(header::CONTENT_LENGTH);
            let chunk = chunk.map_err(|error| match self.failure(&error) {
                // h2 reports a body shorter than its Content-Length as a protocol error.
                failure if failure.class == FailureClass::Malformed && has_length => {
                    ExchangeError::permanent(RequestFailure::new(FailureClass::Truncated, failure.detail))
                }
                failure => ExchangeError::permanent(failure),
            })?;
            // Fails only where the stream has ended.
            let _ = body.flow_control().release_capacity(chunk.len());
            verifier.push(&chunk).map_err(ExchangeError::permanent)?;
        }
        let sizes = verifier.finish().map_err(ExchangeError::permanent)?;
        let location = head.headers.get(header::LOCATION).filter(|_| is_redirect(status));
        let location = location.map(|value| super::response::location(value.as_bytes()));
        let deviation = match &location {
            Some((_, true)) => Some(expected.accept(Deviation::Location).map_err(ExchangeError::permanent)?),
            _ => None,
        };
        Ok(CompletedResponse {
            response: Response {
                status,
                bytes: sizes.bytes,
                wire_bytes: sizes.wire_bytes,
                outcome: report.map(|report| report.outcome),
                may_be_stale: report.is_some_and(|report| report.may_be_stale),
                deviation,
                stated: sizes.compared_with(stated),
            },
            keeps_alive: true,
            location: location.map(|(text, _)| text),
        })
    }

    /// The failure of the stream, or else that of the whole connection.
    fn failure(&self, error: &h2::Error) -> RequestFailure {
        // A connection that breaks or goes away takes no new requests.
        self.is_retired.set(self.is_retired.get() || error.is_go_away() || error.is_io());
        let connection_end = self.end.borrow().clone();
        match http2_failure(error) {
            failure if error.is_reset() || error.is_go_away() => failure,
            failure => connection_end.unwrap_or(failure),
        }
    }
}

fn http2_failure(error: &h2::Error) -> RequestFailure {
    match error.get_io() {
        Some(io) => connection_failure(io),
        None if error.is_library() || is_local_error(error) => {
            RequestFailure::new(FailureClass::Malformed, error.to_string())
        }
        None => RequestFailure::new(FailureClass::Reset, error.to_string()),
    }
}
