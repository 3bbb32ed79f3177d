//! Whether an answer may be stored, in a cache that many share (RFC 9111, 3).

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

/// Why an answer is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum NotStored {
    /// An interim answer: the final one is still to come.
    #[error("an interim answer")]
    Interim,
    /// 206, or anything else that is a part of an answer.
    #[error("a part of an answer")]
    Partial,
    /// 304 where nothing had been asked about.
    #[error("304 to a request without a condition")]
    NotModified,
    /// The request's `no-store`.
    #[error("no-store of the request")]
    RequestNoStore,
    /// The answer's `no-store`.
    #[error("no-store")]
    NoStore,
    /// `must-understand`, and the status is not understood.
    #[error("must-understand, and an unknown status")]
    NotUnderstood,
    /// For one user.
    #[error("private")]
    Private,
    /// Asked with credentials, and the origin does not say that it is for others as well.
    #[error("asked with credentials")]
    Credentials,
    /// It sets a cookie, and the origin does not say `public` or `s-maxage` (or in a targeted field, a lifetime): a
    /// session that is handed to a stranger costs more than a miss. Stricter than the standard (RFC 9111, 7.3).
    #[error("it sets a cookie")]
    Cookie,
    /// `Vary: *`: it depends on more than the request.
    #[error("Vary: *")]
    VariesOnAnything,
    /// Answers of this status are stored only if the origin says for how long.
    #[error("the status, without a lifetime")]
    Status,
}

/// A request, a GET, and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The request's head.
    pub request: &'a HeaderMap,
    /// The answer's status.
    pub status: StatusCode,
    /// The answer's head.
    pub response: &'a HeaderMap,
}

/// Whether the answer may be stored for others than who has asked. It is no partial one by its length: a body that
/// was cut is not stored, whatever is said here.
pub fn storable(
    exchange: &Exchange<'_>,
    asked: &RequestDirectives,
    said: &ResponseDirectives,
) -> Result<(), NotStored> {
    let Exchange { request, status, response } = *exchange;
    match status {
        status if status.is_informational() => return Err(NotStored::Interim),
        StatusCode::PARTIAL_CONTENT => return Err(NotStored::Partial),
        StatusCode::NOT_MODIFIED => return Err(NotStored::NotModified),
        _ => {}
    }
    if asked.no_store {
        return Err(NotStored::RequestNoStore);
    }
    let is_understood = is_understood(status);
    if said.must_understand && !is_understood {
        return Err(NotStored::NotUnderstood);
    }
    if said.no_store && !said.must_understand {
        return Err(NotStored::NoStore);
    }
    if said.private.is_whole() {
        return Err(NotStored::Private);
    }
    let is_for_all = said.public || said.s_maxage.is_some();
    if request.contains_key(AUTHORIZATION) && !is_for_all && !said.must_revalidate {
        return Err(NotStored::Credentials);
    }
    let is_for_this_cache = said.is_targeted && said.max_age.is_some();
    let is_stripped =
        said.private.fields().contains(&SET_COOKIE) || said.no_cache.fields().contains(&SET_COOKIE);
    if response.contains_key(SET_COOKIE) && !(is_for_all || is_for_this_cache || is_stripped) {
        return Err(NotStored::Cookie);
    }
    if response.contains_key(VARY) && Vary::of(response) == Vary::Any {
        return Err(NotStored::VariesOnAnything);
    }
    let is_told = said.lifetime().is_some() || (!said.is_targeted && response.contains_key(EXPIRES));
    if !(is_told || said.public || is_heuristically_cacheable(status)) {
        return Err(NotStored::Status);
    }
    Ok(())
}

