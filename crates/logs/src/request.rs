//! Request lines, URLs and hosts.

use std::{borrow::Cow, net::Ipv6Addr};

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

/// An absolute URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbsoluteUrl<'a> {
    /// `http` or `https`, in any case.
    pub scheme: &'a str,
    /// Host and port, without a user.
    pub host: &'a str,
    /// Path and query. An empty path is `/` or before the query.
    pub path: &'a str,
}

impl<'a> AbsoluteUrl<'a> {
    /// Splits a URL that starts with `http://` or `https://`.
    ///
    /// ```
    /// use stockade_logs::request::AbsoluteUrl;
    ///
    /// let url = AbsoluteUrl::parse("http://ada@Example.org:80/a?b").unwrap();
    /// assert_eq!((url.scheme, url.host, url.path), ("http", "Example.org:80", "/a?b"));
    /// assert_eq!(AbsoluteUrl::parse("/a"), None);
    /// ```
    #[must_use]
    pub fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return None;
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        (!host.is_empty()).then_some(Self { scheme, host, path: if path.is_empty() { "/" } else { path } })
    }
}

/// The one form of a host: in lower case, without the port that the scheme has by default (without a scheme 80 and 443), and with an
/// IPv6 address in its shortest form and in brackets.
///
/// ```
/// use stockade_logs::request::normalize_host;
///
/// assert_eq!(normalize_host("Example.ORG:443", None), "example.org");
/// assert_eq!(normalize_host("example.org:443", Some("http")), "example.org:443");
/// assert_eq!(normalize_host("[2001:DB8:0::1]:80", None), "[2001:db8::1]");
/// ```
#[must_use]
pub fn normalize_host<'a>(host: &'a str, scheme: Option<&str>) -> Cow<'a, str> {
    let is_normal = |byte: u8| byte != b':' && !byte.is_ascii_uppercase();
    if host.bytes().all(is_normal) {
        return host.into();
    }
    if let Ok(address) = host.parse::<Ipv6Addr>() {
        return format!("[{address}]").into();
    }
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    let is_scheme = |name: &str| scheme.is_none_or(|scheme| scheme.eq_ignore_ascii_case(name));
    let is_default =
        port.is_empty() || (port == "80" && is_scheme("http")) || (port == "443" && is_scheme("https"));
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let name = match address.and_then(|address| address.parse::<Ipv6Addr>().ok()) {
        Some(address) => format!("[{address}]"),
        None => name.to_ascii_lowercase(),
    };
    if is_default { name.into() } else { format!("{name}:{port}").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_host_give_one() {
        for (host, scheme, normal) in [
            ("example.org", None, "example.org"),
            ("EXAMPLE.org", None, "example.org"),
            ("example.org:80", Some("http"), "example.org"),
            ("example.org:80", Some("https"), "example.org:80"),
            ("example.org:443", Some("HTTPS"), "example.org"),
            ("example.org:", None, "example.org"),
            ("Example.org:8080", None, "example.org:8080"),
            ("2001:db8::1", None, "[2001:db8::1]"),
            ("[2001:DB8::1]", None, "[2001:db8::1]"),
            ("[2001:db8:0:0::1]:443", None, "[2001:db8::1]"),
            ("[2001:db8::1]:8080", None, "[2001:db8::1]:8080"),
            ("[no address]", None, "[no address]"),
            ("", None, ""),
        ] {
            assert_eq!(normalize_host(host, scheme), normal, "{host}");
        }
    }

    #[test]
    fn absolute_urls_are_split() {
        for (url, split) in [
            ("http://h/a?b", Some(("http", "h", "/a?b"))),
            ("HTTPS://h", Some(("HTTPS", "h", "/"))),
            ("https://h?b", Some(("https", "h", "?b"))),
            ("https://[::1]:443/a@b", Some(("https", "[::1]:443", "/a@b"))),
            ("ftp://h/a", None),
            ("http:///a", None),
            ("/a?u=http://h/", None),
            ("h:443", None),
            ("*", None),
        ] {
            let found = AbsoluteUrl::parse(url).map(|url| (url.scheme, url.host, url.path));
            assert_eq!(found, split, "{url}");
        }
    }
}
