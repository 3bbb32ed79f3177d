//! Hop-by-hop fields, and fields that a proxy adds (RFC 9110, 7.6; RFC 9111, 3.1).

use std::time::SystemTime;

use http::{
    HeaderMap, HeaderName, HeaderValue, Version,
    header::{
        AGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
        CONTENT_TYPE, COOKIE, DATE, ETAG, EXPIRES, HOST, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
        IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, MAX_FORWARDS, RANGE, SET_COOKIE, TE, TRAILER, VARY,
        VIA,
    },
};
use smallvec::SmallVec;
use stockade_http::field::{self, listed};

use super::{date, directives::ResponseDirectives};

/// End-to-end fields that `Connection` cannot remove: otherwise a client could decide what is stored, for whom and for
/// how long.
const END_TO_END_FIELDS: [HeaderName; 15] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    DATE,
    ETAG,
    EXPIRES,
    HOST,
    LAST_MODIFIED,
    RANGE,
    SET_COOKIE,
    VARY,
];

const CONDITION_FIELDS: [HeaderName; 6] =
    [IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE];

/// Further options in `Connection` are ignored.
const OPTIONS_MAX: usize = 64;

/// Removes hop-by-hop fields. Runs before anything else is read from the head.
pub fn strip(headers: &mut HeaderMap) {
    // Most heads have at most one of these: one pass over the names is cheaper than one lookup per field.
    let mut removed: SmallVec<[HeaderName; 4]> =
        headers.keys().filter(|name| is_hop_by_hop(name.as_str())).cloned().collect();
    if removed.is_empty() {
        return;
    }
    if headers.contains_key(CONNECTION) {
        let named = listed(headers, &CONNECTION).take(OPTIONS_MAX);
        let named = named.filter_map(|option| HeaderName::from_bytes(option).ok());
        removed.extend(named.filter(|name| !END_TO_END_FIELDS.contains(name)));
    }
    for name in removed {
        headers.remove(name);
    }
}

/// Removed in both directions, also if `Connection` does not name it.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "http2-settings"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authentication-info"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// True if a field may stand after a body: none that a recipient needs before it, or that decides about framing, routing, credentials or
/// caching (RFC 9110, 6.5.1).
#[must_use]
pub fn is_allowed_in_trailers(name: &HeaderName) -> bool {
    let text = name.as_str();
    let is_needed_before = matches!(
        text,
        "age"
            | "alt-svc"
            | "cache-status"
            | "cdn-cache-control"
            | "expect"
            | "location"
            | "max-forwards"
            | "pragma"
            | "retry-after"
            | "strict-transport-security"
            | "via"
            | "www-authenticate"
    );
    let is_control =
        is_hop_by_hop(text) || END_TO_END_FIELDS.contains(name) || CONDITION_FIELDS.contains(name);
    !(is_needed_before || is_control || text.starts_with("content-") || text.starts_with("access-control-"))
}

/// True if the client takes trailers (RFC 9110, 10.1.4).
#[must_use]
pub fn takes_trailers(request: &HeaderMap) -> bool {
    request.contains_key(TE) && listed(request, &TE).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// The names that the response announces for its trailers, without those that are not passed on. HTTP/1 sends no others.
#[must_use]
pub fn announced_trailers(response: &HeaderMap) -> Option<HeaderValue> {
    if !response.contains_key(TRAILER) {
        return None;
    }
    let names = listed(response, &TRAILER).take(OPTIONS_MAX);
    let names = names.filter_map(|name| HeaderName::from_bytes(name).ok()).filter(is_allowed_in_trailers);
    let names: Vec<String> = names.map(|name| name.as_str().to_owned()).collect();
    HeaderValue::try_from(names.join(", ")).ok().filter(|value| !value.is_empty())
}

/// Does not hash the name if the head is empty.
fn remove(headers: &mut HeaderMap, name: &HeaderName) {
    if !headers.is_empty() {
        headers.remove(name);
    }
}

/// Removes conditions and ranges: the response of a load is for all waiting requests. The client's own apply to the
/// stored response.
pub fn for_load(request: &mut HeaderMap) {
    for name in &CONDITION_FIELDS {
        remove(request, name);
    }
}

/// The fields that [`for_load`] removes.
#[must_use]
pub fn condition_fields(request: &HeaderMap) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for name in CONDITION_FIELDS {
        for line in request.get_all(&name) {
            fields.append(name.clone(), line.clone());
        }
    }
    fields
}

/// Removes what is not stored: fields that `no-cache` and `private` list (RFC 9111, 5.2.2), and hop-by-hop fields.
pub fn for_store(response: &mut HeaderMap, directives: &ResponseDirectives) {
    strip(response);
    for name in directives.no_cache.fields().iter().chain(directives.private.fields()) {
        remove(response, name);
    }
}

/// Appends this hop to `Via` (RFC 9110, 7.6.3): `1.1 stockade`. The pseudonym is a token, unique per process, so that
/// [`is_loop`] recognises it.
pub fn add_via(headers: &mut HeaderMap, received: Version, pseudonym: &str) {
    let version = match received {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    };
    let mut hop: SmallVec<[u8; 64]> = SmallVec::new();
    [version, " ", pseudonym].iter().for_each(|part| hop.extend_from_slice(part.as_bytes()));
    if let Ok(hop) = HeaderValue::from_bytes(&hop) {
        headers.append(VIA, hop);
    }
}

