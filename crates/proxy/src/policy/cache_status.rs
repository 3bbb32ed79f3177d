//! What this cache did, told in `Cache-Status` (RFC 9211): `stockade; hit; ttl=30; detail=hit`.
//!
//! | outcome | told |
//! |---|---|
//! | hit | `hit; ttl=N` |
//! | stale | `hit; ttl=-N` |
//! | miss | `fwd=uri-miss` (or why else), `fwd-status=N`, `stored` |
//! | coalesced | `fwd=...; collapsed` |
//! | fallback | `fwd=stale; fwd-status=N`, or `hit; ttl=-N` if the origin was not asked |
//! | negative | `hit; ttl=N` |
//! | error | `fwd=...` if the origin was asked |
//! | bypass | `fwd=bypass` or `fwd=method` |
//!
//! and always `detail=<outcome>`.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use smallvec::SmallVec;
use stockade_model::outcome::Outcome;

/// The field's name.
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Why the origin was asked (RFC 9211, 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The cache was told not to look.
    Bypass,
    /// The method is not answered by caches.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// Something is, but not what the request selects.
    VaryMiss,
    /// It is stored, and fresh, but the request did not want it.
    Request,
    /// It is stored, but stale.
    Stale,
    /// A part of it is stored.
    Partial,
}

impl Forward {
    const fn word(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

/// What was done for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// In the vocabulary of all our reports.
    pub outcome: Outcome,
    /// Why the origin was asked, by this request or by the one that it waited for; none: it was not.
    pub forward: Option<Forward>,
    /// What the origin said, if it is not the status that is answered.
    pub forward_status: Option<StatusCode>,
    /// For how long the answer is fresh still, in seconds; less than zero: for how long it has not been.
    pub ttl_s: Option<i64>,
    /// Whether the answer was stored.
    pub stored: bool,
}

impl CacheStatus {
    /// An answer from the store, fresh for so long still.
    #[must_use]
    pub const fn stored(outcome: Outcome, ttl_s: i64) -> Self {
        Self { outcome, forward: None, forward_status: None, ttl_s: Some(ttl_s), stored: false }
    }

    /// An answer that the origin was asked for.
    #[must_use]
    pub const fn forwarded(outcome: Outcome, why: Forward) -> Self {
        Self { outcome, forward: Some(why), forward_status: None, ttl_s: None, stored: false }
    }

    /// As a member of the list that the field is. One allocation.
    #[must_use]
    pub fn value(&self) -> HeaderValue {
        let mut text: SmallVec<[u8; 128]> = SmallVec::new();
        text.extend_from_slice(b"stockade");
        match self.forward {
            Some(why) => {
                push(&mut text, &["; fwd=", why.word()]);
                if let Some(status) = self.forward_status {
                    push(&mut text, &["; fwd-status=", status.as_str()]);
                }
            }
            None if self.is_hit() => push(&mut text, &["; hit"]),
            None => {}
        }
        if let Some(ttl_s) = self.ttl_s {
            push(&mut text, &["; ttl="]);
            push_number(&mut text, ttl_s);
        }
        if self.stored {
            push(&mut text, &["; stored"]);
        }
        if self.forward.is_some() && self.outcome == Outcome::Coalesced {
            push(&mut text, &["; collapsed"]);
        }
        push(&mut text, &["; detail=", self.outcome.name()]);
        HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("stockade"))
    }

    /// Appends it to what caches behind this one have said.
    pub fn append(&self, headers: &mut HeaderMap) {
        headers.append(CACHE_STATUS, self.value());
    }

    fn is_hit(&self) -> bool {
        matches!(self.outcome, Outcome::Hit | Outcome::Stale | Outcome::Negative | Outcome::Fallback)
    }
}

fn push(text: &mut SmallVec<[u8; 128]>, words: &[&str]) {
    for word in words {
        text.extend_from_slice(word.as_bytes());
    }
}

