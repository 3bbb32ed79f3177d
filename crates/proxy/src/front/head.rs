//! Whether a request's head may be answered: pure.
//!
//! hyper has parsed it: names and values are of allowed bytes, lengths are numbers, lines are not folded.

use std::net::Ipv6Addr;

use http::{
    HeaderMap, Method, Request, StatusCode, Version,
    header::{CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING},
};
use http_body::Body;

/// A request that is not answered by the handler: what it is told instead, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the client is told.
    pub status: StatusCode,
    /// Why, in words that hold nothing of what it sent.
    pub reason: &'static str,
}

impl Refusal {
    pub(super) const fn bad(reason: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, reason }
    }

    const fn of(status: StatusCode, reason: &'static str) -> Self {
        Self { status, reason }
    }
}

/// Refuses what no handler should see.
///
/// Sources: RFC 9110 (7.2 Host, 7.4 misdirected targets, 9.3.6 CONNECT, 9.3.8 TRACE, 10.1.1 Expect), RFC 9112
/// (3.2 targets and Host, 6.1 transfer codings), RFC 9113 (8.2.2 fields of connections, 8.3.1 `:authority`).
pub fn check<B: Body>(request: &Request<B>, headers_max: usize) -> Result<(), Refusal> {
    let headers = request.headers();
    if headers.len() > headers_max {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Refusal::of(status, "too many header fields"));
    }
    if *request.method() == Method::CONNECT {
        return Err(Refusal::of(StatusCode::NOT_IMPLEMENTED, "no tunnels here"));
    }
    if *request.method() == Method::TRACE {
        return Err(Refusal::of(StatusCode::METHOD_NOT_ALLOWED, "nothing is traced here"));
    }
    check_target(request)?;
    check_host(request)?;
    // What has no body says nothing about it, in HTTP/1: hyper has looked.
    if request.body().is_end_stream() && request.version() < Version::HTTP_2 {
        return Ok(());
    }
    check_framing(headers, request.version())?;
    if headers.get(EXPECT).is_some_and(|it| !it.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Refusal::of(StatusCode::EXPECTATION_FAILED, "only 100-continue can be expected"));
    }
    Ok(())
}

/// A path, a whole address of `http` or `https`, or `*` of `OPTIONS`.
fn check_target<B>(request: &Request<B>) -> Result<(), Refusal> {
    let target = request.uri();
    let is_http = target.scheme_str().is_none_or(|scheme| scheme == "http" || scheme == "https");
    if !is_http {
        return Err(Refusal::bad("the target is neither of http nor of https"));
    }
    match target.path() {
        "*" if *request.method() == Method::OPTIONS => Ok(()),
        path if path.starts_with('/') => Ok(()),
        // `http://host?query` and `http://host` have none: it is `/`. A host alone is for CONNECT.
        "" if target.scheme().is_some() => Ok(()),
        _ => Err(Refusal::bad("the target is not a path")),
    }
}

/// One host, the same wherever it is said.
fn check_host<B>(request: &Request<B>) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::bad("there is more than one Host"));
    }
    let target = request.uri().authority();
    if target.is_some_and(|target| !is_host(target.as_str().as_bytes())) {
        return Err(Refusal::bad("the target's host is none"));
    }
    match (host, target) {
        (Some(host), _) if !is_host(host.as_bytes()) => Err(Refusal::bad("Host is none")),
        (Some(host), Some(target)) if !host.as_bytes().eq_ignore_ascii_case(target.as_str().as_bytes()) => {
            Err(Refusal::bad("Host is another than the target's"))
        }
        // In HTTP/1.1 it has to be there even if the target says it.
        (None, target)
            if request.version() == Version::HTTP_11
                || request.version() > Version::HTTP_11 && target.is_none() =>
        {
            Err(Refusal::bad("there is no Host"))
        }
        _ => Ok(()),
    }
}

/// Which bytes a name may have: more is allowed than anybody has, what is escaped or means something to a shell.
static IS_OF_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

/// A name or an address, and perhaps a port: nobody's name before it, nothing behind it.
fn is_host(bytes: &[u8]) -> bool {
    let (is_name, port) = if bytes.first() == Some(&b'[') {
        let Some(end) = bytes.iter().position(|byte| *byte == b']') else { return false };
        let address = std::str::from_utf8(&bytes[1..end]).ok().and_then(|it| it.parse::<Ipv6Addr>().ok());
        (address.is_some(), &bytes[end + 1..])
    } else {
        let end = bytes.iter().position(|byte| !IS_OF_NAME[usize::from(*byte)]).unwrap_or(bytes.len());
        (end > 0, &bytes[end..])
    };
    is_name && is_port(port)
}

/// Nothing, or a colon and a number.
fn is_port(port: &[u8]) -> bool {
    let [b':', digits @ ..] = port else { return port.is_empty() };
    let number = digits.iter().try_fold(0_u16, |number, digit| {
        let digit = char::from(*digit).to_digit(10).and_then(|digit| u16::try_from(digit).ok())?;
        number.checked_mul(10)?.checked_add(digit)
    });
    !digits.is_empty() && number.is_some()
}

/// Sized, chunked, or neither.
fn check_framing(headers: &HeaderMap, version: Version) -> Result<(), Refusal> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(Refusal::bad("there is more than one Content-Length"));
    }
    if length.is_some_and(|it| it.is_empty() || !it.as_bytes().iter().all(u8::is_ascii_digit)) {
        return Err(Refusal::bad("Content-Length is no number"));
    }
    let Some(coding) = coding else { return Ok(()) };
    if version != Version::HTTP_11 {
        return Err(Refusal::bad("Transfer-Encoding is of HTTP/1.1 only"));
    }
    if length.is_some() || codings.next().is_some() {
        return Err(Refusal::bad("it says more than once how long it is"));
    }
    if coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    Err(Refusal::of(StatusCode::NOT_IMPLEMENTED, "only chunked is understood"))
}

#[cfg(test)]
mod tests;
