//! The guard of pages that are for the operator alone. Pure.
//!
//! A page of another site may send a request here from the operator's browser. The browser states the host always, and for which
//! site it sends the request where it trusts the connection.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, Request, Uri, Version,
    header::{HOST, ORIGIN},
    request::Parts,
    uri::Authority,
};
use subtle::ConstantTimeEq;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The fault of a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardFault {
    /// It has no valid host, or several.
    Host,
    /// Its host may be a name of another site that leads here (DNS rebinding).
    UnknownHost,
    /// A page of another site sent it.
    OtherSite,
}

/// The parts of a request that say where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    version: Version,
    target: &'a Uri,
    headers: &'a HeaderMap,
}

impl<'a> From<&'a Parts> for Sender<'a> {
    fn from(head: &'a Parts) -> Self {
        Self { version: head.version, target: &head.uri, headers: &head.headers }
    }
}

impl<'a, B> From<&'a Request<B>> for Sender<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self { version: request.version(), target: request.uri(), headers: request.headers() }
    }
}

/// Admits a request whose host is an IP address, `localhost` or one of `hosts`. With `has_effect` a page of another site may not send
/// it; without one the browser hides its response from that page.
pub fn admit<'a>(
    sender: impl Into<Sender<'a>>,
    hosts: &[String],
    has_effect: bool,
) -> Result<(), GuardFault> {
    let sender = sender.into();
    // Only a program sends a request of HTTP/1.0 without a host.
    if sender.version <= Version::HTTP_10 && sender.hosts().next().is_none() {
        return Ok(());
    }
    let authority = sender.host().ok_or(GuardFault::Host)?;
    if !is_known_host(&authority, hosts) {
        return Err(GuardFault::UnknownHost);
    }
    if has_effect && is_cross_site(sender.headers, &authority) { Err(GuardFault::OtherSite) } else { Ok(()) }
}

/// Compares a token in a time that shows its length, and nothing else of it.
#[must_use]
pub fn is_token(shown: &[u8], token: &[u8]) -> bool {
    shown.ct_eq(token).into()
}

impl Sender<'_> {
    /// Each host that the request names; `None`: it is malformed.
    fn hosts(&self) -> impl Iterator<Item = Option<Authority>> {
        let fields = self.headers.get_all(HOST).iter();
        let fields = fields.map(|host| host.to_str().ok()?.parse().ok());
        // The target of a request names a host in HTTP/2, and in place of a path.
        self.target.authority().cloned().map(Some).into_iter().chain(fields)
    }

    /// The one host; `None` without one, or with several.
    fn host(&self) -> Option<Authority> {
        let host = self.hosts().next()??;
        let is_one = self.headers.get_all(HOST).iter().nth(1).is_none()
            && self.hosts().all(|other| other.as_ref() == Some(&host));
        (is_one && !host.as_str().contains('@')).then_some(host)
    }
}

fn is_known_host(authority: &Authority, hosts: &[String]) -> bool {
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost")
        // An IP address cannot be rebound by DNS.
        || bare.parse::<IpAddr>().is_ok()
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(host.trim_end_matches('.')))
}

/// True if `Origin` or `Sec-Fetch-Site` names another site.
fn is_cross_site(headers: &HeaderMap, authority: &Authority) -> bool {
    let is_other = |origin: &[u8]| {
        let from = str::from_utf8(origin).ok().and_then(|origin| origin.split_once("://"));
        from.is_none_or(|(_, from)| !from.eq_ignore_ascii_case(authority.as_str()))
    };
    let is_foreign = |site: &[u8]| ![b"same-origin".as_slice(), b"none"].contains(&site);
    headers.get_all(ORIGIN).iter().any(|origin| is_other(origin.as_bytes()))
        || headers.get_all(SEC_FETCH_SITE).iter().any(|site| is_foreign(site.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_hosts_and_requests_of_other_sites_are_refused() {
        use GuardFault::{Host, OtherSite, UnknownHost};
        let hosts = ["admin.example.org".to_owned()];
        for (has_effect, headers, expected) in [
            (false, "host=127.0.0.1:81", Ok(())),
            (false, "host=[::1]:81", Ok(())),
            (false, "host=LocalHost", Ok(())),
            (false, "host=10.1.2.3:81", Ok(())),
            (false, "host=Admin.Example.org.", Ok(())),
            (false, "host=evil.example.org", Err(UnknownHost)),
            (false, "host=127.0.0.1.evil.org", Err(UnknownHost)),
            (false, "host=localhost.evil.org", Err(UnknownHost)),
            (false, "", Err(Host)),
            (false, "host=", Err(Host)),
            (false, "host=a b", Err(Host)),
            (false, "host=me@127.0.0.1", Err(Host)),
            (false, "host=127.0.0.1&host=127.0.0.1", Err(Host)),
            // A GET changes nothing, and the browser hides its response from the page.
            (false, "host=127.0.0.1:81&origin=http://evil.org", Ok(())),
            (true, "host=127.0.0.1:81", Ok(())),
            (true, "host=127.0.0.1:81&origin=http://127.0.0.1:81&sec-fetch-site=same-origin", Ok(())),
            (true, "host=127.0.0.1:81&sec-fetch-site=none", Ok(())),
            (true, "host=127.0.0.1:81&origin=http://127.0.0.1:82", Err(OtherSite)),
            (true, "host=127.0.0.1:81&origin=http://evil.org", Err(OtherSite)),
            (true, "host=127.0.0.1:81&origin=null", Err(OtherSite)),
            (true, "host=127.0.0.1:81&origin=http://127.0.0.1:81&origin=http://evil.org", Err(OtherSite)),
            (true, "host=127.0.0.1:81&sec-fetch-site=cross-site", Err(OtherSite)),
            (true, "host=127.0.0.1:81&sec-fetch-site=same-site", Err(OtherSite)),
        ] {
            let mut request = Request::builder().uri("/stats");
            for (name, value) in headers.split('&').filter_map(|header| header.split_once('=')) {
                request = request.header(name, value);
            }
            let (head, ()) = request.body(()).expect("a request").into_parts();
            assert_eq!(admit(&head, &hosts, has_effect), expected, "{has_effect} {headers}");
        }
    }

    #[test]
    fn host_of_the_target_is_that_of_the_field() {
        let admitted = |version, uri: &str, host: Option<&str>| {
            let request = Request::get(uri).version(version);
            let request = host.into_iter().fold(request, |request, host| request.header("host", host));
            admit(&request.body(()).expect("a request").into_parts().0, &[], true)
        };
        let whole = "http://127.0.0.1:81/stats";
        assert_eq!(admitted(Version::HTTP_11, whole, Some("127.0.0.1:81")), Ok(()));
        assert_eq!(admitted(Version::HTTP_11, whole, Some("localhost:81")), Err(GuardFault::Host));
        assert_eq!(admitted(Version::HTTP_2, whole, None), Ok(()));
        assert_eq!(admitted(Version::HTTP_2, "http://evil.org/", None), Err(GuardFault::UnknownHost));
        assert_eq!(admitted(Version::HTTP_10, "/stats", None), Ok(()));
        assert_eq!(admitted(Version::HTTP_10, "/stats", Some("evil.org")), Err(GuardFault::UnknownHost));
    }

    #[test]
    fn token_is_the_whole_one() {
        for (shown, is_admitted) in
            [("open-sesame", true), ("open-sesam", false), ("open-sesameX", false), ("", false)]
        {
            assert_eq!(is_token(shown.as_bytes(), b"open-sesame"), is_admitted, "{shown}");
        }
    }
}
