//! The effect of a comparison of times, its interval, and the repeats that would decide it.
//!
//! The effect is ln(left / right), so that twice and half are equally far from equal. Its units are the repeats of a run. The
//! arms of a repeat are measured one after the other, so effects are paired by repeat; those of two records are not (Welch). The
//! standard error comes from two spreads:
//!
//! - [`AssumedSpread`] between runs, in addition to the spread between the seconds of a run: what one or two runs rest on;
//! - the spread of three repeats or more (Student's t). The assumption stays in force, at a tenth of alpha, as long as the repeats
//!   do not contradict it: figures that are far apart remain so.

use std::ops::{Add, Mul};

use crate::histogram::Statistic;
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal, StudentsT};

/// The probability of any false verdict on times in a file, or in a comparison of two records.
pub const FAMILY_ERROR_RATE: f64 = 0.05;
/// The longest stall that nothing measures: other processes are noticed from a quarter of a second on.
pub const STALL_S: f64 = 0.25;
/// The repeats from which their own spread is used.
const REPEATS_MIN: usize = 3;
/// The share of alpha that the assumption keeps when a spread is measured.
const ASSUMED_SHARE: f64 = 0.1;
/// The standard deviation below which three digits of a histogram cannot tell times apart.
pub const RESOLUTION: f64 = 0.000_5;
/// Figures below it count as it, in milliseconds or as a number: a nanosecond. An effect has no logarithm of 0.
pub const FIGURE_MIN: f64 = 1e-6;
/// The probability with which the suggested repeats decide.
const POWER: f64 = 0.9;
/// The most repeats that are suggested.
const REPEATS_MAX: u32 = 1_000;

/// The standard deviation of ln(time) between runs of the same setup that one run rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AssumedSpread {
    #[default]
    Machine,
    /// One stall of [`STALL_S`] is the figure: the slowest 1 % of the requests of ten seconds are due within 0.1 s.
    Stall,
    /// Something disturbs most of the seconds.
    Disturbed,
}

/// A value of at least 0 that is made of figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantity {
    pub measured: f64,
    /// Contain it if no request had been sent late.
    pub bounds: Bounds,
    /// The standard deviation that is assumed between runs, in the unit of the value.
    deviation: f64,
}

/// A value as a difference of two quantities.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    pub added: Quantity,
    pub subtracted: Quantity,
}

/// A value that is known within bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    pub low: f64,
    pub high: f64,
}

impl AssumedSpread {
    /// Of a statistic of a load of this length in seconds, if that is known.
    #[must_use]
    pub fn of_undisturbed(statistic: Statistic, seconds: u64) -> Self {
        let is_stall = seconds > 0 && (1.0 - statistic.quantile()) * (seconds as f64) < STALL_S;
        if is_stall { Self::Stall } else { Self::Machine }
    }

    /// A factor of 1.4 or of 4.
    #[must_use]
    pub fn deviation(self) -> f64 {
        match self {
            Self::Machine => 0.35,
            Self::Stall | Self::Disturbed => 1.4,
        }
    }
}

impl Quantity {
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self { measured: value, bounds: Bounds { low: value, high: value }, deviation: 0.0 }
    }

    /// A figure of a run, which would be `low` or more if no request had been sent late. `spread`: the standard deviation of its
    /// logarithm between runs.
    #[must_use]
    pub fn figure(measured: f64, low: f64, spread: AssumedSpread) -> Self {
        let bounds = Bounds { low: low.min(measured), high: measured };
        Self { measured, bounds, deviation: spread.deviation() * measured }
    }

    /// A figure of a run in progress.
    #[must_use]
    pub fn within(bounds: Bounds, spread: AssumedSpread) -> Self {
        Self { measured: bounds.low, bounds, deviation: spread.deviation() * bounds.low }
    }

    fn relative_deviation(self) -> f64 {
        self.deviation / self.measured.max(FIGURE_MIN)
    }

    #[must_use]
    pub fn divided_by(self, divisor: Self) -> Option<Self> {
        if divisor.bounds.low <= 0.0 {
            return None;
        }
        let measured = self.measured / divisor.measured;
        Some(Self {
            measured,
            bounds: Bounds {
                low: self.bounds.low / divisor.bounds.high,
                high: self.bounds.high / divisor.bounds.low,
            },
            deviation: measured * self.relative_deviation().hypot(divisor.relative_deviation()),
        })
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            measured: self.measured + other.measured,
            bounds: Bounds {
                low: self.bounds.low + other.bounds.low,
                high: self.bounds.high + other.bounds.high,
            },
            deviation: self.deviation.hypot(other.deviation),
        }
    }
}

