//! Request lines.

use memchr::memchr_iter;

/// The method and the URL of a request, if it is one: not `-`, and not the bytes of a TLS handshake.
///
/// ```
/// use stockade_logs::request;
///
/// assert_eq!(request::split("GET /a?b HTTP/1.1"), Some(("GET", "/a?b")));
/// assert_eq!(request::split("-"), None);
/// ```
#[must_use]
pub fn split(line: &str) -> Option<(&str, &str)> {
    let mut spaces = memchr_iter(b' ', line.as_bytes());
    let (first, second, third) = (spaces.next()?, spaces.next()?, spaces.next());
    let (method, url) = (&line[..first], &line[first + 1..second]);
    let is_whole = third.is_none() && line[second + 1..].starts_with("HTTP/");
    (is_whole && is_request(method, url)).then_some((method, url))
}

/// True if these are the method and the URL of a request. The URL may still have characters that no URL has.
#[must_use]
pub fn is_request(method: &str, url: &str) -> bool {
    is_method(method) && !url.is_empty() && url != "-"
}

pub(crate) fn is_method(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte == b'-' || byte == b'_';
    !text.is_empty() && text != "-" && text.bytes().all(is_part)
}
