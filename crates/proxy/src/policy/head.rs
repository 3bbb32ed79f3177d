//! Which requests are refused before anything else is made of them: those that two programs could understand in two
//! ways (RFC 9112, 3.2, 6.3 and 11.2), and those that a cache in front of an origin has no answer to.
//!
//! hyper refuses some of these itself, before there is a request to look at: white space before a colon, folded
//! lines, control characters in the request line; and a [`HeaderValue`] cannot hold any. What it leaves is looked at
//! here: it removes no field, so that `Host`, `Content-Length` and `Transfer-Encoding` are visible as they came. In
//! HTTP/2 the authority stands in the URI, and `Transfer-Encoding` is malformed (RFC 9113, 8.2.2).

use std::net::Ipv6Addr;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE},
};

use super::{field, hop};

/// Why a request is refused, and with which status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 400, 405, 501 or 505.
    pub status: StatusCode,
    /// In one line, without anything that the client has sent.
    pub reason: &'static str,
}

impl Refusal {
    const fn bad(reason: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, reason }
    }
}

/// What a request is about, once it can be understood in one way only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Host, and port if it was told; without user information. In the letters of the client.
    pub authority: &'a str,
    /// What [`super::key::Key::of`] takes.
    pub path_and_query: &'a str,
}

/// Of a request's head: what it is about, or why it is refused. The connection is closed after a refusal.
///
/// Requests of HTTP/1.0 without `Host` are about `default_host`, if there is one.
pub fn target<'a>(
    method: &Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    default_host: Option<&'a str>,
) -> Result<Target<'a>, Refusal> {
    match *method {
        Method::CONNECT => {
            return Err(Refusal { status: StatusCode::NOT_IMPLEMENTED, reason: "this is no tunnel" });
        }
        Method::TRACE => {
            return Err(Refusal {
                status: StatusCode::METHOD_NOT_ALLOWED,
                reason: "TRACE shows what others added",
            });
        }
        _ => {}
    }
    framing(version, headers)?;
    fields(version, headers)?;
    let authority = authority(uri, version, headers, default_host)?;
    let path_and_query = path_and_query(method, uri)?;
    Ok(Target { authority, path_and_query })
}

/// How the body is delimited must be told in one way.
fn framing(version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(TRANSFER_ENCODING) {
        if version == Version::HTTP_2 {
            return Err(Refusal::bad("Transfer-Encoding in HTTP/2"));
        }
        if version < Version::HTTP_11 {
            return Err(Refusal::bad("Transfer-Encoding before HTTP/1.1"));
        }
        if headers.contains_key(CONTENT_LENGTH) {
            return Err(Refusal::bad("both Transfer-Encoding and Content-Length"));
        }
        let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
        let (Some(only), None) = (lines.next(), lines.next()) else {
            return Err(Refusal::bad("more than one Transfer-Encoding"));
        };
        if !only.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal {
                status: StatusCode::NOT_IMPLEMENTED,
                reason: "a Transfer-Encoding other than chunked",
            });
        }
    }
    if headers.contains_key(CONTENT_LENGTH) {
        let mut lines = headers.get_all(CONTENT_LENGTH).iter();
        let first = lines.next().map_or(&b""[..], HeaderValue::as_bytes);
        if field::position(first).is_none() {
            return Err(Refusal::bad("Content-Length is no number"));
        }
        if lines.any(|line| line.as_bytes() != first) {
            return Err(Refusal::bad("several lengths in Content-Length"));
        }
    }
    Ok(())
}

/// In HTTP/2, no field may be about a connection.
fn fields(version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
    if version == Version::HTTP_2 {
        const OF_A_CONNECTION: [HeaderName; 2] = [CONNECTION, UPGRADE];
        let has_others =
            OF_A_CONNECTION.iter().chain(&hop::ONLY_HTTP1).any(|name| headers.contains_key(name));
        let te = headers.get(TE).is_none_or(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
        if has_others || !te {
            return Err(Refusal::bad("a field of HTTP/1 connections in HTTP/2"));
        }
    }
    Ok(())
}

/// Whom it is for: told once, or twice alike.
fn authority<'a>(
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    default_host: Option<&'a str>,
) -> Result<&'a str, Refusal> {
    let mut lines = headers.get_all(HOST).iter();
    let host = match (lines.next(), lines.next()) {
        (None, _) => None,
        (Some(host), None) => Some(host_of(host.as_bytes())?),
        _ => return Err(Refusal::bad("more than one Host")),
    };
    let of_uri = match uri.authority() {
        Some(authority) => Some(host_of(authority.as_str().as_bytes())?),
        None => None,
    };
    if host.is_none() && version == Version::HTTP_11 {
        return Err(Refusal::bad("no Host"));
    }
    if let (Some(of_uri), Some(host)) = (of_uri, host)
        && !is_alike(uri, of_uri, host)
    {
        return Err(Refusal::bad("Host is not that of the request's target"));
    }
    let default = default_host.filter(|_| version < Version::HTTP_11);
    of_uri.or(host).or(default).ok_or(Refusal::bad("no Host"))
}

