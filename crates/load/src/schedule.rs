//! An open load: when each request is due, however the earlier ones fare.
//!
//! A [`Schedule`] is [`Step`]s one after the other. Each has a shape that says how many requests are expected
//! by when, and the inverse of that, which says when the `n`th is due; [`Arrivals`] say whether they come
//! evenly or by chance. [`Due`] walks along all of them. Nothing here knows a clock.

mod due;
mod ramp;
mod rate;
mod sine;
mod step;

use std::{fmt, time::Duration};

use stockade_model::seed::Seed;

pub use due::Due;
pub use rate::{Level, Rate, RateError};
pub use sine::{Sine, SineError, Turn};
pub use step::{Arrivals, Step};

use due::Walk;

/// More requests, or a longer load, than anybody waits for.
pub const REQUESTS_MAX: u64 = 1_000_000_000;
/// See [`REQUESTS_MAX`].
pub const DURATION_MAX: Duration = Duration::from_hours(30 * 24);

/// When the requests of a load are due.
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
/// let due: Vec<Duration> = schedule.arrivals(Seed(1)).collect();
/// assert_eq!(due[..3], [Duration::ZERO, Duration::from_nanos(333_333_333), Duration::from_nanos(666_666_666)]);
/// assert_eq!((due.len(), schedule.lasts()), (110, Duration::from_secs(61)));
/// assert_eq!(schedule.to_string(), "1s at 3/s, 60s at 100/m, 7 at once");
/// # Ok::<(), stockade_load::schedule::RateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// One step, or none.
    warmup: Vec<Step>,
    steps: Vec<Step>,
    most: Option<u64>,
}

/// More than anybody waits for, or nothing at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Beyond {
    /// There is no request.
    #[error("nobody would come")]
    Nobody,
    /// More than [`REQUESTS_MAX`].
    #[error("more than 1,000,000,000 requests")]
    Requests,
    /// Longer than [`DURATION_MAX`].
    #[error("longer than 30 days")]
    Duration,
}

impl Beyond {
    /// Whether so many requests in so much time are too many, too long, or none.
    pub fn check(requests: u64, lasts: Duration) -> Result<(), Self> {
        match requests {
            0 => Err(Self::Nobody),
            _ if requests > REQUESTS_MAX => Err(Self::Requests),
            _ if lasts > DURATION_MAX => Err(Self::Duration),
            _ => Ok(()),
        }
    }

    /// Of what a time has to be that there can be so much.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        if self == Self::Nobody { "longer" } else { "shorter" }
    }
}

impl Schedule {
    /// The steps one after the other.
    #[must_use]
    pub fn new(steps: Vec<Step>) -> Self {
        Self { warmup: Vec::new(), steps, most: None }
    }

    /// The same, and over after so many requests. Those of a warm-up are not counted.
    #[must_use]
    pub fn limited(self, requests: u64) -> Self {
        let most = self.most.map_or(requests, |most| most.min(requests));
        Self { most: Some(most), ..self }
    }

    /// The same preceded by `lasts` at its first rate, in place of what preceded it. A ramp from none warms up
    /// at its average, as does a log; `None` if there is no rate in it at all. What follows is the same as
    /// without a warm-up, only later.
    #[must_use]
    pub fn with_warmup(self, lasts: Duration) -> Option<Self> {
        let (step, rate) = self.steps.iter().find_map(|step| Some((step, step.first_rate()?)))?;
        let arrivals = if step.is_poisson() { Arrivals::Poisson } else { Arrivals::Constant };
        let warmup = (!lasts.is_zero()).then(|| Step::steady(rate, lasts).arriving(arrivals));
        Some(Self { warmup: Vec::from_iter(warmup), ..self })
    }

    /// How long its warm-up is: what is due from then on is measured.
    #[must_use]
    pub fn warmup(&self) -> Duration {
        total(&self.warmup)
    }

