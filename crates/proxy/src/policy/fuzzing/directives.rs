//! Directives of requests and responses: reading is a merge, in which the stricter one counts.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use std::{
    collections::BTreeSet,
    time::{Duration, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::CACHE_CONTROL};

use stockade_http::field::SECONDS_MAX;

use super::lines;
use crate::policy::{
    directives::{RequestDirectives, ResponseDirectives, Scope},
    freshness::{Freshness, Heuristics},
};

const TARGETED: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Two lines of `Cache-Control`.
///
/// - Two lines mean the stricter of both in each directive, in either order.
/// - The case of letters does not matter.
/// - Lifetimes without quotes are those of a naive reading, and none is longer than the bound.
/// - A targeted field counts alone, or not at all.
pub fn check(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let (one, other) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let headers = |values: &[&[u8]]| lines(&CACHE_CONTROL, values);
    let (Some(first), Some(second), Some(both), Some(reversed)) =
        (headers(&[one]), headers(&[other]), headers(&[one, other]), headers(&[other, one]))
    else {
        return;
    };
    let upper = headers(&[&one.to_ascii_uppercase()]).expect("upper case is as valid");
    check_requests(&first, &second, &both, &reversed, &upper);
    check_responses(&first, &second, &both, &reversed, &upper);
    check_naive(one, &first);
    check_targeted(one, &second);
}

fn check_requests(
    first: &HeaderMap,
    second: &HeaderMap,
    both: &HeaderMap,
    reversed: &HeaderMap,
    upper: &HeaderMap,
) {
    let (one, other) = (RequestDirectives::read(first), RequestDirectives::read(second));
    let merged = RequestDirectives {
        no_store: one.no_store | other.no_store,
        no_cache: one.no_cache | other.no_cache,
        only_if_cached: one.only_if_cached | other.only_if_cached,
        max_age: shorter(one.max_age, other.max_age),
        min_fresh: one.min_fresh.max(other.min_fresh),
        max_stale: shorter(one.max_stale, other.max_stale),
    };
    assert_eq!(RequestDirectives::read(both), merged);
    assert_eq!(RequestDirectives::read(reversed), merged);
    assert_eq!(RequestDirectives::read(upper), one);
    assert_eq!(merged.is_empty(), one.is_empty() && other.is_empty());
}

fn check_responses(
    first: &HeaderMap,
    second: &HeaderMap,
    both: &HeaderMap,
    reversed: &HeaderMap,
    upper: &HeaderMap,
) {
    let read = |headers| comparable(&ResponseDirectives::read(headers, &[]));
    let (one, other) = (ResponseDirectives::read(first, &[]), ResponseDirectives::read(second, &[]));
    let merged = ResponseDirectives {
        is_targeted: false,
        no_store: one.no_store | other.no_store,
        no_cache: wider(&one.no_cache, &other.no_cache),
        private: wider(&one.private, &other.private),
        public: one.public | other.public,
        must_revalidate: one.must_revalidate | other.must_revalidate,
        proxy_revalidate: one.proxy_revalidate | other.proxy_revalidate,
        must_understand: one.must_understand | other.must_understand,
        immutable: one.immutable | other.immutable,
        max_age: shorter(one.max_age, other.max_age),
        s_maxage: shorter(one.s_maxage, other.s_maxage),
        stale_while_revalidate: shorter(one.stale_while_revalidate, other.stale_while_revalidate),
        stale_if_error: shorter(one.stale_if_error, other.stale_if_error),
    };
    assert_eq!(read(both), comparable(&merged));
    assert_eq!(read(reversed), comparable(&merged));
    assert_eq!(read(upper), comparable(&one));
    let now = UNIX_EPOCH + Duration::from_hours(500_000);
    let freshness =
        Freshness::new(StatusCode::OK, both, &merged, now, Duration::from_secs(1), &Heuristics::default());
    assert!(freshness.fresh_for() <= freshness.lifetime);
    assert!(freshness.lifetime <= Duration::from_secs(SECONDS_MAX));
    assert!(!merged.no_cache.is_whole() || freshness.fresh_for().is_zero());
}

