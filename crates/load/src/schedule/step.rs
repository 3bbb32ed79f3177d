//! A part of a schedule: a shape, and how its requests are spread.

use std::{fmt, sync::Arc, time::Duration};

use stockade_model::units::{format_count, format_span, stretched};

use super::{
    ramp::Ramp,
    rate::{Level, Rate},
    sine::Sine,
};

/// How the requests of a step are spread over its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly: request `n` of a step is due when `n` requests are expected. At `a` requests per `P` that is
    /// `n * P / a` after it began.
    #[default]
    Constant,
    /// As from very many users who know nothing of each other: a Poisson process, whose gaps are
    /// exponential and whose counts vary as much as they are large.
    Poisson,
}

/// A part of a schedule: how many requests are expected when, and how they are spread.
///
/// | shape | requests expected after `t` |
/// |---|---|
/// | `steady` | `a t` |
/// | `ramp` | `a t + (b - a) t^2 / 2T` |
/// | `sine` | `m t` and the integral of a sine |
/// | `pause` | none |
/// | `burst` | all, at once |
/// | `replay` | as it was recorded |
///
/// The first three are rates, and their requests can arrive as a Poisson process; the others are what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    shape: Shape,
    arrivals: Arrivals,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Steady { rate: Rate, lasts: Duration },
    Ramp(Ramp),
    Sine { sine: Sine, lasts: Duration },
    Pause { lasts: Duration },
    Burst { requests: u64 },
    Replay { due: Arc<[Duration]> },
}

impl From<Shape> for Step {
    fn from(shape: Shape) -> Self {
        Self { shape, arrivals: Arrivals::Constant }
    }
}

impl Step {
    /// The same rate all the time.
    #[must_use]
    pub fn steady(rate: Rate, lasts: Duration) -> Self {
        Shape::Steady { rate, lasts }.into()
    }

    /// From one rate to another, in a straight line. Either may be [`Level::NONE`].
    #[must_use]
    pub fn ramp(from: impl Into<Level>, to: impl Into<Level>, lasts: Duration) -> Self {
        let (from, to) = (from.into(), to.into());
        match from.rate() {
            None if to == Level::NONE => Shape::Pause { lasts },
            Some(rate) if from == to => Shape::Steady { rate, lasts },
            _ => Shape::Ramp(Ramp { from, to, lasts }),
        }
        .into()
    }

    /// Up and down.
    #[must_use]
    pub fn sine(sine: Sine, lasts: Duration) -> Self {
        Shape::Sine { sine, lasts }.into()
    }

    /// Nobody comes.
    #[must_use]
    pub fn pause(lasts: Duration) -> Self {
        Shape::Pause { lasts }.into()
    }

    /// So many requests at one moment: all are due at the same nanosecond, and it takes no time.
    #[must_use]
    pub fn burst(requests: u64) -> Self {
        Shape::Burst { requests }.into()
    }

    /// As it was recorded: when each request is due, counted from the start of the step. It ends with the
    /// last of them. Logs have their lines out of order at times: they are sorted.
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

    /// The same with its requests spread like this. A pause, a burst and a log have their own ways.
    #[must_use]
    pub fn arriving(self, arrivals: Arrivals) -> Self {
        Self { arrivals: if self.is_rate() { arrivals } else { Arrivals::Constant }, ..self }
    }

    /// Whether its requests come by chance.
    #[must_use]
    pub fn is_poisson(&self) -> bool {
        self.arrivals == Arrivals::Poisson
    }

    /// Whether its arrivals can be one thing or the other.
    pub(super) fn is_rate(&self) -> bool {
        matches!(self.shape, Shape::Steady { .. } | Shape::Ramp(_) | Shape::Sine { .. })
    }

    /// How many requests there are at one moment, if it is a burst; else 0.
    pub(super) fn at_once(&self) -> u64 {
        match self.shape {
            Shape::Burst { requests } => requests,
            _ => 0,
        }
    }

