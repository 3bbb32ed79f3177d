//! The rules of comparisons of times, against textbooks, tables and `SciPy`.

use rand::{SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, Normal as Drawn};

use super::*;

const ABOVE: Region = Region { from: 0.01, to: f64::INFINITY };
const BELOW: Region = Region { from: f64::NEG_INFINITY, to: -0.01 };

/// Effects of two figures, or of a figure and a constant.
fn effects(values: &[f64], figures: u8) -> Effects {
    let deviation = AssumedSpread::Machine.deviation() * f64::from(figures).sqrt();
    let repeat =
        |value: f64| RepeatEffect { measured: value, bounds: Bounds { low: value, high: value }, deviation };
    Effects { repeats: values.iter().copied().map(repeat).collect(), within_run: None }
}

/// Repeats of two arms whose times have a ratio of e^`effect`; ln(time) of a run has this spread.
fn drawn(random: &mut SmallRng, repeats: usize, effect: f64, spread: f64) -> Effects {
    let run = Drawn::new(0.0, spread).unwrap();
    let values: Vec<f64> = (0..repeats).map(|_| effect + run.sample(random) - run.sample(random)).collect();
    effects(&values, 2)
}

fn share(count: usize, of: usize) -> f64 {
    count as f64 / of as f64
}

/// A/A: no difference exists. With one run the spread is the assumed one, at which its level is exact.
#[test]
fn equal_arms_have_a_verdict_in_at_most_one_of_twenty() {
    let mut random = SmallRng::seed_from_u64(24);
    let settings = [
        (1, AssumedSpread::Machine.deviation()),
        (1, 0.05),
        (2, AssumedSpread::Machine.deviation()),
        (3, 0.05),
        (3, 0.2),
        (3, AssumedSpread::Machine.deviation()),
        (5, 0.02),
        (5, 0.1),
        (5, AssumedSpread::Machine.deviation()),
    ];
    for (repeats, spread) in settings {
        const PAIRS: usize = 4_000;
        let all: Vec<_> = (0..PAIRS).map(|_| drawn(&mut random, repeats, 0.0, spread)).collect();
        let is_false =
            |e: &&Effects| e.estimate().p_value_within(ABOVE).min(e.estimate().p_value_within(BELOW)) <= 0.05;
        let wrong = share(all.iter().filter(is_false).count(), PAIRS);
        assert!(wrong <= 0.055, "{wrong} of {repeats} repeats at {spread}");
        let covers =
            |e: &&Effects| (e.estimate().interval(0.05).low..e.estimate().interval(0.05).high).contains(&0.0);
        let covered = share(all.iter().filter(covers).count(), PAIRS);
        let is_exact = repeats > 2 || spread >= AssumedSpread::Machine.deviation();
        let most = if is_exact { 0.975 } else { 1.0 };
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
            found += usize::from(second.estimate().p_value_within(ABOVE) <= 0.05);
        }
        assert!(asked > EXPERIMENTS / 2 && share(found, asked) >= 0.9, "{found} of {asked} at {slower}");
    }
}

#[test]
fn differences_below_the_minimum_effect_are_not_called_one() {
    let mut random = SmallRng::seed_from_u64(26);
    let is_called =
        |_: &usize| drawn(&mut random, 20, 1.005_f64.ln(), 0.01).estimate().p_value_within(ABOVE) <= 0.05;
    assert!((0..1_000).filter(is_called).count() <= 50);
}

/// From `SciPy` 1.17: `scipy.stats.ttest_1samp(values, 0)` and its `confidence_interval(0.95)`.
#[test]
fn intervals_are_those_of_students_t() {
    let e = effects(&[0.021, 0.034, 0.018, 0.041, 0.029], 2);
    let Bounds { low, high } = e.estimate().interval(0.05 / (1.0 - ASSUMED_SHARE));
    assert!((low - 0.016_932_3).abs() < 1e-6 && (high - 0.040_267_7).abs() < 1e-6, "{low} to {high}");
    let everything_above = Region { from: 0.0, to: f64::INFINITY };
    let p_value = e.estimate().p_value_within(everything_above) * (1.0 - ASSUMED_SHARE);
    assert!((p_value - 0.002_435_6).abs() < 1e-6);
    assert!(!e.estimate().rests_on_assumed_spread(0.05));
}

