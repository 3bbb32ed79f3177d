//! Samples: the measurements of single requests.

use std::sync::Arc;

use stockade_model::outcome::Outcome;
use stockade_record::timing::Timing;

use crate::truth::StatedAnswer;

/// One request: its times and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The number of the request, from 0, in the order of due times.
    pub number: u64,
    /// When it was due, when it was handed to a ready connection or else ended, and when it ended.
    pub timing: Timing,
    /// Bytes of the request body.
    pub bytes_out: u64,
    /// The response, or the failure.
    pub result: Result<Response, RequestFailure>,
}

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// 100 to 999; servers send those of RFC 9110, up to 599.
    pub status: u16,
    /// Decoded bytes of the body.
    pub bytes: u64,
    /// Bytes of the body as received.
    pub wire_bytes: u64,
    /// The outcome in a cache, if its headers state one.
    pub outcome: Option<Outcome>,
    /// True for a hit if its headers do not tell whether it is fresh.
    pub may_be_stale: bool,
    /// Its breach of RFC 9112, one that clients commonly accept.
    pub deviation: Option<Deviation>,
    /// The statement of its origin, if it is checked. Boxed: most loads check nothing.
    pub stated: Option<Box<StatedAnswer>>,
}

/// A breach of RFC 9112 in a response that common clients accept, and so does this one, unless it is strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// `Content-Length` and `Transfer-Encoding` (6.3): the length is ignored, and the connection ends.
    LengthAndChunks,
    /// A folded field (5.2), or a space before the colon of a field (5.1).
    Fields,
    /// Line ends after the body.
    LinesAfterBody,
    /// A `Location` with other bytes than a URL has: they are sent percent-encoded.
    Location,
}

impl Deviation {
    /// Every deviation.
    pub const ALL: [Self; 4] = [Self::LengthAndChunks, Self::Fields, Self::LinesAfterBody, Self::Location];

    /// The name in machine-readable reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LengthAndChunks => "length_beside_chunks",
            Self::Fields => "fields",
            Self::LinesAfterBody => "lines_after_body",
            Self::Location => "location",
        }
    }

    /// A short description.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::LengthAndChunks => "Content-Length and Transfer-Encoding",
            Self::Fields => "a folded field, or a space before a colon",
            Self::LinesAfterBody => "line ends after the body",
            Self::Location => "a Location that is not a URL",
        }
    }
}

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{}", .class.text(), if .detail.is_empty() { "" } else { ": " }, .detail)]
pub struct RequestFailure {
    /// The class of the failure.
    pub class: FailureClass,
    /// Details for people; may be empty.
    pub detail: Arc<str>,
}

macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident $name:literal $text:literal,)*) => {
        /// The classes of failures.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FailureClass {
            $($(#[$doc])* $variant,)*
        }

        impl FailureClass {
            /// Every class.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name in machine-readable reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// A short description.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

classes! {
    /// The host name has no address, or the lookup timed out.
    Dns "dns" "no address for the host",
    /// The port is closed.
    Refused "refused" "connection refused",
    /// The network is unreachable, or the socket path does not exist.
    Unreachable "unreachable" "cannot connect",
    /// The connection was not established in time.
    ConnectTimeout "connect_timeout" "no connection in time",
    /// No local port is free.
    NoPorts "no_ports" "no local port left",
    /// The process has reached its limit on open files.
    NoFiles "no_files" "no file descriptor left",
    /// The TLS handshake failed.
    Tls "tls" "TLS failed",
    /// The peer reset the connection.
    Reset "reset" "connection reset",
    /// The peer closed the connection before any byte of a response.
    Closed "closed" "connection closed without a response",
    /// The peer closed the connection, or ended the stream, within a response.
    Truncated "truncated" "response cut short",
    /// The response was not complete in time.
    Timeout "timeout" "no complete response in time",
    /// The received bytes are not valid HTTP.
    Malformed "malformed" "not an HTTP response",
    /// The head of the response exceeds the limits.
    HeadTooLarge "head_too_large" "response head too large",
    /// The last response that was followed is a redirect, too.
    Redirects "redirects" "more redirects than are followed",
    /// The body cannot be decoded.
    Encoding "encoding" "body that cannot be decoded",
    /// The body does not have the expected digest.
    Digest "digest" "body other than expected",
    /// The generator may not reach the server.
    NotAllowed "not_allowed" "server that is not allowed",
    /// In flight at the end of the drain.
    CutOff "cut_off" "in flight at the end of the drain",
}

impl RequestFailure {
    /// A failure with details.
    #[must_use]
    pub fn new(class: FailureClass, detail: impl Into<Arc<str>>) -> Self {
        Self { class, detail: detail.into() }
    }
}

impl From<FailureClass> for RequestFailure {
    fn from(class: FailureClass) -> Self {
        Self::new(class, "")
    }
}

impl Sample {
    /// True if it was handed to a connection.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        self.result.is_ok() || self.timing.started < self.timing.finished
    }

    /// True if the status is 200 to 399, as Vegeta counts success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self.result, Ok(Response { status: 200..=399, .. }))
    }
}