/// Whether two authorities mean one, under the scheme of the target.
fn is_alike(uri: &Uri, one: &str, other: &str) -> bool {
    let default = if uri.scheme_str() == Some("https") { ":443" } else { ":80" };
    without_port(one, default).eq_ignore_ascii_case(without_port(other, default))
}

fn without_port<'a>(authority: &'a str, default: &str) -> &'a str {
    authority.strip_suffix(default).or(authority.strip_suffix(':')).unwrap_or(authority)
}

/// Host and port, and nothing else: no user information, path, list or white space.
fn host_of(value: &[u8]) -> Result<&str, Refusal> {
    const BAD: Refusal = Refusal::bad("Host is no host");
    let is_of_a_host = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'[' | b']' | b'%')
    };
    if value.is_empty() || !value.iter().all(is_of_a_host) {
        return Err(BAD);
    }
    let text = std::str::from_utf8(value).map_err(|_| BAD)?;
    let (is_host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or(BAD)?;
            (address.parse::<Ipv6Addr>().is_ok(), port)
        }
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (!name.is_empty() && !name.contains(['[', ']']), port)
        }
    };
    let is_port = match port.strip_prefix(':') {
        None => port.is_empty(),
        Some("") => true,
        Some(digits) => digits.bytes().all(|digit| digit.is_ascii_digit()) && digits.parse::<u16>().is_ok(),
    };
    if is_host && is_port { Ok(text) } else { Err(BAD) }
}

