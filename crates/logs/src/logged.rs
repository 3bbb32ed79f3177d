//! One request of a log or of a trace.

use std::time::Duration;

/// One request of a log or of a trace. It borrows from the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoggedRequest<'a> {
    /// Nanoseconds since 1970, or since an arbitrary start in traces. None: the format has no times.
    pub at_ns: Option<u64>,
    /// The requested object.
    pub key: LoggedKey<'a>,
    /// Read, write or delete.
    pub operation: Operation,
    /// The status of the response.
    pub status: Option<u16>,
    /// The size of the response or of the object in bytes, at most [`SIZE_BYTES_MAX`].
    pub bytes: Option<u64>,
    /// How long the object may be used: the TTL of a trace, or the lifetime that `Cache-Control` gives a shared cache.
    pub ttl: Option<Duration>,
    /// How long the server took, without other caches in front of it where the log has that.
    pub service_time: Option<Duration>,
    /// How many equal requests this is, at least 1.
    pub repeats: u32,
}

/// The largest size, 1 PiB. A line with a larger one is bad.
pub const SIZE_BYTES_MAX: u64 = 1 << 50;

/// The name of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedKey<'a> {
    /// A request over HTTP.
    Url {
        /// In upper case.
        method: &'a str,
        /// Where the log has it besides the URL.
        host: Option<&'a str>,
        /// Path and query, or an absolute URL, as logged. Bytes that are not UTF-8 are replaced.
        url: &'a str,
    },
    /// Any bytes.
    Text(&'a [u8]),
    /// A number, such as that of a block.
    Number(u64),
}

/// The effect of a request on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// GET and HEAD; `get` of a trace.
    Read,
    /// Any other method; `set`, `add`, `incr` of a trace.
    Write,
    /// `delete` of a trace.
    Delete,
}

impl<'a> LoggedRequest<'a> {
    /// One read of this object, and nothing else known about it.
    #[must_use]
    pub const fn read(key: LoggedKey<'a>) -> Self {
        Self {
            at_ns: None,
            key,
            operation: Operation::Read,
            status: None,
            bytes: None,
            ttl: None,
            service_time: None,
            repeats: 1,
        }
    }
}

impl Operation {
    /// The operation of a method.
    #[must_use]
    pub fn of_method(method: &str) -> Self {
        if matches!(method, "GET" | "HEAD") { Self::Read } else { Self::Write }
    }
}
