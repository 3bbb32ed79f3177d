//! HTTP/2 as a client: many requests on one connection.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{Request, header};
use tokio::task::spawn_local;

use crate::{
    body::Body,
    connect::Stream,
    http1::{Done, Expected, broken},
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
    /// What ended it, if anything has.
    ended: Rc<RefCell<Option<Failure>>>,
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
        Ok(Self { requests, active: Rc::default(), ended })
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Whether one more request can be sent on it at once, of so many.
    pub(crate) fn has_room(&self, most: usize) -> bool {
        !self.has_ended() && self.active.get() < self.requests.current_max_send_streams().min(most)
    }

    /// Sends a request and reads its answer; `started` is called when it can be sent.
    pub(crate) async fn exchange(
        &self,
        request: Request<()>,
        body: Bytes,
        expected: Expected,
        started: impl FnOnce(),
    ) -> Result<Done, Failure> {
        self.active.set(self.active.get() + 1);
        let _seat = Seat(Rc::clone(&self.active));
        let mut requests = self.requests.clone().ready().await.map_err(|error| self.failed(&error))?;
        started();
        let (response, mut sending) =
            requests.send_request(request, body.is_empty()).map_err(|error| self.failed(&error))?;
        let mut response = std::pin::pin!(response);
        let mut unsent = body;
        // Whoever answers early need not read all that is sent.
        let head = poll_fn(|cx| {
            while !unsent.is_empty() {
                sending.reserve_capacity(unsent.len());
                let std::task::Poll::Ready(Some(Ok(room))) = sending.poll_capacity(cx) else { break };
                let piece = unsent.split_to(room.min(unsent.len()));
                if sending.send_data(piece, unsent.is_empty()).is_err() {
                    unsent.clear();
                }
            }
            response.as_mut().poll(cx)
        });
        let (head, mut coming) = head.await.map_err(|error| self.failed(&error))?.into_parts();
        let field = |name: &str| head.headers.get(name).map(http::HeaderValue::as_bytes);
        let caches = CacheHeaders {
            cache_status: head
                .headers
                .get_all("cache-status")
                .iter()
                .next_back()
                .map(http::HeaderValue::as_bytes),
            x_cache: field("x-cache"),
            age: field("age"),
        };
        let encoding = field("content-encoding").unwrap_or_default();
        let is_gzip = encoding.eq_ignore_ascii_case(b"gzip") || encoding.eq_ignore_ascii_case(b"x-gzip");
        let mut read = Body::new(is_gzip && expected.decodes, expected.digest);
        while let Some(piece) = coming.data().await {
            let piece = piece.map_err(|error| match self.failed(&error) {
                // Without all that its length had promised: h2 calls that a breach of the protocol.
                failure
                    if failure.class == Class::Malformed
                        && head.headers.contains_key(header::CONTENT_LENGTH) =>
                {
                    Failure::new(Class::Truncated, failure.detail)
                }
                failure => failure,
            })?;
            // What was taken may be sent anew; it can fail only where the stream has ended.
            let _ = coming.flow_control().release_capacity(piece.len());
            read.push(&piece)?;
        }
        let sizes = read.finish()?;
        let location = head.headers.get(header::LOCATION).filter(|_| head.status.is_redirection());
        Ok(Done {
            answer: Answer {
                status: head.status.as_u16(),
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
        None if error.is_library() => Failure::new(Class::Malformed, error.to_string()),
        None => Failure::new(Class::Reset, error.to_string()),
    }
}
