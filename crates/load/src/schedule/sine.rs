//! A rate that oscillates, like the load of days.

use std::{
    f64::consts::{PI, TAU},
    fmt,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use stockade_model::{rate::Rate, units::format_span};

/// A sine around a mean rate.
///
/// ```
/// use std::time::Duration;
/// use stockade_load::schedule::{Sine, SineStart};
///
/// let period = Duration::from_secs(20);
/// let sine = Sine::new("500/s".parse()?, "200/s".parse()?, period, SineStart::Trough)?;
/// assert_eq!(sine.to_string(), "500/s (+-200/s every 20s, from its trough)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sine {
    mean: Rate,
    amplitude: Rate,
    period: Duration,
    start: SineStart,
}

/// The phase at which a [`Sine`] starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SineStart {
    /// At the mean, rising.
    #[default]
    MeanUp,
    /// At the maximum.
    Peak,
    /// At the mean, falling.
    MeanDown,
    /// At the minimum.
    Trough,
}

impl SineStart {
    /// All variants, in the order of a wave.
    pub const ALL: [Self; 4] = [Self::MeanUp, Self::Peak, Self::MeanDown, Self::Trough];

    /// The name in plan files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MeanUp => "mean-up",
            Self::Peak => "peak",
            Self::MeanDown => "mean-down",
            Self::Trough => "trough",
        }
    }

    /// The share of a period since the trough.
    const fn since_trough(self) -> f64 {
        match self {
            Self::MeanUp => 0.25,
            Self::Peak => 0.5,
            Self::MeanDown => 0.75,
            Self::Trough => 0.0,
        }
    }
}

/// Why a sine is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SineError {
    /// The rate would be negative.
    #[error("{amplitude} below {mean} is negative: write an amplitude of {mean} at most")]
    BelowZero {
        /// The mean.
        mean: Rate,
        /// The amplitude.
        amplitude: Rate,
    },
    /// The period is zero.
    #[error("the period is 0: write a longer one, such as `20s`")]
    NoPeriod,
}

impl Sine {
    /// `amplitude` is at most `mean`, and `period` above zero.
    pub fn new(mean: Rate, amplitude: Rate, period: Duration, start: SineStart) -> Result<Self, SineError> {
        if amplitude.is_above(mean) {
            return Err(SineError::BelowZero { mean, amplitude });
        }
        if period.is_zero() {
            return Err(SineError::NoPeriod);
        }
        Ok(Self { mean, amplitude, period, start })
    }

    #[must_use]
    pub(super) fn with_period(self, period: Duration) -> Self {
        Self { period: period.max(Duration::from_nanos(1)), ..self }
    }

    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// The highest rate.
    pub(super) fn peak_per_second(&self) -> f64 {
        self.mean.per_second() + self.amplitude.per_second()
    }

    /// The rate at the start.
    pub(super) fn first_per_second(&self) -> f64 {
        let (mean, amplitude) = (self.mean.per_second(), self.amplitude.per_second());
        match self.start {
            SineStart::MeanUp | SineStart::MeanDown => mean,
            SineStart::Peak => mean + amplitude,
            SineStart::Trough if self.eccentricity() >= 1.0 => 0.0,
            SineStart::Trough => mean - amplitude,
        }
    }

    pub(super) fn mean(&self) -> Rate {
        self.mean
    }

    /// Amplitude by mean: 1 has a trough of zero requests.
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

    /// The requests since a trough, in units of a period's requests, after `share` periods.
    fn arrived(&self, share: f64) -> f64 {
        let waves = share.floor();
        waves + mean_anomaly(TAU * (share - waves), self.eccentricity()) / TAU
    }

    /// The expected number of requests within `nanos` of the start.
    pub(super) fn expected(&self, nanos: f64) -> f64 {
        let start = self.start.since_trough();
        // Whole periods are subtracted first, so that precision does not decrease with time.
        let rest = nanos % self.nanos();
        let waves = ((nanos - rest) / self.nanos()).round();
        let rest = self.arrived(start + rest / self.nanos()) - self.arrived(start);
        self.mean.over(self.nanos()) * (waves + rest)
    }

    /// The nanoseconds within which `requests` are expected.
    ///
    /// From a trough, requests are the mean anomaly and time is the eccentric anomaly of Kepler's equation.
    pub(super) fn time_of(&self, requests: f64) -> f64 {
        let start = self.start.since_trough();
        let arrived = requests / self.mean.over(self.nanos()) + self.arrived(start);
        let waves = arrived.round();
        let rest = TAU * (arrived - waves);
        let angle = eccentric_anomaly(rest.abs(), self.eccentricity()).copysign(rest);
        (((waves - start) + angle / TAU) * self.nanos()).max(0.0)
    }
}

impl fmt::Display for Sine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean, amplitude, period, start } = self;
        write!(f, "{mean} (+-{amplitude} every {}", format_span(*period))?;
        match start {
            SineStart::MeanUp => f.write_str(")"),
            SineStart::Peak => f.write_str(", from its peak)"),
            SineStart::MeanDown => f.write_str(", from its mean down)"),
            SineStart::Trough => f.write_str(", from its trough)"),
        }
    }
}

/// `angle - e sin(angle)`, precise also where the two terms are nearly equal.
fn mean_anomaly(angle: f64, e: f64) -> f64 {
    // x^3 / 3! - x^5 / 5! + ...; these are the ratios of consecutive terms.
    const RATIOS: [f64; 7] = [272.0, 210.0, 156.0, 110.0, 72.0, 42.0, 20.0];
    let beyond_sine = if angle.abs() < 1.0 {
        let square = angle * angle;
        let series = RATIOS.iter().fold(1.0, |sum, n| 1.0 - square / n * sum);
        angle * square / 6.0 * series
    } else {
        angle - angle.sin()
    };
    (1.0 - e) * angle + e * beyond_sine
}

/// Solves Kepler's equation: the angle from 0 to pi whose [`mean_anomaly`] is `mean`, from 0 to pi.
fn eccentric_anomaly(mean: f64, e: f64) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    // All three are above the root (`x - sin x` is at least x^3 / pi^2). The function is convex, so Newton's method descends
    // to the root without crossing it.
    let mut angle = PI.min(mean + e).min((PI * PI * mean / e).cbrt());
    if e < 1.0 {
        angle = angle.min(mean / (1.0 - e));
    }
    for _ in 0..64 {
        let slope = (1.0 - e) + 2.0 * e * (angle / 2.0).sin().powi(2);
        let next = angle - (mean_anomaly(angle, e) - mean) / slope;
        // It no longer descends: the rest is rounding.
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
                    let angle = eccentric_anomaly(mean, e);
                    prop_assert!((0.0..=PI).contains(&angle), "{mean} {e}: {angle}");
                    let off = (mean_anomaly(angle, e) - mean).abs();
                    prop_assert!(off <= 4e-15 * mean, "{mean} {e}: {angle} is off by {off}");
                }
            }
        }
    }
}
