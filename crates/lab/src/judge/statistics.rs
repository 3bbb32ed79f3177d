//! The effect of a comparison of times, its interval, and the repeats that would decide it.
//!
//! The effect is ln(left / right), so that twice and half are equally far from equal. Its units are the repeats of a run: the
//! arms of a repeat are measured one after the other, so effects are paired by repeat. Two sources give an interval:
//!
//! - the measured spread: Student's t over three repeats or more;
//! - an assumed spread of [`MACHINE_SPREAD`] between runs, beside the spread between the seconds of a run. It is what one run
//!   rests on, and is used with more runs as long as they do not contradict it.
//!
//! The narrower one counts.

use statrs::distribution::{ChiSquared, ContinuousCDF, Normal, StudentsT};

/// The standard deviation of ln(time) between runs of the same setup that one run rests on. Times of a machine without
/// a neighbour differ by a tenth of it.
pub(super) const MACHINE_SPREAD: f64 = 0.35;
/// The repeats from which their own spread is used.
const REPEATS_MIN: usize = 3;
/// The standard deviation below which three digits of a histogram cannot tell times apart.
const RESOLUTION: f64 = 0.000_5;
/// The probability with which the suggested repeats decide.
const POWER: f64 = 0.9;
/// The most repeats that are suggested.
const REPEATS_MAX: u32 = 1_000;

/// The effects of one comparison in one test and arm.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    /// One for each repeat.
    pub(super) repeats: Vec<RepeatEffect>,
    /// The standard error of the effect of one run, from its seconds.
    pub(super) within_run: Option<f64>,
    /// Measured sides: 1 beside a constant, else 2.
    pub(super) sides: u8,
}

/// The effect in one repeat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RepeatEffect {
    pub(super) measured: f64,
    /// Contain it without the lateness of the generator.
    pub(super) bounds: Bounds,
}

/// A value that is known within bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A part of the axis of effects. Its ends may be infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Region {
    pub(super) from: f64,
    pub(super) to: f64,
}

/// A standard error and the distribution of its multiples.
enum Error {
    Measured { of_mean: f64, freedom: f64 },
    Assumed { of_mean: f64 },
}

impl Bounds {
    pub(super) fn exact(value: f64) -> Self {
        Self { low: value, high: value }
    }
}

impl RepeatEffect {
    pub(super) fn exact(measured: f64) -> Self {
        Self { measured, bounds: Bounds::exact(measured) }
    }
}

impl Error {
    fn of_mean(&self) -> f64 {
        match self {
            Self::Measured { of_mean, .. } | Self::Assumed { of_mean } => *of_mean,
        }
    }

    /// The probability of more than `distance` on one side.
    fn tail(&self, distance: f64) -> f64 {
        if distance.is_infinite() {
            return if distance > 0.0 { 0.0 } else { 1.0 };
        }
        let errors = distance / self.of_mean();
        match self {
            Self::Measured { freedom, .. } => students_t(*freedom).sf(errors),
            Self::Assumed { .. } => Normal::standard().sf(errors),
        }
    }

    /// Half of the width of the interval that misses with probability `miss`.
    fn half_width(&self, miss: f64) -> f64 {
        self.of_mean()
            * match self {
                Self::Measured { freedom, .. } => students_t(*freedom).inverse_cdf(1.0 - miss / 2.0),
                Self::Assumed { .. } => Normal::standard().inverse_cdf(1.0 - miss / 2.0),
            }
    }
}

fn students_t(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("the degrees of freedom are above 0")
}

impl Effects {
    fn count(&self) -> f64 {
        self.repeats.len() as f64
    }

    fn mean(&self, of: impl Fn(&RepeatEffect) -> f64) -> f64 {
        self.repeats.iter().map(of).sum::<f64>() / self.count()
    }

    pub(super) fn mean_measured(&self) -> f64 {
        self.mean(|effect| effect.measured)
    }

    fn mean_bounds(&self) -> Bounds {
        Bounds { low: self.mean(|effect| effect.bounds.low), high: self.mean(|effect| effect.bounds.high) }
    }

    /// The standard deviation between the repeats; `None` of one.
    fn spread(&self) -> Option<f64> {
        let mean = self.mean_measured();
        let squares: f64 = self.repeats.iter().map(|effect| (effect.measured - mean).powi(2)).sum();
        (self.repeats.len() > 1).then(|| (squares / (self.count() - 1.0)).sqrt().max(RESOLUTION))
    }

    fn assumed_spread(&self) -> f64 {
        let between = MACHINE_SPREAD * f64::from(self.sides).sqrt();
        between.hypot(self.within_run.unwrap_or_default())
    }

