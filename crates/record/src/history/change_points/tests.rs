use rand_distr::{Distribution, Normal, StudentT};
use stockade_model::seed::Seed;

use super::*;

/// Finds changes as `history` does for times of equal records that differ by 5 %.
fn found(values: &[f64], alpha: f64) -> Vec<usize> {
    let counts = |before: f64, after: f64| (after - before).abs() > 0.05_f64.ln_1p();
    let levels = levels(values, &Criteria { resolution: 0.000_5, alpha, counts });
    levels[1..].iter().map(|level| level.first).collect()
}

const SERIES: u64 = 2_000;

/// The share of series for which `is_counted` holds.
fn share(name: &str, series: impl Fn(Seed) -> Vec<f64>, is_counted: impl Fn(&[f64]) -> bool) -> f64 {
    let counted = (0..SERIES).filter(|index| is_counted(&series(Seed(*index).child(name)))).count();
    counted as f64 / SERIES as f64
}

fn noise<D: Distribution<f64>>(seed: Seed, distribution: D, count: usize) -> Vec<f64> {
    distribution.sample_iter(seed.stream("noise")).take(count).collect()
}

fn normal(seed: Seed, deviation: f64, count: usize) -> Vec<f64> {
    noise(seed, Normal::new(0.0, deviation).unwrap(), count)
}

#[test]
fn series_without_a_change_has_one_in_at_most_5_percent() {
    let is_false = |values: &[f64]| !found(values, 0.05).is_empty();
    // One of a hundred series.
    let is_false_of_many = |values: &[f64]| !found(values, 0.05 / 100.0).is_empty();
    for count in [6, 8, 12, 30, 100] {
        let of_normal = |seed| normal(seed, 0.1, count);
        let of_tailed =
            |seed| noise(seed, StudentT::new(3.0).unwrap(), count).iter().map(|v| v * 0.1).collect();
        let normal = share("normal", of_normal, is_false);
        let tailed = share("heavy tails", of_tailed, is_false);
        assert!(normal <= 0.06 && tailed <= 0.06, "{count} points: {normal}, heavy tails {tailed}");
        let normal = share("normal", of_normal, is_false_of_many);
        let tailed = share("heavy tails", of_tailed, is_false_of_many);
        assert!(normal <= 0.003 && tailed <= 0.003, "{count} points: {normal}, heavy tails {tailed}");
    }
}

#[test]
fn change_of_three_deviations_is_found_within_a_record() {
    // Of 5 %, 15 %, and in one of a hundred series.
    for (count, at, length) in [(30, 20, 10), (30, 15, 15), (60, 40, 5), (100, 50, 50)] {
        let planted = |seed| {
            let mut values = normal(seed, 0.05, count);
            values[at..at + length].iter_mut().for_each(|value| *value += 0.25);
            values
        };
        let is_found = |values: &[f64]| {
            let found = found(values, 0.05 / 100.0);
            let places = [at, at + length].into_iter().filter(|place| *place < count);
            found.len() == places.clone().count()
                && places.zip(found).all(|(place, found)| place.abs_diff(found) <= 1)
        };
        let share = share("planted", planted, is_found);
        assert!(share >= 0.9, "{length} of {count} points from {at}: {share}");
    }
}

#[test]
fn outliers_are_no_change_and_hide_none() {
    let with_outliers = |seed, change: f64| {
        let mut values = normal(seed, 0.02, 30);
        values[18..].iter_mut().for_each(|value| *value += change);
        for outlier in [0, 7, 16, 29] {
            values[outlier] += 2.0;
        }
        values
    };
    let false_share =
        share("outliers", |seed| with_outliers(seed, 0.0), |values| !found(values, 0.05).is_empty());
    assert!(false_share <= 0.05, "{false_share}");
    let is_found = |values: &[f64]| matches!(found(values, 0.000_5)[..], [17..=19]);
    let share = share("outliers", |seed| with_outliers(seed, 0.2), is_found);
    assert!(share >= 0.9, "{share}");
}

#[test]
fn exact_figures_change_where_they_differ() {
    assert_eq!(found(&[0.0, 0.0, 0.0, 0.1, 0.1, 0.1], 0.000_5), [3]);
    assert_eq!(found(&[0.0, 0.0, 0.0, 0.0, 0.1, 0.1], 0.000_5), [0; 0], "two records are not a level");
    assert_eq!(found(&[0.0, 0.0, 0.0, 0.04, 0.04, 0.04], 0.000_5), [0; 0], "below the least effect");
    assert_eq!(found(&[1.0], 0.05), [0; 0]);
}
