//! Where a redirect leads, and what is asked there.

use http::{HeaderMap, HeaderName, Method, Uri, header};

use crate::{endpoint::Endpoint, target::Target};

/// Not for another host to see.
const OF_THE_HOST: [HeaderName; 4] =
    [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION, header::HOST];

/// Whether a status sends whoever asked somewhere else.
pub(crate) fn redirects(status: u16) -> bool {
    matches!(status, 301..=303 | 307 | 308)
}

/// What is asked next, where an answer with this status and `Location` redirects; none: it leads nowhere.
pub(crate) fn followed(target: &Target, status: u16, location: &str) -> Option<Target> {
    let url = redirected(&target.url, location)?;
    let mut headers = target.headers.clone();
    if Endpoint::of(&url) != Endpoint::of(&target.url) {
        OF_THE_HOST.iter().for_each(|name| drop(headers.remove(name)));
    }
    // RFC 9110, 15.4: only these two ask for the same again, with its body.
    let is_same = matches!(status, 307 | 308) || matches!(target.method, Method::GET | Method::HEAD);
    if is_same {
        return Some(Target { url, headers, ..target.clone() });
    }
    without_body(&mut headers);
    Some(Target { method: Method::GET, url, headers, body: bytes::Bytes::new() })
}

fn without_body(headers: &mut HeaderMap) {
    let of_body: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("content-")).cloned().collect();
    of_body.iter().for_each(|name| drop(headers.remove(name)));
}

/// A `Location`, seen from where it came.
fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    if let Ok(to) = location.parse::<Uri>()
        && to.host().is_some()
        && matches!(to.scheme_str(), Some("http" | "https"))
    {
        return Some(to);
    }
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let to = match location {
        other if other.starts_with("//") => format!("{scheme}:{other}"),
        path if path.starts_with('/') => format!("{scheme}://{authority}{path}"),
        query if query.starts_with('?') => format!("{scheme}://{authority}{}{query}", from.path()),
        name if !name.contains(':') => {
            let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{authority}{folder}/{name}")
        }
        _ => return None,
    };
    to.parse().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn redirects_lead_where_they_say() {
        let from: Uri = "http://a.example:8080/x/y?z".parse().unwrap();
        for (location, to) in [
            ("/p?q", "http://a.example:8080/p?q"),
            ("p", "http://a.example:8080/x/p"),
            ("?q", "http://a.example:8080/x/y?q"),
            ("//b.example/p", "http://b.example/p"),
            ("https://b.example/p#there", "https://b.example/p"),
        ] {
            assert_eq!(redirected(&from, location).unwrap().to_string(), to, "{location}");
        }
        for nowhere in ["ftp://b.example/", "javascript:alert(1)", "http://"] {
            assert_eq!(redirected(&from, nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn another_host_sees_no_secrets_and_another_method_has_no_body() {
        let mut target = Target::new(Method::POST, "http://a.example/".parse().unwrap());
        for name in ["authorization", "cookie", "host", "content-type", "x-team"] {
            target.headers.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        target.body = "a=1".into();
        let names = |status, location| {
            let next = followed(&target, status, location).unwrap();
            let mut names: Vec<_> = next.headers.keys().map(|name| name.as_str().to_owned()).collect();
            names.sort();
            (next.method, names.join(" "), next.body.len())
        };
        assert_eq!(names(302, "/b"), (Method::GET, "authorization cookie host x-team".to_owned(), 0));
        assert_eq!(names(303, "http://b.example/"), (Method::GET, "x-team".to_owned(), 0));
        assert_eq!(names(307, "http://b.example/"), (Method::POST, "content-type x-team".to_owned(), 3));
    }
}
