//! Whether a shared cache may store a response (RFC 9111, 3).

use http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, EXPIRES, SET_COOKIE, VARY},
};
use thiserror::Error;

use super::{
    directives::{RequestDirectives, ResponseDirectives},
    freshness::is_heuristically_cacheable,
    vary::Vary,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum NotStorable {
    /// 1xx.
    #[error("interim response")]
    Interim,
    /// Above 599 (RFC 9110, 15).
    #[error("invalid status")]
    InvalidStatus,
    /// 206.
    #[error("partial response")]
    Partial,
    /// 304 to an unconditional request.
    #[error("304 to an unconditional request")]
    NotModified,
    /// `no-store` of the request.
    #[error("no-store of the request")]
    RequestNoStore,
    /// `no-store` of the response.
    #[error("no-store")]
    NoStore,
    /// `must-understand` with an unknown status.
    #[error("must-understand with an unknown status")]
    NotUnderstood,
    #[error("private")]
    Private,
    /// The request had credentials, and the response does not declare that it may be shared.
    #[error("request with credentials")]
    Credentials,
    /// The response sets a cookie: one user's session in another user's browser is worse than a miss. `public` does not change that,
    /// since frameworks add cookies to pages that their authors have marked. Stricter than the standard (RFC 9111, 7.3), as nginx
    /// and Varnish are.
    #[error("sets a cookie")]
    Cookie,
    /// `Vary: *`.
    #[error("Vary: *")]
    VariesOnAnything,
    /// The status is stored only with a declared lifetime.
    #[error("status without a lifetime")]
    Status,
}

/// A GET and its response.
#[derive(Clone, Copy, Debug)]
pub struct GetExchange<'a> {
    pub request: &'a HeaderMap,
    pub status: StatusCode,
    pub response: &'a HeaderMap,
}

/// The settings of the operator for a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperatorRules {
    /// It is stored with its cookies.
    pub stores_cookies: bool,
    /// It has a lifetime here, whether or not the origin states one.
    pub gives_lifetime: bool,
}

/// Decides if the response may be stored. The caller makes sure that its body is complete.
pub fn storable(
    exchange: &GetExchange<'_>,
    request_directives: &RequestDirectives,
    directives: &ResponseDirectives,
    rules: OperatorRules,
) -> Result<(), NotStorable> {
    let GetExchange { request, status, response } = *exchange;
    match status {
        status if status.is_informational() => return Err(NotStorable::Interim),
        status if status.as_u16() > 599 => return Err(NotStorable::InvalidStatus),
        StatusCode::PARTIAL_CONTENT => return Err(NotStorable::Partial),
        StatusCode::NOT_MODIFIED => return Err(NotStorable::NotModified),
        _ => {}
    }
    if request_directives.no_store {
        return Err(NotStorable::RequestNoStore);
    }
    let is_understood = is_understood(status);
    if directives.must_understand && !is_understood {
        return Err(NotStorable::NotUnderstood);
    }
    if directives.no_store && !directives.must_understand {
        return Err(NotStorable::NoStore);
    }
    if directives.private.is_whole() {
        return Err(NotStorable::Private);
    }
    let is_shared = directives.public || directives.s_maxage.is_some();
    if request.contains_key(AUTHORIZATION) && !is_shared && !directives.must_revalidate {
        return Err(NotStorable::Credentials);
    }
    let is_stripped = directives.private.fields().contains(&SET_COOKIE)
        || directives.no_cache.fields().contains(&SET_COOKIE);
    if response.contains_key(SET_COOKIE) && !(rules.stores_cookies || is_stripped) {
        return Err(NotStorable::Cookie);
    }
    if response.contains_key(VARY) && Vary::of(response) == Vary::Any {
        return Err(NotStorable::VariesOnAnything);
    }
    let has_lifetime = rules.gives_lifetime
        || directives.lifetime().is_some()
        || (!directives.is_targeted && response.contains_key(EXPIRES));
    if !(has_lifetime || directives.public || is_heuristically_cacheable(status)) {
        return Err(NotStorable::Status);
    }
    Ok(())
}

