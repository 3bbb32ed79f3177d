//! How old an answer is when it arrives, and how long it is fresh (RFC 9111, 4.2).
//!
//! An answer is fresh while its age is less than its lifetime: for [`Freshness::fresh_for`] from its arrival on.

use std::time::{Duration, SystemTime};

use http::{
    HeaderMap, StatusCode,
    header::{AGE, DATE, EXPIRES, LAST_MODIFIED},
};

use super::{
    date::{self, epoch_seconds},
    directives::ResponseDirectives,
    field,
};

/// How long answers are fresh whose origin does not say (RFC 9111, 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristics {
    /// Of the time since it was modified, so many percent.
    pub percent: u32,
    /// But no longer than this.
    pub longest: Duration,
}

impl Default for Heuristics {
    /// A tenth of the time since it was modified, a day at most.
    fn default() -> Self {
        Self { percent: 10, longest: Duration::from_hours(24) }
    }
}

impl Heuristics {
    /// Nothing is fresh unless its origin says so.
    pub const OFF: Self = Self { percent: 0, longest: Duration::ZERO };
}

/// Whose word a lifetime is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The origin's: a directive or `Expires`.
    Origin,
    /// A guess, from when it was modified.
    Heuristic,
    /// Nobody's: the lifetime is zero.
    Nobody,
}

/// The clock of an answer, as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// How old it was when its head arrived.
    pub initial_age: Duration,
    /// How old it may become.
    pub lifetime: Duration,
    /// Whose word the lifetime is.
    pub basis: Basis,
    /// For how long past its life it may be given while it is refreshed: the origin's word, zero where it forbids
    /// that; none: it says nothing.
    pub swr: Option<Duration>,
    /// For how long past its life it may be given if the origin fails; as `swr`.
    pub sie: Option<Duration>,
    /// Whether it may be given stale where only the cache or the client wishes so (RFC 9111, 4.2.4).
    pub may_be_stale: bool,
    /// Whether the origin has to be asked each time (`no-cache`), fresh or not.
    pub must_validate: bool,
    /// Whether it does not change while it is fresh, so that a reload need not ask the origin (RFC 8246).
    pub is_immutable: bool,
}

impl Freshness {
    /// Of an answer whose head arrived at `response_time`, so long after its request was sent.
    #[must_use]
    pub fn of(
        status: StatusCode,
        headers: &HeaderMap,
        said: &ResponseDirectives,
        response_time: SystemTime,
        took: Duration,
        heuristics: &Heuristics,
    ) -> Self {
        let (lifetime, basis) = lifetime(status, headers, said, response_time, heuristics);
        let forbids = said.must_revalidate || said.proxy_revalidate || said.no_cache.is_whole();
        let allowed = |told: Option<Duration>| {
            // `s-maxage` forbids as well (RFC 9111, 5.2.2.10), unless the same answer says for how long it may be stale:
            // origins write both, and mean both.
            if forbids { Some(Duration::ZERO) } else { told.or(said.s_maxage.map(|_| Duration::ZERO)) }
        };
        Self {
            initial_age: initial_age(headers, response_time, took),
            lifetime,
            basis,
            swr: allowed(said.stale_while_revalidate),
            sie: allowed(said.stale_if_error),
            may_be_stale: !forbids && said.s_maxage.is_none(),
            must_validate: said.no_cache.is_whole(),
            is_immutable: said.immutable,
        }
    }

    /// For how long from its arrival on it is fresh; zero, if the origin has to be asked each time.
    #[must_use]
    pub fn fresh_for(&self) -> Duration {
        if self.must_validate { Duration::ZERO } else { self.lifetime.saturating_sub(self.initial_age) }
    }

    /// Its age when it has been here for so long.
    #[must_use]
    pub fn age(&self, resident: Duration) -> Duration {
        self.initial_age.saturating_add(resident)
    }
}

/// Whether an answer of this status may be given a lifetime that its origin does not tell (RFC 9110, 15.1).
#[must_use]
pub fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Of its fields, and of how long it took (RFC 9111, 4.2.3).
fn initial_age(headers: &HeaderMap, response_time: SystemTime, took: Duration) -> Duration {
    let apparent = date::of(headers, &DATE).map_or(0, |date| {
        // Dates are cut to the second: a difference of one says nothing.
        match epoch_seconds(response_time).saturating_sub(epoch_seconds(date)) {
            1 => 0,
            seconds => seconds,
        }
    });
    Duration::from_secs(apparent).max(age_value(headers).saturating_add(took))
}

/// The first element of `Age`; zero if that is no number of seconds (RFC 9111, 5.1).
fn age_value(headers: &HeaderMap) -> Duration {
    let first = headers.get(AGE).and_then(|line| field::elements(line.as_bytes()).next());
    first.and_then(field::seconds).unwrap_or_default()
}

fn lifetime(
    status: StatusCode,
    headers: &HeaderMap,
    said: &ResponseDirectives,
    response_time: SystemTime,
    heuristics: &Heuristics,
) -> (Duration, Basis) {
    if let Some(told) = said.lifetime() {
        return (told, Basis::Origin);
    }
    let date = date::of(headers, &DATE).unwrap_or(response_time);
    let since = |earlier: SystemTime, later: SystemTime| {
        Duration::from_secs(epoch_seconds(later).saturating_sub(epoch_seconds(earlier)))
    };
    if !said.is_targeted && headers.contains_key(EXPIRES) {
        // Of several the earliest; one that cannot be read is in the past (RFC 9111, 5.3).
        let read = |line: &http::HeaderValue| {
            date::read(line.as_bytes()).map_or(Duration::ZERO, |end| since(date, end))
        };
        let shortest = headers.get_all(EXPIRES).into_iter().map(read).min().unwrap_or_default();
        return (shortest.min(Duration::from_secs(field::SECONDS_MOST)), Basis::Origin);
    }
    if !is_heuristically_cacheable(status) && !said.public {
        return (Duration::ZERO, Basis::Nobody);
    }
    match date::of(headers, &LAST_MODIFIED) {
        Some(modified) if heuristics.percent > 0 => {
            let share = since(modified, date).saturating_mul(heuristics.percent) / 100;
            (share.min(heuristics.longest), Basis::Heuristic)
        }
        _ => (Duration::ZERO, Basis::Nobody),
    }
}

#[cfg(test)]
mod tests;