/// From `SciPy` 1.17: `scipy.stats.ttest_ind(left, right, equal_var=False)`, and its `confidence_interval`.
#[test]
fn effects_of_two_records_are_those_of_welch() {
    let of = |logarithms: &[f64]| -> Vec<Quantity> {
        logarithms.iter().map(|ln| Quantity::figure(ln.exp(), ln.exp(), AssumedSpread::Machine)).collect()
    };
    let e = Estimate::unpaired(&of(&[0.21, 0.34, 0.18, 0.41, 0.29]), &of(&[0.11, 0.07, 0.16, 0.02]));
    let Bounds { low, high } = e.interval(0.05 / (1.0 - ASSUMED_SHARE));
    assert!((low - 0.073_370_7).abs() < 1e-6 && (high - 0.318_629_3).abs() < 1e-6, "{low} to {high}");
    let p_value = e.p_value_within(Region { from: 0.0, to: f64::INFINITY }) * (1.0 - ASSUMED_SHARE);
    assert!((p_value - 0.007_115_3).abs() < 1e-6, "{p_value}");
    let one_run = Estimate::unpaired(&of(&[0.21]), &of(&[0.11, 0.07, 0.16, 0.02]));
    assert!(one_run.rests_on_assumed_spread(0.05) && one_run.interval(0.05).high > 0.8);
}

#[test]
fn one_run_decides_what_no_machine_can_cause() {
    let far = effects(&[(392.0_f64 / 5.0).ln()], 1);
    let above = Region { from: 0.0, to: f64::INFINITY };
    assert!(far.estimate().p_value_within(above) < 1e-6 && far.estimate().rests_on_assumed_spread(0.05));
    assert!(effects(&[1.5_f64.ln()], 1).estimate().p_value_within(above) > 0.05);
    // Seconds that differ by more than machines do.
    let noisy = Effects { within_run: Some(3.0), ..far };
    assert!(noisy.estimate().p_value_within(above) > 0.05);
    // Three runs do so, too, although Student's t has few degrees of freedom.
    assert!(effects(&[1.8, 1.3, 1.6], 1).estimate().p_value_within(above) < 0.005);
    // Repeats that contradict the assumption.
    assert!(effects(&[4.0, 0.1, 3.0], 1).estimate().p_value_within(above) > 0.05);
}

#[test]
fn correction_is_holms() {
    // Of Holm's procedure at 5 %: 0.01 <= 0.05/4, then 0.02 > 0.05/3 ends it.
    let levels = holm(&[0.03, 0.01, 0.02, 0.2], 0.05);
    let expected = [0.05 / 3.0, 0.05 / 4.0, 0.05 / 3.0, 0.05 / 3.0];
    for (level, expected) in levels.iter().zip(expected) {
        assert!((level - expected).abs() < 1e-12, "{levels:?}");
    }
    assert_eq!(holm(&[0.0001, 0.0002], 0.05), [0.025, 0.05]);
    assert!(holm(&[], 0.05).is_empty());
}

/// A figure of 10 that is 8 at least, and one of 4 that is 3 at least, which a stall may decide.
fn ten_and_four() -> (Quantity, Quantity) {
    (Quantity::figure(10.0, 8.0, AssumedSpread::Machine), Quantity::figure(4.0, 3.0, AssumedSpread::Stall))
}

#[track_caller]
fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-6 * expected.abs().max(1.0), "{found}, not {expected}");
}

#[track_caller]
fn assert_quantity(found: Quantity, [measured, low, high, deviation]: [f64; 4]) {
    assert_close(found.measured, measured);
    assert_close(found.bounds.low, low);
    assert_close(found.bounds.high, high);
    assert_close(found.deviation, deviation);
}

