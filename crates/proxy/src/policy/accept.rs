//! Decides if a request accepts a stored response, by its own directives and the response's (RFC 9111, 4.2 and 5.2.1).

use std::time::Duration;

use super::{directives::RequestDirectives, freshness::Freshness};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    Fresh,
    /// Stale, within the request's `max-stale`.
    Stale,
    Rejected(RejectReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// The request has `no-cache` or `no-store`.
    RequestForbids,
    /// Older than the request's `max-age`.
    TooOld,
    /// Fresh for less than the request's `min-fresh`.
    TooShort,
    /// The response has `no-cache`: each use needs validation.
    MustValidate,
    /// Stale, and nothing else is against it. `swr` and `sie` decide whether it is served.
    Expired,
}

/// `lifetime` is the cache's: that of [`Freshness`], or the route's.
#[must_use]
pub fn acceptance(
    request: &RequestDirectives,
    stored: &Freshness,
    age: Duration,
    lifetime: Duration,
) -> Acceptance {
    if request.no_cache || request.no_store {
        return Acceptance::Rejected(RejectReason::RequestForbids);
    }
    if stored.must_validate {
        return Acceptance::Rejected(RejectReason::MustValidate);
    }
    let is_fresh = age < lifetime;
    let stale_for = age.saturating_sub(lifetime);
    if let Some(max_age) = request.max_age {
        // A reload of an immutable response (RFC 8246, 2) need not reach the origin.
        let is_immutable_reload = stored.is_immutable && max_age.is_zero() && is_fresh;
        if (age > max_age || max_age.is_zero()) && !is_immutable_reload {
            return Acceptance::Rejected(RejectReason::TooOld);
        }
    }
    if is_fresh {
        return match request.min_fresh {
            Some(min_fresh) if lifetime.saturating_sub(age) < min_fresh => {
                Acceptance::Rejected(RejectReason::TooShort)
            }
            _ => Acceptance::Fresh,
        };
    }
    match request.max_stale {
        Some(max_stale) if stored.may_be_stale && stale_for <= max_stale && request.min_fresh.is_none() => {
            Acceptance::Stale
        }
        _ => Acceptance::Rejected(RejectReason::Expired),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::freshness::Basis;

    const STORED: Freshness = Freshness {
        initial_age: Duration::ZERO,
        lifetime: Duration::from_mins(25),
        basis: Basis::Origin,
        swr: None,
        sie: None,
        may_be_stale: true,
        must_validate: false,
        is_immutable: false,
    };
    const SILENT: RequestDirectives = RequestDirectives {
        no_store: false,
        no_cache: false,
        only_if_cached: false,
        max_age: None,
        min_fresh: None,
        max_stale: None,
    };

    fn after(seconds: u64, request: RequestDirectives, stored: &Freshness) -> Acceptance {
        acceptance(&request, stored, Duration::from_secs(seconds), stored.lifetime)
    }

    #[expect(clippy::unnecessary_wraps, reason = "the type of the directives")]
    fn some(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    /// `cc-request` of http-tests, and cases it omits.
    #[test]
    fn request_directives_against_stored_freshness() {
        let strict = Freshness { may_be_stale: false, ..STORED };
        let validated = Freshness { must_validate: true, ..STORED };
        let unchanging = Freshness { is_immutable: true, ..STORED };
        let max_age = |seconds| RequestDirectives { max_age: some(seconds), ..SILENT };
        let max_stale = |seconds| RequestDirectives { max_stale: some(seconds), ..SILENT };
        let min_fresh = |seconds| RequestDirectives { min_fresh: some(seconds), ..SILENT };
        let no = Acceptance::Rejected;
        for (age, request, stored, expected) in [
            (0, SILENT, STORED, Acceptance::Fresh),
            (1499, SILENT, STORED, Acceptance::Fresh),
            (1500, SILENT, STORED, no(RejectReason::Expired)),
            (0, SILENT, validated, no(RejectReason::MustValidate)),
            (0, RequestDirectives { no_cache: true, ..SILENT }, STORED, no(RejectReason::RequestForbids)),
            (0, RequestDirectives { no_store: true, ..SILENT }, STORED, no(RejectReason::RequestForbids)),
            (0, RequestDirectives { only_if_cached: true, ..SILENT }, STORED, Acceptance::Fresh),
            (0, max_age(0), STORED, no(RejectReason::TooOld)),
            (3, max_age(0), unchanging, Acceptance::Fresh),
            (1500, max_age(0), unchanging, no(RejectReason::TooOld)),
            (0, max_age(0), Freshness { must_validate: true, ..unchanging }, no(RejectReason::MustValidate)),
            (1, max_age(1), STORED, Acceptance::Fresh),
            (3, max_age(1), STORED, no(RejectReason::TooOld)),
            (3, max_age(1), unchanging, no(RejectReason::TooOld)),
            (1800, max_age(600), STORED, no(RejectReason::TooOld)),
            (2000, max_stale(1000), STORED, Acceptance::Stale),
            (2500, max_stale(1000), STORED, Acceptance::Stale),
            (2501, max_stale(1000), STORED, no(RejectReason::Expired)),
            (2000, max_stale(1000), strict, no(RejectReason::Expired)),
            (9999, RequestDirectives { max_stale: Some(Duration::MAX), ..SILENT }, STORED, Acceptance::Stale),
            (
                2000,
                RequestDirectives { max_age: some(1600), ..max_stale(1000) },
                STORED,
                no(RejectReason::TooOld),
            ),
            (2000, RequestDirectives { max_age: some(2000), ..max_stale(1000) }, STORED, Acceptance::Stale),
            (0, min_fresh(1500), STORED, Acceptance::Fresh),
            (1, min_fresh(1500), STORED, no(RejectReason::TooShort)),
            (1000, min_fresh(1000), STORED, no(RejectReason::TooShort)),
            (
                0,
                RequestDirectives { min_fresh: Some(Duration::MAX), ..SILENT },
                STORED,
                no(RejectReason::TooShort),
            ),
        ] {
            assert_eq!(after(age, request, &stored), expected, "{age} {request:?} {stored:?}");
        }
    }

    proptest! {
        /// A directive only restricts, except `max-stale`.
        #[test]
        fn directives_only_restrict_except_max_stale(
            age in 0_u64..3000, no_cache: bool, max_age in prop::option::of(0_u64..3000),
            min_fresh in prop::option::of(0_u64..3000), may_be_stale: bool, must_validate: bool,
        ) {
            let stored = Freshness { may_be_stale, must_validate, ..STORED };
            let limit = |seconds: Option<u64>| seconds.map(Duration::from_secs);
            let strict_request = RequestDirectives {
                no_cache, max_age: limit(max_age), min_fresh: limit(min_fresh), ..SILENT
            };
            if after(age, strict_request, &stored) == Acceptance::Fresh {
                prop_assert_eq!(after(age, SILENT, &stored), Acceptance::Fresh);
            }
            let tolerant = RequestDirectives { max_stale: Some(Duration::MAX), ..strict_request };
            if after(age, tolerant, &stored) == Acceptance::Stale {
                prop_assert!(age >= 1500 && may_be_stale && !must_validate && !no_cache);
            }
        }
    }
}
