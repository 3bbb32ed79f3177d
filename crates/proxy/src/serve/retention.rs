//! How long a response is stored, and which requests it may answer. Pure.
//!
//! A response that arrives without a lifetime may be one user's page, selected by a cookie. Caches that gave it to other users have
//! shown them each other's accounts (Mercari, 2017). So it is stored for validation at most: each use asks the origin, no
//! waiting request receives it, and only the origin's own `stale-while-revalidate` and `stale-if-error` let it be used stale
//! (RFC 9111, 4.2.4). The stale periods of a strategy extend lifetimes that the origin or the route has given.

use std::time::Duration;

use http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, COOKIE, ETAG},
};
use stockade_cache::Lifespan;

use crate::{
    config::{PlainDuration, RouteConfig},
    policy::{
        conditional::has_validator,
        directives::ResponseDirectives,
        freshness::{Basis, Freshness},
    },
};

/// How a response may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub lifespan: Lifespan,
    /// False: it answers the request that loaded it, and others only after validation or as a fallback.
    pub is_shared: bool,
}

impl Retention {
    /// Not stored, for all waiting requests.
    pub const TRANSIENT: Self = Self { lifespan: Lifespan::NONE, is_shared: true };
}

/// A response, and what its request says of the user.
pub struct ReceivedHead<'a> {
    pub request: &'a HeaderMap,
    pub status: StatusCode,
    pub headers: &'a HeaderMap,
    pub directives: &'a ResponseDirectives,
    pub freshness: &'a Freshness,
}

/// The lifetimes of a route.
pub struct RetentionRules<'a> {
    pub route: &'a RouteConfig,
    /// False: the origin is a database, which declares no lifetimes and does not know the user.
    pub is_http: bool,
    /// False: the origin may take the path for another route's, so that the route's own lifetimes do not apply.
    pub has_own_ttl: bool,
}

/// How long an expired response with a validator stays, so that it can be validated.
const VALIDATION_KEEP: Duration = Duration::from_mins(10);

impl RetentionRules<'_> {
    /// `None`: the response must not be reused.
    #[must_use]
    pub fn retention(&self, head: &ReceivedHead<'_>) -> Option<Retention> {
        let &ReceivedHead { directives, freshness, .. } = head;
        let ttl = self.ttl(head);
        let is_declared =
            freshness.basis == Basis::Origin && !freshness.lifetime.is_zero() && !freshness.must_validate;
        // Also if it had expired on its way: caches before this one have used up a part of the stale periods, too.
        let had_lifetime = !ttl.is_zero() || is_declared || !self.is_http;
        let is_shared = had_lifetime || freshness.swr.is_some_and(|swr| !swr.is_zero());
        let mut lifespan = Lifespan { ttl, ..Lifespan::NONE };
        if !is_not_found(head.status) {
            let strategy = &self.route.strategy;
            // An old error is worse than a new request.
            let is_error = head.status.is_client_error() || head.status.is_server_error();
            let is_extended = had_lifetime && freshness.may_be_stale && !freshness.must_validate && !is_error;
            let extension = |period: Duration| if is_extended { period } else { Duration::ZERO };
            lifespan.swr = freshness.swr.unwrap_or(extension(strategy.swr));
            lifespan.sie = freshness.sie.unwrap_or(extension(strategy.sie));
            if Self::may_be_validated(head, is_shared) {
                lifespan.keep = VALIDATION_KEEP;
            }
        }
        if ttl.is_zero() {
            let stale_for = freshness.initial_age.saturating_sub(freshness.lifetime);
            lifespan.swr = lifespan.swr.saturating_sub(stale_for);
            lifespan.sie = lifespan.sie.saturating_sub(stale_for);
            let says_something = freshness.basis != Basis::Undeclared
                || directives.public
                || freshness.must_validate
                || lifespan.swr + lifespan.sie > Duration::ZERO
                || self.has_own_ttl;
            if !says_something {
                return None;
            }
        }
        (lifespan != Lifespan::NONE).then_some(Retention { lifespan, is_shared })
    }

    /// The time for which it is fresh from now on.
    fn ttl(&self, head: &ReceivedHead<'_>) -> Duration {
        let &ReceivedHead { request, status, directives, freshness, .. } = head;
        let RouteConfig { table, strategy, .. } = self.route;
        let own = |ttl: Option<PlainDuration>| {
            ttl.filter(|_| self.has_own_ttl && table.has_ttl_status(status)).map(|ttl| ttl.0)
        };
        if freshness.must_validate {
            return Duration::ZERO;
        }
        if let Some(ttl) = own(table.ttl) {
            return ttl;
        }
        if freshness.basis != Basis::Origin {
            let of_documents = || strategy.ttl.filter(|_| !self.is_http && !is_not_found(status));
            let undeclared = if is_not_found(status) {
                strategy.negative_ttl
            } else {
                own(table.default_ttl).or_else(of_documents)
            };
            if let Some(ttl) = undeclared {
                return ttl;
            }
            // A guess must not give one user's page to another.
            if request.contains_key(COOKIE) && !directives.public {
                return Duration::ZERO;
            }
        }
        freshness.fresh_for()
    }

    /// True if the response is worth keeping after it has expired. Of a page that may be one user's, an equal date says less
    /// than an equal tag: the pages of two users may have been changed at the same time.
    fn may_be_validated(head: &ReceivedHead<'_>, is_shared: bool) -> bool {
        let is_anonymous =
            || !(head.request.contains_key(AUTHORIZATION) || head.request.contains_key(COOKIE));
        has_validator(head.headers) && (is_shared || head.headers.contains_key(ETAG) || is_anonymous())
    }
}