    /// How long it takes; a burst takes no time.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        match &self.shape {
            Shape::Steady { lasts, .. } | Shape::Sine { lasts, .. } | Shape::Pause { lasts } => *lasts,
            Shape::Ramp(ramp) => ramp.lasts,
            Shape::Burst { .. } => Duration::ZERO,
            Shape::Replay { due } => due.last().copied().unwrap_or_default(),
        }
    }

    /// How many requests there are: exactly if they are evenly spread, else on average.
    #[must_use]
    pub fn requests(&self) -> u64 {
        match &self.shape {
            Shape::Steady { rate, lasts } => rate.within(*lasts),
            Shape::Ramp(ramp) => first_at(ramp.whole()),
            Shape::Sine { .. } => first_at(self.expected(self.lasts())),
            Shape::Pause { .. } => 0,
            Shape::Burst { requests } => *requests,
            Shape::Replay { due } => due.len() as u64,
        }
    }

    /// How many requests are expected within so much time of its start. Those of a burst or a log that are
    /// due at this very moment are among them.
    #[must_use]
    pub fn expected(&self, within: Duration) -> f64 {
        let nanos = within.min(self.lasts()).as_nanos() as f64;
        match &self.shape {
            Shape::Steady { rate, .. } => rate.over(nanos),
            Shape::Ramp(ramp) if ramp.lasts.is_zero() => 0.0,
            Shape::Ramp(ramp) => ramp.expected(nanos),
            Shape::Sine { sine, .. } => sine.expected(nanos),
            Shape::Pause { .. } => 0.0,
            Shape::Burst { requests } => *requests as f64,
            Shape::Replay { due } => due.partition_point(|due| *due <= within) as f64,
        }
    }

    /// When request `n` (from 0, and below [`requests`](Self::requests)) is due if they come evenly, counted
    /// from its start. Computed from `n`, so it never drifts.
    #[must_use]
    pub fn due(&self, n: u64) -> Duration {
        match &self.shape {
            Shape::Steady { rate, .. } => rate.due(n),
            Shape::Ramp(_) | Shape::Sine { .. } => self.moment(self.at(n as f64).round()),
            Shape::Pause { .. } | Shape::Burst { .. } => Duration::ZERO,
            Shape::Replay { due } => {
                usize::try_from(n).ok().and_then(|n| due.get(n).copied()).unwrap_or_else(|| self.lasts())
            }
        }
    }

    /// The most requests that are expected in a second. Those of a burst come within one, and a log has a
    /// fullest one.
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

    /// The rate that it begins with: for whoever wants to warm up. Where that is nothing, its average; `None`
    /// if there is none of that either.
    pub(super) fn first_rate(&self) -> Option<Rate> {
        let average = || Rate::nearest(self.requests() as f64 / self.lasts().as_secs_f64());
        match &self.shape {
            Shape::Steady { rate, .. } => Some(*rate),
            Shape::Ramp(ramp) => ramp.from.rate().or_else(average),
            Shape::Sine { sine, .. } => Rate::nearest(sine.first_per_second()).or(Some(sine.mean())),
            Shape::Pause { .. } | Shape::Burst { .. } => None,
            Shape::Replay { .. } => average(),
        }
    }

    /// The same for `factor` times as long, a nanosecond at least; a wave and a log are played slower.
    pub(super) fn stretched(&self, factor: f64) -> Self {
        let longer = |lasts: Duration| stretched(lasts, factor).max(Duration::from_nanos(1));
        let shape = match &self.shape {
            Shape::Steady { rate, lasts } => Shape::Steady { rate: *rate, lasts: longer(*lasts) },
            Shape::Ramp(ramp) => Shape::Ramp(Ramp { lasts: longer(ramp.lasts), ..*ramp }),
            Shape::Sine { sine, lasts } => {
                Shape::Sine { sine: sine.with_period(longer(sine.period())), lasts: longer(*lasts) }
            }
            Shape::Pause { lasts } => Shape::Pause { lasts: longer(*lasts) },
            Shape::Burst { requests } => Shape::Burst { requests: *requests },
            Shape::Replay { due } => {
                Shape::Replay { due: due.iter().map(|due| stretched(*due, factor)).collect() }
            }
        };
        Self { shape, arrivals: self.arrivals }
    }
}

/// A Poisson process of rate one whose time is stretched: how far it has come is counted in nanoseconds where
/// the rate is steady, else in requests that are expected.
impl Step {
    /// How far that is at the end.
    pub(super) fn end(&self) -> f64 {
        match &self.shape {
            Shape::Steady { lasts, .. } => lasts.as_nanos() as f64,
            _ => self.expected(self.lasts()),
        }
    }

    /// Goes on by so many expected requests; beyond the end, those that are left over.
    pub(super) fn advance(&self, position: f64, end: f64, gap: f64) -> Result<f64, f64> {
        let unit = match &self.shape {
            Shape::Steady { rate, .. } => rate.per_nano(),
            _ => 1.0,
        };
        let next = position + gap / unit;
        if next < end { Ok(next) } else { Err(gap - (end - position) * unit) }
    }

    /// When that is.
    pub(super) fn reached(&self, position: f64) -> Duration {
        self.moment(if matches!(self.shape, Shape::Steady { .. }) { position } else { self.at(position) })
    }

    /// Nanoseconds until so many requests are expected.
    fn at(&self, requests: f64) -> f64 {
        match &self.shape {
            Shape::Ramp(ramp) => ramp.within(requests),
            Shape::Sine { sine, .. } => sine.within(requests),
            Shape::Steady { rate, .. } => requests / rate.per_nano(),
            Shape::Pause { .. } | Shape::Burst { .. } | Shape::Replay { .. } => 0.0,
        }
    }

    /// So many nanoseconds after its start, and before its end.
    fn moment(&self, nanos: f64) -> Duration {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates, and a step begins at 0"
        )]
        let moment = Duration::from_nanos(nanos as u64);
        moment.min(self.lasts().saturating_sub(Duration::from_nanos(1)))
    }
}

/// The first request of those that are expected at the end or later. An integral that should be whole is so to
/// a millionth.
fn first_at(expected: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
    let first = (expected - 1e-6).ceil().max(0.0) as u64;
    first
}

/// Without how its requests are spread.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasts = format_span(self.lasts());
        match &self.shape {
            Shape::Steady { rate, .. } => write!(f, "{lasts} at {rate}"),
            Shape::Ramp(Ramp { from, to, .. }) => write!(f, "{lasts} from {from} to {to}"),
            Shape::Sine { sine, .. } => write!(f, "{lasts} around {sine}"),
            Shape::Pause { .. } => write!(f, "{lasts} pause"),
            Shape::Burst { requests } => write!(f, "{requests} at once"),
            Shape::Replay { due } => write!(f, "{} replayed in {lasts}", format_count(due.len() as u64)),
        }
    }
}
