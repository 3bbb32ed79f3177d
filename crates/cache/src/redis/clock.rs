//! What the clock of a server says, without asking it each time. Pure.
//!
//! Ages are differences of this one clock, whichever nodes tell them: the clocks of nodes differ.

use stockade_model::time::Time;

/// Microseconds since 1970 on the server's clock.
pub(super) type Micros = u64;

/// How far a clock may be off.
pub(super) const SLACK: Micros = 1_000_000;

/// What is known of a server's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// What it said, between these two moments.
    said: Micros,
    sent: Time,
    received: Time,
    /// It has been so late already.
    at_least: Micros,
}

impl Clock {
    /// It said this, to a question of then, in an answer of now.
    pub(super) fn set(&mut self, said: Micros, sent: Time, received: Time) {
        (self.said, self.sent, self.received) = (said, sent, received);
    }

    /// A note of that time has been heard.
    pub(super) fn heard(&mut self, at: Micros) {
        self.at_least = self.at_least.max(at);
    }

    /// The time there, or a little before.
    pub(super) fn earliest(&self, now: Time) -> Micros {
        (self.said + micros(now - self.received)).max(self.at_least)
    }

    /// The time there, or a little after.
    pub(super) fn latest(&self, now: Time) -> Micros {
        (self.said + micros(now - self.sent)).max(self.at_least)
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
    fn the_time_lies_between_what_it_may_be() {
        let mut clock = Clock::default();
        let at = |micros| Time::ZERO + Duration::from_micros(micros);
        clock.set(1_000_000, at(100), at(400));
        assert_eq!((clock.earliest(at(500)), clock.latest(at(500))), (1_000_100, 1_000_400));
        clock.heard(1_000_200);
        assert_eq!((clock.earliest(at(500)), clock.latest(at(500))), (1_000_200, 1_000_400));
        assert_eq!(clock.earliest(at(900)), 1_000_500);
    }
}