/// No greater than the 15 digits of a structured field's integer.
fn push_number(text: &mut SmallVec<[u8; 128]>, number: i64) {
    const MOST: u64 = 999_999_999_999_999;
    if number < 0 {
        text.push(b'-');
    }
    let (mut left, start) = (number.unsigned_abs().min(MOST), text.len());
    loop {
        text.push(b'0' + u8::try_from(left % 10).unwrap_or(0));
        left /= 10;
        if left == 0 {
            break;
        }
    }
    text[start..].reverse();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{BareItem, List, ListEntry, Parser, TokenRef};

    use super::*;

    #[test]
    fn table() {
        let miss = CacheStatus::forwarded(Outcome::Miss, Forward::UriMiss);
        for (status, expected) in [
            (CacheStatus::stored(Outcome::Hit, 30), "stockade; hit; ttl=30; detail=hit"),
            (CacheStatus::stored(Outcome::Hit, 0), "stockade; hit; ttl=0; detail=hit"),
            (CacheStatus::stored(Outcome::Stale, -10), "stockade; hit; ttl=-10; detail=stale"),
            (CacheStatus::stored(Outcome::Fallback, -10), "stockade; hit; ttl=-10; detail=fallback"),
            (CacheStatus::stored(Outcome::Negative, 5), "stockade; hit; ttl=5; detail=negative"),
            (miss, "stockade; fwd=uri-miss; detail=miss"),
            (
                CacheStatus { ttl_s: Some(60), stored: true, ..miss },
                "stockade; fwd=uri-miss; ttl=60; stored; detail=miss",
            ),
            (
                CacheStatus {
                    forward_status: Some(StatusCode::NOT_MODIFIED),
                    stored: true,
                    ..CacheStatus::forwarded(Outcome::Miss, Forward::Stale)
                },
                "stockade; fwd=stale; fwd-status=304; stored; detail=miss",
            ),
            (
                CacheStatus {
                    forward_status: Some(StatusCode::BAD_GATEWAY),
                    ttl_s: Some(-3),
                    ..CacheStatus::forwarded(Outcome::Fallback, Forward::Stale)
                },
                "stockade; fwd=stale; fwd-status=502; ttl=-3; detail=fallback",
            ),
            (
                CacheStatus::forwarded(Outcome::Coalesced, Forward::VaryMiss),
                "stockade; fwd=vary-miss; collapsed; detail=coalesced",
            ),
            (CacheStatus::forwarded(Outcome::Bypass, Forward::Method), "stockade; fwd=method; detail=bypass"),
            (CacheStatus::forwarded(Outcome::Bypass, Forward::Bypass), "stockade; fwd=bypass; detail=bypass"),
            (
                CacheStatus { forward: None, ..CacheStatus::forwarded(Outcome::Error, Forward::Stale) },
                "stockade; detail=error",
            ),
        ] {
            assert_eq!(status.value(), expected);
        }
    }

    #[test]
    fn it_comes_behind_what_was_said() {
        let mut head = HeaderMap::new();
        head.insert(CACHE_STATUS, HeaderValue::from_static("origin; hit"));
        CacheStatus::stored(Outcome::Hit, 1).append(&mut head);
        let said: Vec<_> = head.get_all(CACHE_STATUS).iter().collect();
        assert_eq!(said, ["origin; hit", "stockade; hit; ttl=1; detail=hit"]);
    }

    proptest! {
        /// A parser of structured fields reads back what was meant.
        #[test]
        fn it_is_a_structured_field(ttl_s: i64, outcome in prop::sample::select(&Outcome::ALL[..]), is_forwarded: bool, stored: bool) {
            let mut status = CacheStatus::stored(outcome, ttl_s);
            (status.forward, status.stored) = (is_forwarded.then_some(Forward::Request), stored);
            let value = status.value();
            let list: List = Parser::new(value.as_bytes()).parse().unwrap();
            let [ListEntry::Item(item)] = &list[..] else { panic!("{value:?}") };
            let told = |name: &str| item.params.get(name);
            let most = 999_999_999_999_999;
            let ttl = ttl_s.clamp(-most, most);
            prop_assert_eq!(told("ttl").and_then(BareItem::as_integer).map(i64::from), Some(ttl));
            prop_assert_eq!(told("detail").and_then(BareItem::as_token).map(TokenRef::as_str), Some(outcome.name()));
            prop_assert_eq!(told("stored").is_some(), stored);
            prop_assert!(!(told("hit").is_some() && told("fwd").is_some()));
        }
    }
}