/// What is asked for: a path, or `*` of `OPTIONS`.
fn path_and_query<'a>(method: &Method, uri: &'a Uri) -> Result<&'a str, Refusal> {
    let text = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    if uri.scheme_str().is_some_and(|scheme| scheme != "http" && scheme != "https") {
        return Err(Refusal::bad("the target's scheme is not HTTP"));
    }
    match text.as_bytes().first() {
        None => Ok("/"),
        Some(b'/' | b'?') => Ok(text),
        Some(b'*') if text == "*" && *method == Method::OPTIONS => Ok(text),
        _ => Err(Refusal::bad("the target is no path")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::testing::{Lines, head};

    type Told = Result<(String, String), u16>;

    fn of(method: &str, uri: &str, version: Version, lines: Lines<'_>) -> Told {
        let (method, uri) = (Method::from_bytes(method.as_bytes()).unwrap(), uri.parse().unwrap());
        target(&method, &uri, version, &head(lines), Some("default"))
            .map(|target| (target.authority.to_owned(), target.path_and_query.to_owned()))
            .map_err(|refusal| refusal.status.as_u16())
    }

    #[expect(clippy::unnecessary_wraps, reason = "what `of` returns")]
    fn ok(authority: &str, path: &str) -> Told {
        Ok((authority.to_owned(), path.to_owned()))
    }

    #[test]
    fn targets() {
        const ONE: Version = Version::HTTP_11;
        const OLD: Version = Version::HTTP_10;
        const TWO: Version = Version::HTTP_2;
        let host = ("host", "a");
        let table: [(&str, &str, Version, Lines<'_>, Told); 30] = [
            ("GET", "/p?q", ONE, &[host], ok("a", "/p?q")),
            ("GET", "/", ONE, &[("host", "A.b:8080")], ok("A.b:8080", "/")),
            ("GET", "/", ONE, &[("host", "[::1]:80")], ok("[::1]:80", "/")),
            ("GET", "/", ONE, &[("host", "a:")], ok("a:", "/")),
            ("GET", "/", ONE, &[], Err(400)),
            ("GET", "/", ONE, &[("host", "")], Err(400)),
            ("GET", "/", ONE, &[host, host], Err(400)),
            ("GET", "/", OLD, &[], ok("default", "/")),
            ("GET", "/", OLD, &[host], ok("a", "/")),
            ("GET", "http://a/p", ONE, &[host], ok("a", "/p")),
            ("GET", "http://A:80/p", ONE, &[host], ok("A:80", "/p")),
            ("GET", "https://a:443/p", ONE, &[host], ok("a:443", "/p")),
            ("GET", "http://a", ONE, &[host], ok("a", "/")),
            ("GET", "http://a/p", ONE, &[], Err(400)),
            ("GET", "http://b/p", ONE, &[host], Err(400)),
            ("GET", "http://a:81/p", ONE, &[host], Err(400)),
            ("GET", "http://u@a/p", ONE, &[host], Err(400)),
            ("GET", "ftp://a/p", ONE, &[host], Err(400)),
            ("GET", "http://a/p", TWO, &[], ok("a", "/p")),
            ("GET", "http://a/p", TWO, &[("host", "b")], Err(400)),
            ("GET", "http://a/p", TWO, &[("connection", "close")], Err(400)),
            ("GET", "http://a/p", TWO, &[("te", "gzip")], Err(400)),
            ("GET", "http://a/p", TWO, &[("te", "trailers")], ok("a", "/p")),
            ("GET", "/p", TWO, &[], Err(400)),
            ("GET", "/p", TWO, &[host], ok("a", "/p")),
            ("CONNECT", "a:80", ONE, &[host], Err(501)),
            ("TRACE", "/", ONE, &[host], Err(405)),
            ("OPTIONS", "*", ONE, &[host], ok("a", "*")),
            ("GET", "*", ONE, &[host], Err(400)),
            ("FOO", "/", ONE, &[host], ok("a", "/")),
        ];
        for (method, uri, version, lines, expected) in table {
            assert_eq!(of(method, uri, version, lines), expected, "{method} {uri} {version:?} {lines:?}");
        }
        for host in [
            "u@a", "a/b", "a b", "a,b", "a:b", "a:99999", "a:8 0", "a?b", "a#b", ":80", "[::1", "[::1]a",
            "[a]", "[]", "a]", "::1", "a:1:2", "a\tb", "a\u{fc}",
        ] {
            assert_eq!(of("GET", "/", ONE, &[("host", host)]), Err(400), "{host}");
        }
    }

    #[test]
    fn framings() {
        let one = Version::HTTP_11;
        let table: [(Version, Lines<'_>, Option<u16>); 17] = [
            (one, &[("content-length", "5")], None),
            (one, &[("content-length", "5"), ("content-length", "5")], None),
            (one, &[("content-length", "5"), ("content-length", "6")], Some(400)),
            (one, &[("content-length", "5, 5")], Some(400)),
            (one, &[("content-length", "+5")], Some(400)),
            (one, &[("content-length", "-5")], Some(400)),
            (one, &[("content-length", "0x5")], Some(400)),
            (one, &[("content-length", "")], Some(400)),
            (one, &[("content-length", "99999999999999999999")], Some(400)),
            (one, &[("transfer-encoding", "chunked")], None),
            (one, &[("transfer-encoding", "Chunked")], None),
            (one, &[("transfer-encoding", "chunked"), ("content-length", "5")], Some(400)),
            (one, &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], Some(400)),
            (one, &[("transfer-encoding", "gzip, chunked")], Some(501)),
            (one, &[("transfer-encoding", "xchunked")], Some(501)),
            (Version::HTTP_10, &[("transfer-encoding", "chunked")], Some(400)),
            (Version::HTTP_2, &[("transfer-encoding", "chunked")], Some(400)),
        ];
        for (version, lines, expected) in table {
            let lines = [lines, &[("host", "a")]].concat();
            assert_eq!(of("POST", "http://a/", version, &lines).err(), expected, "{version:?} {lines:?}");
        }
        assert_eq!(of("GET", "/", one, &[("host", "a"), ("x", "\u{80}\u{ff}")]), ok("a", "/"));
    }

    proptest! {
        #[test]
        fn what_is_let_through_is_a_host(host in "[ -~]{0,20}", length in "[0-9+, ]{0,6}") {
            if let Ok((authority, _)) = of("GET", "/", Version::HTTP_11, &[("host", &host), ("content-length", &length)]) {
                prop_assert_eq!(&authority, &host);
                prop_assert!(!host.contains(['@', '/', ' ', ',', '?', '#']));
                prop_assert!(length.bytes().all(|digit| digit.is_ascii_digit()));
            }
        }
    }
}
