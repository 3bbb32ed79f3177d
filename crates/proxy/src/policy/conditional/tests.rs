use std::time::{Duration, UNIX_EPOCH};

use http::header::{CACHE_CONTROL, EXPIRES, SET_COOKIE};
use proptest::prelude::*;

use super::*;
use crate::policy::testing::{Lines, head};

const OLD: &str = "Sat, 01 Jan 2000 00:00:00 GMT";
const THEN: &str = "Wed, 01 Jan 2020 00:00:00 GMT";
const LATER: &str = "Thu, 02 Jan 2020 00:00:00 GMT";

fn of(stored: Lines<'_>, request: Lines<'_>) -> Condition {
    condition(&Method::GET, &head(request), StatusCode::OK, &head(stored))
}

/// http-tests: `conditional-etag` and `conditional-lm`, where they concern stored responses.
#[test]
fn client_conditions() {
    use Condition::{Failed, NotModified, Whole};
    let tag = ("etag", "\"abcdef\"");
    let modified = ("last-modified", THEN);
    let none_match = "if-none-match";
    let table: [(Lines<'_>, Lines<'_>, Condition); 38] = [
        (&[tag], &[], Whole),
        (&[tag], &[(none_match, "\"abcdef\"")], NotModified),
        (&[tag], &[(none_match, "\"abcdeg\"")], Whole),
        (&[tag], &[(none_match, "*")], NotModified),
        (&[], &[(none_match, "*")], NotModified),
        (&[], &[(none_match, "\"abcdef\"")], Whole),
        (&[tag, modified], &[(none_match, "\"abcdef\""), ("if-modified-since", OLD)], NotModified),
        (&[tag, modified], &[(none_match, "\"x\""), ("if-modified-since", LATER)], Whole),
        (&[("etag", "\"abcdefü\"")], &[(none_match, "\"abcdefü\"")], NotModified),
        (&[tag], &[(none_match, "abcdef")], Whole),
        (&[("etag", "abcdef")], &[(none_match, "abcdef")], NotModified),
        (&[("etag", "abcdef")], &[(none_match, "\"abcdef\"")], Whole),
        (&[("etag", "W/\"abcdef\"")], &[(none_match, "W/\"abcdef\"")], NotModified),
        (&[("etag", "W/\"abcdef\"")], &[(none_match, "\"abcdef\"")], NotModified),
        (&[("etag", "w/\"abcdef\"")], &[(none_match, "w/\"abcdef\"")], NotModified),
        (&[tag], &[(none_match, "\"abcdef\", \"1234\", \"5678\"")], NotModified),
        (&[tag], &[(none_match, "\"1234\", \"abcdef\", \"5678\"")], NotModified),
        (&[tag], &[(none_match, "\"1234\", \"5678\""), (none_match, "\"abcdef\"")], NotModified),
        (&[("etag", "\"a,b\"")], &[(none_match, "\"a,b\"")], NotModified),
        (&[tag], &[(none_match, "")], Whole),
        (&[modified], &[("if-modified-since", THEN)], NotModified),
        (&[modified], &[("if-modified-since", LATER)], NotModified),
        (&[modified], &[("if-modified-since", OLD)], Whole),
        (&[modified], &[("if-modified-since", "Wednesday, 01-Jan-20 00:00:00 GMT")], NotModified),
        (&[modified], &[("if-modified-since", "then")], Whole),
        (&[modified], &[("if-modified-since", THEN), ("if-modified-since", LATER)], Whole),
        (&[("date", THEN)], &[("if-modified-since", LATER)], NotModified),
        (&[("date", THEN)], &[("if-modified-since", OLD)], Whole),
        (&[], &[("if-modified-since", LATER)], Whole),
        (&[tag], &[("if-match", "\"abcdef\"")], Whole),
        (&[tag], &[("if-match", "*")], Whole),
        (&[tag], &[("if-match", "\"x\"")], Failed),
        (&[], &[("if-match", "\"x\"")], Failed),
        (&[("etag", "W/\"a\"")], &[("if-match", "W/\"a\"")], Failed),
        (&[tag], &[("if-match", "\"abcdef\""), (none_match, "\"abcdef\"")], NotModified),
        (&[modified], &[("if-unmodified-since", THEN)], Whole),
        (&[modified], &[("if-unmodified-since", OLD)], Failed),
        (&[modified], &[("if-unmodified-since", "then")], Whole),
    ];
    for (stored, request, expected) in table {
        assert_eq!(of(stored, request), expected, "{stored:?} {request:?}");
    }
    for (method, status) in [(Method::POST, 200), (Method::GET, 404), (Method::GET, 301)] {
        let status = StatusCode::from_u16(status).unwrap();
        let request = head(&[("if-none-match", "*"), ("if-match", "\"x\"")]);
        assert_eq!(condition(&method, &request, status, &head(&[tag])), Whole);
    }
}