/// The bounds are those of interval arithmetic of positive numbers; independent errors add up as squares: absolute ones of a sum, and
/// relative ones of a product and a quotient.
#[test]
fn sums_products_and_quotients_carry_bounds_and_spread() {
    let (ten, four) = ten_and_four();
    assert_quantity(ten, [10.0, 8.0, 10.0, 3.5]);
    assert_quantity(four, [4.0, 3.0, 4.0, 5.6]);
    // sqrt(3.5^2 + 5.6^2)
    assert_quantity(ten + four, [14.0, 11.0, 14.0, 6.603_786]);
    // sqrt(0.35^2 + 1.4^2) is 1.443087.
    assert_quantity(ten * four, [40.0, 24.0, 40.0, 40.0 * 1.443_086_968]);
    assert_quantity(ten.divided_by(four).unwrap(), [2.5, 2.0, 10.0 / 3.0, 2.5 * 1.443_086_968]);
    let third = Quantity::exact(1.0).divided_by(Quantity::exact(3.0)).unwrap();
    assert_quantity(third, [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0]);
    assert_quantity(Quantity::exact(2.0) * ten, [20.0, 16.0, 20.0, 7.0]);

    // A divisor that may be 0 has no quotient.
    assert_eq!(ten.divided_by(Quantity::exact(0.0)), None);
    assert_eq!(ten.divided_by(Quantity::figure(4.0, 0.0, AssumedSpread::Machine)), None);
    // A lower bound above the figure is not one.
    assert_quantity(Quantity::figure(2.0, 3.0, AssumedSpread::Machine), [2.0, 2.0, 2.0, 0.7]);
    let growing = Quantity::within(Bounds { low: 2.0, high: 5.0 }, AssumedSpread::Stall);
    assert_quantity(growing, [2.0, 2.0, 5.0, 2.8]);
}

/// A stall of 0.25 s holds back the requests of 0.25 s: it decides p99 if that is a hundredth of the load or more.
#[test]
fn one_stall_decides_the_slowest_requests_of_a_short_load() {
    use AssumedSpread::{Machine, Stall};
    for (statistic, seconds, expected) in [
        (Statistic::Quantile(0.99), 24, Stall),
        (Statistic::Quantile(0.99), 26, Machine),
        (Statistic::Quantile(0.999), 249, Stall),
        (Statistic::Quantile(0.999), 251, Machine),
        (Statistic::Quantile(0.75), 1, Machine),
        (Statistic::Quantile(0.9), 2, Stall),
        (Statistic::Quantile(0.9), 10, Machine),
        (Statistic::Quantile(0.5), 1, Machine),
        (Statistic::Max, 86_400, Stall),
        // The length is unknown.
        (Statistic::Max, 0, Machine),
    ] {
        assert_eq!(
            AssumedSpread::of_undisturbed(statistic, seconds),
            expected,
            "{statistic:?} of {seconds} s"
        );
    }
    // A factor of 1.4 or of 4.
    for (spread, factor) in [(Machine, "1.4"), (Stall, "4.1"), (AssumedSpread::Disturbed, "4.1")] {
        assert_eq!(format!("{:.1}", spread.deviation().exp()), factor);
    }
}

#[test]
fn effect_of_a_repeat_is_the_logarithm_of_the_ratio() {
    let (ten, four) = ten_and_four();
    let effect = RepeatEffect::of(ten, four);
    assert_close(effect.measured, 2.5_f64.ln());
    assert_close(effect.bounds.low, 2.0_f64.ln());
    assert_close(effect.bounds.high, (10.0_f64 / 3.0).ln());
    assert_close(effect.deviation, 1.443_086_968);
    let measured = effect.as_measured();
    assert_eq!(measured.bounds, Bounds { low: effect.measured, high: effect.measured });
    assert_eq!((measured.measured, measured.deviation), (effect.measured, effect.deviation));

    // Twice and half are equally far from equal, and two figures of 0 are equal.
    let of = |left, right| RepeatEffect::of(Quantity::exact(left), Quantity::exact(right)).measured;
    assert_close(of(2.0, 1.0), -of(1.0, 2.0));
    assert_close(of(0.0, 0.0), 0.0);
    assert_close(of(1.0, 0.0), 1e6_f64.ln());
    let zero = Quantity::figure(0.0, 0.0, AssumedSpread::Machine);
    assert_close(RepeatEffect::of(zero, ten).deviation, 0.35);
}

/// An effect of two standard deviations: of 100 normal values 4.55 are as far from 0 (a table of the normal distribution).
#[test]
fn p_values_of_one_run_are_those_of_the_normal_distribution() {
    let one = effects(&[0.7], 1).estimate();
    let two_deviations = 0.045_500_264;
    assert_close(one.measured, 0.7);
    assert_close(one.p_value_within(Region::above(0.0)), two_deviations);
    assert_close(one.p_value_within(Region::within(1.4)), two_deviations);
    assert_close(one.p_value_within(Region { from: 0.35, to: 100.0 }), 0.317_310_508);
    assert_close(one.p_value_within(Region { from: -100.0, to: 1.4 }), two_deviations);
    assert_close(one.p_value_within(Region { from: f64::NEG_INFINITY, to: f64::INFINITY }), 0.0);
    // An effect at the end of a region, or outside of it.
    assert_close(one.p_value_within(Region::above(0.7)), 1.0);
    assert_close(one.p_value_within(Region::below(-0.7)), 1.0);
    assert_close(effects(&[-0.7], 1).estimate().p_value_within(Region::below(0.0)), two_deviations);
    let Bounds { low, high } = one.interval(two_deviations);
    assert_close(low, 0.0);
    assert_close(high, 1.4);
    let (low, high) = one.ratios(two_deviations);
    assert_close(low, 1.0);
    assert_close(high, 4.055_199_967);
}

