//! Who may ask, as far as a browser or a name is concerned: pure.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, Method, StatusCode,
    header::{HOST, ORIGIN},
    request::Parts,
    uri::Authority,
};

/// A request that is not answered, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) text: &'static str,
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses who comes by a name that is not ours, and pages of other sites that would change something. `hosts` are the
/// names that are ours beside addresses and localhost.
pub(super) fn check(head: &Parts, hosts: &[String]) -> Result<(), Refusal> {
    let authority = authority(head)
        .ok_or(Refusal { status: StatusCode::BAD_REQUEST, text: "a request has one Host\n" })?;
    if !is_ours(&authority, hosts) {
        return Err(Refusal {
            status: StatusCode::MISDIRECTED_REQUEST,
            text: "this Host is not known here: write it into [admin] hosts\n",
        });
    }
    if head.method != Method::GET && head.method != Method::HEAD && is_cross_site(&head.headers, &authority) {
        return Err(Refusal { status: StatusCode::FORBIDDEN, text: "no page of another site may do this\n" });
    }
    Ok(())
}

/// Who is asked; `None`: nobody, or several.
fn authority(head: &Parts) -> Option<Authority> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() {
        return None;
    }
    let host: Option<Authority> = host.and_then(|host| host.to_str().ok()?.parse().ok());
    match head.uri.authority() {
        // Who asks with a whole URL means that; its Host has to be the same.
        Some(whole) => (host.as_ref() == Some(whole)).then_some(host?),
        None => host,
    }
}

fn is_ours(authority: &Authority, hosts: &[String]) -> bool {
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost")
        // Nobody can make an address point to another.
        || bare.parse::<IpAddr>().is_ok()
        || hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host.trim_end_matches('.')))
}

/// Whether a browser asks for a page of another site: it says where the page is from.
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
    fn names_of_others_and_pages_of_others_are_refused() {
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
            // Following a link is no harm; reading the answer is what browsers do not let other pages do.
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
            let said = check(&head, &hosts).map_or_else(|refusal| refusal.status.as_u16(), |()| 200);
            assert_eq!(said, status, "{method} {headers}");
        }
        let whole = |host: &str| {
            let request = Request::get("http://127.0.0.1:81/stats").header("host", host).body(());
            check(&request.expect("a request").into_parts().0, &hosts).is_ok()
        };
        assert!(whole("127.0.0.1:81") && !whole("localhost:81"));
    }
}
