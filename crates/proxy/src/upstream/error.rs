//! What can go wrong between a request and its answer.

use std::{error::Error, io, sync::Arc, time::Duration};

use http::StatusCode;
use rustix::io::Errno;
use stockade_model::units::format_duration;

/// An origin did not answer, or not to the end. Clones share what it says: a failure may have several readers.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// Nobody listens there.
    #[error("{at}: connection refused")]
    Refused {
        /// Which address.
        at: Arc<str>,
    },
    /// The name has no address.
    #[error("no address for {host}: {reason}")]
    Dns {
        /// Which.
        host: Arc<str>,
        /// What the resolver says.
        reason: Arc<str>,
    },
    /// Nobody answered the call, or the handshake of TLS or HTTP/2 was not done in time.
    #[error("{at}: not connected within {}", format_duration(*.after))]
    ConnectTimeout {
        /// Which host.
        at: Arc<str>,
        /// How long it was given.
        after: Duration,
    },
    /// There is no way there, or there are no ports or file descriptors left here.
    #[error("{at}: {reason}")]
    Unreachable {
        /// Which address.
        at: Arc<str>,
        /// What the system says.
        reason: Arc<str>,
    },
    /// It is not who it should be, or does not encrypt as we do.
    #[error("{at}: TLS: {reason}")]
    Tls {
        /// Which host.
        at: Arc<str>,
        /// What is wrong, and what to do.
        reason: Arc<str>,
    },
    /// The request was sent, and no head came in time.
    #[error("no answer within {}", format_duration(*.after))]
    HeadTimeout {
        /// How long it was given.
        after: Duration,
    },
    /// The connection was closed before anything of an answer.
    #[error("closed before an answer{}", because(.reason))]
    Closed {
        /// What the origin said to that, if anything.
        reason: Arc<str>,
    },
    /// The connection or the stream was reset.
    #[error("reset{}", because(.reason))]
    Reset {
        /// What the system or the origin said to that, if anything.
        reason: Arc<str>,
    },
    /// An answer ended too early.
    #[error("the answer is truncated")]
    Truncated,
    /// What came is no HTTP.
    #[error("no HTTP{}", because(.reason))]
    NotHttp {
        /// What is wrong with it.
        reason: Arc<str>,
    },
    /// An answer, or the reading of a request, had begun, and stood still for too long.
    #[error("nothing moved for {}", format_duration(*.after))]
    IdleTimeout {
        /// How long.
        after: Duration,
    },
    /// The head of an answer has too many bytes, or too many headers.
    #[error("the head of the answer is too large")]
    HeadTooLarge,
    /// All connections are in use, and as many wait for one as may.
    #[error("{waiting} wait for a connection")]
    Overloaded {
        /// How many.
        waiting: usize,
    },
    /// All connections were in use for too long.
    #[error("no connection became free within {}", format_duration(*.after))]
    QueueTimeout {
        /// How long.
        after: Duration,
    },
    /// The body of the request, the client's, cannot be had.
    #[error("the body of the request: {error}")]
    RequestBody {
        /// What whoever gave it says.
        error: Arc<dyn Error + Send + Sync>,
    },
    /// The body of the request, the client's, stood still.
    #[error("the body of the request: nothing more came of it for {}", format_duration(*.after))]
    RequestStalled {
        /// How long.
        after: Duration,
    },
    /// It is a request that cannot be sent to anybody.
    #[error("the request cannot be sent: {reason}")]
    Unsendable {
        /// Why.
        reason: Arc<str>,
    },
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl UpstreamError {
    /// What a client is told who can be told nothing better.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::ConnectTimeout { .. } | Self::HeadTimeout { .. } | Self::IdleTimeout { .. } => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Overloaded { .. } | Self::QueueTimeout { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::RequestStalled { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::RequestBody { .. } | Self::Unsendable { .. } => StatusCode::BAD_REQUEST,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    /// What logs and counts call it: the proxy error types of RFC 9209, section 2.3.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "connection_refused",
            Self::Dns { .. } => "dns_error",
            Self::ConnectTimeout { .. } => "connection_timeout",
            Self::Unreachable { .. } => "destination_ip_unroutable",
            Self::Tls { .. } => "tls_protocol_error",
            Self::HeadTimeout { .. } => "http_response_timeout",
            Self::Closed { .. } | Self::Reset { .. } => "connection_terminated",
            Self::Truncated => "http_response_incomplete",
            Self::NotHttp { .. } => "http_protocol_error",
            Self::IdleTimeout { .. } => "connection_read_timeout",
            Self::HeadTooLarge => "http_response_header_section_size",
            Self::Overloaded { .. } | Self::QueueTimeout { .. } => "connection_limit_reached",
            Self::RequestBody { .. } | Self::RequestStalled { .. } | Self::Unsendable { .. } => {
                "http_request_error"
            }
        }
    }

    /// Whether the origin is to blame, and not whoever asks, or how many do.
    #[must_use]
    pub fn is_origins(&self) -> bool {
        !matches!(
            self.status(),
            StatusCode::BAD_REQUEST | StatusCode::REQUEST_TIMEOUT | StatusCode::SERVICE_UNAVAILABLE
        )
    }

    pub(super) fn closed() -> Self {
        Self::Closed { reason: "".into() }
    }

    pub(super) fn not_http(reason: impl Into<Arc<str>>) -> Self {
        Self::NotHttp { reason: reason.into() }
    }

    /// Why there is no connection to an address.
    pub(super) fn unconnected(error: &io::Error, at: &str) -> Self {
        let at = at.into();
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED | Errno::CONNRESET | Errno::CONNABORTED) => Self::Refused { at },
            Some(Errno::MFILE | Errno::NFILE) => {
                Self::Unreachable { at, reason: "no file descriptors are left here".into() }
            }
            Some(Errno::ADDRNOTAVAIL) => Self::Unreachable { at, reason: "no ports are left here".into() },
            _ => Self::Unreachable { at, reason: error.to_string().into() },
        }
    }

    /// What broke a connection of HTTP/1. `is_answered`: something of an answer had come.
    pub(super) fn of_http1(error: &hyper::Error, is_answered: bool) -> Self {
        if error.is_parse_too_large() {
            return Self::HeadTooLarge;
        }
        if error.is_parse() {
            return Self::not_http(error.to_string());
        }
        if let Some(io) = cause::<io::Error>(error) {
            return Self::of_io(io, is_answered);
        }
        if is_answered { Self::Truncated } else { Self::closed() }
    }

    /// What broke a stream of HTTP/2, or its connection.
    pub(super) fn of_http2(error: &h2::Error, is_answered: bool) -> Self {
        if let Some(io) = error.get_io() {
            return Self::of_io(io, is_answered);
        }
        let reason = || error.reason().map(|reason| reason.description().to_owned()).unwrap_or_default();
        match (error.is_remote(), error.is_library()) {
            (true, _) if error.is_go_away() && !is_answered => Self::Closed { reason: reason().into() },
            (true, _) => Self::Reset { reason: reason().into() },
            (false, true) => Self::not_http(reason()),
            (false, false) => Self::Unsendable { reason: error.to_string().into() },
        }
    }

    fn of_io(error: &io::Error, is_answered: bool) -> Self {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, InvalidInput, NotConnected,
            UnexpectedEof, WriteZero,
        };
        match error.kind() {
            // Chunks that are none, or records of TLS.
            InvalidData | InvalidInput => Self::not_http(error.to_string()),
            UnexpectedEof if is_answered => Self::Truncated,
            UnexpectedEof | WriteZero | NotConnected => Self::closed(),
            ConnectionReset | ConnectionAborted | BrokenPipe => Self::Reset { reason: "".into() },
            _ => Self::Reset { reason: error.to_string().into() },
        }
    }
}

/// The first cause of this type.
fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|cause| cause.downcast_ref())
}