/// What lateness may have caused is not an effect: the interval starts at the bounds.
#[test]
fn intervals_reach_beyond_the_bounds_of_late_requests() {
    let repeat =
        |measured, low, high| RepeatEffect { measured, bounds: Bounds { low, high }, deviation: 0.35 };
    let all = Effects { repeats: vec![repeat(0.5, 0.2, 0.6), repeat(0.9, 0.6, 1.4)], within_run: None };
    let estimate = all.estimate();
    assert_close(estimate.measured, 0.7);
    // 1.96 * 0.35 / sqrt(2)
    let half = 0.485_066_3;
    let Bounds { low, high } = estimate.interval(0.05);
    assert_close(low, 0.4 - half);
    assert_close(high, 1.0 + half);
    assert_close(estimate.p_value_within(Region::above(0.4 - half)), 0.05);
    assert_close(estimate.p_value_within(Region::below(1.0 + half)), 0.05);
    // A figure that still grows has no upper bound: it may only be above.
    let growing = repeat(0.7, 0.7, f64::INFINITY);
    let growing = Effects { repeats: vec![growing], within_run: None }.estimate();
    assert_close(growing.p_value_within(Region::above(0.0)), 0.045_500_264);
    assert_close(growing.p_value_within(Region::below(10.0)), 1.0);
    // A divisor that grows: nothing bounds the effect from below.
    let growing = repeat(-0.7, f64::NEG_INFINITY, -0.7);
    let growing = Effects { repeats: vec![growing], within_run: None }.estimate();
    assert_close(growing.p_value_within(Region::below(0.0)), 0.045_500_264);
    assert_close(growing.p_value_within(Region::above(-10.0)), 1.0);
    let beyond = StandardError { of_mean: 1.0, degrees_of_freedom: None, share: 1.0 };
    assert_close(beyond.tail(f64::INFINITY), 0.0);
    assert_close(beyond.tail(f64::NEG_INFINITY), 1.0);
}

#[test]
fn one_or_two_runs_rest_on_the_larger_spread() {
    let half = |effects: &Effects| {
        let estimate = effects.estimate();
        assert!(estimate.rests_on_assumed_spread(0.05));
        estimate.interval(0.05).high - estimate.measured
    };
    // sqrt(0.35^2 + 0.84^2) is 0.91: spreads between runs and within one are independent.
    let one = Effects { within_run: Some(0.84), ..effects(&[0.0], 1) };
    assert_close(half(&one), 1.959_963_985 * 0.91);
    // Two runs that are alike have the assumed spread; two that are far apart have their own.
    assert_close(half(&effects(&[0.0, 0.1], 1)), 1.959_963_985 * 0.35 / 2.0_f64.sqrt());
    assert_close(half(&effects(&[0.0, 2.0], 1)), 1.959_963_985);
    // A spread below what a histogram can tell apart is not one.
    let exact = RepeatEffect::of(Quantity::exact(2.0), Quantity::exact(1.0));
    assert_close(half(&Effects { repeats: vec![exact], within_run: None }), 1.959_963_985 * RESOLUTION);
    // 3.182446 of Student's t with 3 degrees of freedom, at 9/10 of alpha.
    let equal = effects(&[0.1; 4], 1).estimate();
    assert_close(equal.interval(0.05 / 0.9).high, 0.1 + 3.182_446_305 * RESOLUTION / 2.0);
}

