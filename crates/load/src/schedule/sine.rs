//! A rate that goes up and down, as a day has it.

use std::{
    f64::consts::{PI, TAU},
    fmt,
    time::Duration,
};

use stockade_model::units::format_span;

use super::rate::Rate;

/// A rate that swings around its mean, as a sine does.
///
/// ```
/// use std::time::Duration;
/// use stockade_load::schedule::{Sine, Turn};
///
/// let period = Duration::from_secs(20);
/// let sine = Sine::new("500/s".parse()?, "200/s".parse()?, period, Turn::Trough)?;
/// assert_eq!(sine.to_string(), "500/s (+-200/s every 20s, from its trough)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sine {
    mean: Rate,
    amplitude: Rate,
    period: Duration,
    start: Turn,
}

/// Where in its wave a [`Sine`] begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// At its mean, and rising.
    #[default]
    MeanUp,
    /// At its highest.
    Peak,
    /// At its mean, and falling.
    MeanDown,
    /// At its lowest.
    Trough,
}

impl Turn {
    /// Every one, in the order in which a wave comes by.
    pub const ALL: [Self; 4] = [Self::MeanUp, Self::Peak, Self::MeanDown, Self::Trough];

    /// As files name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MeanUp => "mean-up",
            Self::Peak => "peak",
            Self::MeanDown => "mean-down",
            Self::Trough => "trough",
        }
    }

    /// How much of a wave has gone by since its trough.
    const fn since_trough(self) -> f64 {
        match self {
            Self::MeanUp => 0.25,
            Self::Peak => 0.5,
            Self::MeanDown => 0.75,
            Self::Trough => 0.0,
        }
    }
}

/// No rate can go up and down like that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SineError {
    /// The rate would be below zero at times.
    #[error("{amplitude} below {mean} is less than nobody: write an amplitude of {mean} at most")]
    BelowZero {
        /// Around what.
        mean: Rate,
        /// How far.
        amplitude: Rate,
    },
    /// A wave in no time.
    #[error("a wave takes its time: write a longer period, such as `20s`")]
    NoPeriod,
}

impl Sine {
    /// `amplitude` above and below `mean`, once in every `period`.
    pub fn new(mean: Rate, amplitude: Rate, period: Duration, start: Turn) -> Result<Self, SineError> {
        if amplitude.is_above(mean) {
            return Err(SineError::BelowZero { mean, amplitude });
        }
        if period.is_zero() {
            return Err(SineError::NoPeriod);
        }
        Ok(Self { mean, amplitude, period, start })
    }

    /// The same with another period.
    #[must_use]
    pub(super) fn with_period(self, period: Duration) -> Self {
        Self { period: period.max(Duration::from_nanos(1)), ..self }
    }

    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Requests in a second at its highest.
    pub(super) fn peak_per_second(&self) -> f64 {
        self.mean.per_second() + self.amplitude.per_second()
    }

    /// Requests in a second at its start.
    pub(super) fn first_per_second(&self) -> f64 {
        let (mean, amplitude) = (self.mean.per_second(), self.amplitude.per_second());
        match self.start {
            Turn::MeanUp | Turn::MeanDown => mean,
            Turn::Peak => mean + amplitude,
            Turn::Trough if self.eccentricity() >= 1.0 => 0.0,
            Turn::Trough => mean - amplitude,
        }
    }

    pub(super) fn mean(&self) -> Rate {
        self.mean
    }

    /// How far it swings, of its mean: 1 has a trough in which nobody comes.
    fn eccentricity(&self) -> f64 {
        if self.mean.is_above(self.amplitude) {
            (self.amplitude.per_nano() / self.mean.per_nano()).min(1.0)
        } else {
            1.0
        }
    }

    fn nanos(&self) -> f64 {
        self.period.as_nanos() as f64
    }

    /// What share of a wave's requests have come when `share` of the wave since its trough has gone by.
    fn come(&self, share: f64) -> f64 {
        let waves = share.floor();
        waves + excess(TAU * (share - waves), self.eccentricity()) / TAU
    }

    /// How many requests are expected within so many nanoseconds of its start.
    pub(super) fn expected(&self, nanos: f64) -> f64 {
        let start = self.start.since_trough();
        // Whole waves are taken out first: what is left is as exact on the last day as on the first.
        let rest = nanos % self.nanos();
        let waves = ((nanos - rest) / self.nanos()).round();
        let rest = self.come(start + rest / self.nanos()) - self.come(start);
        self.mean.over(self.nanos()) * (waves + rest)
    }

    /// Within how many nanoseconds so many requests are expected.
    ///
    /// Counted from a trough, the requests of a wave have come as the mean anomaly of a planet grows, its
    /// time is the eccentric one: this is Kepler's equation.
    pub(super) fn within(&self, requests: f64) -> f64 {
        let start = self.start.since_trough();
        let come = requests / self.mean.over(self.nanos()) + self.come(start);
        let waves = come.round();
        let rest = TAU * (come - waves);
        let angle = kepler(rest.abs(), self.eccentricity()).copysign(rest);
        (((waves - start) + angle / TAU) * self.nanos()).max(0.0)
    }
}

impl fmt::Display for Sine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean, amplitude, period, start } = self;
        write!(f, "{mean} (+-{amplitude} every {}", format_span(*period))?;
        match start {
            Turn::MeanUp => f.write_str(")"),
            Turn::Peak => f.write_str(", from its peak)"),
            Turn::MeanDown => f.write_str(", from its mean down)"),
            Turn::Trough => f.write_str(", from its trough)"),
        }
    }
}

/// `angle - e sin(angle)`, without losing its digits where the two are nearly the same.
fn excess(angle: f64, e: f64) -> f64 {
    // x^3 / 3! - x^5 / 5! + ..., whose terms are each so much smaller than the one before.
    const SMALLER: [f64; 7] = [272.0, 210.0, 156.0, 110.0, 72.0, 42.0, 20.0];
    let beyond_sine = if angle.abs() < 1.0 {
        let square = angle * angle;
        let series = SMALLER.iter().fold(1.0, |sum, n| 1.0 - square / n * sum);
        angle * square / 6.0 * series
    } else {
        angle - angle.sin()
    };
    (1.0 - e) * angle + e * beyond_sine
}

/// The angle from 0 to half a turn whose [`excess`] is `mean`, from 0 to half a turn as well.
fn kepler(mean: f64, e: f64) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    // All three are beyond the root (`x - sin x` is no less than x^3 / pi^2), and Newton's method comes down
    // from there without crossing it: the function is convex.
    let mut angle = PI.min(mean + e).min((PI * PI * mean / e).cbrt());
    if e < 1.0 {
        angle = angle.min(mean / (1.0 - e));
    }
    for _ in 0..64 {
        let slope = (1.0 - e) + 2.0 * e * (angle / 2.0).sin().powi(2);
        let next = angle - (excess(angle, e) - mean) / slope;
        // No longer downwards: the rest is rounding.
        if next >= angle {
            break;
        }
        angle = next;
    }
    angle
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keplers_equation_is_solved(mean in 0.0..PI, tiny in -30.0..0.0_f64, e in 0.0001..=1.0_f64) {
            for mean in [mean, 10_f64.powf(tiny), PI] {
                for e in [e, 1.0 - 1e-9, 1.0] {
                    let angle = kepler(mean, e);
                    prop_assert!((0.0..=PI).contains(&angle), "{mean} {e}: {angle}");
                    let off = (excess(angle, e) - mean).abs();
                    prop_assert!(off <= 4e-15 * mean, "{mean} {e}: {angle} is off by {off}");
                }
            }
        }
    }
}
