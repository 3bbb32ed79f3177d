//! Change points: where the level of a series changes, and stays changed for three points at least. Pure.
//!
//! 1. An isolated outlier counts as the median of the five points around it (Hampel's identifier).
//! 2. Optimal partitioning into levels: least squares, with a penalty for each change.
//! 3. The weakest change is removed until the rest are significant: Student's t of the two levels around it, corrected for the places
//!    where a change can be (Bonferroni).

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::metrics::median;

/// The points that a level has at least: two outliers in a row are not a change.
pub(super) const LEVEL_POINTS_MIN: usize = 3;
/// Points beyond this number of standard deviations from their neighbourhood are outliers.
const OUTLIER_DEVIATIONS: f64 = 4.0;
/// The standard deviation of a normal distribution whose median absolute deviation is 1.
const DEVIATION_OF_MAD: f64 = 1.4826;

/// The criteria of a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Criteria<F> {
    /// The standard deviation below which points do not differ.
    pub(super) resolution: f64,
    /// The probability of any false change in the series.
    pub(super) alpha: f64,
    /// True if the difference of two levels counts.
    pub(super) counts: F,
}

/// Points in a row with the same mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    /// The index of its first point.
    pub(super) first: usize,
    /// Of its points without outliers.
    pub(super) mean: f64,
}

/// The levels of a series of one point or more: each but the first begins with a change.
pub(super) fn levels<F: Fn(f64, f64) -> bool>(values: &[f64], criteria: &Criteria<F>) -> Vec<Level> {
    if values.len() < 2 * LEVEL_POINTS_MIN {
        return vec![Level { first: 0, mean: values.iter().sum::<f64>() / values.len() as f64 }];
    }
    let deviation = deviation_between_neighbours(values).max(criteria.resolution);
    let sums = OutlierFreeSums::of(values, deviation);
    let mut changes = partition(&sums.for_levels, deviation);
    while let Some(insignificant) = sums.weakest(&changes, criteria) {
        changes.remove(insignificant);
    }
    let level = |(first, end): (usize, usize)| Level { first, mean: sums.for_levels.mean(first, end) };
    spans(&changes, values.len()).map(level).collect()
}

/// First point and point after the last of each level.
fn spans(changes: &[usize], count: usize) -> impl Iterator<Item = (usize, usize)> {
    let firsts = [0].into_iter().chain(changes.iter().copied());
    firsts.zip(changes.iter().copied().chain([count]))
}

/// The standard deviation of the points around their level, from the differences of neighbours: a change is one of many differences.
fn deviation_between_neighbours(values: &[f64]) -> f64 {
    let differences = values.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    median(differences).unwrap_or_default() * DEVIATION_OF_MAD / std::f64::consts::SQRT_2
}

/// The sums of a series without its outliers.
struct OutlierFreeSums {
    /// An outlier is the median of its neighbourhood: it changes no level.
    for_levels: Sums,
    /// An outlier counts with the largest distance of a point that is not an outlier: levels are not more certain than their points.
    for_spread: Sums,
}

impl OutlierFreeSums {
    fn of(values: &[f64], deviation: f64) -> Self {
        let distance_max = OUTLIER_DEVIATIONS * deviation;
        let around = |index: usize| {
            // Five points, also at the ends.
            let first = index.saturating_sub(2).min(values.len() - 5);
            median(values[first..first + 5].iter().copied()).unwrap_or(values[index])
        };
        let medians: Vec<f64> = (0..values.len()).map(around).collect();
        let pairs = || values.iter().zip(&medians);
        let replaced = |(value, median): (&f64, &f64)| {
            if (value - median).abs() > distance_max { *median } else { *value }
        };
        let clamped =
            |(value, median): (&f64, &f64)| value.clamp(median - distance_max, median + distance_max);
        let (levels, spread): (Vec<f64>, Vec<f64>) =
            (pairs().map(replaced).collect(), pairs().map(clamped).collect());
        Self { for_levels: Sums::of(&levels), for_spread: Sums::of(&spread) }
    }