impl Mul for Quantity {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let measured = self.measured * other.measured;
        Self {
            measured,
            bounds: Bounds {
                low: self.bounds.low * other.bounds.low,
                high: self.bounds.high * other.bounds.high,
            },
            deviation: measured * self.relative_deviation().hypot(other.relative_deviation()),
        }
    }
}

/// The effects of one comparison in one test and arm.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// One for each repeat.
    pub repeats: Vec<RepeatEffect>,
    /// The standard error of the effect of one run, from its seconds.
    pub within_run: Option<f64>,
}

/// The effect in one repeat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RepeatEffect {
    pub measured: f64,
    /// Bounds of the effect if no request had been sent late.
    pub bounds: Bounds,
    /// The standard deviation that is assumed between runs.
    pub deviation: f64,
}

/// A part of the axis of effects. Its ends may be infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    pub from: f64,
    pub to: f64,
}

impl Region {
    #[must_use]
    pub fn below(to: f64) -> Self {
        Self { from: f64::NEG_INFINITY, to }
    }

    #[must_use]
    pub fn above(from: f64) -> Self {
        Self { from, to: f64::INFINITY }
    }

    /// Up to `distance` from 0.
    #[must_use]
    pub fn within(distance: f64) -> Self {
        Self { from: -distance, to: distance }
    }
}

/// A mean effect and its standard errors.
#[derive(Clone, Debug)]
pub struct Estimate {
    pub measured: f64,
    /// Bounds of the effect if no request had been sent late.
    bounds: Bounds,
    errors: Vec<StandardError>,
}

/// A standard error, and the share of alpha that its intervals have.
#[derive(Clone, Debug)]
struct StandardError {
    of_mean: f64,
    /// Of Student's t; `None`: assumed, and normal.
    degrees_of_freedom: Option<f64>,
    share: f64,
}

impl RepeatEffect {
    /// ln(left / right).
    #[must_use]
    pub fn of(left: Quantity, right: Quantity) -> Self {
        let effect = |left: f64, right: f64| (left.max(FIGURE_MIN) / right.max(FIGURE_MIN)).ln();
        Self {
            measured: effect(left.measured, right.measured),
            bounds: Bounds {
                low: effect(left.bounds.low, right.bounds.high),
                high: effect(left.bounds.high, right.bounds.low),
            },
            deviation: left.relative_deviation().hypot(right.relative_deviation()),
        }
    }

    /// Without the bounds that lateness leaves.
    #[must_use]
    pub fn as_measured(self) -> Self {
        Self { bounds: Bounds { low: self.measured, high: self.measured }, ..self }
    }
}

impl StandardError {
    /// The probability of more than `distance` on one side.
    fn tail(&self, distance: f64) -> f64 {
        if distance.is_infinite() {
            return if distance > 0.0 { 0.0 } else { 1.0 };
        }
        let errors = distance / self.of_mean;
        self.degrees_of_freedom.map_or_else(
            || Normal::standard().sf(errors),
            |degrees_of_freedom| students_t(degrees_of_freedom).sf(errors),
        )
    }

    /// The p-value of a true effect outside of the region, if the estimate lies within these bounds.
    fn p_value_within(&self, region: Region, Bounds { low, high }: Bounds) -> f64 {
        // Nothing lies beyond an infinite end, and a figure that still grows has no upper bound.
        let beyond = |end: f64, distance: f64| if end.is_infinite() { 0.0 } else { self.tail(distance) };
        let nearest = beyond(region.from, low - region.from).max(beyond(region.to, region.to - high));
        (2.0 * nearest / self.share).min(1.0)
    }

    /// Half of the width of the interval at `1 - alpha`.
    fn half_width(&self, alpha: f64) -> f64 {
        let quantile = 1.0 - alpha * self.share / 2.0;
        self.of_mean
            * self.degrees_of_freedom.map_or_else(
                || Normal::standard().inverse_cdf(quantile),
                |degrees_of_freedom| students_t(degrees_of_freedom).inverse_cdf(quantile),
            )
    }
}

fn students_t(degrees_of_freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, degrees_of_freedom).expect("the degrees of freedom are above 0")
}

impl Effects {
    fn count(&self) -> f64 {
        self.repeats.len() as f64
    }

    fn mean(&self, of: impl Fn(&RepeatEffect) -> f64) -> f64 {
        self.repeats.iter().map(of).sum::<f64>() / self.count()
    }

