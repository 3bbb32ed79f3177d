//! `Cache-Status` (RFC 9211): `stockade; hit; ttl=30; detail=hit`.
//!
//! | outcome | parameters |
//! |---|---|
//! | hit | `hit; ttl=N` |
//! | stale | `hit; ttl=-N` |
//! | miss | `fwd=uri-miss` (or another reason), `fwd-status=N`, `stored` |
//! | coalesced | `fwd=...; collapsed` |
//! | fallback | `fwd=stale; fwd-status=N`, or `hit; ttl=-N` if not forwarded |
//! | negative | `hit; ttl=N` |
//! | error | `fwd=...` if forwarded |
//! | bypass | `fwd=bypass` or `fwd=method` |
//!
//! Every value has `detail=<outcome>`.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use smallvec::SmallVec;
use stockade_model::outcome::Outcome;

pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Why the request was forwarded (RFC 9211, 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// No lookup.
    Bypass,
    /// The method is not cacheable.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// Another variant is stored.
    VaryMiss,
    /// A fresh response is stored, but the request's directives exclude it.
    Request,
    /// A stale response is stored.
    Stale,
    Partial,
}

impl Forward {
    const fn token(self) -> &'static str {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    pub outcome: Outcome,
    /// Why this request, or the load that it waited for, went to the origin.
    pub forward: Option<Forward>,
    /// The origin's status, if the reply has another.
    pub forward_status: Option<StatusCode>,
    /// Seconds until the response is stale; negative: since it is stale.
    pub ttl_s: Option<i64>,
    /// True if the cache has stored the response of the origin.
    pub stored: bool,
}

impl CacheStatus {
    /// A response from the store.
    #[must_use]
    pub const fn from_store(outcome: Outcome, ttl_s: i64) -> Self {
        Self { outcome, forward: None, forward_status: None, ttl_s: Some(ttl_s), stored: false }
    }

    #[must_use]
    pub const fn forwarded(outcome: Outcome, forward: Forward) -> Self {
        Self { outcome, forward: Some(forward), forward_status: None, ttl_s: None, stored: false }
    }

    /// A reply of the proxy's own, without a lookup or a request to the origin.
    #[must_use]
    pub const fn unforwarded(outcome: Outcome) -> Self {
        Self { outcome, forward: None, forward_status: None, ttl_s: None, stored: false }
    }

    /// One member of the field's list. One allocation.
    #[must_use]
    pub fn value(&self) -> HeaderValue {
        let mut text: SmallVec<[u8; 128]> = SmallVec::new();
        text.extend_from_slice(b"stockade");
        match self.forward {
            Some(forward) => {
                push(&mut text, &["; fwd=", forward.token()]);
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

    /// Appends it after the values of caches nearer to the origin.
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

/// Clamped to the 15 digits of an integer in structured fields.
fn push_number(text: &mut SmallVec<[u8; 128]>, number: i64) {
    const NUMBER_MAX: u64 = 999_999_999_999_999;
    if number < 0 {
        text.push(b'-');
    }
    let (mut left, start) = (number.unsigned_abs().min(NUMBER_MAX), text.len());
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
    fn values() {
        let miss = CacheStatus::forwarded(Outcome::Miss, Forward::UriMiss);
        for (status, expected) in [
            (CacheStatus::from_store(Outcome::Hit, 30), "stockade; hit; ttl=30; detail=hit"),
            (CacheStatus::from_store(Outcome::Hit, 0), "stockade; hit; ttl=0; detail=hit"),
            (CacheStatus::from_store(Outcome::Stale, -10), "stockade; hit; ttl=-10; detail=stale"),
            (CacheStatus::from_store(Outcome::Fallback, -10), "stockade; hit; ttl=-10; detail=fallback"),
            (CacheStatus::from_store(Outcome::Negative, 5), "stockade; hit; ttl=5; detail=negative"),
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
            (CacheStatus::unforwarded(Outcome::Error), "stockade; detail=error"),
        ] {
            assert_eq!(status.value(), expected);
        }
    }

    #[test]
    fn value_follows_those_of_other_caches() {
        let mut head = HeaderMap::new();
        head.insert(CACHE_STATUS, HeaderValue::from_static("origin; hit"));
        CacheStatus::from_store(Outcome::Hit, 1).append(&mut head);
        let values: Vec<_> = head.get_all(CACHE_STATUS).iter().collect();
        assert_eq!(values, ["origin; hit", "stockade; hit; ttl=1; detail=hit"]);
    }

    proptest! {
        /// A parser of structured fields reads the same values back.
        #[test]
        fn value_is_a_structured_field(ttl_s: i64, outcome in prop::sample::select(&Outcome::ALL[..]), is_forwarded: bool, stored: bool) {
            let mut status = CacheStatus::from_store(outcome, ttl_s);
            (status.forward, status.stored) = (is_forwarded.then_some(Forward::Request), stored);
            let value = status.value();
            let list: List = Parser::new(value.as_bytes()).parse().unwrap();
            let [ListEntry::Item(item)] = &list[..] else { panic!("{value:?}") };
            let parameter = |name: &str| item.params.get(name);
            let max = 999_999_999_999_999;
            let ttl = ttl_s.clamp(-max, max);
            prop_assert_eq!(parameter("ttl").and_then(BareItem::as_integer).map(i64::from), Some(ttl));
            prop_assert_eq!(parameter("detail").and_then(BareItem::as_token).map(TokenRef::as_str), Some(outcome.name()));
            prop_assert_eq!(parameter("stored").is_some(), stored);
            prop_assert!(!(parameter("hit").is_some() && parameter("fwd").is_some()));
        }
    }
}