/// http-tests: `conditional-304-etag`, and RFC 9110, 15.4.5.
#[test]
fn not_modified_keeps_only_metadata() {
    let lines = [
        ("etag", "\"a\""),
        ("last-modified", THEN),
        ("cache-control", "max-age=1"),
        ("content-location", "/a"),
        ("date", THEN),
        ("expires", LATER),
        ("vary", "a"),
        ("content-type", "a/b"),
        ("content-length", "5"),
        ("content-encoding", "gzip"),
        ("content-security-policy", "x"),
        ("age", "1"),
    ];
    let mut stored = head(&lines);
    to_not_modified(&mut stored);
    let mut kept: Vec<_> = stored.keys().map(HeaderName::as_str).collect();
    kept.sort_unstable();
    assert_eq!(
        kept,
        [
            "age",
            "cache-control",
            "content-location",
            "content-security-policy",
            "date",
            "etag",
            "expires",
            "vary"
        ]
    );
    let mut untagged = head(&[("last-modified", THEN)]);
    to_not_modified(&mut untagged);
    assert_eq!(untagged, head(&[("last-modified", THEN)]));
}

#[test]
fn validation_request_carries_the_stored_validators() {
    let request = |lines: Lines<'_>| conditional_request(&head(lines)).collect::<HeaderMap>();
    let both = request(&[("etag", "W/\"a\""), ("last-modified", THEN), ("date", THEN)]);
    assert_eq!(both, head(&[("if-none-match", "W/\"a\""), ("if-modified-since", THEN)]));
    assert_eq!(request(&[("etag", "abcdef")]), head(&[("if-none-match", "abcdef")]));
    assert!(request(&[("date", THEN), ("etag", "")]).is_empty());
    assert!(request(&[("etag", "\"a\""), ("etag", "\"b\"")]).is_empty());
    assert!(has_validator(&head(&[("last-modified", THEN)])) && !has_validator(&head(&[("date", THEN)])));
}

#[test]
fn not_modified_matches_by_validators_and_vary_stored() {
    let table: [(Lines<'_>, Lines<'_>, bool); 23] = [
        (&[("etag", "\"a\"")], &[("etag", "\"a\"")], true),
        (&[("etag", "\"a\"")], &[("etag", "\"b\"")], false),
        (&[("etag", "\"a\"")], &[], true),
        (&[("etag", "W/\"a\"")], &[("etag", "W/\"a\"")], true),
        (&[("etag", "\"a\"")], &[("etag", "W/\"a\"")], true),
        // nginx and Django behind their compression: the 304 has the tag from before it, and a smaller `Vary`.
        (&[("etag", "W/\"a\"")], &[("etag", "\"a\"")], true),
        (
            &[("etag", "W/\"a\""), ("vary", "accept-encoding, cookie")],
            &[("etag", "\"a\""), ("vary", "Cookie")],
            true,
        ),
        (&[("etag", "\"a\""), ("vary", "cookie")], &[("vary", "accept-encoding, cookie")], false),
        // Apache: a suffix of the tag, and the date of the file.
        (
            &[("etag", "\"a-gzip\""), ("last-modified", THEN), ("date", LATER)],
            &[("etag", "\"a\""), ("last-modified", THEN)],
            true,
        ),
        (
            &[("etag", "\"a-gzip\""), ("last-modified", THEN), ("date", LATER)],
            &[("etag", "\"a\""), ("last-modified", LATER)],
            false,
        ),
        // Sent in the second of the change: the date does not tell the two apart.
        (
            &[("etag", "\"a\""), ("last-modified", THEN), ("date", THEN)],
            &[("etag", "\"b\""), ("last-modified", THEN)],
            false,
        ),
        (
            &[("etag", "\"a\""), ("last-modified", THEN)],
            &[("etag", "\"b\""), ("last-modified", LATER)],
            false,
        ),
        (&[("etag", "W/\"a\"")], &[("etag", "W/\"b\"")], false),
        (&[("last-modified", THEN)], &[("etag", "\"a\"")], false),
        (&[("last-modified", THEN)], &[("last-modified", THEN)], true),
        (&[("last-modified", THEN)], &[("last-modified", LATER)], false),
        (&[("last-modified", THEN)], &[], true),
        (&[("last-modified", THEN)], &[("etag", "W/\"a\"")], true),
        (&[("etag", "\"a\""), ("last-modified", THEN)], &[("etag", "\"a\""), ("last-modified", LATER)], true),
        (&[("etag", "\"a\"")], &[("last-modified", THEN)], true),
        (&[("etag", "\"a\""), ("vary", "a, b")], &[("vary", "B,a")], true),
        (&[("etag", "\"a\""), ("vary", "a")], &[("vary", "b")], false),
        (&[("etag", "\"a\"")], &[("vary", "*")], false),
    ];
    for (stored, update, expected) in table {
        assert_eq!(is_about_stored(&head(stored), &head(update)), expected, "{stored:?} {update:?}");
    }
}