    fn mean_measured(&self) -> f64 {
        self.mean(|effect| effect.measured)
    }

    fn mean_bounds(&self) -> Bounds {
        Bounds { low: self.mean(|effect| effect.bounds.low), high: self.mean(|effect| effect.bounds.high) }
    }

    /// The standard deviation between the repeats; `None` of one.
    fn spread(&self) -> Option<f64> {
        let measured: Vec<f64> = self.repeats.iter().map(|effect| effect.measured).collect();
        Some(standard_deviation(&measured)?.max(RESOLUTION))
    }

    fn assumed_spread(&self) -> f64 {
        let between = self.mean(|effect| effect.deviation.powi(2)).sqrt();
        between.hypot(self.within_run.unwrap_or_default()).max(RESOLUTION)
    }

    /// The mean effect of the repeats, at least one.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let root = self.count().sqrt();
        let measured = self.spread().map(|spread| StandardError {
            of_mean: spread / root,
            degrees_of_freedom: Some(self.count() - 1.0),
            share: 1.0,
        });
        Estimate {
            measured: self.mean_measured(),
            bounds: self.mean_bounds(),
            errors: standard_errors(
                measured,
                self.repeats.len() >= REPEATS_MIN,
                self.assumed_spread() / root,
            ),
        }
    }

    /// The mean effect while the figure of the last repeat still grows. It rests on the assumed spread: the last repeat may end far
    /// from the others. `None`: the repeats before it contradict the assumption.
    #[must_use]
    pub fn estimate_of_growing(&self) -> Option<Estimate> {
        let before = &self.repeats[..self.repeats.len().saturating_sub(1)];
        let before = Self { repeats: before.to_vec(), within_run: None };
        let assumed_spread = self.assumed_spread();
        if before.spread().is_some_and(|spread| spread > assumed_spread) {
            return None;
        }
        let share = if self.repeats.len() >= REPEATS_MIN { ASSUMED_SHARE } else { 1.0 };
        let of_mean = assumed_spread / self.count().sqrt();
        Some(Estimate {
            measured: self.mean_measured(),
            bounds: self.mean_bounds(),
            errors: vec![StandardError { of_mean, degrees_of_freedom: None, share }],
        })
    }

    /// The repeats with which the interval lies within one of the regions, with probability 90 %, if the effect is the mean
    /// so far; `None`: too few repeats for an answer, or more than 1,000.
    ///
    /// # Panics
    /// Never: there are degrees of freedom, since there are several repeats.
    #[must_use]
    pub fn repeats_to_decide(&self, alpha: f64, regions: &[Region]) -> Option<u32> {
        if self.repeats.len() < REPEATS_MIN {
            return None;
        }
        let Bounds { low, high } = self.mean_bounds();
        let distance =
            regions.iter().map(|region| (low - region.from).min(region.to - high)).fold(0.0, f64::max);
        // A spread of few repeats may be too small by chance: its upper bound at 90 %.
        let degrees_of_freedom = self.count() - 1.0;
        let chi_squared =
            ChiSquared::new(degrees_of_freedom).expect("the degrees of freedom are above 0").inverse_cdf(0.1);
        let spread = self.spread()? * (degrees_of_freedom / chi_squared).sqrt();
        let decides = |repeats: u32| {
            let t = students_t(f64::from(repeats) - 1.0);
            let errors = t.inverse_cdf(1.0 - alpha * (1.0 - ASSUMED_SHARE) / 2.0) + t.inverse_cdf(POWER);
            errors * spread / f64::from(repeats).sqrt() < distance
        };
        let first = u32::try_from(self.repeats.len()).unwrap_or(REPEATS_MAX) + 1;
        if first > REPEATS_MAX || distance <= 0.0 || !decides(REPEATS_MAX) {
            return None;
        }
        // It decides from some number on: the first one, by halving.
        let (mut low, mut high) = (first, REPEATS_MAX);
        while low < high {
            let middle = u32::midpoint(low, high);
            if decides(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }
}

/// left / right of an effect; finite, as records have to be.
#[must_use]
pub fn ratio(effect: f64) -> f64 {
    effect.exp().min(f64::MAX)
}

/// The standard deviation of a population from this sample; `None` for one value.
#[must_use]
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt())
}

/// The distance of the mean effect from 0 between pairs of figures that should be equal; 0 of no pairs.
pub fn effect_of_equals(pairs: impl Iterator<Item = (Quantity, Quantity)>) -> f64 {
    let repeats: Vec<_> = pairs.map(|(left, right)| RepeatEffect::of(left, right)).collect();
    let effects = Effects { repeats, within_run: None };
    if effects.repeats.is_empty() { 0.0 } else { effects.mean_measured().abs() }
}

