//! What is for one connection alone, and what is added on the way (RFC 9110, 7.6; RFC 9111, 3.1).

use std::time::SystemTime;

use http::{
    HeaderMap, HeaderName, HeaderValue, Version,
    header::{
        AGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
        CONTENT_TYPE, COOKIE, DATE, ETAG, EXPIRES, HOST, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
        IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, SET_COOKIE, VARY, VIA,
    },
};
use smallvec::SmallVec;

use super::{date, directives::ResponseDirectives, field::listed};

/// What is meant for everybody on the way, and therefore never dropped because `Connection` names it: whoever may take
/// these away decides what is stored, for whom and for how long.
const OF_THE_MESSAGE: [HeaderName; 15] = [
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

/// What makes a request a conditional or a partial one.
const OF_A_CONDITION: [HeaderName; 6] =
    [IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE];

/// More options than that in `Connection` are not looked at.
const OPTIONS_MOST: usize = 64;

/// Drops what was for the connection that a head came by.
///
/// Before anything else is read from the head: what an answer depends on is what the origin is asked.
pub fn strip(headers: &mut HeaderMap) {
    // Most heads hold one of these or none: to look at each name once is cheaper than to look for each.
    let mut gone: SmallVec<[HeaderName; 4]> =
        headers.keys().filter(|name| is_of_a_connection(name.as_str())).cloned().collect();
    if gone.is_empty() {
        return;
    }
    if headers.contains_key(CONNECTION) {
        let named = listed(headers, &CONNECTION).take(OPTIONS_MOST);
        let named = named.filter_map(|option| HeaderName::from_bytes(option).ok());
        gone.extend(named.filter(|name| !OF_THE_MESSAGE.contains(name)));
    }
    for name in gone {
        headers.remove(name);
    }
}

/// What is dropped in each direction, whether `Connection` names it or not.
fn is_of_a_connection(name: &str) -> bool {
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

/// Removes a field, without the cost of hashing where the head is empty.
fn remove(headers: &mut HeaderMap, name: &HeaderName) {
    if !headers.is_empty() {
        headers.remove(name);
    }
}

/// Makes the request of a client one for the whole answer, without conditions: a load is for everybody who waits.
/// The client's own conditions and ranges are kept apart, and are about the answer.
pub fn for_load(request: &mut HeaderMap) {
    for name in &OF_A_CONDITION {
        remove(request, name);
    }
}

/// What [`for_load`] takes away of a request, for who asks alone.
#[must_use]
pub fn of_a_condition(request: &HeaderMap) -> HeaderMap {
    let mut own = HeaderMap::new();
    for name in OF_A_CONDITION {
        for line in request.get_all(&name) {
            own.append(name.clone(), line.clone());
        }
    }
    own
}

/// Makes an answer's head the one to store: without what `no-cache` and `private` name (RFC 9111, 5.2.2), and without
/// what was for the connection. Who has asked is given the fields all the same.
pub fn for_store(response: &mut HeaderMap, said: &ResponseDirectives) {
    strip(response);
    for name in said.no_cache.fields().iter().chain(said.private.fields()) {
        remove(response, name);
    }
}

/// Adds this hop (RFC 9110, 7.6.3): `1.1 stockade`. The pseudonym is a token; it names this very proxy, since
/// [`is_loop`] knows it again: two tiers need two names.
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

/// Whether the request has been here before: it goes round in circles.
#[must_use]
pub fn is_loop(headers: &HeaderMap, pseudonym: &str) -> bool {
    headers.contains_key(VIA)
        && listed(headers, &VIA).any(|hop| {
            let mut words = hop.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
            words.nth(1).is_some_and(|word| word.eq_ignore_ascii_case(pseudonym.as_bytes()))
        })
}

/// Dates an answer that its origin has not dated (RFC 9110, 6.6.1).
pub fn supply_date(headers: &mut HeaderMap, received: SystemTime) {
    if !headers.contains_key(DATE) {
        headers.insert(DATE, date::written(received));
    }
}

/// Says how old an answer is, in whole seconds, instead of what it said when it came.
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

    /// The suite's `headers`: each field that must not be stored.
    #[test]
    fn what_was_for_the_connection() {
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

    /// The suite's `cc-response`: fields that `no-cache` lists.
    #[test]
    fn what_is_not_stored() {
        let said_lines = [("cache-control", "no-cache=\"a\", private=\"B, set-cookie\", max-age=9")];
        let said = ResponseDirectives::read(&head(&said_lines), &[]);
        let mut stored =
            head(&[("a", "1"), ("b", "2"), ("c", "3"), ("set-cookie", "s"), ("connection", "close")]);
        for_store(&mut stored, &said);
        assert_eq!(names(&stored), ["c"]);
    }

    #[test]
    fn a_load_is_for_everybody() {
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
        let own = of_a_condition(&request);
        for_load(&mut request);
        assert_eq!(names(&request), ["accept"]);
        assert_eq!(own.len(), 7);
        assert_eq!(own.get_all(IF_NONE_MATCH).iter().collect::<Vec<_>>(), ["*", "\"a\""]);
    }

    #[test]
    fn what_is_added() {
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
        fn stripped_once_is_stripped(options in "[ -~]{0,40}", te in "[ -~]{0,20}") {
            let mut once = head(&[("connection", &options), ("te", &te), ("a", "1"), ("vary", "x")]);
            strip(&mut once);
            prop_assert!(once.contains_key("vary") && !once.contains_key("connection"));
            let mut twice = once.clone();
            strip(&mut twice);
            prop_assert_eq!(once, twice);
        }
    }
}
