//! The age of a response when it arrives, and its freshness lifetime (RFC 9111, 4.2).
//!
//! A response is fresh while its age is less than its lifetime: for [`Freshness::fresh_for`] after its arrival.

use std::time::{Duration, SystemTime};

use http::{
    HeaderMap, StatusCode,
    header::{AGE, DATE, EXPIRES, LAST_MODIFIED},
};
use stockade_http::field;

use super::{
    date::{self, epoch_seconds},
    directives::ResponseDirectives,
};

/// Freshness of responses without a declared lifetime (RFC 9111, 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristics {
    /// Of the time since `Last-Modified`.
    pub percent: u32,
    pub lifetime_max: Duration,
}

impl Default for Heuristics {
    /// 10 % of the time since `Last-Modified`, at most a day.
    fn default() -> Self {
        Self { percent: 10, lifetime_max: Duration::from_hours(24) }
    }
}

impl Heuristics {
    /// Only declared lifetimes count.
    pub const OFF: Self = Self { percent: 0, lifetime_max: Duration::ZERO };
}

/// The source of a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A directive or `Expires`.
    Origin,
    /// Computed from `Last-Modified`.
    Heuristic,
    /// Not declared: the lifetime is zero.
    Undeclared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Age when the head arrived.
    pub initial_age: Duration,
    /// The age at which it becomes stale.
    pub lifetime: Duration,
    pub basis: Basis,
    /// How long after its lifetime it may be served while it is refreshed. `None`: the origin does not say; zero: forbidden.
    pub swr: Option<Duration>,
    /// How long after its lifetime it may be served if the origin fails; as `swr`.
    pub sie: Option<Duration>,
    /// True if the cache or the client may decide to use it stale (RFC 9111, 4.2.4).
    pub may_be_stale: bool,
    /// `no-cache`: each use needs validation, fresh or not.
    pub must_validate: bool,
    /// RFC 8246: a reload need not validate it while it is fresh.
    pub is_immutable: bool,
}

impl Freshness {
    /// The head arrived at `response_time`, `took` after its request was sent.
    #[must_use]
    pub fn new(
        status: StatusCode,
        headers: &HeaderMap,
        directives: &ResponseDirectives,
        response_time: SystemTime,
        took: Duration,
        heuristics: &Heuristics,
    ) -> Self {
        let (lifetime, basis) = lifetime(status, headers, directives, response_time, heuristics);
        let forbids =
            directives.must_revalidate || directives.proxy_revalidate || directives.no_cache.is_whole();
        let swr = directives.stale_while_revalidate;
        let allowed = |declared: Option<Duration>, is_limited: bool| {
            // `s-maxage` forbids as well (RFC 9111, 5.2.2.10), unless the response declares a stale period:
            // origins that send both mean both.
            if forbids {
                Some(Duration::ZERO)
            } else {
                declared.or((is_limited || directives.s_maxage.is_some()).then_some(Duration::ZERO))
            }
        };
        Self {
            initial_age: initial_age(headers, response_time, took),
            lifetime,
            basis,
            swr: allowed(swr, false),
            // After `stale-while-revalidate` alone it should not be served (RFC 5861, 3).
            sie: allowed(directives.stale_if_error, swr.is_some()),
            may_be_stale: !forbids && directives.s_maxage.is_none(),
            must_validate: directives.no_cache.is_whole(),
            is_immutable: directives.immutable,
        }
    }

    /// Remaining lifetime on arrival; zero if each use needs validation.
    #[must_use]
    pub fn fresh_for(&self) -> Duration {
        if self.must_validate { Duration::ZERO } else { self.lifetime.saturating_sub(self.initial_age) }
    }

    /// The age after it has been stored for `resident`.
    #[must_use]
    pub fn age(&self, resident: Duration) -> Duration {
        self.initial_age.saturating_add(resident)
    }
}

/// True if a status may get a heuristic lifetime (RFC 9110, 15.1).
#[must_use]
pub fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// RFC 9111, 4.2.3.
fn initial_age(headers: &HeaderMap, response_time: SystemTime, took: Duration) -> Duration {
    let apparent = date::of(headers, &DATE).map_or(0, |date| {
        // Dates have whole seconds, so a difference of one means nothing.
        match epoch_seconds(response_time).saturating_sub(epoch_seconds(date)) {
            1 => 0,
            seconds => seconds,
        }
    });
    Duration::from_secs(apparent).max(age_value(headers).saturating_add(took))
}

/// The first element of `Age`; zero if it is not a number of seconds (RFC 9111, 5.1).
fn age_value(headers: &HeaderMap) -> Duration {
    let first = headers.get(AGE).and_then(|line| field::elements(line.as_bytes()).next());
    first.and_then(field::seconds).unwrap_or_default()
}

fn lifetime(
    status: StatusCode,
    headers: &HeaderMap,
    directives: &ResponseDirectives,
    response_time: SystemTime,
    heuristics: &Heuristics,
) -> (Duration, Basis) {
    if let Some(declared) = directives.lifetime() {
        return (declared, Basis::Origin);
    }
    let date = date::of(headers, &DATE).unwrap_or(response_time);
    let since = |earlier: SystemTime, later: SystemTime| {
        Duration::from_secs(epoch_seconds(later).saturating_sub(epoch_seconds(earlier)))
    };
    if !directives.is_targeted && headers.contains_key(EXPIRES) {
        // The earliest counts; an unreadable one is in the past (RFC 9111, 5.3).
        let read = |line: &http::HeaderValue| {
            date::parse(line.as_bytes()).map_or(Duration::ZERO, |end| since(date, end))
        };
        let shortest = headers.get_all(EXPIRES).into_iter().map(read).min().unwrap_or_default();
        return (shortest.min(Duration::from_secs(field::SECONDS_MAX)), Basis::Origin);
    }
    if !is_heuristically_cacheable(status) && !directives.public {
        return (Duration::ZERO, Basis::Undeclared);
    }
    match date::of(headers, &LAST_MODIFIED) {
        Some(modified) if heuristics.percent > 0 => {
            let share = since(modified, date).saturating_mul(heuristics.percent) / 100;
            (share.min(heuristics.lifetime_max), Basis::Heuristic)
        }
        _ => (Duration::ZERO, Basis::Undeclared),
    }
}

#[cfg(test)]
mod tests;