/// With the fields as sets.
fn comparable(directives: &ResponseDirectives) -> (ResponseDirectives, [Option<BTreeSet<String>>; 2]) {
    let set = |scope: &Scope| match scope {
        Scope::Fields(fields) => Some(fields.iter().map(ToString::to_string).collect()),
        Scope::Nothing | Scope::Whole => None,
    };
    let sets = [set(&directives.no_cache), set(&directives.private)];
    let plain = |scope: &Scope| if scope.is_whole() { Scope::Whole } else { Scope::Nothing };
    let (no_cache, private) = (plain(&directives.no_cache), plain(&directives.private));
    (ResponseDirectives { no_cache, private, ..directives.clone() }, sets)
}

/// More fields than 64 are the whole response.
fn wider(one: &Scope, other: &Scope) -> Scope {
    match (one, other) {
        (Scope::Whole, _) | (_, Scope::Whole) => Scope::Whole,
        (Scope::Nothing, scope) | (scope, Scope::Nothing) => scope.clone(),
        (Scope::Fields(one), Scope::Fields(other)) if one.len() + other.len() > 64 => Scope::Whole,
        (Scope::Fields(one), Scope::Fields(other)) => Scope::Fields([&one[..], other].concat()),
    }
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Without quotes, a value is a list of `name` and `name=value`.
fn check_naive(value: &[u8], headers: &HeaderMap) {
    let Some(text) = std::str::from_utf8(value).ok().filter(|text| !text.contains('"')) else { return };
    let lifetime = |wanted: &str| {
        let values = text.split(',').map(|element| element.trim_matches([' ', '\t'])).filter_map(|element| {
            let (name, value) = element.split_once('=').unwrap_or((element, ""));
            let name = name.trim_end_matches([' ', '\t']);
            name.eq_ignore_ascii_case(wanted).then(|| {
                let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                // White space before the `=` makes the value unreadable.
                let is_joined = element.len() == name.len() || element.as_bytes()[name.len()] == b'=';
                let seconds = if is_number && is_joined { value.parse().unwrap_or(SECONDS_MAX) } else { 0 };
                Duration::from_secs(seconds.min(SECONDS_MAX))
            })
        });
        values.min()
    };
    let directives = ResponseDirectives::read(headers, &[]);
    assert_eq!(directives.max_age, lifetime("max-age"), "{text}");
    assert_eq!(directives.s_maxage, lifetime("s-maxage"), "{text}");
    assert_eq!(directives.stale_if_error, lifetime("stale-if-error"), "{text}");
    assert_eq!(directives.stale_while_revalidate, lifetime("stale-while-revalidate"), "{text}");
    let names = text.split(',').map(|element| element.trim_matches([' ', '\t']));
    let has_no_store = names.clone().any(|name| {
        let name = name.split('=').next().unwrap_or_default().trim_end_matches([' ', '\t']);
        name.eq_ignore_ascii_case("no-store")
    });
    assert_eq!(directives.no_store, has_no_store, "{text}");
}

/// `value` in a targeted field, and another value in `Cache-Control`.
fn check_targeted(value: &[u8], untargeted: &HeaderMap) {
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let mut headers = untargeted.clone();
    headers.insert(TARGETED, value.clone());
    let directives = ResponseDirectives::read(&headers, &[TARGETED]);
    if directives.is_targeted {
        let alone = [(TARGETED, value)].into_iter().collect();
        assert_eq!(ResponseDirectives::read(&alone, &[TARGETED]), directives);
        let lifetimes = [
            directives.max_age,
            directives.s_maxage,
            directives.stale_if_error,
            directives.stale_while_revalidate,
        ];
        assert!(lifetimes.into_iter().flatten().all(|lifetime| lifetime <= Duration::from_secs(SECONDS_MAX)));
    } else {
        assert_eq!(directives, ResponseDirectives::read(untargeted, &[]));
    }
}