/// From `SciPy` 1.17: `norm.ppf(0.9975)` is 2.807034, at a tenth of alpha; `t.ppf(1 - 0.045 / 2, 2)` is 4.553431 at the rest.
#[test]
fn three_runs_have_the_narrower_interval_until_they_contradict_the_assumption() {
    let half = |estimate: &Estimate| estimate.interval(0.05).high - estimate.measured;
    // The standard deviation is 0.3, below the assumed 0.35, and two degrees of freedom cost more.
    let assumed = effects(&[-0.3, 0.0, 0.3], 1).estimate();
    assert_close(half(&assumed), 2.807_033_768 * 0.35 / 3.0_f64.sqrt());
    assert!(assumed.rests_on_assumed_spread(0.05));
    let measured = effects(&[-0.1, 0.0, 0.1], 1).estimate();
    assert_close(half(&measured), 4.553_430_704 * 0.1 / 3.0_f64.sqrt());
    assert!(!measured.rests_on_assumed_spread(0.05));
    // Exact figures that are the same in each repeat do not contradict it either.
    let exact = RepeatEffect::of(Quantity::exact(2.0), Quantity::exact(1.0));
    let equal = Effects { repeats: vec![exact; 3], within_run: None }.estimate();
    assert_close(half(&equal) / RESOLUTION, 2.807_033_768 / 3.0_f64.sqrt());
    // 0.4 is above 0.35: the assumption is wrong.
    let contradicted = effects(&[-0.4, 0.0, 0.4], 1).estimate();
    assert_close(half(&contradicted), 4.553_430_704 * 0.4 / 3.0_f64.sqrt());
    assert!(!contradicted.rests_on_assumed_spread(0.05));
}

#[test]
fn effects_of_two_records_keep_their_bounds_and_the_assumed_spread() {
    let of = |ln: f64, low: f64| Quantity::figure(ln.exp(), low.exp(), AssumedSpread::Machine);
    // The figure of the first would be 0.3 at least without late requests, and that of the second 0.05.
    let estimate = Estimate::unpaired(&[of(0.8, 0.3)], &[of(0.2, 0.05); 4]);
    assert_close(estimate.measured, 0.6);
    // sqrt(0.35^2 + 0.35^2 / 4), of one run and of four.
    let half = 1.959_963_985 * 0.391_311_896;
    let Bounds { low, high } = estimate.interval(0.05);
    assert_close(low, 0.3 - 0.2 - half);
    assert_close(high, 0.8 - 0.05 + half);
    assert!(estimate.rests_on_assumed_spread(0.05));
    // Two runs of one record are too few for Welch's t.
    let two =
        Estimate::unpaired(&[of(0.8, 0.8), of(0.81, 0.81)], &[of(0.2, 0.2), of(0.2, 0.2), of(0.2, 0.2)]);
    assert!(two.rests_on_assumed_spread(0.05));
    let three = Estimate::unpaired(&[of(0.8, 0.8), of(0.81, 0.81), of(0.82, 0.82)], &[of(0.2, 0.2); 3]);
    assert!(!three.rests_on_assumed_spread(0.05));
}

/// The last repeat may end far from the others, so that their own spread says nothing about it.
#[test]
fn growing_repeat_rests_on_the_assumed_spread_unless_the_others_contradict_it() {
    let half = |values: &[f64], alpha: f64| {
        let estimate = effects(values, 1).estimate_of_growing()?;
        assert!(estimate.rests_on_assumed_spread(alpha));
        Some(estimate.interval(alpha).high - estimate.measured)
    };
    assert_close(half(&[0.4], 0.05).unwrap(), 1.959_963_985 * 0.35);
    assert_close(half(&[0.4, 9.0], 0.05).unwrap(), 1.959_963_985 * 0.35 / 2.0_f64.sqrt());
    // From three on Student's t has the other nine tenths of alpha, once they have ended.
    assert_close(half(&[0.4, 0.5, 9.0], 0.05).unwrap(), 2.807_033_768 * 0.35 / 3.0_f64.sqrt());
    // Standard deviations of 0.354, and of 0.346.
    assert_eq!(half(&[0.0, 0.5, 9.0], 0.05), None);
    assert!(half(&[0.0, 0.49, 9.0], 0.05).is_some());
    // Neither do repeats that a histogram cannot tell apart, of figures without a spread.
    let exact = RepeatEffect::of(Quantity::exact(2.0), Quantity::exact(1.0));
    let equal = Effects { repeats: vec![exact; 3], within_run: None };
    assert!(equal.estimate_of_growing().is_some());
    let mean = effects(&[0.0, 0.3, 9.0], 1).estimate_of_growing().unwrap().measured;
    assert_close(mean, 3.1);
}

