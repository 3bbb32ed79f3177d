//! The body of a response. It holds its connection until it has been read.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use stockade_model::time::{Runtime, Time};
use tokio::{task::AbortHandle, time::Sleep};

use super::{
    clock::UpstreamClock,
    error::UpstreamError,
    pool::{Http1Lease, Http2Lease},
    request::UploadState,
    socket::SocketActivity,
};

/// Its size is exact if the response declares it.
///
/// The connection becomes free when the body has been read to its end. Dropped before that, HTTP/1 closes the connection
/// and HTTP/2 resets the stream. The idle timeout runs while the reader waits.
pub struct UpstreamBody {
    kind: ResponseSource,
    idle_timer: IdleTimer,
}

enum ResponseSource {
    Done,
    Http1 { incoming: Incoming, lease: Http1Lease, reuse: ReuseCondition },
    Http2(Http2Body),
}

pub(super) struct Http2Body {
    pub(super) incoming: RecvStream,
    /// Bytes left, if the response declares its length.
    pub(super) left: Option<u64>,
    pub(super) has_data: bool,
    /// The response has no body (RFC 9110, 6.4.1): anything further ends it.
    pub(super) is_bodiless: bool,
    /// Aborts the upload when the body is dropped.
    pub(super) _upload: Option<UploadTask>,
    pub(super) stream_lease: Http2Lease,
}

/// Decides at the end of a response if its connection takes another request.
pub(super) struct ReuseCondition {
    pub(super) is_last: bool,
    /// `None`: the request has no body.
    pub(super) upload: Option<Arc<UploadState>>,
    pub(super) activity: Arc<SocketActivity>,
}

impl ReuseCondition {
    /// False if the response has ended before its request was sent: the origin may take the rest for another request.
    fn holds(&self) -> bool {
        let is_sent =
            |upload: &Arc<UploadState>| upload.is_fully_taken() && !self.activity.is_write_blocked();
        !self.is_last && self.upload.as_ref().is_none_or(is_sent)
    }
}

/// Sends a request body. Aborts when dropped.
pub(super) struct UploadTask(pub(super) AbortHandle);

impl Drop for UploadTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl UpstreamBody {
    pub(super) fn http1(
        incoming: Incoming,
        lease: Http1Lease,
        reuse: ReuseCondition,
        clock: &UpstreamClock,
        idle_timeout: Duration,
    ) -> Self {
        let mut body = Self::new(ResponseSource::Http1 { incoming, lease, reuse }, clock, idle_timeout);
        body.finish_if_complete();
        body
    }

    pub(super) fn http2(stream: Http2Body, clock: &UpstreamClock, idle_timeout: Duration) -> Self {
        let mut body = Self::new(ResponseSource::Http2(stream), clock, idle_timeout);
        body.finish_if_complete();
        body
    }

    fn new(kind: ResponseSource, clock: &UpstreamClock, idle_timeout: Duration) -> Self {
        Self { kind, idle_timer: IdleTimer { clock: clock.clone(), idle_timeout, since: None, sleep: None } }
    }

    /// Counts the body as an event stream. False: there are too many.
    pub(super) fn begin_event_stream(&mut self) -> bool {
        match &mut self.kind {
            ResponseSource::Done => true,
            ResponseSource::Http1 { lease, .. } => lease.begin_event_stream(),
            ResponseSource::Http2(stream) => stream.stream_lease.begin_event_stream(),
        }
    }

    /// Releases the connection at the last byte, even if the reader does not poll again.
    fn finish_if_complete(&mut self) {
        let is_complete = match &self.kind {
            ResponseSource::Done => return,
            ResponseSource::Http1 { incoming, .. } => http_body::Body::is_end_stream(incoming),
            ResponseSource::Http2(stream) => stream.incoming.is_end_stream(),
        };
        if is_complete {
            self.finish();
        }
    }

    fn finish(&mut self) {
        match std::mem::replace(&mut self.kind, ResponseSource::Done) {
            ResponseSource::Http1 { lease, reuse, .. } if reuse.holds() => {
                lease.finish(self.idle_timer.idle_timeout);
            }
            // The drop closes the connection, or ends the stream.
            ResponseSource::Http1 { .. } | ResponseSource::Http2(_) | ResponseSource::Done => {}
        }
    }
}

impl http_body::Body for UpstreamBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let this = &mut *self;
        let polled = match &mut this.kind {
            ResponseSource::Done => return Poll::Ready(None),
            ResponseSource::Http1 { incoming, .. } => Pin::new(incoming).poll_frame(cx).map(|frame| {
                frame.map(|frame| frame.map_err(|error| UpstreamError::from_http1(&error, true)))
            }),
            ResponseSource::Http2(stream) => stream.poll_frame(cx),
        };
        let Poll::Ready(frame) = polled else {
            ready!(this.idle_timer.poll(cx));
            if let ResponseSource::Http2(stream) = &this.kind {
                stream.stream_lease.connection.check_liveness();
            }
            this.kind = ResponseSource::Done;
            return Poll::Ready(Some(Err(UpstreamError::IdleTimeout {
                after: this.idle_timer.idle_timeout,
            })));
        };
        this.idle_timer.since = None;
        match &frame {
            Some(Ok(_)) => this.finish_if_complete(),
            Some(Err(_)) => this.kind = ResponseSource::Done,
            None => this.finish(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kind, ResponseSource::Done)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            ResponseSource::Done => SizeHint::with_exact(0),
            ResponseSource::Http1 { incoming, .. } => http_body::Body::size_hint(incoming),
            ResponseSource::Http2(stream) => stream.left.map(SizeHint::with_exact).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for UpstreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamBody")
            .field("left", &http_body::Body::size_hint(self))
            .finish_non_exhaustive()
    }
}

impl Http2Body {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        if self.is_bodiless {
            return self.incoming.poll_data(cx).map(|_| None);
        }
        while self.has_data {
            match ready!(self.incoming.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Fails only if the stream is closed.
                    let _ = self.incoming.flow_control().release_capacity(data.len());
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(self.error(&error)))),
                None => self.has_data = false,
            }
        }
        let trailers = ready!(self.incoming.poll_trailers(cx));
        Poll::Ready(match trailers {
            Ok(Some(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(None) => None,
            Err(error) => Some(Err(self.error(&error))),
        })
    }

    fn error(&self, error: &h2::Error) -> UpstreamError {
        let is_malformed = error.is_library() && error.reason() == Some(Reason::PROTOCOL_ERROR);
        // The body is shorter or longer than its declared length.
        if is_malformed && self.left.is_some() {
            UpstreamError::Truncated
        } else {
            UpstreamError::from_http2(error, true)
        }
    }
}

/// Fires after a reader has waited for the idle timeout.
struct IdleTimer {
    clock: UpstreamClock,
    idle_timeout: Duration,
    /// `None`: no reader waits.
    since: Option<Time>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = *self.since.get_or_insert_with(|| self.clock.now()) + self.idle_timeout;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(self.clock.sleep(until)));
        let until = self.clock.instant(until);
        // The sleep may still be set for an earlier wait.
        while sleep.deadline() < until {
            ready!(sleep.as_mut().poll(cx));
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(cx)
    }
}
