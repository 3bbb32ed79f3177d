//! Connections of clients: listeners, TLS, bounds, timeouts, and a graceful end.
//!
//! ```text
//! door ----- a port that threads share ---------> worker (one a thread: takes in, makes room, drains)
//!   connection - TLS, then HTTP/1.1 or HTTP/2 --> hyper, over a wire whose bytes scan reads beside it
//!     answer - head: may it be answered? -------> Handler
//!   session -- what a connection does ----------> when it is to end unless something happens
//! ```
//!
//! Each thread has a runtime and listeners of its own (`SO_REUSEPORT`): a connection never leaves its thread. The
//! kernel spreads connections by a hash of their addresses, so a few long ones may meet on one thread.
//!
//! **Full house.** At [`Settings::connections_max`] the connection that has been idle for longest among some that are
//! looked at is closed for the sake of the new one, as nginx does; one that has not begun its first request counts as
//! idle. If none is idle, a plain new one is told 503 and an encrypted one is closed. Without file descriptors idle
//! ones are closed, too, and the thread waits a moment before it takes in others.
//!
//! **What is refused.** hyper frames requests; what it normalises before anybody sees it (a `Content-Length` beside
//! `Transfer-Encoding`, repeated lengths, lines that end in a bare LF) is refused by `scan`, which reads the same bytes
//! beside it, and what remains to be said about a head by [`head`]. Whatever is refused is the last request of its
//! connection. Requests that pass are parsed ones, framed anew by whoever forwards them.

mod answer;
mod body;
mod connection;
mod counts;
mod door;
pub mod head;
mod room;
mod scan;
mod session;
mod start;
mod streams;
mod tls;
mod wire;
mod worker;

use std::{
    error::Error as StdError,
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    pin::Pin,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;

pub use body::{ClientBody, ClientError};
pub use counts::{Counts, Cut};
pub use start::{Drained, Front, StartError};
pub use tls::{Certified, Identity, TlsError};

/// Who answers requests.
///
/// It is cloned once for each connection at least: an `Arc` of whatever is large.
pub trait Handler: Clone + Send + Sync + 'static {
    /// What its answers consist of. What one frame has is sent with one call, as far as the client takes it. Failing
    /// breaks the connection off, so that nobody takes a part for the whole.
    type Body: Body<Data: From<Bytes> + Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static;

    /// Answers `request`, or says who will.
    ///
    /// Its head has been checked: it has one host (HTTP/1.0 may have none), in the target or in `Host`, and no
    /// `Content-Length` beside `Transfer-Encoding`.
    /// `Connection`, `Transfer-Encoding` and `Date` of the answer are seen to; one to `HEAD` may have a body, which
    /// is not sent.
    fn answer(&self, request: Request<ClientBody>, peer: Peer) -> Answering<Self::Body>;
}

/// An answer, or whoever is at work on it.
pub enum Answering<B> {
    /// There it is.
    Now(Response<B>),
    /// It is dropped when the client goes away.
    Later(Pin<Box<dyn Future<Output = Response<B>> + Send>>),
}

/// Whom a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where from.
    pub address: SocketAddr,
    /// Where it came in.
    pub local: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
}

/// What a front is started with. Every duration is that of one wait, and starts anew when it is over.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens for plain HTTP/1.1, and HTTP/2 of clients that know; port 0: any that is free.
    pub listen: Vec<SocketAddr>,
    /// Where it listens for encrypted connections; needs `identity`.
    pub listen_tls: Vec<SocketAddr>,
    /// Who it says it is where connections are encrypted.
    pub identity: Option<Identity>,
    /// How many threads serve.
    pub threads: NonZeroUsize,
    /// How many connections there may be, over all threads.
    pub connections_max: usize,
    /// From a connection's beginning, or the first byte of a later head, until that head is whole.
    pub head_timeout: Duration,
    /// While the handler waits for a part of a request's body.
    pub body_idle_timeout: Duration,
    /// From a request's head until its body is whole.
    pub body_timeout: Duration,
    /// Between the end of an answer and the first byte of the next request.
    pub keep_alive: Duration,
    /// While a client does not read its answer.
    pub write_stall_timeout: Duration,
    /// From a request's head to the end of its answer; `None`: however long it takes.
    pub total_timeout: Option<Duration>,
    /// How many bytes a request's head may have; 8,192 at least.
    pub head_bytes_max: usize,
    /// How many fields a request's head may have.
    pub headers_max: usize,
    /// How many bytes a request's body may have.
    pub body_bytes_max: u64,
    /// How many requests of a connection of HTTP/2 are answered at once.
    pub streams_max: u32,
    /// How long requests that are being answered are given when the front is to end.
    pub drain: Duration,
}

impl Default for Settings {
    /// On a free port of the loopback, one thread; times as nginx has them where it has them, with 10 s for a head.
    fn default() -> Self {
        Self {
            listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            listen_tls: Vec::new(),
            identity: None,
            threads: NonZeroUsize::MIN,
            connections_max: 10_000,
            head_timeout: Duration::from_secs(10),
            body_idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_mins(5),
            keep_alive: Duration::from_secs(75),
            write_stall_timeout: Duration::from_secs(30),
            total_timeout: None,
            head_bytes_max: 32 * 1_024,
            headers_max: 100,
            body_bytes_max: 16 * 1_024 * 1_024,
            streams_max: 100,
            drain: Duration::from_secs(30),
        }
    }
}