/// True if `Via` already names this process.
#[must_use]
pub fn is_loop(headers: &HeaderMap, pseudonym: &str) -> bool {
    headers.contains_key(VIA)
        && listed(headers, &VIA).any(|hop| {
            let mut words = hop.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
            words.nth(1).is_some_and(|word| word.eq_ignore_ascii_case(pseudonym.as_bytes()))
        })
}

/// How often an OPTIONS may still be forwarded; `None` without a bound (RFC 9110, 7.6.2).
#[must_use]
pub fn forwards_left(headers: &HeaderMap) -> Option<u64> {
    headers.get(MAX_FORWARDS).and_then(|value| field::parse_u64(value.as_bytes()))
}

/// Adds a missing `Date` (RFC 9110, 6.6.1).
pub fn supply_date(headers: &mut HeaderMap, received: SystemTime) {
    if !headers.contains_key(DATE) {
        headers.insert(DATE, date::format(received));
    }
}

/// In whole seconds.
pub fn set_age(headers: &mut HeaderMap, age: std::time::Duration) {
    headers.insert(AGE, HeaderValue::from(age.as_secs()));
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;
    use crate::policy::testing::head;

    fn names(head: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = head.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    /// http-tests: `headers`: each field that must not be stored.
    #[test]
    fn hop_by_hop_fields_are_stripped() {
        let mut whole = head(&[
            ("connection", "a, B ,\"x"),
            ("connection", "close, cache-control, host"),
            ("a", "1"),
            ("b", "2"),
            ("c", "3"),
            ("keep-alive", "1"),
            ("proxy-authenticate", "1"),
            ("proxy-authentication-info", "1"),
            ("proxy-authorization", "1"),
            ("proxy-connection", "1"),
            ("te", "gzip, trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
            ("cache-control", "private"),
            ("host", "h"),
        ]);
        strip(&mut whole);
        assert_eq!(names(&whole), ["c", "cache-control", "host"]);
    }

    /// http-tests: `cc-response`: fields that `no-cache` lists.
    #[test]
    fn listed_fields_are_not_stored() {
        let lines = [("cache-control", "no-cache=\"a\", private=\"B, set-cookie\", max-age=9")];
        let directives = ResponseDirectives::read(&head(&lines), &[]);
        let mut stored =
            head(&[("a", "1"), ("b", "2"), ("c", "3"), ("set-cookie", "s"), ("connection", "close")]);
        for_store(&mut stored, &directives);
        assert_eq!(names(&stored), ["c"]);
    }

    #[test]
    fn load_has_no_conditions_and_no_range() {
        let mut request = head(&[
            ("if-match", "*"),
            ("if-none-match", "*"),
            ("if-none-match", "\"a\""),
            ("if-modified-since", "x"),
            ("if-unmodified-since", "x"),
            ("if-range", "x"),
            ("range", "bytes=0-"),
            ("accept", "*/*"),
        ]);
        let conditions = condition_fields(&request);
        for_load(&mut request);
        assert_eq!(names(&request), ["accept"]);
        assert_eq!(conditions.len(), 7);
        assert_eq!(conditions.get_all(IF_NONE_MATCH).iter().collect::<Vec<_>>(), ["*", "\"a\""]);
    }

    #[test]
    fn trailers_are_passed_on_without_fields_that_belong_before_the_body() {
        let announced = |value: &'static str| announced_trailers(&head(&[("trailer", value)]));
        assert_eq!(announced("X-T, Server-Timing"), Some(HeaderValue::from_static("x-t, server-timing")));
        assert_eq!(
            announced("Set-Cookie, Content-Length, Cache-Control, X-T"),
            Some(HeaderValue::from_static("x-t"))
        );
        assert_eq!(announced("Transfer-Encoding, Host, Age, b b"), None);
        for (value, expected) in
            [("trailers", true), ("gzip, Trailers", true), ("gzip", false), ("trailers;q=1", false)]
        {
            assert_eq!(takes_trailers(&head(&[("te", value)])), expected, "{value}");
        }
        assert!(!takes_trailers(&HeaderMap::new()) && announced_trailers(&HeaderMap::new()).is_none());
    }

    #[test]
    fn via_date_and_age_are_added() {
        let mut request = head(&[("via", "1.0 fred")]);
        assert!(!is_loop(&request, "stockade"));
        add_via(&mut request, Version::HTTP_2, "stockade");
        let hops: Vec<_> = request.get_all(VIA).iter().collect();
        assert_eq!(hops, ["1.0 fred", "2 stockade"]);
        assert!(is_loop(&request, "Stockade") && !is_loop(&request, "stock"));
        let mut answer = HeaderMap::new();
        supply_date(&mut answer, UNIX_EPOCH);
        supply_date(&mut answer, UNIX_EPOCH + Duration::from_secs(9));
        set_age(&mut answer, Duration::from_millis(3999));
        assert_eq!(answer, head(&[("date", "Thu, 01 Jan 1970 00:00:00 GMT"), ("age", "3")]));
    }

    proptest! {
        #[test]
        fn stripping_is_idempotent(options in "[ -~]{0,40}", te in "[ -~]{0,20}") {
            let mut once = head(&[("connection", &options), ("te", &te), ("a", "1"), ("vary", "x")]);
            strip(&mut once);
            prop_assert!(once.contains_key("vary") && !once.contains_key("connection"));
            let mut twice = once.clone();
            strip(&mut twice);
            prop_assert_eq!(once, twice);
        }
    }
}
