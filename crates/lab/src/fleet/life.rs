//! Times of values and loads in a fleet, in 12 bytes. Pure.

use std::time::Duration;

use stockade_cache::simulation::{FreshnessState, Lifetime, Spans};
use stockade_model::time::Time;

/// A moment or a span in [ticks](TickClock).
pub(super) type Ticks = u32;

/// The latest moment: the value never expires.
pub(super) const NEVER: Ticks = Ticks::MAX;

/// Converts times to ticks: the shortest of 1 us, 10 us, 100 us and so on with which the load has fewer than 2^30 ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TickClock {
    tick_nanos: u64,
}

impl TickClock {
    /// The clock for a load of this duration.
    pub(super) fn for_load(duration: Duration) -> Self {
        let nanos = duration.as_nanos();
        let mut tick_nanos = 1_000;
        while nanos / u128::from(tick_nanos) >= u128::from(Life::READY) {
            tick_nanos *= 10;
        }
        Self { tick_nanos }
    }

    /// Rounded to the nearest tick.
    pub(super) fn ticks(self, span: Duration) -> Ticks {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX - self.tick_nanos);
        Ticks::try_from((nanos + self.tick_nanos / 2) / self.tick_nanos).unwrap_or(NEVER)
    }

    pub(super) fn nanos(self, ticks: Ticks) -> u64 {
        u64::from(ticks) * self.tick_nanos
    }

    /// The ticks of a second.
    pub(super) fn second(self) -> Ticks {
        self.ticks(Duration::from_secs(1))
    }
}

/// A value of a key, or its load in flight, and the value before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Life {
    /// When the value is there, and in the top bit whether it comes from the shared tier.
    ready: u32,
    /// When it stops being fresh.
    pub(super) expires: Ticks,
    /// The expiry of the value that is there until then; 0: absent.
    expires_before: Ticks,
}

impl Life {
    const READY: u32 = (1 << 30) - 1;
    const FROM_TIER: u32 = 1 << 31;

    /// A value that comes from a load.
    pub(super) fn loaded(ready: Ticks, expires: Ticks) -> Self {
        Self { ready: ready.min(Self::READY), expires, expires_before: 0 }
    }

    /// A value that comes from the shared tier.
    pub(super) fn from_tier(ready: Ticks, expires: Ticks) -> Self {
        Self { ready: ready.min(Self::READY) | Self::FROM_TIER, expires, expires_before: 0 }
    }

    /// Until then a value that expires at this time is there; 0: none.
    pub(super) fn replacing(self, expires_before: Ticks) -> Self {
        Self { expires_before, ..self }
    }

    /// When the value is there.
    pub(super) fn ready(self) -> Ticks {
        self.ready & Self::READY
    }

    /// True if a request before that is a hit in the shared tier.
    pub(super) fn is_from_tier(self) -> bool {
        self.ready & Self::FROM_TIER != 0
    }

    /// The expiry of the value that is there at `now`; 0: absent.
    pub(super) fn expires_at(self, now: Ticks) -> Ticks {
        if now < self.ready() { self.expires_before } else { self.expires }
    }
}

/// The states of values in a fleet, which all have the same times after their load: those of the cache's own rule, with a tick in place of
/// a nanosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct States {
    /// How long before its expiry a value is refreshed.
    early: Ticks,
    spans: Spans,
}

impl States {
    pub(super) fn new(early: Ticks, swr: Ticks) -> Self {
        Self { early, spans: Spans::stale(Duration::from_nanos(swr.into())) }
    }

    fn times(self, expires: Ticks) -> Lifetime {
        let moment = |ticks| if expires == NEVER { Time::NEVER } else { time(ticks) };
        Lifetime::new(Time::ZERO, moment(self.due(expires)), moment(expires), self.spans)
    }

    /// When a request for the value refreshes it.
    pub(super) fn due(self, expires: Ticks) -> Ticks {
        expires.saturating_sub(self.early)
    }

    /// The state of a value that expires then; 0: absent.
    #[inline]
    pub(super) fn state(self, expires: Ticks, now: Ticks) -> FreshnessState {
        if expires == 0 {
            return FreshnessState::Gone;
        }
        let now = time(now);
        self.times(expires).state(now, || (now, 0.0))
    }

    /// True if the value is not stored any more.
    #[inline]
    pub(super) fn is_gone(self, life: Life, now: Ticks) -> bool {
        self.times(life.expires).kept_until() <= time(now)
    }
}

fn time(ticks: Ticks) -> Time {
    Time::from_nanos(ticks.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_as_short_as_the_load_allows() {
        let clock = |seconds| TickClock::for_load(Duration::from_secs(seconds));
        assert_eq!(clock(600).tick_nanos, 1_000);
        assert_eq!(clock(3_600).tick_nanos, 10_000);
        assert_eq!(clock(600).ticks(Duration::from_millis(20)), 20_000);
        assert_eq!(clock(600).ticks(Duration::MAX), NEVER);
        assert_eq!(clock(600).nanos(20_000), 20_000_000);
        assert_eq!(clock(3_600).second(), 100_000);
    }

    #[test]
    fn value_before_is_there_until_the_load_ends() {
        let life = Life::from_tier(100, NEVER).replacing(70);
        assert_eq!(
            (life.ready(), life.is_from_tier(), life.expires_at(99), life.expires_at(100)),
            (100, true, 70, NEVER)
        );
        assert!(!Life::loaded(100, 200).is_from_tier());
        let states = States::new(10, 20);
        for (expires, now, expected) in [
            (100, 89, FreshnessState::Fresh),
            (100, 90, FreshnessState::Refresh),
            (100, 100, FreshnessState::Stale),
            (100, 120, FreshnessState::Gone),
            (0, 5, FreshnessState::Gone),
            (NEVER, NEVER - 1, FreshnessState::Fresh),
        ] {
            assert_eq!(states.state(expires, now), expected, "{expires} at {now}");
        }
    }
}