    /// How long all of it takes, warm-up included. A limited one that is evenly spread ends when one request
    /// too many would be due; one by chance may need all its time.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.warmup().saturating_add(self.cut().unwrap_or_else(|| total(&self.steps)))
    }

    /// Whether it is over with its last request, whenever that comes: [`lasts`](Self::lasts) is a bound only.
    pub(crate) fn ends_by_chance(&self) -> bool {
        self.most.is_some() && self.cut().is_none() && self.steps.iter().any(Step::is_poisson)
    }

    /// When the first request is due that is beyond the limit, if it is known and there is one.
    fn cut(&self) -> Option<Duration> {
        let mut left = self.most?;
        let mut began = Duration::ZERO;
        for step in &self.steps {
            if step.is_poisson() {
                return None;
            }
            let requests = step.requests();
            if left < requests {
                return Some(began.saturating_add(step.due(left)));
            }
            left -= requests;
            began = began.saturating_add(step.lasts());
        }
        None
    }

    /// How many requests there are, warm-up included: exactly if they are evenly spread, else on average.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.warmup_requests().saturating_add(requests(&self.steps).min(self.most.unwrap_or(u64::MAX)))
    }

    /// How many of them are for getting warm.
    pub(crate) fn warmup_requests(&self) -> u64 {
        requests(&self.warmup)
    }

    /// How many of them that are, exactly.
    pub(crate) fn warmup_arrivals(&self, seed: Seed) -> u64 {
        let warmup = self.warmup();
        if warmup.is_zero() {
            return 0;
        }
        self.arrivals(seed).take_while(|due| *due < warmup).count() as u64
    }

    /// Whether there is so much of it that nobody waits for it, or nothing at all.
    pub fn check(&self) -> Result<(), Beyond> {
        Beyond::check(self.requests(), self.lasts())
    }

    /// The most requests that are expected in a second of any step: for who has to send them. Those of a burst
    /// count as those of one second.
    #[must_use]
    pub fn peak_per_second(&self) -> f64 {
        self.steps.iter().map(Step::peak_per_second).fold(0.0, f64::max)
    }

    /// The most requests of a burst; 0 if there is none.
    #[must_use]
    pub fn at_once_max(&self) -> u64 {
        let most = self.steps.iter().map(Step::at_once).max().unwrap_or_default();
        self.most.map_or(most, |all| all.min(most))
    }

    /// The same rates for `factor` times as long; every step for a nanosecond at least. Waves and logs are
    /// played slower, bursts are as large as before; a warm-up and a limit stay as they are.
    #[must_use]
    pub fn stretched(&self, factor: f64) -> Self {
        Self { steps: self.steps.iter().map(|step| step.stretched(factor)).collect(), ..self.clone() }
    }

    /// When each request is due, counted from the start: in ascending order, the same for the same seed, and
    /// never after the end. At the very end only those of a burst and the last of a log are.
    #[must_use]
    pub fn arrivals(&self, seed: Seed) -> Due<'_> {
        let warmup = Walk::new(&self.warmup, Duration::ZERO, seed.stream("warm-up"));
        let measured = Walk::new(&self.steps, self.warmup(), seed.stream("arrivals"));
        Due::new(warmup, measured, self.most)
    }
}

fn requests(steps: &[Step]) -> u64 {
    steps.iter().map(Step::requests).fold(0, u64::saturating_add)
}

fn total(steps: &[Step]) -> Duration {
    steps.iter().map(Step::lasts).fold(Duration::ZERO, Duration::saturating_add)
}

/// `60s at 425/s`, `10s at 100/s, 5s at 1000/s (poisson)`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rates = self.steps.iter().filter(|step| step.is_rate());
        let is_all_poisson = rates.clone().next().is_some() && rates.all(Step::is_poisson);
        for (index, step) in self.steps.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let poisson = if step.is_poisson() && !is_all_poisson { " (poisson)" } else { "" };
            write!(f, "{comma}{step}{poisson}")?;
        }
        if is_all_poisson {
            f.write_str(" (poisson)")?;
        }
        if let Some(most) = self.most {
            write!(f, ", {most} requests at most")?;
        }
        match self.warmup.first() {
            Some(warmup) => write!(f, ", after {warmup} to warm up"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
