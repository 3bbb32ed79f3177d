//! Steps of a schedule: shapes of the rate, and arrival processes.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use stockade_model::{
    rate::{Rate, RateOrZero},
    units::{format_count, format_span, stretched},
};

use super::{ramp::LinearRamp, sine::Sine};

/// How the requests of a step are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArrivalProcess {
    /// Evenly: request `n` of a step is due when `n` requests are expected. At `a` requests per `P` that is `n * P / a`
    /// after the start.
    #[default]
    Constant,
    /// A Poisson process, as from many independent users: gaps are exponential, and the variance of a count is its mean.
    Poisson,
}

/// A step of a schedule: a shape of the rate, and an arrival process.
///
/// | shape | requests expected after `t` |
/// |---|---|
/// | `steady` | `a t` |
/// | `ramp` | `a t + (b - a) t^2 / 2T` |
/// | `sine` | `m t` and the integral of a sine |
/// | `pause` | none |
/// | `burst` | all, at once |
/// | `replay` | as recorded |
///
/// The first three are rates, and can be Poisson processes. The others ignore the arrival process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    shape: Shape,
    arrivals: ArrivalProcess,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Shape {
    Steady { rate: Rate, duration: Duration },
    Ramp(LinearRamp),
    Sine { sine: Sine, duration: Duration },
    Pause { duration: Duration },
    Burst { requests: u64 },
    Replay { due: Arc<[Duration]> },
}

impl From<Shape> for Step {
    fn from(shape: Shape) -> Self {
        Self { shape, arrivals: ArrivalProcess::Constant }
    }
}

impl Step {
    /// A constant rate.
    #[must_use]
    pub fn steady(rate: Rate, duration: Duration) -> Self {
        Shape::Steady { rate, duration }.into()
    }

    /// A linear change from one rate to another. Either may be [`RateOrZero::ZERO`].
    #[must_use]
    pub fn ramp(from: impl Into<RateOrZero>, to: impl Into<RateOrZero>, duration: Duration) -> Self {
        let (from, to) = (from.into(), to.into());
        match from.rate() {
            None if to == RateOrZero::ZERO => Shape::Pause { duration },
            Some(rate) if from == to => Shape::Steady { rate, duration },
            _ => Shape::Ramp(LinearRamp { from, to, duration }),
        }
        .into()
    }

    /// An oscillating rate.
    #[must_use]
    pub fn sine(sine: Sine, duration: Duration) -> Self {
        Shape::Sine { sine, duration }.into()
    }

    /// No requests.
    #[must_use]
    pub fn pause(duration: Duration) -> Self {
        Shape::Pause { duration }.into()
    }

    /// Requests that are all due at the same nanosecond. The step has no duration.
    #[must_use]
    pub fn burst(requests: u64) -> Self {
        Shape::Burst { requests }.into()
    }

    /// Recorded due times from the start of the step, which ends with the last one. They are sorted.
    #[must_use]
    pub fn replay(due: impl Into<Arc<[Duration]>>) -> Self {
        let mut due = due.into();
        if !due.is_sorted() {
            let mut sorted = due.to_vec();
            sorted.sort_unstable();
            due = sorted.into();
        }
        Shape::Replay { due }.into()
    }

    /// Replaces the arrival process of a rate; no effect on a pause, a burst or a replay.
    #[must_use]
    pub fn with_arrivals(self, arrivals: ArrivalProcess) -> Self {
        Self {
            arrivals: if self.has_arrival_process() { arrivals } else { ArrivalProcess::Constant },
            ..self
        }
    }

    /// True if it is a Poisson process.
    #[must_use]
    pub fn is_poisson(&self) -> bool {
        self.arrivals == ArrivalProcess::Poisson
    }

    /// True if its shape is a rate.
    pub(super) fn has_arrival_process(&self) -> bool {
        matches!(self.shape, Shape::Steady { .. } | Shape::Ramp(_) | Shape::Sine { .. })
    }

