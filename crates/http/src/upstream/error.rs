//! Failures between a request and its response.

use std::{error::Error, io, sync::Arc, time::Duration};

use http::StatusCode;
use rustix::io::Errno;
use stockade_model::units::format_duration;

/// The origin did not respond, or not completely. Cheap to clone: coalesced requests share it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    #[error("{at}: connection refused")]
    Refused { at: Arc<str> },
    #[error("no address for {host}: {reason}")]
    Dns {
        host: Arc<str>,
        /// From the resolver.
        reason: Arc<str>,
    },
    /// TCP, TLS or HTTP/2 was not ready in time.
    #[error("{at}: not connected within {}", format_duration(*.after))]
    ConnectTimeout { at: Arc<str>, after: Duration },
    /// The proxy has no file descriptors or no memory for a connection.
    #[error("{at}: {reason}")]
    Exhausted {
        at: Arc<str>,
        /// From the operating system.
        reason: Arc<str>,
    },
    /// No route, or no local ports left.
    #[error("{at}: {reason}")]
    Unreachable {
        at: Arc<str>,
        /// From the operating system.
        reason: Arc<str>,
    },
    #[error("{at}: TLS: {reason}")]
    Tls {
        at: Arc<str>,
        /// The cause, and what to do.
        reason: Arc<str>,
    },
    #[error("no response within {}", format_duration(*.after))]
    HeadTimeout { after: Duration },
    /// Closed before any byte of a response.
    #[error("closed before a response{}", reason_suffix(.reason))]
    Closed {
        /// As sent by the origin; may be empty.
        reason: Arc<str>,
    },
    /// A reset of the connection or stream.
    #[error("reset{}", reason_suffix(.reason))]
    Reset {
        /// From the system or the origin; may be empty.
        reason: Arc<str>,
    },
    #[error("the response is truncated")]
    Truncated,
    #[error("not HTTP{}", reason_suffix(.reason))]
    NotHttp { reason: Arc<str> },
    /// No byte has moved in either direction although the exchange had started.
    #[error("no data for {}", format_duration(*.after))]
    IdleTimeout { after: Duration },
    /// More bytes or fields than the limit.
    #[error("the head of the response is too large")]
    HeadTooLarge,
    /// The queue is full, or has dropped the request for one of a client that has fewer in it.
    #[error("{waiting} requests already wait for a connection")]
    Overloaded { waiting: usize },
    /// Of this client, or of all.
    #[error("too many event streams are open")]
    TooManyEventStreams,
    /// The request has been given up before it had a connection.
    #[error("no client waits for the response any more")]
    Abandoned,
    #[error("no connection became free within {}", format_duration(*.after))]
    QueueTimeout { after: Duration },
    /// The client's body has failed.
    #[error("the body of the request: {error}")]
    RequestBody { error: Arc<dyn Error + Send + Sync> },
    /// The client has stopped sending the body.
    #[error("the body of the request: no data for {}", format_duration(*.after))]
    RequestStalled { after: Duration },
    #[error("the request cannot be sent: {reason}")]
    Unsendable { reason: Arc<str> },
}

/// True if this process, or the system, has no file descriptors left.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::MFILE | Errno::NFILE))
}

fn reason_suffix(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl UpstreamError {
    /// The status of the proxy's own reply.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::ConnectTimeout { .. } | Self::HeadTimeout { .. } | Self::IdleTimeout { .. } => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Overloaded { .. }
            | Self::QueueTimeout { .. }
            | Self::Exhausted { .. }
            | Self::TooManyEventStreams
            | Self::Abandoned => StatusCode::SERVICE_UNAVAILABLE,
            Self::RequestStalled { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::RequestBody { .. } | Self::Unsendable { .. } => StatusCode::BAD_REQUEST,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    /// For logs and metrics: the proxy error types of RFC 9209, 2.3.
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
            Self::Overloaded { .. }
            | Self::QueueTimeout { .. }
            | Self::Exhausted { .. }
            | Self::TooManyEventStreams
            | Self::Abandoned => "connection_limit_reached",
            Self::RequestBody { .. } | Self::RequestStalled { .. } | Self::Unsendable { .. } => {
                "http_request_error"
            }
        }
    }

    /// False: the client, the load or the proxy itself is the cause.
    #[must_use]
    pub fn is_origin_fault(&self) -> bool {
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

    pub(super) fn unconnected(error: &io::Error, at: &str) -> Self {
        let at = at.into();
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED | Errno::CONNRESET | Errno::CONNABORTED) => Self::Refused { at },
            Some(Errno::MFILE | Errno::NFILE) => {
                let reason = "the proxy has no file descriptors left: raise LimitNOFILE or `ulimit -n`, or lower \
                              `[bounds] connections`";
                Self::Exhausted { at, reason: reason.into() }
            }
            Some(Errno::NOBUFS | Errno::NOMEM) => Self::Exhausted { at, reason: error.to_string().into() },
            Some(Errno::ADDRNOTAVAIL) => {
                Self::Unreachable { at, reason: "the proxy has no local ports left".into() }
            }
            _ => Self::Unreachable { at, reason: error.to_string().into() },
        }
    }

    /// `is_answered`: part of a response has arrived.
    pub(super) fn from_http1(error: &hyper::Error, is_answered: bool) -> Self {
        if error.is_parse_too_large() {
            return Self::HeadTooLarge;
        }
        if error.is_parse() {
            return Self::not_http(error.to_string());
        }
        if let Some(io) = cause::<io::Error>(error) {
            return Self::from_io(io, is_answered);
        }
        if is_answered { Self::Truncated } else { Self::closed() }
    }

    /// As `from_http1`, for a stream or its connection.
    pub(super) fn from_http2(error: &h2::Error, is_answered: bool) -> Self {
        if let Some(io) = error.get_io() {
            return Self::from_io(io, is_answered);
        }
        let reason = || error.reason().map(|reason| reason.description().to_owned()).unwrap_or_default();
        match (error.is_remote(), error.is_library()) {
            (true, _) if error.is_go_away() && !is_answered => Self::Closed { reason: reason().into() },
            (true, _) => Self::Reset { reason: reason().into() },
            (false, true) => Self::not_http(reason()),
            (false, false) => Self::Unsendable { reason: error.to_string().into() },
        }
    }

    fn from_io(error: &io::Error, is_answered: bool) -> Self {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, InvalidInput, NotConnected,
            UnexpectedEof, WriteZero,
        };
        match error.kind() {
            // Invalid chunks or TLS records.
            InvalidData | InvalidInput => Self::not_http(error.to_string()),
            UnexpectedEof if is_answered => Self::Truncated,
            UnexpectedEof | WriteZero | NotConnected => Self::closed(),
            ConnectionReset | ConnectionAborted | BrokenPipe => Self::Reset { reason: "".into() },
            _ => Self::Reset { reason: error.to_string().into() },
        }
    }
}

/// The first error of this type in the chain.
fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|cause| cause.downcast_ref())
}