/// From `SciPy` 1.17: the first n at which `(t.ppf(1 - 0.9 * alpha / 2, n - 1) + t.ppf(0.9, n - 1)) * s / sqrt(n)` is below the distance
/// of the mean from the ends, where s is the standard deviation times `sqrt(dof / chi2.ppf(0.1, dof))`.
#[test]
fn suggested_repeats_are_those_of_the_power_of_the_t_test() {
    for (values, alpha, regions, expected) in [
        (&[0.03, 0.05, 0.07][..], 0.05, &[ABOVE][..], Some(28)),
        (&[0.02, 0.05, 0.08], 0.05, &[ABOVE, BELOW], Some(60)),
        // One repeat more.
        (&[0.049, 0.05, 0.051], 0.05, &[ABOVE], Some(4)),
        // Few repeats have few degrees of freedom.
        (&[0.043, 0.05, 0.057], 0.05, &[ABOVE], Some(6)),
        (&[0.0, 0.05, 0.1, 0.05], 0.01, &[ABOVE], Some(85)),
        // The mirror image, and figures that are the same.
        (&[-0.03, -0.05, -0.07], 0.05, &[ABOVE, BELOW], Some(28)),
        (&[-0.01, 0.0, 0.01], 0.05, &[ABOVE, Region { from: -0.02, to: 0.02 }, BELOW], Some(28)),
        (&[-0.01, 0.0, 0.01], 0.05, &[Region { from: -0.02, to: 0.5 }], Some(28)),
        // At the end of every region, too close, and too few.
        (&[-0.01, 0.01, 0.03], 0.05, &[ABOVE], None),
        // 944 repeats, and more than 1,000.
        (&[0.0, 0.05, 0.1], 0.05, &[Region { from: 0.0335, to: f64::INFINITY }], Some(944)),
        (&[0.0, 0.05, 0.1], 0.05, &[Region { from: 0.034, to: f64::INFINITY }], None),
        (&[0.05, 0.07], 0.05, &[ABOVE], None),
    ] {
        assert_eq!(effects(values, 1).repeats_to_decide(alpha, regions), expected, "{values:?} at {alpha}");
    }
    // 1,000 repeats are the most.
    let alternating = |count: u32| -> Vec<f64> {
        (0..count).map(|repeat| if repeat % 2 == 0 { 0.03 } else { 0.07 }).collect()
    };
    for (count, expected) in [(998, Some(999)), (999, Some(1_000)), (1_000, None)] {
        assert_eq!(effects(&alternating(count), 1).repeats_to_decide(0.05, &[ABOVE]), expected, "{count}");
    }
    // The bounds of late requests count, not the measured effect.
    let late = |measured: f64| RepeatEffect {
        measured: measured + 0.2,
        bounds: Bounds { low: measured, high: measured + 0.2 },
        deviation: 0.35,
    };
    let late = Effects { repeats: [0.03, 0.05, 0.07].map(late).to_vec(), within_run: None };
    assert_eq!(late.repeats_to_decide(0.05, &[ABOVE]), Some(28));
}

#[test]
fn ratio_is_finite() {
    assert_close(ratio(2.5_f64.ln()), 2.5);
    assert_close(ratio(-(2.0_f64.ln())), 0.5);
    assert_close(ratio(f64::NEG_INFINITY), 0.0);
    assert!(ratio(f64::INFINITY).is_finite() && ratio(f64::INFINITY) > 1e300);
}

#[test]
fn deviations_of_samples() {
    // The squared distances from the mean of 5 add up to 32, of eight values.
    let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
    assert_close(standard_deviation(&values).unwrap(), (32.0_f64 / 7.0).sqrt());
    assert_eq!([standard_deviation(&[]), standard_deviation(&[3.0])], [None; 2]);
    assert_close(root_mean_square(&[3.0, 4.0]).unwrap(), 12.5_f64.sqrt());
    assert_eq!((root_mean_square(&[]), root_mean_square(&[3.0])), (None, Some(3.0)));
}

#[test]
fn equal_arms_have_the_distance_of_their_mean_effect_from_0() {
    let of = |pairs: &[(f64, f64)]| {
        effect_of_equals(pairs.iter().map(|(left, right)| (Quantity::exact(*left), Quantity::exact(*right))))
    };
    assert_close(of(&[(2.0, 1.0), (1.0, 1.0)]), 2.0_f64.ln() / 2.0);
    assert_close(of(&[(1.0, 2.0), (1.0, 1.0)]), 2.0_f64.ln() / 2.0);
    // Effects in both directions cancel out.
    assert_close(of(&[(1.0, 2.0), (2.0, 1.0)]), 0.0);
    assert_close(of(&[]), 0.0);
}
