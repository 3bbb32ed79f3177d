//! A request body, bounded in bytes and in time.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use stockade_model::time::{Runtime, Time};

use super::{counts::CloseReason, state::ConnectionState};

/// A client that is waited for has to send as much within [`super::FrontendSettings::body_idle_timeout`], or the rest.
const PROGRESS_BYTES: usize = 16 * 1_024;

/// A request body without its trailers.
///
/// If it is not read to its end, the connection closes after the response.
#[derive(Default)]
pub struct ClientBody(Option<Box<BoundedBody>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientBodyError {
    /// More bytes than [`super::FrontendSettings::body_bytes_max`].
    #[error("the request body is too large")]
    TooLarge,
    /// [`super::FrontendSettings::body_idle_timeout`], or `body_timeout` for the whole body.
    #[error("the request body did not arrive in time")]
    TooSlow,
    #[error("the request body is malformed or incomplete")]
    Broken,
}

struct BoundedBody {
    incoming: Incoming,
    connection: Arc<ConnectionState>,
    /// False for HTTP/2, where a connection has other requests while one waits.
    is_http1: bool,
    /// Read by [`ClientBody::has_content`].
    first: Option<Bytes>,
    bytes_left: u64,
    /// For the whole body.
    deadline: Time,
    /// `None` while no poll waits.
    waiting_since: Option<Time>,
    /// Time of earlier waits, and the bytes that ended them, since the last [`PROGRESS_BYTES`].
    waited: Duration,
    received_bytes: usize,
    /// Set at the first wait, and again only after it has fired. The mutex makes a request `Sync`; nothing locks it.
    timer: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    error: Option<ClientBodyError>,
}

impl ClientBodyError {
    /// The status of the response to the request.
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
    /// For requests that no client sent.
    #[must_use]
    pub fn empty() -> Self {
        Self(None)
    }

    pub(super) fn new(incoming: Incoming, connection: &Arc<ConnectionState>, is_http1: bool) -> Self {
        if incoming.is_end_stream() {
            return Self(None);
        }
        let thread = &connection.thread;
        let settings = &thread.settings;
        let is_too_large = incoming.size_hint().lower() > settings.body_bytes_max;
        Self(Some(Box::new(BoundedBody {
            incoming,
            first: None,
            bytes_left: settings.body_bytes_max,
            deadline: thread.time.now() + settings.body_timeout,
            connection: Arc::clone(connection),
            is_http1,
            waiting_since: None,
            waited: Duration::ZERO,
            received_bytes: 0,
            timer: Mutex::default(),
            error: is_too_large.then_some(ClientBodyError::TooLarge),
        })))
    }

    /// Reads the first byte of the body, which stays part of it, or its end. An error counts as content: the next read returns it.
    ///
    /// Chunks and frames of HTTP/2 do not show beforehand if there are bytes in them.
    pub async fn has_content(&mut self) -> bool {
        let Some(body) = &mut self.0 else { return false };
        while body.error.is_none() && body.first.is_none() {
            match poll_fn(|cx| body.poll_frame(cx)).await {
                Some(frame) => {
                    body.first =
                        frame.ok().and_then(|frame| frame.into_data().ok()).filter(|data| !data.is_empty());
                }
                None => {
                    self.0 = None;
                    return false;
                }
            }
        }
        true
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let polled = body.poll_frame(cx);
        if matches!(polled, Poll::Ready(None)) {
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|body| body.error.is_none() && body.first.is_none() && body.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let Some(body) = &self.0 else { return SizeHint::with_exact(0) };
        let first = body.first.as_ref().map_or(0, |first| first.len() as u64);
        let rest = body.incoming.size_hint().exact();
        rest.map(|rest| SizeHint::with_exact(first + rest)).unwrap_or_default()
    }
}

impl BoundedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        loop {
            if let Some(error) = self.error {
                return Poll::Ready(Some(Err(error)));
            }
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(_))) => self.error = Some(ClientBodyError::Broken),
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers are dropped.
                    let Ok(data) = frame.into_data() else { continue };
                    if let Some(since) = self.waiting_since.take() {
                        self.note_wait(None);
                        self.waited += self.connection.thread.time.now() - since;
                        self.received_bytes += data.len();
                        if self.received_bytes >= PROGRESS_BYTES {
                            (self.waited, self.received_bytes) = (Duration::ZERO, 0);
                        }
                    }
                    match self.bytes_left.checked_sub(data.len() as u64) {
                        Some(left) => self.bytes_left = left,
                        None => {
                            self.error = Some(ClientBodyError::TooLarge);
                            continue;
                        }
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Poll::Pending => match self.poll_timeout(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => {
                        self.connection.thread.counters.closed(CloseReason::Body).increment();
                        self.error = Some(ClientBodyError::TooSlow);
                    }
                },
            }
        }
    }

    /// A full table closes connections that wait for their clients.
    fn note_wait(&self, since: Option<Time>) {
        if self.is_http1 {
            self.connection.set_body_waited_since(since);
        }
    }

    /// Ready when one of the timeouts has passed.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let connection = Arc::clone(&self.connection);
        let time = &connection.thread.time;
        let waiting_since = match self.waiting_since {
            Some(since) => since,
            None => {
                let now = time.now();
                self.waiting_since = Some(now);
                self.note_wait(Some(Time::ZERO + now.elapsed().saturating_sub(self.waited)));
                now
            }
        };
        let timeout = connection.thread.settings.body_idle_timeout.saturating_sub(self.waited);
        let deadline = self.deadline.min(waiting_since + timeout);
        let timer = self.timer.get_mut().unwrap_or_else(PoisonError::into_inner);
        while deadline > time.now() {
            let sleep = timer.get_or_insert_with(|| Box::pin(time.sleep_until(deadline)));
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            *timer = None;
        }
        Poll::Ready(())
    }
}

impl Drop for BoundedBody {
    fn drop(&mut self) {
        self.note_wait(None);
    }
}

impl fmt::Debug for ClientBody {
    /// Hides the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBody").field("is_empty", &self.0.is_none()).finish_non_exhaustive()
    }
}
