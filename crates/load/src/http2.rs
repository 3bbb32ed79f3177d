//! HTTP/2 as a client: many requests on one connection.

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
use http::{Request, header};
use tokio::task::spawn_local;

use crate::{
    body::{Expected, is_gzip},
    connect::Stream,
    follow,
    http1::{Done, broken},
    outcome::CacheHeaders,
    sample::{Answer, Class, Failure},
};

/// A head may be so large.
const HEAD_BYTES_MAX: u32 = 64 << 10;
/// What comes is read and dropped at once: the windows need not be what slows a server down.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// A connection that takes many requests at once.
#[derive(Clone)]
pub(crate) struct Http2 {
    requests: SendRequest<Bytes>,
    /// How many it has under way.
    active: Rc<Cell<usize>>,
    /// The server has said that it takes no more.
    is_closing: Rc<Cell<bool>>,
    /// What ended it, if anything has.
    ended: Rc<RefCell<Option<Failure>>>,
}

/// A body on its way.
struct Sending {
    stream: SendStream<Bytes>,
    unsent: Bytes,
}

impl Sending {
    /// Sends as much as there is room for, and asks to be woken for more.
    fn poll(&mut self, cx: &mut Context<'_>) {
        while !self.unsent.is_empty() {
            self.stream.reserve_capacity(self.unsent.len());
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(room))) => {
                    let piece = self.unsent.split_to(room.min(self.unsent.len()));
                    if self.stream.send_data(piece, self.unsent.is_empty()).is_ok() {
                        continue;
                    }
                }
                Poll::Pending => return,
                Poll::Ready(_) => {}
            }
            // Nobody reads it any more: the answer tells why.
            self.unsent.clear();
        }
    }
}

/// Whether it is the request that cannot be sent, whoever is asked.
fn is_ours(error: &h2::Error) -> bool {
    !(error.is_io() || error.is_reset() || error.is_go_away() || error.is_library())
}

/// Whether the server has not looked at the request: it said so, or was closing the connection before (RFC 9113, 8.7).
fn is_unseen(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (is_refused || error.is_go_away())
}

/// One of those under way.
struct Seat(Rc<Cell<usize>>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Http2 {
    pub(crate) async fn handshake(stream: Stream) -> Result<Self, Failure> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .max_header_list_size(HEAD_BYTES_MAX)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let (requests, connection) =
            builder.handshake::<_, Bytes>(stream).await.map_err(|error| failed(&error))?;
        let ended = Rc::new(RefCell::new(None));
        let told = Rc::clone(&ended);
        spawn_local(async move {
            let failure = match connection.await {
                Ok(()) => Class::Closed.into(),
                Err(error) => failed(&error),
            };
            *told.borrow_mut() = Some(failure);
        });
        Ok(Self { requests, active: Rc::default(), is_closing: Rc::default(), ended })
    }

    /// Whether it takes no more requests, though it may still answer some.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.get() || self.ended.borrow().is_some()
    }

    /// Nobody else is to use it; those who do go on.
    pub(crate) fn leave(&self) {
        self.is_closing.set(true);
    }

    /// Whether one more request can be sent on it at once, of so many.
    pub(crate) fn has_room(&self, most: usize) -> bool {
        !self.is_closing() && self.active.get() < self.requests.current_max_send_streams().min(most)
    }

    /// Sends a request and reads its answer; `started` is called when it can be sent. With a failure comes whether the
    /// server may have looked at the request.
    pub(crate) async fn exchange(
        &self,
        request: Request<()>,
        body: Bytes,
        expected: Expected,
        started: impl FnOnce(),
    ) -> Result<Done, (Failure, bool)> {
        self.active.set(self.active.get() + 1);
        let _seat = Seat(Rc::clone(&self.active));
        let mut requests =
            self.requests.clone().ready().await.map_err(|error| (self.failed(&error), false))?;
        started();
        let (response, sending) = requests
            .send_request(request, body.is_empty())
            .map_err(|error| (self.failed(&error), is_ours(&error)))?;
        let mut sending = Sending { stream: sending, unsent: body };
        let mut response = std::pin::pin!(response);
        // Whoever answers early need not read all that is sent, and may read on while it answers.
        let head = poll_fn(|cx| {
            sending.poll(cx);
            response.as_mut().poll(cx)
        });
        let head = head.await.map_err(|error| (self.failed(&error), !is_unseen(&error)))?;
        let (head, mut coming) = head.into_parts();
        let mut caches = CacheHeaders::default();
        for (name, value) in &head.headers {
            caches.note(name.as_str(), value.as_bytes());
        }
        let status = head.status.as_u16();
        let encoding = head.headers.get(header::CONTENT_ENCODING);
        let mut read = expected.body(status, encoding.is_some_and(|value| is_gzip(value.as_bytes())));
        while let Some(piece) = poll_fn(|cx| {
            sending.poll(cx);
            coming.poll_data(cx)
        })
        .await
        {
            let has_length = head.headers.contains_key(header::CONTENT_LENGTH);
            let piece = piece.map_err(|error| match self.failed(&error) {
                // Without all that its length had promised: h2 calls that a breach of the protocol.
                failure if failure.class == Class::Malformed && has_length => {
                    (Failure::new(Class::Truncated, failure.detail), true)
                }
                failure => (failure, true),
            })?;
            // What was taken may be sent anew; it can fail only where the stream has ended.
            let _ = coming.flow_control().release_capacity(piece.len());
            read.push(&piece).map_err(|failure| (failure, true))?;
        }
        let sizes = read.finish().map_err(|failure| (failure, true))?;
        let location = head.headers.get(header::LOCATION).filter(|_| follow::redirects(status));
        Ok(Done {
            answer: Answer {
                status,
                bytes: sizes.bytes,
                wire_bytes: sizes.wire_bytes,
                outcome: caches.outcome(),
            },
            keeps_alive: true,
            location: location.and_then(|location| location.to_str().ok()).map(Into::into),
        })
    }

    /// What went wrong: with the stream, or else with the whole connection.
    fn failed(&self, error: &h2::Error) -> Failure {
        // Whatever goes on there, nothing new begins.
        self.is_closing.set(self.is_closing.get() || error.is_go_away() || error.is_io());
        let of_connection = self.ended.borrow().clone();
        match failed(error) {
            failure if error.is_reset() || error.is_go_away() => failure,
            failure => of_connection.unwrap_or(failure),
        }
    }
}

fn failed(error: &h2::Error) -> Failure {
    match error.get_io() {
        Some(io) => broken(io),
        None if error.is_library() || is_ours(error) => Failure::new(Class::Malformed, error.to_string()),
        None => Failure::new(Class::Reset, error.to_string()),
    }
}
