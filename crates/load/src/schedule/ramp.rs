//! A rate that grows, or falls, evenly.

use std::time::Duration;

use super::rate::Level;

/// From one rate to another, in a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ramp {
    pub(super) from: Level,
    pub(super) to: Level,
    pub(super) lasts: Duration,
}

impl Ramp {
    fn nanos(&self) -> f64 {
        self.lasts.as_nanos() as f64
    }

    /// How many requests are expected in all.
    pub(super) fn whole(&self) -> f64 {
        f64::midpoint(self.from.over(self.nanos()), self.to.over(self.nanos()))
    }

    /// How many requests are expected within so many nanoseconds of its start.
    pub(super) fn expected(&self, nanos: f64) -> f64 {
        let (low, high) = (self.from.over(nanos), self.to.over(nanos));
        low + (high - low) * (nanos / self.nanos()) / 2.0
    }

    /// Within how many nanoseconds so many requests are expected.
    ///
    /// The rate is `a + (b - a) t / T`, so `n` requests are there at the root of a quadratic. It is written
    /// without a difference of numbers that are nearly the same, which is why a falling rate is looked at
    /// from its end.
    pub(super) fn within(&self, requests: f64) -> f64 {
        let (from, to) = (self.from.over(self.nanos()), self.to.over(self.nanos()));
        let growing = |low: f64, high: f64, requests: f64| {
            if requests <= 0.0 {
                return 0.0;
            }
            2.0 * requests / (low + (low * low + 2.0 * (high - low) * requests).sqrt())
        };
        let share = if from <= to {
            growing(from, to, requests)
        } else {
            1.0 - growing(to, from, self.whole() - requests)
        };
        self.nanos() * share
    }
}
