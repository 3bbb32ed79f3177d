//! What a change at the origin makes of stored answers (RFC 9111, 4.4).

use http::{
    HeaderMap, HeaderName, Method, StatusCode,
    header::{CONTENT_LOCATION, LOCATION},
};
use smallvec::SmallVec;

use super::key::Key;

/// Whether a method only reads: those of RFC 9110, 9.2.1, and of the registry of methods. All others, and unknown ones,
/// may change something.
#[must_use]
pub fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
        || matches!(method.as_str(), "PRI" | "PROPFIND" | "QUERY" | "REPORT" | "SEARCH")
}

/// What is no longer known once a request has been answered so: its target, and what `Location` and `Content-Location`
/// name at the same origin. Nothing, if the method only reads or the answer is an error.
///
/// Every stored variant of these goes. Loads that have begun before bring what is not to be stored
/// (`stockade_cache` sees to that).
#[must_use]
pub fn invalidated(
    method: &Method,
    target: &Key,
    status: StatusCode,
    response: &HeaderMap,
) -> SmallVec<[Key; 3]> {
    let mut keys = SmallVec::new();
    if is_safe(method) || !(status.is_success() || status.is_redirection()) {
        return keys;
    }
    keys.push(target.clone());
    for name in [LOCATION, CONTENT_LOCATION] {
        if let Some(key) = named(response, &name, target).filter(|key| !keys.contains(key)) {
            keys.push(key);
        }
    }
    keys
}

/// What a field of the answer names at the same origin.
fn named(response: &HeaderMap, name: &HeaderName, target: &Key) -> Option<Key> {
    let reference = response.get(name)?.to_str().ok()?;
    target.resolve(reference).filter(|key| key.has_origin_of(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(method: &str, status: u16, lines: &[(HeaderName, &str)]) -> Vec<String> {
        let head = lines.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        let target = Key::of("http", "a", "/test/1?x");
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let keys = invalidated(&method, &target, StatusCode::from_u16(status).unwrap(), &head);
        keys.iter().map(|key| key.path_and_query().to_owned()).collect()
    }

    /// The suite's `invalidation`.
    #[test]
    fn table() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "get", "PURGE"] {
            assert_eq!(gone(method, 200, &[]), ["/test/1?x"], "{method}");
            assert_eq!(gone(method, 303, &[]), ["/test/1?x"], "{method}");
            for status in [400, 404, 500, 503, 599] {
                assert!(gone(method, status, &[]).is_empty(), "{method} {status}");
            }
            let both = [(LOCATION, "/test/location_target"), (CONTENT_LOCATION, "content_location_target")];
            let expected = ["/test/1?x", "/test/location_target", "/test/content_location_target"];
            assert_eq!(gone(method, 200, &both), expected, "{method}");
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "QUERY"] {
            assert!(gone(method, 200, &[(LOCATION, "/b")]).is_empty(), "{method}");
        }
    }

    #[test]
    fn only_at_the_same_origin() {
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
            assert_eq!(gone("PUT", 201, &[(LOCATION, reference)]), expected, "{reference}");
        }
    }
}
