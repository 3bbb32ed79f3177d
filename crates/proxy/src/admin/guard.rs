//! Host and cross-site checks of admin requests; no I/O.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, Method, StatusCode,
    header::{HOST, ORIGIN},
    request::Parts,
    uri::Authority,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdminRejection {
    pub(super) status: StatusCode,
    pub(super) text: &'static str,
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses unknown host names (DNS rebinding) and cross-site requests with unsafe methods (CSRF). `hosts` are accepted
/// beside IP addresses and localhost.
pub(super) fn check(head: &Parts, hosts: &[String]) -> Result<(), AdminRejection> {
    let authority = authority(head)
        .ok_or(AdminRejection { status: StatusCode::BAD_REQUEST, text: "a request has one Host\n" })?;
    if !is_known_host(&authority, hosts) {
        return Err(AdminRejection {
            status: StatusCode::MISDIRECTED_REQUEST,
            text: "unknown Host: write it into [admin] hosts\n",
        });
    }
    if head.method != Method::GET && head.method != Method::HEAD && is_cross_site(&head.headers, &authority) {
        return Err(AdminRejection {
            status: StatusCode::FORBIDDEN,
            text: "a page of another site must not do this\n",
        });
    }
    Ok(())
}

/// The request's host; `None` without one or with several.
fn authority(head: &Parts) -> Option<Authority> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() {
        return None;
    }
    let host: Option<Authority> = host.and_then(|host| host.to_str().ok()?.parse().ok());
    match head.uri.authority() {
        // The Host of an absolute-form target has to be the same.
        Some(whole) => (host.as_ref() == Some(whole)).then_some(host?),
        None => host,
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
    use http::Request;

    use super::*;

    #[test]
    fn unknown_hosts_and_cross_site_posts_are_refused() {
        let hosts = ["admin.example.org".to_owned()];
        for (method, headers, status) in [
            ("GET", "host=127.0.0.1:81", 200),
            ("GET", "host=[::1]:81", 200),
            ("GET", "host=LocalHost", 200),
            ("GET", "host=10.1.2.3:81", 200),
            ("GET", "host=Admin.Example.org.", 200),
            ("GET", "host=evil.example.org", 421),
            ("GET", "host=127.0.0.1.evil.org", 421),
            ("GET", "host=localhost.evil.org", 421),
            ("GET", "", 400),
            ("GET", "host=", 400),
            ("GET", "host=a b", 400),
            ("GET", "host=127.0.0.1&host=127.0.0.1", 400),
            // A cross-site GET changes nothing, and the browser hides its response from the page.
            ("GET", "host=127.0.0.1:81&origin=http://evil.org", 200),
            ("POST", "host=127.0.0.1:81", 200),
            ("POST", "host=127.0.0.1:81&origin=http://127.0.0.1:81&sec-fetch-site=same-origin", 200),
            ("POST", "host=127.0.0.1:81&sec-fetch-site=none", 200),
            ("POST", "host=127.0.0.1:81&origin=http://127.0.0.1:82", 403),
            ("POST", "host=127.0.0.1:81&origin=http://evil.org", 403),
            ("POST", "host=127.0.0.1:81&origin=null", 403),
            ("POST", "host=127.0.0.1:81&origin=http://127.0.0.1:81&origin=http://evil.org", 403),
            ("POST", "host=127.0.0.1:81&sec-fetch-site=cross-site", 403),
            ("POST", "host=127.0.0.1:81&sec-fetch-site=same-site", 403),
        ] {
            let mut request = Request::builder().method(method).uri("/stats");
            for (name, value) in headers.split('&').filter_map(|header| header.split_once('=')) {
                request = request.header(name, value);
            }
            let (head, ()) = request.body(()).expect("a request").into_parts();
            let status_found = check(&head, &hosts).map_or_else(|refusal| refusal.status.as_u16(), |()| 200);
            assert_eq!(status_found, status, "{method} {headers}");
        }
        let whole = |host: &str| {
            let request = Request::get("http://127.0.0.1:81/stats").header("host", host).body(());
            check(&request.expect("a request").into_parts().0, &hosts).is_ok()
        };
        assert!(whole("127.0.0.1:81") && !whole("localhost:81"));
    }
}
