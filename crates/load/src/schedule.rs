//! An open load: rates, how long each is kept up, and how requests are spread over the time.

mod rate;

use std::{fmt, iter, time::Duration};

use rand_distr::{Distribution, Exp1};
use stockade_model::{
    seed::{Rng, Seed},
    units::{format_span, stretched},
};

pub use rate::{Rate, RateError};

/// How the requests of a step are spread over its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly: request `n` of a step of `a` requests per `P` is due `n * P / a` after it began.
    #[default]
    Constant,
    /// As from very many users who know nothing of each other: a Poisson process, whose gaps are
    /// exponential and whose counts vary as much as they are large.
    Poisson,
}

/// A rate, and how long it is kept up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Requests per time.
    pub rate: Rate,
    /// For how long.
    pub lasts: Duration,
}

/// When the requests of a load are due.
///
/// ```
/// use std::time::Duration;
/// use stockade_load::schedule::{Arrivals, Schedule, Step};
/// use stockade_model::seed::Seed;
///
/// let steps = vec![
///     Step { rate: "3/s".parse()?, lasts: Duration::from_secs(1) },
///     Step { rate: "100/m".parse()?, lasts: Duration::from_secs(60) },
/// ];
/// let schedule = Schedule::new(steps, Arrivals::Constant);
///
/// let due: Vec<Duration> = schedule.arrivals(Seed(1)).collect();
/// assert_eq!(due[..3], [Duration::ZERO, Duration::from_nanos(333_333_333), Duration::from_nanos(666_666_666)]);
/// assert_eq!((due.len(), schedule.lasts()), (103, Duration::from_secs(61)));
/// # Ok::<(), stockade_load::schedule::RateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    steps: Vec<Step>,
    arrivals: Arrivals,
}

impl Schedule {
    /// The steps one after the other.
    #[must_use]
    pub fn new(steps: Vec<Step>, arrivals: Arrivals) -> Self {
        Self { steps, arrivals }
    }

    /// How long all of it takes.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.steps.iter().fold(Duration::ZERO, |all, step| all.saturating_add(step.lasts))
    }

    /// How many requests there are: exactly if they are evenly spread, else on average.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.steps.iter().fold(0, |all, step| all.saturating_add(step.rate.within(step.lasts)))
    }

    /// The same rates for `factor` times as long; every step for a nanosecond at least.
    #[must_use]
    pub fn stretched(&self, factor: f64) -> Self {
        let step =
            |step: &Step| Step { lasts: stretched(step.lasts, factor).max(Duration::from_nanos(1)), ..*step };
        Self { steps: self.steps.iter().map(step).collect(), arrivals: self.arrivals }
    }

    /// When each request is due, counted from the start: in ascending order, the same for the same
    /// seed, and never at or after the end.
    #[must_use]
    pub fn arrivals(&self, seed: Seed) -> Box<dyn Iterator<Item = Duration> + Send + '_> {
        match self.arrivals {
            Arrivals::Constant => Box::new(self.evenly()),
            Arrivals::Poisson => {
                let mut poisson = Poisson::new(&self.steps, seed.stream("arrivals"));
                Box::new(iter::from_fn(move || poisson.next()))
            }
        }
    }

    fn evenly(&self) -> impl Iterator<Item = Duration> + Send + '_ {
        let began = self.steps.iter().scan(Duration::ZERO, |end, step| {
            let began = *end;
            *end = end.saturating_add(step.lasts);
            Some(began)
        });
        self.steps.iter().zip(began).flat_map(|(step, began)| {
            (0..step.rate.within(step.lasts)).map(move |n| began.saturating_add(step.rate.due(n)))
        })
    }
}

/// `60s at 425/s`, `10s at 100/s, 5s at 1000/s (poisson)`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Step { rate, lasts }) in self.steps.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} at {rate}", format_span(*lasts))?;
        }
        match self.arrivals {
            Arrivals::Constant => Ok(()),
            Arrivals::Poisson => f.write_str(" (poisson)"),
        }
    }
}

/// A Poisson process of rate one, its time stretched so that it runs at each step's rate: gaps that
/// span two steps are drawn once, and stay exponential on either side.
struct Poisson<'a> {
    steps: &'a [Step],
    /// When the first of them began.
    began: Duration,
    /// How far into it the last request was due, in nanoseconds.
    into: f64,
    draws: Rng,
}

impl<'a> Poisson<'a> {
    fn new(steps: &'a [Step], draws: Rng) -> Self {
        Self { steps, began: Duration::ZERO, into: 0.0, draws }
    }

    fn next(&mut self) -> Option<Duration> {
        let mut gap: f64 = Exp1.sample(&mut self.draws);
        loop {
            let (step, later) = self.steps.split_first()?;
            let (per_nano, lasts) = (step.rate.per_nano(), step.lasts.as_nanos() as f64);
            let due = self.into + gap / per_nano;
            if due < lasts {
                self.into = due;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is between 0 and the end of the step"
                )]
                let due =
                    Duration::from_nanos(due as u64).min(step.lasts.saturating_sub(Duration::from_nanos(1)));
                return Some(self.began.saturating_add(due));
            }
            gap -= (lasts - self.into) * per_nano;
            self.began = self.began.saturating_add(step.lasts);
            (self.steps, self.into) = (later, 0.0);
        }
    }
}

#[cfg(test)]
mod tests;