/// True if the cache understands the status: those of RFC 9110 and its well-known extensions.
#[must_use]
pub fn is_understood(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200..=205 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421..=426 | 428 | 429 | 431 | 451 | 500..=505 | 511
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{Lines, head};

    fn get(request: Lines<'_>, status: u16, response: Lines<'_>) -> Result<(), NotStorable> {
        let (request, response) = (head(request), head(response));
        let targets = [http::HeaderName::from_static("cdn-cache-control")];
        let status = StatusCode::from_u16(status).unwrap();
        let exchange = GetExchange { request: &request, status, response: &response };
        let directives = ResponseDirectives::read(&response, &targets);
        storable(&exchange, &RequestDirectives::read(&request), &directives, OperatorRules::default())
    }

    fn control(value: &str) -> [(&'static str, &str); 1] {
        [("cache-control", value)]
    }

    /// http-tests: `cc-response`, `cdn-cache-control` and `authorization`.
    #[test]
    fn cache_control() {
        for (value, expected) in [
            ("max-age=3600", Ok(())),
            ("private, max-age=3600", Err(NotStorable::Private)),
            ("private=\"a\", max-age=3600", Ok(())),
            ("no-store", Err(NotStorable::NoStore)),
            ("max-age=10000, no-store", Err(NotStorable::NoStore)),
            ("no-cache", Ok(())),
            ("max-age=3600, no-store, must-understand", Ok(())),
            ("max-age=3600, must-understand, private", Err(NotStorable::Private)),
        ] {
            assert_eq!(get(&[], 200, &control(value)), expected, "{value}");
        }
        let no_store = [("cache-control", "no-store"), ("cdn-cache-control", "max-age=10000")];
        assert_eq!(get(&[], 200, &no_store), Ok(()));
        let targeted = [("cache-control", "max-age=10000"), ("cdn-cache-control", "no-store")];
        assert_eq!(get(&[], 200, &targeted), Err(NotStorable::NoStore));
        let broken = [("cache-control", "no-store"), ("cdn-cache-control", "max-age=10000, &&&&&")];
        assert_eq!(get(&[], 200, &broken), Err(NotStorable::NoStore));
        assert_eq!(get(&control("no-store"), 200, &control("max-age=1")), Err(NotStorable::RequestNoStore));
        for (value, expected) in [
            ("max-age=3600", Err(NotStorable::Credentials)),
            ("max-age=3600, public", Ok(())),
            ("max-age=3600, must-revalidate", Ok(())),
            ("s-maxage=3600", Ok(())),
            ("s-maxage=3600, private", Err(NotStorable::Private)),
        ] {
            assert_eq!(get(&[("authorization", "FOO")], 200, &control(value)), expected, "{value}");
        }
    }

    /// http-tests: `status` and `heuristic-freshness`.
    #[test]
    fn statuses() {
        let fresh = control("max-age=100000");
        let understand = control("max-age=3600, no-store, must-understand");
        for status in
            [200, 203, 204, 299, 301, 302, 303, 307, 308, 400, 404, 410, 499, 500, 502, 503, 504, 599]
        {
            assert_eq!(get(&[], status, &fresh), Ok(()), "{status}");
            let expected =
                if [299, 499, 599].contains(&status) { Err(NotStorable::NotUnderstood) } else { Ok(()) };
            assert_eq!(get(&[], status, &understand), expected, "{status}");
        }
        for (status, reason) in [
            (103, NotStorable::Interim),
            (206, NotStorable::Partial),
            (304, NotStorable::NotModified),
            (600, NotStorable::InvalidStatus),
            (999, NotStorable::InvalidStatus),
        ] {
            assert_eq!(get(&[], status, &fresh), Err(reason), "{status}");
        }
        let modified = [("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT")];
        for (status, is_stored) in [
            (200, true),
            (203, true),
            (204, true),
            (404, true),
            (405, true),
            (410, true),
            (414, true),
            (501, true),
            (201, false),
            (202, false),
            (302, false),
            (403, false),
            (502, false),
            (503, false),
            (504, false),
            (599, false),
        ] {
            let expected = if is_stored { Ok(()) } else { Err(NotStorable::Status) };
            assert_eq!(get(&[], status, &modified), expected, "{status}");
            assert_eq!(get(&[], status, &[modified[0], ("cache-control", "public")]), Ok(()), "{status}");
            assert_eq!(get(&[], status, &[("expires", "0")]), Ok(()), "{status}");
        }
        let ignored = [("expires", "0"), ("cdn-cache-control", "foo")];
        assert_eq!(get(&[], 503, &ignored), Err(NotStorable::Status));
    }

    #[test]
    fn cookies_are_not_stored() {
        let with = |value: &'static str| [("set-cookie", "a=b"), ("cache-control", value)];
        for (value, expected) in [
            ("max-age=3600", Err(NotStorable::Cookie)),
            ("max-age=3600, must-revalidate", Err(NotStorable::Cookie)),
            ("max-age=3600, public", Err(NotStorable::Cookie)),
            ("s-maxage=3600", Err(NotStorable::Cookie)),
            ("max-age=3600, no-cache=\"Set-Cookie\"", Ok(())),
            ("max-age=3600, private=\"set-cookie\"", Ok(())),
        ] {
            assert_eq!(get(&[], 200, &with(value)), expected, "{value}");
        }
        let targeted = [("set-cookie", "a=b"), ("cdn-cache-control", "max-age=60")];
        assert_eq!(get(&[], 200, &targeted), Err(NotStorable::Cookie));
        assert_eq!(get(&[("cookie", "a=b")], 200, &control("max-age=3600")), Ok(()));
    }

    #[test]
    fn vary_on_anything_is_not_stored() {
        for (fields, expected) in [
            ("*", Err(NotStorable::VariesOnAnything)),
            ("Foo, *", Err(NotStorable::VariesOnAnything)),
            ("Foo", Ok(())),
        ] {
            assert_eq!(
                get(&[], 200, &[("vary", fields), ("cache-control", "max-age=5000")]),
                expected,
                "{fields}"
            );
        }
    }
}