    /// Every source of an interval.
    fn errors(&self) -> impl Iterator<Item = Error> {
        let root = self.count().sqrt();
        let (assumed, measured) = (self.assumed_spread(), self.spread());
        let is_contradicted = measured.is_some_and(|measured| measured > assumed);
        let assumed = (!is_contradicted || self.repeats.len() < REPEATS_MIN)
            .then(|| assumed.max(measured.unwrap_or(0.0)));
        let assumed = assumed.map(|spread| Error::Assumed { of_mean: spread / root });
        let measured = measured.filter(|_| self.repeats.len() >= REPEATS_MIN);
        let measured =
            measured.map(|spread| Error::Measured { of_mean: spread / root, freedom: self.count() - 1.0 });
        assumed.into_iter().chain(measured)
    }

    /// The interval that misses the effect with probability `miss`.
    pub(super) fn interval(&self, miss: f64) -> Bounds {
        let Bounds { low, high } = self.mean_bounds();
        let half = self.errors().map(|error| error.half_width(miss)).fold(f64::INFINITY, f64::min);
        Bounds { low: low - half, high: high + half }
    }

    /// The least `miss` whose interval lies within the region, from 0 to 1.
    pub(super) fn miss_within(&self, region: Region) -> f64 {
        let Bounds { low, high } = self.mean_bounds();
        let miss = |error: Error| 2.0 * error.tail(low - region.from).max(error.tail(region.to - high));
        self.errors().map(miss).fold(1.0, f64::min)
    }

    /// True if the interval rests on the assumed spread.
    pub(super) fn is_assumed(&self, miss: f64) -> bool {
        let narrowest = self.errors().min_by(|a, b| a.half_width(miss).total_cmp(&b.half_width(miss)));
        matches!(narrowest, Some(Error::Assumed { .. }))
    }

