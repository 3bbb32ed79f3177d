//! The clock of the server, estimated without asking for it each time. Pure.
//!
//! All nodes compute ages from this one clock, because the clocks of nodes differ.

use stockade_model::time::Time;

/// Microseconds since 1970 on the server's clock.
pub(super) type Micros = u64;

/// The tolerated error of a clock.
pub(super) const SLACK: Micros = 1_000_000;

/// An estimate of the server's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerClock {
    /// Its reading, at some moment between these two.
    reading: Micros,
    sent: Time,
    received: Time,
    /// The latest time that any event had.
    at_least: Micros,
}

impl ServerClock {
    /// Records a reading that was requested at `sent` and received at `received`.
    pub(super) fn set(&mut self, reading: Micros, sent: Time, received: Time) {
        (self.reading, self.sent, self.received) = (reading, sent, received);
    }

    /// Records the time of an event.
    pub(super) fn raise_to(&mut self, at: Micros) {
        self.at_least = self.at_least.max(at);
    }

    /// A lower bound of the server's time.
    pub(super) fn earliest(&self, now: Time) -> Micros {
        (self.reading + micros(now - self.received)).max(self.at_least)
    }

    /// An upper bound of the server's time.
    pub(super) fn latest(&self, now: Time) -> Micros {
        (self.reading + micros(now - self.sent)).max(self.at_least)
    }
}

pub(super) fn micros(duration: std::time::Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn server_time_lies_within_its_bounds() {
        let mut clock = ServerClock::default();
        let at = |micros| Time::ZERO + Duration::from_micros(micros);
        clock.set(1_000_000, at(100), at(400));
        assert_eq!((clock.earliest(at(500)), clock.latest(at(500))), (1_000_100, 1_000_400));
        clock.raise_to(1_000_200);
        assert_eq!((clock.earliest(at(500)), clock.latest(at(500))), (1_000_200, 1_000_400));
        assert_eq!(clock.earliest(at(900)), 1_000_500);
    }
}
