//! One request as the load saw it.

use std::{sync::Arc, time::Duration};

use stockade_model::{outcome::Outcome, time::Time};

/// One request: when it was due, when it was sent, when it ended, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Which one, from 0, in the order of their due times.
    pub number: u64,
    /// When the schedule wanted it to start.
    pub scheduled: Time,
    /// When it was handed to a connection that was ready; when it ended, if it never was.
    pub started: Time,
    /// When its answer, or its failure, was complete.
    pub finished: Time,
    /// Bytes of the request's body.
    pub bytes_out: u64,
    /// How it ended.
    pub ended: Result<Answer, Failure>,
}

/// An answer whose body was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 100 to 599.
    pub status: u16,
    /// Bytes of its body, decoded.
    pub bytes: u64,
    /// Bytes of its body as they came.
    pub wire_bytes: u64,
    /// What a cache on the way says that it did, where one says so.
    pub outcome: Option<Outcome>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{}", .class.text(), if .detail.is_empty() { "" } else { ": " }, .detail)]
pub struct Failure {
    /// Of what kind.
    pub class: Class,
    /// What about it, for people; may be empty.
    pub detail: Arc<str>,
}

macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident $name:literal $text:literal,)*) => {
        /// What can go wrong with a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Class {
            $($(#[$doc])* $variant,)*
        }

        impl Class {
            /// Every class.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// As reports for machines name it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// In a few words, for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

classes! {
    /// The host's name has no address, or nobody said so in time.
    Dns "dns" "no address for the host",
    /// Nobody listens there.
    Refused "refused" "connection refused",
    /// The network cannot be reached, or the socket's path is not there.
    Unreachable "unreachable" "cannot connect",
    /// No connection in time.
    ConnectTimeout "connect_timeout" "no connection in time",
    /// This machine has no local port left for one more connection.
    NoPorts "no_ports" "no local port left",
    /// This process may not open one more file.
    NoFiles "no_files" "no file descriptor left",
    /// The two sides did not agree on how to encrypt, or on who is who.
    Tls "tls" "TLS failed",
    /// The peer reset the connection.
    Reset "reset" "connection reset",
    /// The peer closed the connection before it had sent any of an answer.
    Closed "closed" "connection closed without an answer",
    /// The peer closed the connection, or ended the stream, within an answer.
    Truncated "truncated" "answer cut short",
    /// No complete answer in time.
    Timeout "timeout" "no complete answer in time",
    /// What came is no HTTP.
    Malformed "malformed" "not an HTTP answer",
    /// The answer's head is larger than anybody may make us keep.
    HeadTooLarge "head_too_large" "answer with too large a head",
    /// The body cannot be decoded.
    Encoding "encoding" "body that cannot be decoded",
    /// The body is not the one that was expected.
    Digest "digest" "body other than expected",
    /// Not done when the drain had ended.
    CutOff "cut_off" "not done at the end of the drain",
}

impl Failure {
    /// With what is to be said about it.
    #[must_use]
    pub fn new(class: Class, detail: impl Into<Arc<str>>) -> Self {
        Self { class, detail: detail.into() }
    }
}

impl From<Class> for Failure {
    fn from(class: Class) -> Self {
        Self::new(class, "")
    }
}

impl Sample {
    /// What the user waited, counted from when the request was due.
    #[must_use]
    pub fn response_time(&self) -> Duration {
        self.finished - self.scheduled
    }

    /// What the request took once it was under way.
    #[must_use]
    pub fn service_time(&self) -> Duration {
        self.finished - self.started
    }

    /// How late it was sent.
    #[must_use]
    pub fn send_lag(&self) -> Duration {
        self.started - self.scheduled
    }

    /// Whether it was handed to a connection.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        self.ended.is_ok() || self.started < self.finished
    }

    /// Answered with 200 to 399, as Vegeta counts success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self.ended, Ok(Answer { status: 200..=399, .. }))
    }
}