/// http-tests: `update304`, each field of its list.
#[test]
fn not_modified_updates_all_fields_but_those_of_the_content() {
    let updated = [
        "test-header",
        "x-test-header",
        "content-foo",
        "x-content-foo",
        "cache-control",
        "content-location",
        "content-md5",
        "content-security-policy",
        "content-type",
        "clear-site-data",
        "expires",
        "public-key-pins",
        "set-cookie",
        "set-cookie2",
        "x-frame-options",
        "x-xss-protection",
        "last-modified",
    ];
    let kept = ["content-length", "content-encoding", "content-range", "vary"];
    let never = ["connection", "keep-alive", "proxy-authenticate", "te", "transfer-encoding", "upgrade"];
    let names = updated.iter().chain(&kept);
    let mut stored: HeaderMap = names
        .clone()
        .map(|name| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("A")))
        .collect();
    stored.insert("only-stored", HeaderValue::from_static("A"));
    let update: HeaderMap = names
        .chain(&never)
        .map(|name| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("B")))
        .collect();
    freshen(&mut stored, &update, &ResponseDirectives::default(), UNIX_EPOCH);
    for (names, value) in [(&updated[..], "B"), (&kept, "A"), (&["only-stored"], "A")] {
        for name in names {
            assert_eq!(stored[*name], value, "{name}");
        }
    }
    assert!(never.iter().all(|name| !stored.contains_key(*name)));
}

#[test]
fn freshening_replaces_whole_fields_and_restarts_the_age() {
    let mut stored = head(&[
        ("age", "100"),
        ("date", OLD),
        ("warning", "110 - stale"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=1"),
        ("secret", "1"),
    ]);
    let update =
        head(&[("cache-control", "no-cache=\"secret\", max-age=9"), ("secret", "2"), ("set-cookie", "a=2")]);
    let directives = ResponseDirectives::read(&update, &[]);
    freshen(&mut stored, &update, &directives, UNIX_EPOCH + Duration::from_secs(1));
    assert_eq!(stored[DATE], "Thu, 01 Jan 1970 00:00:01 GMT");
    assert!(!stored.contains_key(AGE) && !stored.contains_key(WARNING));
    assert_eq!(stored.get_all(SET_COOKIE).iter().collect::<Vec<_>>(), ["a=2"]);
    assert_eq!(stored["secret"], "1");
    let aged = head(&[("age", "7"), ("date", THEN)]);
    freshen(&mut stored, &aged, &ResponseDirectives::default(), UNIX_EPOCH);
    assert_eq!(
        (&stored[AGE], &stored[DATE]),
        (&HeaderValue::from_static("7"), &HeaderValue::from_static(THEN))
    );
    assert!(stored.contains_key(CACHE_CONTROL) && !stored.contains_key(EXPIRES));
}

#[test]
fn head_response_freshens_or_invalidates() {
    let stored = [("etag", "\"a\""), ("last-modified", THEN)];
    let table: [(Lines<'_>, u16, HeadEffect); 9] = [
        (&[("etag", "\"a\""), ("content-length", "10")], 200, HeadEffect::Freshens),
        (&[("template-a", "2")], 200, HeadEffect::Freshens),
        (&[("etag", "\"b\"")], 200, HeadEffect::Invalidates),
        (&[("last-modified", LATER)], 200, HeadEffect::Invalidates),
        (&[("content-length", "11")], 200, HeadEffect::Invalidates),
        (&[("content-length", "x")], 200, HeadEffect::Invalidates),
        (&[("content-encoding", "gzip")], 200, HeadEffect::Invalidates),
        (&[("etag", "\"b\"")], 410, HeadEffect::Nothing),
        (&[("etag", "\"b\"")], 503, HeadEffect::Nothing),
    ];
    for (update, status, expected) in table {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(
            head_effect(StatusCode::OK, &head(&stored), 10, status, &head(update)),
            expected,
            "{update:?}"
        );
    }
    let not_found = head_effect(StatusCode::NOT_FOUND, &head(&stored), 10, StatusCode::OK, &head(&stored));
    assert_eq!(not_found, HeadEffect::Nothing);
}

proptest! {
    #[test]
    fn strong_match_implies_weak_match(one in "(W/)?\"[ab]?\"", other in "(W/)?\"[ab]?\"") {
        let (one, other) = (one.as_bytes(), other.as_bytes());
        prop_assert_eq!(weak_match(one, other), weak_match(other, one));
        prop_assert_eq!(strong_match(one, other), strong_match(other, one));
        prop_assert!(!strong_match(one, other) || weak_match(one, other));
    }

    #[test]
    fn freshening_is_idempotent(old in "[ -~]{0,20}", new in "[ -~]{0,20}", name in "(etag|vary|connection|age|x)") {
        let name: HeaderName = name.parse().unwrap();
        let (mut stored, mut update) = (HeaderMap::new(), HeaderMap::new());
        stored.insert(&name, old.parse().unwrap());
        update.insert(&name, new.parse().unwrap());
        let directives = ResponseDirectives::default();
        freshen(&mut stored, &update, &directives, UNIX_EPOCH);
        let once = stored.clone();
        freshen(&mut stored, &update, &directives, UNIX_EPOCH);
        prop_assert_eq!(once, stored);
    }

    #[test]
    fn arbitrary_conditions_do_not_panic(value in "[ -~]{0,30}", tag in "[ -~]{0,20}") {
        for name in ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"] {
            let _ = of(&[("etag", &tag), ("last-modified", &value)], &[(name, &value)]);
        }
    }
}
