//! Redirects: the request that follows one.

use http::{HeaderMap, HeaderName, Method, Uri, header};
use stockade_http::location::{AbsoluteUrl, resolve};

use crate::{endpoint::Endpoint, template::RequestTemplate};

/// Headers that are not sent to another endpoint.
const ENDPOINT_HEADERS: [HeaderName; 4] =
    [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION, header::HOST];

/// True if a status is a redirect to `Location`.
pub(crate) fn is_redirect(status: u16) -> bool {
    matches!(status, 301..=303 | 307 | 308)
}

/// The request that follows a response with this status and `Location`; `None` if the location is not an http URL.
pub(crate) fn follow_redirect(
    template: &RequestTemplate,
    status: u16,
    location: &str,
) -> Option<RequestTemplate> {
    let url = redirected(&template.url, location)?;
    let mut headers = template.headers.clone();
    if Endpoint::of_url(&url) != Endpoint::of_url(&template.url) {
        ENDPOINT_HEADERS.iter().for_each(|name| drop(headers.remove(name)));
    }
    // RFC 9110, 15.4: only 307 and 308 keep method and body.
    let keeps_method = matches!(status, 307 | 308) || matches!(template.method, Method::GET | Method::HEAD);
    if keeps_method {
        return Some(RequestTemplate { url, headers, ..template.clone() });
    }
    remove_content_headers(&mut headers);
    Some(RequestTemplate { method: Method::GET, url, headers, body: bytes::Bytes::new() })
}

fn remove_content_headers(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("content-")).cloned().collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
}

/// A `Location`, resolved against the URL of its response.
fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    let path_and_query = from.path_and_query().map_or("/", |path| path.as_str());
    let (scheme, authority) = (from.scheme_str()?, from.authority()?.as_str());
    let base = AbsoluteUrl { scheme, authority, path_and_query: path_and_query.into() };
    let AbsoluteUrl { scheme, authority, path_and_query } = resolve(&base, location)?;
    format!("{scheme}://{authority}{path_and_query}").parse().ok().filter(|to: &Uri| to.host().is_some())
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
    fn redirect_drops_credentials_for_another_host_and_the_body_for_get() {
        let mut template = RequestTemplate::new(Method::POST, "http://a.example/".parse().unwrap());
        for name in ["authorization", "cookie", "host", "content-type", "x-team"] {
            template.headers.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        template.body = "a=1".into();
        let names = |status, location| {
            let next = follow_redirect(&template, status, location).unwrap();
            let mut names: Vec<_> = next.headers.keys().map(|name| name.as_str().to_owned()).collect();
            names.sort();
            (next.method, names.join(" "), next.body.len())
        };
        assert_eq!(names(302, "/b"), (Method::GET, "authorization cookie host x-team".to_owned(), 0));
        assert_eq!(names(303, "http://b.example/"), (Method::GET, "x-team".to_owned(), 0));
        assert_eq!(names(307, "http://b.example/"), (Method::POST, "content-type x-team".to_owned(), 3));
    }
}
