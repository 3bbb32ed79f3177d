//! Times of values and loads in a fleet, in 8 bytes. Pure.

use std::time::Duration;

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

/// The answer to requests that come before a value is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Meanwhile {
    /// They wait for the load: [`Coalesced`](stockade_model::outcome::Outcome::Coalesced).
    WaitForLoad = 0,
    /// They wait for the lookup in the shared tier, which finds a fresh value: hits.
    WaitForTier = 1,
    /// They receive the old value, which is fresh.
    ServeFresh = 2,
    /// They receive the old value, which is stale.
    ServeStale = 3,
}

/// A value of a key on one node, or its load in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Life {
    /// When the value is there, and in the two top bits a [`Meanwhile`].
    ready: u32,
    /// When it stops being fresh.
    pub(super) expires: Ticks,
}

impl Life {
    const READY: u32 = (1 << 30) - 1;

    pub(super) fn new(ready: Ticks, meanwhile: Meanwhile, expires: Ticks) -> Self {
        Self { ready: ready.min(Self::READY) | (meanwhile as u32) << 30, expires }
    }

    /// When the value is there.
    pub(super) fn ready(self) -> Ticks {
        self.ready & Self::READY
    }

    pub(super) fn meanwhile(self) -> Meanwhile {
        match self.ready >> 30 {
            0 => Meanwhile::WaitForLoad,
            1 => Meanwhile::WaitForTier,
            2 => Meanwhile::ServeFresh,
            _ => Meanwhile::ServeStale,
        }
    }
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
    fn life_keeps_its_times() {
        for meanwhile in
            [Meanwhile::WaitForLoad, Meanwhile::WaitForTier, Meanwhile::ServeFresh, Meanwhile::ServeStale]
        {
            let life = Life::new(123_456_789, meanwhile, NEVER);
            assert_eq!((life.ready(), life.meanwhile(), life.expires), (123_456_789, meanwhile, NEVER));
        }
    }
}