/// The root of the mean square; `None` of no values.
#[must_use]
pub fn root_mean_square(values: &[f64]) -> Option<f64> {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (!values.is_empty()).then(|| (squares / values.len() as f64).sqrt())
}

/// The standard errors of an estimate: their shares of alpha add up to 1.
fn standard_errors(
    measured: Option<StandardError>,
    has_own_spread: bool,
    assumed_of_mean: f64,
) -> Vec<StandardError> {
    let assumed = |of_mean: f64, share: f64| StandardError { of_mean, degrees_of_freedom: None, share };
    match measured {
        Some(measured) if has_own_spread => {
            let is_contradicted = measured.of_mean > assumed_of_mean;
            let kept = (!is_contradicted).then(|| assumed(assumed_of_mean, ASSUMED_SHARE));
            [Some(StandardError { share: 1.0 - ASSUMED_SHARE, ..measured }), kept]
                .into_iter()
                .flatten()
                .collect()
        }
        Some(measured) => vec![assumed(measured.of_mean.max(assumed_of_mean), 1.0)],
        None => vec![assumed(assumed_of_mean, 1.0)],
    }
}

impl Estimate {
    /// ln(left / right) of the means of two records' repeats (Welch's t): their repeats are not pairs. Both have one at least.
    #[must_use]
    pub fn unpaired(left: &[Quantity], right: &[Quantity]) -> Self {
        let one = Quantity::exact(1.0);
        let of = |side: &[Quantity]| Effects {
            repeats: side.iter().map(|quantity| RepeatEffect::of(*quantity, one)).collect(),
            within_run: None,
        };
        let (left, right) = (of(left), of(right));
        let squared_error = |side: &Effects| side.spread().map(|spread| spread.powi(2) / side.count());
        let measured = squared_error(&left).zip(squared_error(&right)).map(|(a, b)| StandardError {
            of_mean: (a + b).sqrt(),
            degrees_of_freedom: Some(
                (a + b).powi(2) / (a.powi(2) / (left.count() - 1.0) + b.powi(2) / (right.count() - 1.0)),
            ),
            share: 1.0,
        });
        let has_own_spread = left.repeats.len().min(right.repeats.len()) >= REPEATS_MIN;
        let assumed = |side: &Effects| side.assumed_spread() / side.count().sqrt();
        let (low, high) = (left.mean_bounds(), right.mean_bounds());
        Self {
            measured: left.mean_measured() - right.mean_measured(),
            bounds: Bounds { low: low.low - high.high, high: low.high - high.low },
            errors: standard_errors(measured, has_own_spread, assumed(&left).hypot(assumed(&right))),
        }
    }

    /// The interval at `1 - alpha`: the narrowest one of its standard errors.
    pub fn interval(&self, alpha: f64) -> Bounds {
        let half = self.errors.iter().map(|error| error.half_width(alpha)).fold(f64::INFINITY, f64::min);
        Bounds { low: self.bounds.low - half, high: self.bounds.high + half }
    }

    /// The interval as ratios of left and right.
    #[must_use]
    pub fn ratios(&self, alpha: f64) -> (f64, f64) {
        let Bounds { low, high } = self.interval(alpha);
        (ratio(low), ratio(high))
    }

    /// The least alpha whose interval lies within the region, at most 1.
    pub fn p_value_within(&self, region: Region) -> f64 {
        self.errors.iter().map(|error| error.p_value_within(region, self.bounds)).fold(1.0, f64::min)
    }

    /// True if the interval rests on the assumed spread.
    #[must_use]
    pub fn rests_on_assumed_spread(&self, alpha: f64) -> bool {
        let narrowest = self.errors.iter().min_by(|a, b| a.half_width(alpha).total_cmp(&b.half_width(alpha)));
        narrowest.is_some_and(|error| error.degrees_of_freedom.is_none())
    }
}

/// The alpha at which Holm's procedure tests each comparison, so that the probability of any false verdict stays below `alpha`.
#[must_use]
pub fn holm(p_values: &[f64], alpha: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut alphas = vec![alpha; p_values.len()];
    let mut open = p_values.len();
    for at in order {
        alphas[at] = alpha / open as f64;
        // Where one stays open, the ones after it are tested at its level.
        if p_values[at] <= alphas[at] {
            open -= 1;
        }
    }
    alphas
}

#[cfg(test)]
mod tests;
