//! Ranges of time that requests are counted in.

use std::{str::FromStr, time::Duration};

use stockade_model::{
    histogram::Histogram,
    units::{UnitError, parse_duration},
};

/// Ranges by their lower bounds: each ends below the next one's, the last one never.
///
/// ```
/// use std::time::Duration;
/// use stockade_load::report::Buckets;
///
/// let buckets: Buckets = "[10ms, 1s]".parse()?;
/// assert_eq!(buckets.bounds(), [0, 10, 1000].map(Duration::from_millis));
/// # Ok::<(), stockade_load::report::BucketsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets(Vec<Duration>);

/// Buckets could not be read. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketsError {
    /// Not a list in brackets.
    #[error("`{0}` are no buckets: write their lower bounds, such as `0,1ms,10ms`")]
    Malformed(String),
    /// One of them is no time.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Not in ascending order.
    #[error("the buckets `{0}` do not ascend")]
    Order(String),
}

impl Buckets {
    /// Their lower bounds, ascending, the first one 0.
    #[must_use]
    pub fn bounds(&self) -> &[Duration] {
        &self.0
    }

    /// How many are in each of them, to a thousandth of a bound: what shares a cell of the histogram with a bound
    /// is counted above it.
    #[must_use]
    pub fn counts(&self, times: &Histogram) -> Vec<u64> {
        let mut counts = vec![0; self.0.len()];
        for (time, count) in times.cells() {
            counts[self.0.partition_point(|bound| *bound <= time).saturating_sub(1)] += count;
        }
        counts
    }
}

/// From one to five thousand milliseconds, three to a decade.
impl Default for Buckets {
    fn default() -> Self {
        Self([0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].map(Duration::from_millis).to_vec())
    }
}

/// Reads `0,1ms,10ms`, in brackets or not; 0 comes first whether it is written or not.
impl FromStr for Buckets {
    type Err = BucketsError;

    fn from_str(text: &str) -> Result<Self, BucketsError> {
        // Vegeta has them in brackets.
        let list = match text.trim().strip_prefix('[') {
            Some(list) => list.strip_suffix(']'),
            None => Some(text.trim()),
        };
        let list = list.filter(|list| !list.trim().is_empty());
        let list = list.ok_or_else(|| BucketsError::Malformed(text.to_owned()))?;
        let mut bounds = list.split(',').map(parse_duration).collect::<Result<Vec<_>, _>>()?;
        if bounds.first().is_some_and(|first| !first.is_zero()) {
            bounds.insert(0, Duration::ZERO);
        }
        let ascend = bounds.is_sorted_by(|a, b| a < b);
        if ascend { Ok(Self(bounds)) } else { Err(BucketsError::Order(text.to_owned())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_bucket_that_it_begins() {
        let buckets: Buckets = "[1ms,2ms]".parse().unwrap();
        let times = [0, 999, 1_000, 1_500, 2_000, 3_600_000_000].map(Duration::from_micros);
        assert_eq!(buckets.counts(&times.into_iter().collect()), [2, 2, 2]);
        assert_eq!(buckets.counts(&Histogram::new()), [0, 0, 0]);
    }

    #[test]
    fn brackets_are_vegetas_and_may_be_left_out() {
        assert_eq!("1ms,2ms".parse::<Buckets>(), "[0,1ms,2ms]".parse());
    }

    #[test]
    fn says_what_to_write_instead() {
        for (text, error) in [
            ("[1ms", "`[1ms` are no buckets: write their lower bounds, such as `0,1ms,10ms`"),
            ("", "`` are no buckets: write their lower bounds, such as `0,1ms,10ms`"),
            ("[]", "`[]` are no buckets: write their lower bounds, such as `0,1ms,10ms`"),
            ("[1]", "`1` has no unit: write `1ms` or `1s`"),
            ("[2ms,1ms]", "the buckets `[2ms,1ms]` do not ascend"),
        ] {
            assert_eq!(text.parse::<Buckets>().unwrap_err().to_string(), error);
        }
    }
}