    /// The requests of a burst; else 0.
    pub(super) fn burst_requests(&self) -> u64 {
        match self.shape {
            Shape::Burst { requests } => requests,
            _ => 0,
        }
    }

    /// The duration; zero for a burst.
    #[must_use]
    pub fn duration(&self) -> Duration {
        match &self.shape {
            Shape::Steady { duration, .. } | Shape::Sine { duration, .. } | Shape::Pause { duration } => {
                *duration
            }
            Shape::Ramp(ramp) => ramp.duration,
            Shape::Burst { .. } => Duration::ZERO,
            Shape::Replay { due } => due.last().copied().unwrap_or_default(),
        }
    }

    /// The number of requests: exact for constant arrivals, the mean for Poisson arrivals.
    #[must_use]
    pub fn requests(&self) -> u64 {
        match &self.shape {
            Shape::Steady { rate, duration } => rate.within(*duration),
            Shape::Ramp(ramp) => requests_before(ramp.total()),
            Shape::Sine { .. } => requests_before(self.expected_requests(self.duration())),
            Shape::Pause { .. } => 0,
            Shape::Burst { requests } => *requests,
            Shape::Replay { due } => due.len() as u64,
        }
    }

    /// The expected number of requests within a time from the start, including those of a burst or a replay that are due at
    /// that time.
    #[must_use]
    pub fn expected_requests(&self, within: Duration) -> f64 {
        let nanos = within.min(self.duration()).as_nanos() as f64;
        match &self.shape {
            Shape::Steady { rate, .. } => rate.over(nanos),
            Shape::Ramp(ramp) if ramp.duration.is_zero() => 0.0,
            Shape::Ramp(ramp) => ramp.expected(nanos),
            Shape::Sine { sine, .. } => sine.expected(nanos),
            Shape::Pause { .. } => 0.0,
            Shape::Burst { requests } => *requests as f64,
            Shape::Replay { due } => due.partition_point(|due| *due <= within) as f64,
        }
    }

    /// The due time from the start of request `n`, from 0 and below [`requests`](Self::requests), with constant arrivals.
    /// Computed from `n`, so it does not drift.
    #[must_use]
    pub fn due(&self, n: u64) -> Duration {
        match &self.shape {
            Shape::Steady { rate, .. } => rate.due(n),
            Shape::Ramp(_) | Shape::Sine { .. } => self.clamped(self.nanos_of(n as f64).round()),
            Shape::Pause { .. } | Shape::Burst { .. } => Duration::ZERO,
            Shape::Replay { due } => {
                usize::try_from(n).ok().and_then(|n| due.get(n).copied()).unwrap_or_else(|| self.duration())
            }
        }
    }

    /// The highest expected rate: for a burst its requests in one second, for a replay its busiest second.
    #[must_use]
    pub fn peak_per_second(&self) -> f64 {
        match &self.shape {
            Shape::Steady { rate, .. } => rate.per_second(),
            Shape::Ramp(ramp) => ramp.from.per_second().max(ramp.to.per_second()),
            Shape::Sine { sine, .. } => sine.peak_per_second(),
            Shape::Pause { .. } => 0.0,
            Shape::Burst { requests } => *requests as f64,
            Shape::Replay { due } => {
                let mut first = 0;
                let within = due.iter().enumerate().map(|(last, at)| {
                    first +=
                        due[first..].partition_point(|due| due.saturating_add(Duration::from_secs(1)) <= *at);
                    last + 1 - first
                });
                within.max().unwrap_or_default() as f64
            }
        }
    }

    /// The rate for a warm-up: that of the start, or the mean where that is zero; `None` if both are.
    pub(super) fn first_rate(&self) -> Option<Rate> {
        let mean = || Rate::nearest(self.requests() as f64 / self.duration().as_secs_f64());
        match &self.shape {
            Shape::Steady { rate, .. } => Some(*rate),
            Shape::Ramp(ramp) => ramp.from.rate().or_else(mean),
            Shape::Sine { sine, .. } => Rate::nearest(sine.first_per_second()).or(Some(sine.mean())),
            Shape::Pause { .. } | Shape::Burst { .. } => None,
            Shape::Replay { .. } => mean(),
        }
    }