    /// The repeats with which the interval lies within one of the regions, with probability [`POWER`], if the effect is the mean
    /// so far; `None`: too few repeats for an answer, or more than [`REPEATS_MAX`].
    pub(super) fn repeats_to_decide(&self, miss: f64, regions: &[Region]) -> Option<u32> {
        if self.repeats.len() < REPEATS_MIN {
            return None;
        }
        let Bounds { low, high } = self.mean_bounds();
        let room = regions.iter().map(|region| (low - region.from).min(region.to - high)).fold(0.0, f64::max);
        // A spread of few repeats may be too small by chance: its upper bound at 90 %.
        let freedom = self.count() - 1.0;
        let chance = ChiSquared::new(freedom).expect("the degrees of freedom are above 0").inverse_cdf(0.1);
        let spread = self.spread()? * (freedom / chance).sqrt();
        let decides = |repeats: u32| {
            let t = students_t(f64::from(repeats) - 1.0);
            let errors = t.inverse_cdf(1.0 - miss / 2.0) + t.inverse_cdf(POWER);
            errors * spread / f64::from(repeats).sqrt() < room
        };
        let first = u32::try_from(self.repeats.len()).unwrap_or(REPEATS_MAX) + 1;
        // It decides from some number on: the first one, by halving.
        let (mut low, mut high) = (first, REPEATS_MAX);
        if room <= 0.0 || !decides(high) {
            return None;
        }
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

/// Holm's correction: by comparison, the `miss` at which it is tested, so that the probability of any false verdict stays below
/// `miss`. `least` has the least miss at which each is decided.
pub(super) fn corrected(least: &[f64], miss: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..least.len()).collect();
    order.sort_by(|a, b| least[*a].total_cmp(&least[*b]));
    let mut levels = vec![miss; least.len()];
    let mut left = least.len();
    for at in order {
        levels[at] = miss / left as f64;
        // Where one stays open, the ones after it are tested at its level.
        if least[at] <= levels[at] {
            left -= 1;
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::SmallRng};
    use rand_distr::{Distribution, Normal as Drawn};

    use super::*;

    const ABOVE: Region = Region { from: 0.01, to: f64::INFINITY };
    const BELOW: Region = Region { from: f64::NEG_INFINITY, to: -0.01 };

    fn effects(values: &[f64], sides: u8) -> Effects {
        let repeats = values.iter().copied().map(RepeatEffect::exact).collect();
        Effects { repeats, within_run: None, sides }
    }

    /// Repeats of two arms whose times have a ratio of e^`effect`; ln(time) of a run has this spread.
    fn drawn(random: &mut SmallRng, repeats: usize, effect: f64, spread: f64) -> Effects {
        let run = Drawn::new(0.0, spread).unwrap();
        let values: Vec<f64> =
            (0..repeats).map(|_| effect + run.sample(random) - run.sample(random)).collect();
        effects(&values, 2)
    }

    fn share(count: usize, of: usize) -> f64 {
        count as f64 / of as f64
    }

    /// A/A: no difference exists. With one run the spread is the assumed one, at which its level is exact.
    #[test]
    fn equal_arms_have_a_verdict_in_at_most_one_of_twenty() {
        let mut random = SmallRng::seed_from_u64(24);
        for (repeats, spread) in [(1, MACHINE_SPREAD), (1, 0.05), (3, 0.05), (3, 0.2), (5, 0.02), (5, 0.1)] {
            const PAIRS: usize = 4_000;
            let all: Vec<_> = (0..PAIRS).map(|_| drawn(&mut random, repeats, 0.0, spread)).collect();
            let is_false = |e: &&Effects| e.miss_within(ABOVE).min(e.miss_within(BELOW)) <= 0.05;
            let wrong = share(all.iter().filter(is_false).count(), PAIRS);
            assert!(wrong <= 0.055, "{wrong} of {repeats} repeats at {spread}");
            let covers = |e: &&Effects| (e.interval(0.05).low..e.interval(0.05).high).contains(&0.0);
            let covered = share(all.iter().filter(covers).count(), PAIRS);
            let is_exact = repeats > 1 || spread >= MACHINE_SPREAD;
            let most = if is_exact { 0.97 } else { 1.0 };
            assert!((0.93..=most).contains(&covered), "{covered} of {repeats} repeats at {spread}");
        }
    }

    /// With three repeats an arm is 5 % slower or not; then with as many as those ask for.
    #[test]
    fn suggested_repeats_find_the_difference() {
        let mut random = SmallRng::seed_from_u64(25);
        for (slower, spread) in [(1.05_f64, 0.02), (1.10, 0.05)] {
            const EXPERIMENTS: usize = 1_000;
            let (mut asked, mut found) = (0, 0);
            for _ in 0..EXPERIMENTS {
                let first = drawn(&mut random, 3, slower.ln(), spread);
                let Some(repeats) = first.repeats_to_decide(0.05, &[ABOVE, BELOW]) else { continue };
                asked += 1;
                let second = drawn(&mut random, repeats as usize, slower.ln(), spread);
                found += usize::from(second.miss_within(ABOVE) <= 0.05);
            }
            assert!(asked > EXPERIMENTS / 2 && share(found, asked) >= 0.9, "{found} of {asked} at {slower}");
        }
    }

    #[test]
    fn differences_below_the_minimum_effect_are_not_called_one() {
        let mut random = SmallRng::seed_from_u64(26);
        let is_called = |_: &usize| drawn(&mut random, 20, 1.005_f64.ln(), 0.01).miss_within(ABOVE) <= 0.05;
        assert!((0..1_000).filter(is_called).count() <= 50);
    }

    /// From `SciPy` 1.17: `scipy.stats.ttest_1samp(values, 0)` and its `confidence_interval(0.95)`.
    #[test]
    fn intervals_are_those_of_students_t() {
        let e = effects(&[0.021, 0.034, 0.018, 0.041, 0.029], 2);
        let Bounds { low, high } = e.interval(0.05);
        assert!((low - 0.016_932_3).abs() < 1e-6 && (high - 0.040_267_7).abs() < 1e-6, "{low} to {high}");
        let everything_above = Region { from: 0.0, to: f64::INFINITY };
        assert!((e.miss_within(everything_above) - 0.002_435_6).abs() < 1e-6);
        assert!(!e.is_assumed(0.05));
    }

    #[test]
    fn one_run_decides_what_no_machine_can_cause() {
        let far = effects(&[(392.0_f64 / 5.0).ln()], 1);
        let above = Region { from: 0.0, to: f64::INFINITY };
        assert!(far.miss_within(above) < 1e-6 && far.is_assumed(0.05));
        assert!(effects(&[1.5_f64.ln()], 1).miss_within(above) > 0.05);
        // Seconds that differ by more than machines do.
        let noisy = Effects { within_run: Some(3.0), ..far };
        assert!(noisy.miss_within(above) > 0.05);
        // Repeats that contradict the assumption.
        assert!(effects(&[4.0, 0.1, 3.0], 1).miss_within(above) > 0.05);
    }

    #[test]
    fn correction_is_holms() {
        // Of Holm's procedure at 5 %: 0.01 <= 0.05/4, then 0.02 > 0.05/3 ends it.
        let levels = corrected(&[0.03, 0.01, 0.02, 0.2], 0.05);
        let expected = [0.05 / 3.0, 0.05 / 4.0, 0.05 / 3.0, 0.05 / 3.0];
        for (level, expected) in levels.iter().zip(expected) {
            assert!((level - expected).abs() < 1e-12, "{levels:?}");
        }
        assert_eq!(corrected(&[0.0001, 0.0002], 0.05), [0.025, 0.05]);
        assert!(corrected(&[], 0.05).is_empty());
    }
}
