//! The due times of an open load, which do not depend on responses.
//!
//! A [`Schedule`] is a sequence of [`Step`]s. A step has a shape, which gives the expected number of requests by a time and
//! its inverse, the due time of the `n`th request; its [`ArrivalProcess`] spaces them evenly or at random. [`DueTimes`]
//! iterates over all steps. There is no clock in this module.

mod due;
mod ramp;
mod sine;
mod step;

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use stockade_model::seed::{Rng, Seed};

pub use due::{DueTimes, ThinnedDueTimes};
pub use sine::{Sine, SineError, SineStart};
pub use step::{ArrivalProcess, Step};
pub use stockade_model::rate::{Rate, RateError, RateOrZero};

use due::Walk;

/// The most requests of a load.
pub const REQUESTS_MAX: u64 = 1_000_000_000;
/// The longest load.
pub const DURATION_MAX: Duration = Duration::from_hours(30 * 24);

/// The due times of a load, as steps in sequence.
///
/// ```
/// use std::time::Duration;
/// use stockade_load::schedule::{Schedule, Step};
/// use stockade_model::seed::Seed;
///
/// let steps = vec![
///     Step::steady("3/s".parse()?, Duration::from_secs(1)),
///     Step::steady("100/m".parse()?, Duration::from_secs(60)),
///     Step::burst(7),
/// ];
/// let schedule = Schedule::new(steps);
///
/// let due: Vec<Duration> = schedule.due_times(Seed(1)).collect();
/// assert_eq!(due[..3], [Duration::ZERO, Duration::from_nanos(333_333_333), Duration::from_nanos(666_666_666)]);
/// assert_eq!((due.len(), schedule.duration()), (110, Duration::from_secs(61)));
/// assert_eq!(schedule.to_string(), "1s at 3/s, 60s at 100/m, 7 at once");
/// # Ok::<(), stockade_load::schedule::RateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// At most one step.
    warmup: Vec<Step>,
    steps: Vec<Step>,
    requests_max: Option<u64>,
}

/// Why a load is refused: it has no requests, or it exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleLimitError {
    /// There is no request.
    #[error("the load has no requests")]
    NoRequests,
    /// More than [`REQUESTS_MAX`].
    #[error("more than 1,000,000,000 requests")]
    TooManyRequests,
    /// Longer than [`DURATION_MAX`].
    #[error("longer than 30 days")]
    TooLong,
}

impl ScheduleLimitError {
    /// Checks the limits.
    pub fn check(requests: u64, duration: Duration) -> Result<(), Self> {
        match requests {
            0 => Err(Self::NoRequests),
            _ if requests > REQUESTS_MAX => Err(Self::TooManyRequests),
            _ if duration > DURATION_MAX => Err(Self::TooLong),
            _ => Ok(()),
        }
    }

    /// How to change the duration: `longer` or `shorter`.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        if self == Self::NoRequests { "longer" } else { "shorter" }
    }
}

impl Schedule {
    /// Steps in sequence.
    #[must_use]
    pub fn new(steps: Vec<Step>) -> Self {
        Self { warmup: Vec::new(), steps, requests_max: None }
    }

    /// Ends the schedule after this number of requests, not counting those of a warm-up.
    #[must_use]
    pub fn with_requests_max(self, requests_max: u64) -> Self {
        let requests_max = self.requests_max.map_or(requests_max, |known| known.min(requests_max));
        Self { requests_max: Some(requests_max), ..self }
    }

    /// Replaces the warm-up by one of this duration at the first rate; a ramp from 0 and a replay warm up at their mean rate.
    /// `None` if the schedule has no rate. The measured requests are the same as without a warm-up, only later.
    #[must_use]
    pub fn with_warmup(self, duration: Duration) -> Option<Self> {
        let (step, rate) = self.steps.iter().find_map(|step| Some((step, step.first_rate()?)))?;
        let arrivals = if step.is_poisson() { ArrivalProcess::Poisson } else { ArrivalProcess::Constant };
        let warmup = (!duration.is_zero()).then(|| Step::steady(rate, duration).with_arrivals(arrivals));
        Some(Self { warmup: Vec::from_iter(warmup), ..self })
    }

    /// The duration of the warm-up. Requests due later are measured.
    #[must_use]
    pub fn warmup(&self) -> Duration {
        total_duration(&self.warmup)
    }

