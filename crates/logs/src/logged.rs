//! One request of a log or of a trace.

use std::{borrow::Cow, time::Duration};

use crate::request::{AbsoluteUrl, normalize_host};

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
    /// False: `Cache-Control` has `no-store`, `no-cache` or `private`, so that the response is for this request alone.
    pub is_shareable: bool,
    /// How long the server took, without other caches in front of it where the log has that.
    pub service_time: Option<Duration>,
    /// The `User-Agent` as logged: some formats write spaces as `+` or `%20`.
    pub user_agent: Option<&'a [u8]>,
    /// The `Content-Type` of the response as logged, with its parameters.
    pub content_type: Option<&'a [u8]>,
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
        /// As [`normalize_host`](crate::request::normalize_host) writes it, where the log has it, in the URL or besides it.
        host: Option<&'a str>,
        /// Path and query as logged. In the logs of browsers and of forward proxies, whose requests go to many hosts, an absolute
        /// URL with a normal host. Bytes that are not UTF-8 are replaced.
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
            is_shareable: true,
            service_time: None,
            user_agent: None,
            content_type: None,
            repeats: 1,
        }
    }
}

/// The normal form of a URL and of its host, so that the forms of one object give one key.
#[derive(Debug)]
pub(crate) struct NormalUrl<'a> {
    pub host: Option<Cow<'a, str>>,
    pub url: Cow<'a, str>,
}

impl<'a> NormalUrl<'a> {
    /// `is_forward`: an absolute URL stays one.
    pub fn of(host: Option<&'a str>, url: &'a str, is_forward: bool) -> Self {
        // Most URLs are a path.
        let absolute = if url.starts_with('/') { None } else { AbsoluteUrl::parse(url) };
        let Some(AbsoluteUrl { scheme, host: of_url, path }) = absolute else {
            return Self { host: host.map(|host| normalize_host(host, None)), url: url.into() };
        };
        let of_url = normalize_host(of_url, Some(scheme));
        let slash = if path.starts_with('/') { "" } else { "/" };
        if is_forward {
            let url = format!("{}://{of_url}{slash}{path}", scheme.to_ascii_lowercase());
            return Self { host: host.map(|host| normalize_host(host, None)), url: url.into() };
        }
        let url = if slash.is_empty() { path.into() } else { format!("/{path}").into() };
        // RFC 9112, 3.2.2: it replaces that of the field.
        Self { host: Some(of_url), url }
    }
}

impl Operation {
    /// The operation of a method.
    #[must_use]
    pub fn of_method(method: &str) -> Self {
        if matches!(method, "GET" | "HEAD") { Self::Read } else { Self::Write }
    }
}
