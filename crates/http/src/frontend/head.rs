//! Checks of a request head: pure.
//!
//! hyper has parsed it: names and values hold allowed bytes only, lengths are numbers, lines are not folded.

use http::{
    HeaderMap, Method, Request, StatusCode, Version,
    header::{CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE},
};
use http_body::Body;
use memchr::memchr_iter;

use crate::{field::listed, host::is_host};

/// The response to a request that the handler never sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub status: StatusCode,
    /// Holds nothing that the client sent.
    pub reason: &'static str,
}

impl Rejection {
    pub(super) const fn bad_request(reason: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, reason }
    }

    pub(super) const fn new(status: StatusCode, reason: &'static str) -> Self {
        Self { status, reason }
    }
}

/// Rejects requests that are malformed, ambiguous or not supported.
///
/// Sources: RFC 9110 (7.2 Host, 7.4 misdirected targets, 9.3.6 CONNECT, 9.3.8 TRACE, 10.1.1 Expect), RFC 9112
/// (3.2 targets and Host, 6.1 transfer codings), RFC 9113 (8.2.2 fields of connections, 8.3.1 `:authority`).
pub fn check<B: Body>(request: &Request<B>, headers_max: usize) -> Result<(), Rejection> {
    let headers = request.headers();
    if headers.len() > headers_max {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Rejection::new(status, "too many header fields"));
    }
    if *request.method() == Method::CONNECT {
        return Err(Rejection::new(StatusCode::NOT_IMPLEMENTED, "CONNECT is not supported"));
    }
    if *request.method() == Method::TRACE {
        return Err(Rejection::new(StatusCode::METHOD_NOT_ALLOWED, "TRACE is not supported"));
    }
    // The field has no meaning in other versions (RFC 9110, 7.8; RFC 9113, 8.2.2).
    if request.version() == Version::HTTP_11 && asks_for_websocket(headers) {
        return Err(Rejection::new(StatusCode::NOT_IMPLEMENTED, "WebSocket is not supported"));
    }
    check_target(request)?;
    check_host(request)?;
    // An HTTP/1 request without a body has no framing fields: hyper has checked.
    if request.body().is_end_stream() && request.version() < Version::HTTP_2 {
        return Ok(());
    }
    if *request.method() == Method::HEAD && !request.body().is_end_stream() {
        // Content of a HEAD has no meaning, and may be a smuggled request (RFC 9110, 9.3.2).
        return Err(Rejection::bad_request("a HEAD request has content"));
    }
    check_framing(headers, request.version())?;
    if headers.get(EXPECT).is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Rejection::new(
            StatusCode::EXPECTATION_FAILED,
            "the only supported expectation is 100-continue",
        ));
    }
    Ok(())
}

/// Accepts a path, an absolute `http` or `https` URL, and `*` for `OPTIONS`.
fn check_target<B>(request: &Request<B>) -> Result<(), Rejection> {
    let target = request.uri();
    let is_http = target.scheme_str().is_none_or(|scheme| scheme == "http" || scheme == "https");
    if !is_http {
        return Err(Rejection::bad_request("the scheme of the target is neither http nor https"));
    }
    let text = target.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    if !text.is_ascii() || !has_valid_codes(target.path()) {
        return Err(Rejection::bad_request("the target has bytes that need percent-encoding"));
    }
    match target.path() {
        "*" if *request.method() == Method::OPTIONS => Ok(()),
        path if path.starts_with('/') => Ok(()),
        // `http://host?query` and `http://host` have no path, which means `/`. A host alone is for CONNECT.
        "" if target.scheme().is_some() => Ok(()),
        _ => Err(Rejection::bad_request("the target has no path")),
    }
}

/// Rejects an `https` target over a connection without TLS (RFC 9110, 4.2.2 and 7.4). In HTTP/2 each request has a
/// scheme, and a terminator of TLS may pass its own on, in HTTP/1 if it is a trusted proxy.
pub(super) fn check_scheme<B>(
    request: &Request<B>,
    is_tls: bool,
    is_trusted_proxy: impl FnOnce() -> bool,
) -> Result<(), Rejection> {
    let is_https = request.uri().scheme() == Some(&http::uri::Scheme::HTTPS);
    if is_https && !is_tls && request.version() < Version::HTTP_2 && !is_trusted_proxy() {
        let reason = "an https target needs a connection with TLS";
        return Err(Rejection::new(StatusCode::MISDIRECTED_REQUEST, reason));
    }
    Ok(())
}

/// True if each `%` starts a code of two hexadecimal digits (RFC 3986, 2.1).
fn has_valid_codes(path: &str) -> bool {
    let path = path.as_bytes();
    let is_code =
        |at: usize| path.get(at + 1..at + 3).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit));
    memchr_iter(b'%', path).all(is_code)
}

/// Requires one host, equal wherever the request names it.
fn check_host<B>(request: &Request<B>) -> Result<(), Rejection> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Rejection::bad_request("more than one Host field"));
    }
    let target = request.uri().authority();
    if target.is_some_and(|target| !is_host(target.as_str().as_bytes())) {
        return Err(Rejection::bad_request("the host of the target is invalid"));
    }
    match (host, target) {
        (Some(host), _) if !is_host(host.as_bytes()) => {
            Err(Rejection::bad_request("the Host field is invalid"))
        }
        (Some(host), Some(target)) if !host.as_bytes().eq_ignore_ascii_case(target.as_str().as_bytes()) => {
            Err(Rejection::bad_request("the Host field differs from the host of the target"))
        }
        // HTTP/1.1 requires the field even if the target has a host.
        (None, target)
            if request.version() == Version::HTTP_11
                || request.version() > Version::HTTP_11 && target.is_none() =>
        {
            Err(Rejection::bad_request("the request names no host"))
        }
        _ => Ok(()),
    }
}

/// Requires at most one length: `Content-Length`, or `Transfer-Encoding: chunked`.
fn check_framing(headers: &HeaderMap, version: Version) -> Result<(), Rejection> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(Rejection::bad_request("more than one Content-Length field"));
    }
    if length.is_some_and(|value| value.is_empty() || !value.as_bytes().iter().all(u8::is_ascii_digit)) {
        return Err(Rejection::bad_request("Content-Length is not a number"));
    }
    let Some(coding) = coding else { return Ok(()) };
    if version != Version::HTTP_11 {
        return Err(Rejection::bad_request("Transfer-Encoding is allowed in HTTP/1.1 only"));
    }
    if length.is_some() || codings.next().is_some() {
        return Err(Rejection::bad_request("the request states its length more than once"));
    }
    if coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    Err(Rejection::new(StatusCode::NOT_IMPLEMENTED, "the only supported transfer coding is chunked"))
}

/// True if `Upgrade` lists `websocket`. Without the upgrade an origin answers the request with a page, which a cache could
/// store. Other protocols are optional: the request is served in HTTP/1.
fn asks_for_websocket(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE)
        && listed(headers, &UPGRADE).any(|protocol| {
            let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
            name.eq_ignore_ascii_case(b"websocket")
        })
}

#[cfg(test)]
mod tests;
