//! A request's body, bounded in bytes and in time.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use stockade_model::time::{Runtime, Time};

use super::{counts::Cut, session::Thread};

/// A request's body. What is behind its last chunk (trailers) is not shown.
///
/// One that nobody reads to its end costs the connection, after the answer.
#[derive(Default)]
pub struct ClientBody(Option<Box<Upload>>);

/// A request's body cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// It has more bytes than [`super::Settings::body_bytes_max`].
    #[error("the request's body is too large")]
    TooLarge,
    /// It came too slowly: [`super::Settings::body_idle_timeout`], or `body_timeout` as a whole.
    #[error("the request's body did not come in time")]
    TooSlow,
    /// It broke off, or is malformed.
    #[error("the request's body is malformed or broke off")]
    Broken,
}

/// A body that is on its way.
struct Upload {
    incoming: Incoming,
    thread: Arc<Thread>,
    bytes_left: u64,
    /// Until when it has to be whole.
    end: Time,
    /// When a part of it came, or was first waited for.
    waits_since: Option<Time>,
    /// Set when somebody first had to wait, and then only when it rings.
    /// Nobody locks it; so that a request can be shared.
    alarm: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    failed: Option<ClientError>,
}

impl ClientError {
    /// What a client is to be told.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
        }
    }
}

impl ClientBody {
    /// No bytes, of no client: for who calls a handler without a connection.
    #[must_use]
    pub fn empty() -> Self {
        Self(None)
    }

    pub(super) fn new(incoming: Incoming, thread: &Arc<Thread>) -> Self {
        if incoming.is_end_stream() {
            return Self(None);
        }
        let settings = &thread.settings;
        let is_too_large = incoming.size_hint().lower() > settings.body_bytes_max;
        Self(Some(Box::new(Upload {
            incoming,
            bytes_left: settings.body_bytes_max,
            end: thread.time.now() + settings.body_timeout,
            thread: Arc::clone(thread),
            waits_since: None,
            alarm: Mutex::default(),
            failed: is_too_large.then_some(ClientError::TooLarge),
        })))
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientError>>> {
        let Some(upload) = &mut self.0 else { return Poll::Ready(None) };
        let polled = upload.poll(cx);
        if matches!(polled, Poll::Ready(None)) {
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|upload| upload.failed.is_none() && upload.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |upload| upload.incoming.size_hint())
    }
}

impl Upload {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ClientError>>> {
        loop {
            if let Some(error) = self.failed {
                return Poll::Ready(Some(Err(error)));
            }
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(_))) => self.failed = Some(ClientError::Broken),
                Poll::Ready(Some(Ok(frame))) => {
                    self.waits_since = None;
                    // Trailers end a body; they are none of the handler's business.
                    let Ok(data) = frame.into_data() else { continue };
                    match self.bytes_left.checked_sub(data.len() as u64) {
                        Some(left) => self.bytes_left = left,
                        None => {
                            self.failed = Some(ClientError::TooLarge);
                            continue;
                        }
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Poll::Pending => match self.poll_late(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => {
                        self.thread.tallies.cut(Cut::Body);
                        self.failed = Some(ClientError::TooSlow);
                    }
                },
            }
        }
    }

    /// Ready when it has taken too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let time = &self.thread.time;
        let now = time.now();
        let waits_since = *self.waits_since.get_or_insert(now);
        let deadline = self.end.min(waits_since + self.thread.settings.body_idle_timeout);
        let alarm = self.alarm.get_mut().unwrap_or_else(PoisonError::into_inner);
        while deadline > time.now() {
            let set = alarm.get_or_insert_with(|| Box::pin(time.sleep_until(deadline)));
            if set.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            *alarm = None;
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for ClientBody {
    /// Without what is in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBody").field("is_empty", &self.0.is_none()).finish_non_exhaustive()
    }
}