    /// The duration, warm-up included. With a limit on requests, a constant schedule ends at the due time of the first
    /// request beyond it; a Poisson process may need the whole time.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.warmup().saturating_add(self.limited_duration().unwrap_or_else(|| total_duration(&self.steps)))
    }

    /// True if it ends with its last request, at a random time: [`duration`](Self::duration) is only a bound.
    pub(crate) fn ends_by_chance(&self) -> bool {
        self.requests_max.is_some()
            && self.limited_duration().is_none()
            && self.steps.iter().any(Step::is_poisson)
    }

    /// The due time of the first request beyond the limit, if there is one and it is not random.
    fn limited_duration(&self) -> Option<Duration> {
        let mut left = self.requests_max?;
        let mut start = Duration::ZERO;
        for step in &self.steps {
            if step.is_poisson() {
                return None;
            }
            let requests = step.requests();
            if left < requests {
                return Some(start.saturating_add(step.due(left)));
            }
            left -= requests;
            start = start.saturating_add(step.duration());
        }
        None
    }

    /// The number of requests, warm-up included: exact for constant arrivals, the mean for Poisson arrivals.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.warmup_requests()
            .saturating_add(requests(&self.steps).min(self.requests_max.unwrap_or(u64::MAX)))
    }

    /// A bound on the number of requests, warm-up included: exact for constant arrivals, five standard deviations above the mean for
    /// Poisson arrivals.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a root of a count, 0 at least"
    )]
    pub fn requests_max(&self) -> u64 {
        let requests = self.requests();
        let is_poisson = self.warmup.iter().chain(&self.steps).any(Step::is_poisson);
        let chance = if is_poisson { (5.0 * (requests as f64).sqrt()).ceil() as u64 + 5 } else { 0 };
        requests.saturating_add(chance)
    }

    /// The expected requests that are due before a time since the start. The limit on requests is not applied.
    #[must_use]
    pub fn expected_before(&self, time: Duration) -> f64 {
        // Requests that are due at the time itself, such as a burst, are not before it.
        let Some(mut left) = time.checked_sub(Duration::from_nanos(1)) else { return 0.0 };
        let mut expected = 0.0;
        for step in self.warmup.iter().chain(&self.steps) {
            expected += step.expected_requests(left);
            let Some(after) = left.checked_sub(step.duration()) else { break };
            left = after;
        }
        expected
    }

    /// The number of warm-up requests: exact or the mean, as in [`requests`](Self::requests).
    pub(crate) fn warmup_requests(&self) -> u64 {
        requests(&self.warmup)
    }

    /// The exact number of warm-up requests.
    #[cfg(feature = "http")]
    pub(crate) fn warmup_arrivals(&self, seed: Seed) -> u64 {
        let warmup = self.warmup();
        if warmup.is_zero() {
            return 0;
        }
        self.due_times(seed).take_while(|due| *due < warmup).count() as u64
    }

    /// Checks the limits on requests and duration.
    pub fn check(&self) -> Result<(), ScheduleLimitError> {
        ScheduleLimitError::check(self.requests(), self.duration())
    }

    /// The highest expected rate of a step. A burst counts as the requests of one second.
    #[must_use]
    pub fn peak_per_second(&self) -> f64 {
        self.steps.iter().map(Step::peak_per_second).fold(0.0, f64::max)
    }

    /// The most requests of a burst; 0 without a burst.
    #[must_use]
    pub fn burst_max(&self) -> u64 {
        let burst = self.steps.iter().map(Step::burst_requests).max().unwrap_or_default();
        self.requests_max.map_or(burst, |max| max.min(burst))
    }

    /// The same rates for `factor` times the duration, at least a nanosecond per step. Sines and replays slow down; bursts,
    /// the warm-up and the limit on requests do not change.
    #[must_use]
    pub fn stretched(&self, factor: f64) -> Self {
        Self { steps: self.steps.iter().map(|step| step.stretched(factor)).collect(), ..self.clone() }
    }

    /// The due times from the start: ascending, the same for the same seed, and before the end. Only bursts and the last
    /// request of a replay may be due at the end itself.
    #[must_use]
    pub fn due_times(&self, seed: Seed) -> DueTimes<'_> {
        let warmup = Walk::new(&self.warmup, Duration::ZERO, seed.stream("warm-up"));
        let measured = Walk::new(&self.steps, self.warmup(), seed.stream("arrivals"));
        DueTimes::new(warmup, measured, self.requests_max)
    }

    /// The due times of a part of the requests, if the steps are Poisson processes. `share` is that of the rate, above 0 and at
    /// most one. Parts with independent `draws` whose shares add up to one are together the process of the schedule. The
    /// warm-up and the limit on requests are left out.
    #[must_use]
    pub fn due_times_of_share(&self, share: f64, draws: Rng) -> ThinnedDueTimes<'_> {
        ThinnedDueTimes::new(Walk::new(&self.steps, Duration::ZERO, draws).with_share(share))
    }
}

fn requests(steps: &[Step]) -> u64 {
    steps.iter().map(Step::requests).fold(0, u64::saturating_add)
}

fn total_duration(steps: &[Step]) -> Duration {
    steps.iter().map(Step::duration).fold(Duration::ZERO, Duration::saturating_add)
}

/// `60s at 425/s`, `10s at 100/s, 5s at 1000/s (poisson)`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rates = self.steps.iter().filter(|step| step.has_arrival_process());
        let is_all_poisson = rates.clone().next().is_some() && rates.all(Step::is_poisson);
        for (index, step) in self.steps.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let poisson = if step.is_poisson() && !is_all_poisson { " (poisson)" } else { "" };
            write!(f, "{comma}{step}{poisson}")?;
        }
        if is_all_poisson {
            f.write_str(" (poisson)")?;
        }
        if let Some(max) = self.requests_max {
            write!(f, ", {max} requests at most")?;
        }
        match self.warmup.first() {
            Some(warmup) => write!(f, ", after {warmup} to warm up"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
