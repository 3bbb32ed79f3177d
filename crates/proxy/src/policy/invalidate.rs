//! Invalidation of stored responses by unsafe methods (RFC 9111, 4.4).

use http::{
    HeaderMap, HeaderName, Method, StatusCode,
    header::{CONTENT_LOCATION, LOCATION},
};
use smallvec::SmallVec;

use super::key::CacheKey;

/// The safe methods of RFC 9110, 9.2.1, and of the method registry. All others may change resources.
#[must_use]
pub fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
        || matches!(method.as_str(), "PRI" | "PROPFIND" | "QUERY" | "REPORT" | "SEARCH")
}

/// True for methods whose requests the route's breaker may refuse: the safe ones, for which the client can have a stale
/// answer or come back. An unsafe request would be lost, and only the origin can answer it; its failure may also be
/// its own content's, so it is not evidence. A browser sends OPTIONS before an unsafe request of another site.
#[must_use]
pub fn asks_breaker(method: &Method) -> bool {
    is_safe(method) && *method != Method::OPTIONS
}

/// The keys that a successful response to an unsafe method invalidates: its target, and `Location` and `Content-Location`
/// of the same origin.
///
/// Every stored variant of these goes. `stockade_cache` refuses to store the results of loads that started before.
#[must_use]
pub fn invalidated(
    method: &Method,
    target: &CacheKey,
    status: StatusCode,
    response: &HeaderMap,
) -> SmallVec<[CacheKey; 3]> {
    let mut keys = SmallVec::new();
    if is_safe(method) || !(status.is_success() || status.is_redirection()) {
        return keys;
    }
    keys.push(target.clone());
    for name in [LOCATION, CONTENT_LOCATION] {
        if let Some(key) = same_origin_key(response, &name, target).filter(|key| !keys.contains(key)) {
            keys.push(key);
        }
    }
    keys
}

/// The effect of a response to GET that is not stored on the older, expired response of its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectOnExpired {
    Nothing,
    /// It answers only if the origin fails.
    FallbackOnly,
    /// The page is gone or has moved.
    Removes,
}

/// `is_for_all`: the response is about the URL, and neither private nor an answer to a user that the origin may have recognised.
#[must_use]
pub fn effect_on_expired(status: StatusCode, is_for_all: bool) -> EffectOnExpired {
    match status.as_u16() {
        404 | 410 | 451 | 301..=303 | 307 | 308 if is_for_all => EffectOnExpired::Removes,
        // An answer to conditions or a range.
        206 | 304 => EffectOnExpired::Nothing,
        200..=399 | 401 | 403 | 404 | 410 | 429 | 451 => EffectOnExpired::FallbackOnly,
        // A fault of the request, or of the origin.
        _ => EffectOnExpired::Nothing,
    }
}

/// The key in a field, if it is of the same origin.
fn same_origin_key(response: &HeaderMap, name: &HeaderName, target: &CacheKey) -> Option<CacheKey> {
    let reference = response.get(name)?.to_str().ok()?;
    target.resolve(reference).filter(|key| key.has_same_origin(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unstored_response_outdates_the_stored_one_by_its_status() {
        use EffectOnExpired::{FallbackOnly, Nothing, Removes};
        for (status, of_one, of_all) in [
            (200, FallbackOnly, FallbackOnly),
            (206, Nothing, Nothing),
            (301, FallbackOnly, Removes),
            (302, FallbackOnly, Removes),
            (304, Nothing, Nothing),
            (400, Nothing, Nothing),
            (401, FallbackOnly, FallbackOnly),
            (403, FallbackOnly, FallbackOnly),
            (404, FallbackOnly, Removes),
            (410, FallbackOnly, Removes),
            (412, Nothing, Nothing),
            (429, FallbackOnly, FallbackOnly),
            (431, Nothing, Nothing),
            (451, FallbackOnly, Removes),
            (500, Nothing, Nothing),
            (503, Nothing, Nothing),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(effect_on_expired(status, false), of_one, "{status}");
            assert_eq!(effect_on_expired(status, true), of_all, "{status}");
        }
    }

    fn invalidated_paths(method: &str, status: u16, lines: &[(HeaderName, &str)]) -> Vec<String> {
        let head = lines.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        let target = CacheKey::new("http", "a", "/test/1?x");
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let keys = invalidated(&method, &target, StatusCode::from_u16(status).unwrap(), &head);
        keys.iter().map(|key| key.path_and_query().to_owned()).collect()
    }

    /// http-tests: `invalidation`.
    #[test]
    fn unsafe_methods_invalidate_on_success() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "get", "PURGE"] {
            assert_eq!(invalidated_paths(method, 200, &[]), ["/test/1?x"], "{method}");
            assert_eq!(invalidated_paths(method, 303, &[]), ["/test/1?x"], "{method}");
            for status in [400, 404, 500, 503, 599] {
                assert!(invalidated_paths(method, status, &[]).is_empty(), "{method} {status}");
            }
            let both = [(LOCATION, "/test/location_target"), (CONTENT_LOCATION, "content_location_target")];
            let expected = ["/test/1?x", "/test/location_target", "/test/content_location_target"];
            assert_eq!(invalidated_paths(method, 200, &both), expected, "{method}");
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "QUERY"] {
            assert!(invalidated_paths(method, 200, &[(LOCATION, "/b")]).is_empty(), "{method}");
        }
    }

    #[test]
    fn breaker_refuses_safe_methods_except_options() {
        for (method, passes) in [
            ("GET", true),
            ("HEAD", true),
            ("PROPFIND", true),
            ("OPTIONS", false),
            ("POST", false),
            ("DELETE", false),
            ("UNKNOWN", false),
        ] {
            assert_eq!(asks_breaker(&Method::from_bytes(method.as_bytes()).unwrap()), passes, "{method}");
        }
    }

    #[test]
    fn location_counts_only_at_the_same_origin() {
        for (reference, expected) in [
            ("http://a/b", vec!["/test/1?x", "/b"]),
            ("HTTP://A:80/b", vec!["/test/1?x", "/b"]),
            ("//a/b", vec!["/test/1?x", "/b"]),
            ("", vec!["/test/1?x"]),
            ("http://b/b", vec!["/test/1?x"]),
            ("https://a/b", vec!["/test/1?x"]),
            ("http://a:81/b", vec!["/test/1?x"]),
            ("http://a@b/", vec!["/test/1?x"]),
            ("not a reference", vec!["/test/1?x"]),
        ] {
            assert_eq!(invalidated_paths("PUT", 201, &[(LOCATION, reference)]), expected, "{reference}");
        }
    }
}