/// Whether it is known what the status asks of caches: those of RFC 9110, and of its well-known extensions.
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

    fn get(asked: Lines<'_>, status: u16, told: Lines<'_>) -> Result<(), NotStored> {
        let (request, response) = (head(asked), head(told));
        let targets = [http::HeaderName::from_static("cdn-cache-control")];
        let status = StatusCode::from_u16(status).unwrap();
        let exchange = Exchange { request: &request, status, response: &response };
        let said = ResponseDirectives::read(&response, &targets);
        storable(&exchange, &RequestDirectives::read(&request), &said)
    }

    fn control(value: &str) -> [(&'static str, &str); 1] {
        [("cache-control", value)]
    }

    /// The suite's `cc-response`, `cdn-cache-control` and `authorization`.
    #[test]
    fn directives() {
        for (value, expected) in [
            ("max-age=3600", Ok(())),
            ("private, max-age=3600", Err(NotStored::Private)),
            ("private=\"a\", max-age=3600", Ok(())),
            ("no-store", Err(NotStored::NoStore)),
            ("max-age=10000, no-store", Err(NotStored::NoStore)),
            ("no-cache", Ok(())),
            ("max-age=3600, no-store, must-understand", Ok(())),
            ("max-age=3600, must-understand, private", Err(NotStored::Private)),
        ] {
            assert_eq!(get(&[], 200, &control(value)), expected, "{value}");
        }
        let no_store = [("cache-control", "no-store"), ("cdn-cache-control", "max-age=10000")];
        assert_eq!(get(&[], 200, &no_store), Ok(()));
        let targeted = [("cache-control", "max-age=10000"), ("cdn-cache-control", "no-store")];
        assert_eq!(get(&[], 200, &targeted), Err(NotStored::NoStore));
        let broken = [("cache-control", "no-store"), ("cdn-cache-control", "max-age=10000, &&&&&")];
        assert_eq!(get(&[], 200, &broken), Err(NotStored::NoStore));
        assert_eq!(get(&control("no-store"), 200, &control("max-age=1")), Err(NotStored::RequestNoStore));
        for (value, expected) in [
            ("max-age=3600", Err(NotStored::Credentials)),
            ("max-age=3600, public", Ok(())),
            ("max-age=3600, must-revalidate", Ok(())),
            ("s-maxage=3600", Ok(())),
            ("s-maxage=3600, private", Err(NotStored::Private)),
        ] {
            assert_eq!(get(&[("authorization", "FOO")], 200, &control(value)), expected, "{value}");
        }
    }

    /// The suite's `status` and `heuristic-freshness`.
    #[test]
    fn statuses() {
        let fresh = control("max-age=100000");
        let understand = control("max-age=3600, no-store, must-understand");
        for status in
            [200, 203, 204, 299, 301, 302, 303, 307, 308, 400, 404, 410, 499, 500, 502, 503, 504, 599]
        {
            assert_eq!(get(&[], status, &fresh), Ok(()), "{status}");
            let expected =
                if [299, 499, 599].contains(&status) { Err(NotStored::NotUnderstood) } else { Ok(()) };
            assert_eq!(get(&[], status, &understand), expected, "{status}");
        }
        for (status, reason) in
            [(103, NotStored::Interim), (206, NotStored::Partial), (304, NotStored::NotModified)]
        {
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
            let expected = if is_stored { Ok(()) } else { Err(NotStored::Status) };
            assert_eq!(get(&[], status, &modified), expected, "{status}");
            assert_eq!(get(&[], status, &[modified[0], ("cache-control", "public")]), Ok(()), "{status}");
            assert_eq!(get(&[], status, &[("expires", "0")]), Ok(()), "{status}");
        }
        let ignored = [("expires", "0"), ("cdn-cache-control", "foo")];
        assert_eq!(get(&[], 503, &ignored), Err(NotStored::Status));
    }

    #[test]
    fn cookies() {
        let with = |value: &'static str| [("set-cookie", "a=b"), ("cache-control", value)];
        for (value, expected) in [
            ("max-age=3600", Err(NotStored::Cookie)),
            ("max-age=3600, must-revalidate", Err(NotStored::Cookie)),
            ("max-age=3600, public", Ok(())),
            ("s-maxage=3600", Ok(())),
            ("max-age=3600, no-cache=\"Set-Cookie\"", Ok(())),
            ("max-age=3600, private=\"set-cookie\"", Ok(())),
        ] {
            assert_eq!(get(&[], 200, &with(value)), expected, "{value}");
        }
        let targeted = [("set-cookie", "a=b"), ("cdn-cache-control", "max-age=60")];
        assert_eq!(get(&[], 200, &targeted), Ok(()));
        assert_eq!(get(&[("cookie", "a=b")], 200, &control("max-age=3600")), Ok(()));
    }

    #[test]
    fn what_it_depends_on() {
        for (fields, expected) in [
            ("*", Err(NotStored::VariesOnAnything)),
            ("Foo, *", Err(NotStored::VariesOnAnything)),
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