fn is_not_found(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use http::HeaderName;

    use super::*;
    use crate::{config::Config, policy::freshness::Heuristics};

    const SECOND: Duration = Duration::from_secs(1);

    /// A route's settings in TOML, and the strategy's periods: an hour of `swr`, then two hours of `sie`.
    fn route(settings: &str) -> RouteConfig {
        let text = format!(
            "[cache]\nstrategy = \"swr\"\nswr = \"1h\"\nsie = \"2h\"\n[[origin]]\nurl = \"http://127.0.0.1:1\"\n[[route]]\n{settings}"
        );
        Config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}")).routes.remove(0)
    }

    /// The retention of a response that took 700 ms.
    fn retention(
        route: &RouteConfig,
        status: u16,
        request: &[(&str, &str)],
        lines: &[(&str, &str)],
    ) -> Option<Retention> {
        let map = |lines: &[(&str, &str)]| -> HeaderMap {
            let field =
                |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
            lines.iter().map(field).collect()
        };
        let (request, headers) = (map(request), map(lines));
        let status = StatusCode::from_u16(status).unwrap();
        let directives = ResponseDirectives::read(&headers, &[]);
        let took = Duration::from_millis(700);
        let heuristics =
            if route.table.default_ttl.is_some() { Heuristics::OFF } else { Heuristics::default() };
        let freshness = Freshness::new(
            status,
            &headers,
            &directives,
            UNIX_EPOCH + 1_000_000 * Duration::from_hours(1),
            took,
            &heuristics,
        );
        let head = ReceivedHead {
            request: &request,
            status,
            headers: &headers,
            directives: &directives,
            freshness: &freshness,
        };
        let has_own_ttl = route.table.ttl.is_some() || route.table.default_ttl.is_some();
        RetentionRules { route, is_http: true, has_own_ttl }.retention(&head)
    }

    const COOKIE: &[(&str, &str)] = &[("cookie", "user=ada")];
    const THEN: (&str, &str) = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    const TAG: (&str, &str) = ("etag", "\"a\"");

    #[test]
    fn response_without_a_lifetime_is_kept_for_validation_at_most() {
        let route = route("");
        for lines in [
            &[("cache-control", "max-age=0")][..],
            &[("cache-control", "no-cache")],
            &[("cache-control", "public, max-age=0")],
            &[("cache-control", "s-maxage=0")],
            &[("expires", "0")],
            &[("expires", "Thu, 19 Nov 1981 08:52:00 GMT")],
        ] {
            assert_eq!(retention(&route, 200, COOKIE, lines), None, "{lines:?}");
            // Of a user's page a date proves nothing.
            let dated = [lines, &[THEN]].concat();
            assert_eq!(retention(&route, 200, COOKIE, &dated), None, "{dated:?}");
            for (request, lines) in [(COOKIE, [lines, &[TAG]].concat()), (&[][..], dated)] {
                let kept = retention(&route, 200, request, &lines).expect("it can be validated");
                let expected = Lifespan { keep: VALIDATION_KEEP, ..Lifespan::NONE };
                assert_eq!((kept.lifespan, kept.is_shared), (expected, false), "{lines:?}");
            }
        }
    }

    #[test]
    fn only_the_origins_own_periods_extend_a_lifetime_of_zero() {
        let route = route("");
        let swr =
            retention(&route, 200, COOKIE, &[("cache-control", "max-age=0, stale-while-revalidate=60")])
                .unwrap();
        assert_eq!((swr.lifespan.swr, swr.lifespan.sie, swr.is_shared), (left(60), Duration::ZERO, true));
        let sie =
            retention(&route, 200, COOKIE, &[("cache-control", "max-age=0, stale-if-error=60")]).unwrap();
        assert_eq!((sie.lifespan.swr, sie.lifespan.sie, sie.is_shared), (Duration::ZERO, left(60), false));
        // A lifetime that ended on the way is one: the strategy's periods apply, less what is used up.
        let late = retention(&route, 200, COOKIE, &[("cache-control", "max-age=10"), ("age", "70")]).unwrap();
        assert_eq!((late.lifespan.ttl, late.is_shared), (Duration::ZERO, true));
        assert_eq!(late.lifespan.swr, left(3_540));
    }

    #[test]
    fn errors_are_not_served_stale_without_the_origins_own_period() {
        let route = route("");
        for status in [403, 404, 429, 500, 503] {
            let kept = retention(&route, status, &[], &[("cache-control", "max-age=5")]).unwrap();
            let expected = Lifespan { ttl: left(5), ..Lifespan::NONE };
            assert_eq!((kept.lifespan, kept.is_shared), (expected, true), "{status}");
        }
        let own = [("cache-control", "max-age=5, stale-while-revalidate=60")];
        assert_eq!(retention(&route, 503, &[], &own).unwrap().lifespan.swr, Duration::from_mins(1));
    }

    /// Of a period, after the response has taken 700 ms.
    fn left(seconds: u32) -> Duration {
        Duration::from_millis(u64::from(seconds) * 1_000 - 700)
    }

    #[test]
    fn heuristic_lifetime_is_not_for_the_answer_to_a_cookie() {
        let route = route("");
        assert!(!retention(&route, 200, &[], &[THEN]).unwrap().lifespan.ttl.is_zero());
        assert_eq!(retention(&route, 200, COOKIE, &[THEN]), None);
        let tagged = retention(&route, 200, COOKIE, &[THEN, TAG]).unwrap();
        assert!(tagged.lifespan.ttl.is_zero() && !tagged.is_shared);
        let public = retention(&route, 200, COOKIE, &[THEN, ("cache-control", "public")]).unwrap();
        assert!(!public.lifespan.ttl.is_zero() && public.is_shared);
    }

    #[test]
    fn own_lifetimes_are_for_the_statuses_of_the_route() {
        let ttl = |settings: &str, status, lines: &[(&str, &str)]| {
            retention(&route(settings), status, COOKIE, lines).map(|kept| kept.lifespan.ttl)
        };
        let zero = ("cache-control", "max-age=0");
        for setting in ["ttl = \"1m\"", "default_ttl = \"1m\""] {
            for (status, expected) in
                [(200, Some(60 * SECOND)), (301, Some(60 * SECOND)), (302, None), (404, None)]
            {
                assert_eq!(
                    ttl(setting, status, &[]).filter(|ttl| !ttl.is_zero()),
                    expected,
                    "{setting} {status}"
                );
            }
        }
        assert_eq!(ttl("ttl = \"1m\"", 200, &[zero]), Some(60 * SECOND));
        assert_eq!(ttl("ttl = \"1m\"", 400, &[zero]).filter(|ttl| !ttl.is_zero()), None);
        assert_eq!(ttl("ttl = \"1m\"\nttl_statuses = [400]", 400, &[zero]), Some(60 * SECOND));
        assert_eq!(ttl("ttl = \"1m\"\nnegative_ttl = \"5s\"", 404, &[]), Some(5 * SECOND));
        assert_eq!(ttl("ttl = \"1m\"", 200, &[("cache-control", "no-cache"), TAG]), Some(Duration::ZERO));
    }
}