    /// The change that is least significant, unless all of them are significant.
    fn weakest<F: Fn(f64, f64) -> bool>(&self, changes: &[usize], criteria: &Criteria<F>) -> Option<usize> {
        let p_values = (0..changes.len()).map(|index| (index, self.p_value(changes, index, criteria)));
        let (index, p_value) = p_values.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        (p_value > criteria.alpha).then_some(index)
    }

    /// The probability of a change like this one anywhere in a series without any; 1 if it is too small to count.
    fn p_value<F: Fn(f64, f64) -> bool>(
        &self,
        changes: &[usize],
        index: usize,
        criteria: &Criteria<F>,
    ) -> f64 {
        let count = self.for_levels.count();
        let from = if index == 0 { 0 } else { changes[index - 1] };
        let (at, to) = (changes[index], changes.get(index + 1).copied().unwrap_or(count));
        let (before, after) = (self.for_levels.mean(from, at), self.for_levels.mean(at, to));
        if !(criteria.counts)(before, after) {
            return 1.0;
        }
        let degrees_of_freedom = (to - from - 2) as f64;
        let squares = |from, to| self.for_spread.squared_distances(from, to);
        let of_all: f64 = spans(changes, count).map(|(first, end)| squares(first, end)).sum();
        // The variance of the two levels, or of all if it is larger: three points may be close together by chance.
        let variance = ((squares(from, at) + squares(at, to)) / degrees_of_freedom)
            .max(of_all / (count - changes.len() - 1) as f64);
        let deviation = variance.sqrt().max(criteria.resolution);
        let error = deviation * (1.0 / (at - from) as f64 + 1.0 / (to - at) as f64).sqrt();
        let t = StudentsT::new(0.0, 1.0, degrees_of_freedom).expect("two levels have six points at least");
        let places = (count - 2 * LEVEL_POINTS_MIN + 1) as f64;
        (2.0 * t.sf((after - before).abs() / error) * places).min(1.0)
    }
}

/// Sums of the first n values and of their squares, relative to the first value.
struct Sums {
    origin: f64,
    values: Vec<f64>,
    squares: Vec<f64>,
}

impl Sums {
    fn of(values: &[f64]) -> Self {
        let sums = |of: fn(f64) -> f64| {
            let terms = values.iter().scan(0.0, move |sum, value| {
                *sum += of(value - values[0]);
                Some(*sum)
            });
            [0.0].into_iter().chain(terms).collect()
        };
        Self { origin: values[0], values: sums(|value| value), squares: sums(|value| value * value) }
    }

    fn count(&self) -> usize {
        self.values.len() - 1
    }

    fn mean(&self, from: usize, to: usize) -> f64 {
        self.origin + (self.values[to] - self.values[from]) / (to - from) as f64
    }

    /// The sum of squared distances from the mean.
    fn squared_distances(&self, from: usize, to: usize) -> f64 {
        let sum = self.values[to] - self.values[from];
        (self.squares[to] - self.squares[from] - sum * sum / (to - from) as f64).max(0.0)
    }
}

/// The partition with the least sum of squared distances, in variances, and penalties.
fn partition(sums: &Sums, deviation: f64) -> Vec<usize> {
    let count = sums.count();
    // That of the Bayesian information criterion for a level and its place. The tests remove what it leaves too much.
    let penalty = 2.0 * (count as f64).ln() * deviation.powi(2);
    // The cost of the first n points, and where their last level begins.
    let mut best = vec![(f64::INFINITY, 0); count + 1];
    best[0].0 = 0.0;
    for to in LEVEL_POINTS_MIN..=count {
        best[to] = (0..=to - LEVEL_POINTS_MIN)
            .map(|from| (best[from].0 + sums.squared_distances(from, to) + penalty, from))
            .min_by(|(a, _), (b, _)| a.total_cmp(b))
            .expect("there is a first place");
    }
    let mut changes: Vec<usize> = std::iter::successors(Some(best[count].1), |from| Some(best[*from].1))
        .take_while(|from| *from > 0)
        .collect();
    changes.reverse();
    changes
}

#[cfg(test)]
mod tests;
