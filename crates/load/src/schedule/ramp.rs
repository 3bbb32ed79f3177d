//! A linear ramp of the rate.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stockade_model::rate::RateOrZero;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinearRamp {
    pub(super) from: RateOrZero,
    pub(super) to: RateOrZero,
    pub(super) duration: Duration,
}

impl LinearRamp {
    fn nanos(&self) -> f64 {
        self.duration.as_nanos() as f64
    }

    /// The expected number of requests.
    pub(super) fn total(&self) -> f64 {
        f64::midpoint(self.from.over(self.nanos()), self.to.over(self.nanos()))
    }

    /// The expected number of requests within `nanos` of the start.
    pub(super) fn expected(&self, nanos: f64) -> f64 {
        let (low, high) = (self.from.over(nanos), self.to.over(nanos));
        low + (high - low) * (nanos / self.nanos()) / 2.0
    }

    /// The nanoseconds within which `requests` are expected.
    ///
    /// The rate is `a + (b - a) t / T`, so the time is the root of a quadratic. The form used here has no difference of
    /// nearly equal numbers, so a falling ramp is computed from its end.
    pub(super) fn time_of(&self, requests: f64) -> f64 {
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
            1.0 - growing(to, from, self.total() - requests)
        };
        self.nanos() * share
    }
}