    /// The same for `factor` times the duration, at least a nanosecond; sines and replays slow down.
    pub(super) fn stretched(&self, factor: f64) -> Self {
        let longer = |duration: Duration| stretched(duration, factor).max(Duration::from_nanos(1));
        let shape = match &self.shape {
            Shape::Steady { rate, duration } => Shape::Steady { rate: *rate, duration: longer(*duration) },
            Shape::Ramp(ramp) => Shape::Ramp(LinearRamp { duration: longer(ramp.duration), ..*ramp }),
            Shape::Sine { sine, duration } => {
                Shape::Sine { sine: sine.with_period(longer(sine.period())), duration: longer(*duration) }
            }
            Shape::Pause { duration } => Shape::Pause { duration: longer(*duration) },
            Shape::Burst { requests } => Shape::Burst { requests: *requests },
            Shape::Replay { due } => {
                Shape::Replay { due: due.iter().map(|due| stretched(*due, factor)).collect() }
            }
        };
        Self { shape, arrivals: self.arrivals }
    }
}

/// A Poisson process is one of rate 1 on a transformed axis. A position on it is in nanoseconds for a steady rate, else in
/// expected requests.
impl Step {
    /// The position of the end.
    pub(super) fn end(&self) -> f64 {
        match &self.shape {
            Shape::Steady { duration, .. } => duration.as_nanos() as f64,
            _ => self.expected_requests(self.duration()),
        }
    }

    /// Advances by `gap` expected requests; an error holds the part of the gap beyond the end.
    pub(super) fn advance(&self, position: f64, end: f64, gap: f64) -> Result<f64, f64> {
        let unit = match &self.shape {
            Shape::Steady { rate, .. } => rate.per_nano(),
            _ => 1.0,
        };
        let next = position + gap / unit;
        if next < end { Ok(next) } else { Err(gap - (end - position) * unit) }
    }

    /// The due time at a position.
    pub(super) fn due_at(&self, position: f64) -> Duration {
        let is_nanos = matches!(self.shape, Shape::Steady { .. });
        self.clamped(if is_nanos { position } else { self.nanos_of(position) })
    }

    /// The nanoseconds within which `requests` are expected.
    fn nanos_of(&self, requests: f64) -> f64 {
        match &self.shape {
            Shape::Ramp(ramp) => ramp.time_of(requests),
            Shape::Sine { sine, .. } => sine.time_of(requests),
            Shape::Steady { rate, .. } => requests / rate.per_nano(),
            Shape::Pause { .. } | Shape::Burst { .. } | Shape::Replay { .. } => 0.0,
        }
    }

    /// A time from the start, clamped below the end.
    fn clamped(&self, nanos: f64) -> Duration {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates, and times are not negative"
        )]
        let time = Duration::from_nanos(nanos as u64);
        time.min(self.duration().saturating_sub(Duration::from_nanos(1)))
    }
}

/// The number of requests before the end. An expected number within a millionth of a whole number counts as whole.
fn requests_before(expected: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
    let requests = (expected - 1e-6).ceil().max(0.0) as u64;
    requests
}

/// Without the arrival process.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration = format_span(self.duration());
        match &self.shape {
            Shape::Steady { rate, .. } => write!(f, "{duration} at {rate}"),
            Shape::Ramp(LinearRamp { from, to, .. }) => write!(f, "{duration} from {from} to {to}"),
            Shape::Sine { sine, .. } => write!(f, "{duration} around {sine}"),
            Shape::Pause { .. } => write!(f, "{duration} pause"),
            Shape::Burst { requests } => write!(f, "{requests} at once"),
            Shape::Replay { due } => write!(f, "{} replayed in {duration}", format_count(due.len() as u64)),
        }
    }
}
