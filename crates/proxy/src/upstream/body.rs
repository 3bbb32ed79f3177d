//! The body of an answer, which keeps its connection until it has been read.

use std::{
    fmt,
    pin::Pin,
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
    clock::Clock,
    error::UpstreamError,
    pool::{Lease, Stream},
};

/// The body of an answer. Its size is exact where the answer says it.
///
/// Its connection is free for others when it has been read to its very end; dropped before, HTTP/1 closes the connection
/// and HTTP/2 resets the stream. While somebody waits for more of it, more has to come in time.
pub struct Body {
    kind: Kind,
    alarm: Alarm,
}

enum Kind {
    /// Nothing more comes.
    Done,
    Http1 {
        incoming: Incoming,
        lease: Lease,
    },
    Http2(Http2Body),
}

/// A stream of HTTP/2.
pub(super) struct Http2Body {
    pub(super) incoming: RecvStream,
    /// What is still to come, if the answer says it.
    pub(super) left: Option<u64>,
    pub(super) has_data: bool,
    /// It is an answer without a body (RFC 9110, section 6.4.1): whatever comes is its end.
    pub(super) is_bodiless: bool,
    /// Goes with it.
    pub(super) _sending: Option<Sending>,
    pub(super) turn: Stream,
}

/// The body of a request, on its way. Dropped, it is broken off.
pub(super) struct Sending(pub(super) AbortHandle);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Body {
    pub(super) fn http1(incoming: Incoming, lease: Lease, clock: &Clock, patience: Duration) -> Self {
        let mut body = Self::new(Kind::Http1 { incoming, lease }, clock, patience);
        body.end_if_whole();
        body
    }

    pub(super) fn http2(stream: Http2Body, clock: &Clock, patience: Duration) -> Self {
        let mut body = Self::new(Kind::Http2(stream), clock, patience);
        body.end_if_whole();
        body
    }

    fn new(kind: Kind, clock: &Clock, patience: Duration) -> Self {
        Self { kind, alarm: Alarm { clock: clock.clone(), patience, since: None, sleep: None } }
    }

    /// Gives the connection back as soon as nothing more can come, whether or not anybody asks once more.
    fn end_if_whole(&mut self) {
        let is_whole = match &self.kind {
            Kind::Done => return,
            Kind::Http1 { incoming, .. } => http_body::Body::is_end_stream(incoming),
            Kind::Http2(stream) => stream.incoming.is_end_stream(),
        };
        if is_whole {
            self.end();
        }
    }

    fn end(&mut self) {
        match std::mem::replace(&mut self.kind, Kind::Done) {
            Kind::Http1 { lease, .. } => lease.finish(self.alarm.patience),
            Kind::Http2(_) | Kind::Done => {}
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let this = &mut *self;
        let polled = match &mut this.kind {
            Kind::Done => return Poll::Ready(None),
            Kind::Http1 { incoming, .. } => Pin::new(incoming)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|error| UpstreamError::of_http1(&error, true)))),
            Kind::Http2(stream) => stream.poll_frame(cx),
        };
        let Poll::Ready(frame) = polled else {
            ready!(this.alarm.poll(cx));
            if let Kind::Http2(stream) = &this.kind {
                stream.turn.connection.doubt();
            }
            this.kind = Kind::Done;
            return Poll::Ready(Some(Err(UpstreamError::IdleTimeout { after: this.alarm.patience })));
        };
        this.alarm.since = None;
        match &frame {
            Some(Ok(_)) => this.end_if_whole(),
            Some(Err(_)) => this.kind = Kind::Done,
            None => this.end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kind, Kind::Done)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Done => SizeHint::with_exact(0),
            Kind::Http1 { incoming, .. } => http_body::Body::size_hint(incoming),
            Kind::Http2(stream) => stream.left.map(SizeHint::with_exact).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("left", &http_body::Body::size_hint(self)).finish_non_exhaustive()
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
                    // It fails where the stream is gone, and then nobody needs it.
                    let _ = self.incoming.flow_control().release_capacity(data.len());
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(self.broken(&error)))),
                None => self.has_data = false,
            }
        }
        let trailers = ready!(self.incoming.poll_trailers(cx));
        Poll::Ready(match trailers {
            Ok(Some(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(None) => None,
            Err(error) => Some(Err(self.broken(&error))),
        })
    }

    fn broken(&self, error: &h2::Error) -> UpstreamError {
        let is_malformed = error.is_library() && error.reason() == Some(Reason::PROTOCOL_ERROR);
        // It ended, or went on, where its length says that it does not.
        if is_malformed && self.left.is_some() {
            UpstreamError::Truncated
        } else {
            UpstreamError::of_http2(error, true)
        }
    }
}

/// Rings when somebody has waited for too long.
struct Alarm {
    clock: Clock,
    patience: Duration,
    /// None: nobody waits.
    since: Option<Time>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = *self.since.get_or_insert_with(|| self.clock.now()) + self.patience;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(self.clock.sleep(until)));
        let until = self.clock.instant(until);
        // It may have been set for an earlier wait.
        while sleep.deadline() < until {
            ready!(sleep.as_mut().poll(cx));
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(cx)
    }
}
