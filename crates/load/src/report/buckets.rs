//! Buckets of response times.

use std::{str::FromStr, time::Duration};

use stockade_model::units::{UnitError, parse_duration};
use stockade_record::{histogram::Histogram, record::Expectation};

/// Options of the reports.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The buckets of `vegeta-hist`, which has defaults, and of `json`, which has none.
    pub buckets: Option<Buckets>,
    /// The verdicts on the claims about the load, for `text` and `json`; empty without claims.
    pub expectations: Vec<Expectation>,
}

/// Buckets by their lower bounds. Each ends below the next lower bound; the last one is unbounded.
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

/// Why buckets are refused. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketsError {
    /// Not a list.
    #[error("`{0}` is not a list of buckets: write their lower bounds, such as `0,1ms,10ms`")]
    Malformed(String),
    /// A bound is not a time.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Not in ascending order.
    #[error("the buckets `{0}` do not ascend")]
    Order(String),
}

impl Buckets {
    /// The lower bounds, ascending from 0.
    #[must_use]
    pub fn bounds(&self) -> &[Duration] {
        &self.0
    }

    /// The values in each bucket, exact to a thousandth of a bound: a cell of the histogram that contains a bound counts
    /// above it.
    #[must_use]
    pub fn counts(&self, times: &Histogram) -> Vec<u64> {
        let mut counts = vec![0; self.0.len()];
        for (time, count) in times.cells() {
            counts[self.0.partition_point(|bound| *bound <= time).saturating_sub(1)] += count;
        }
        counts
    }
}

/// From 1 ms to 5 s, three per decade.
impl Default for Buckets {
    fn default() -> Self {
        Self([0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].map(Duration::from_millis).to_vec())
    }
}

/// Reads `0,1ms,10ms`, with or without brackets; a missing 0 is added.
impl FromStr for Buckets {
    type Err = BucketsError;

    fn from_str(text: &str) -> Result<Self, BucketsError> {
        // Vegeta's form has brackets.
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
        let ascends = bounds.is_sorted_by(|a, b| a < b);
        if ascends { Ok(Self(bounds)) } else { Err(BucketsError::Order(text.to_owned())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_bound_belongs_to_its_bucket() {
        let buckets: Buckets = "[1ms,2ms]".parse().unwrap();
        let times = [0, 999, 1_000, 1_500, 2_000, 3_600_000_000].map(Duration::from_micros);
        assert_eq!(buckets.counts(&times.into_iter().collect()), [2, 2, 2]);
        assert_eq!(buckets.counts(&Histogram::new()), [0, 0, 0]);
    }

    #[test]
    fn brackets_are_optional() {
        assert_eq!("1ms,2ms".parse::<Buckets>(), "[0,1ms,2ms]".parse());
    }

    #[test]
    fn invalid_buckets_have_a_remedy() {
        for (text, error) in [
            ("[1ms", "`[1ms` is not a list of buckets: write their lower bounds, such as `0,1ms,10ms`"),
            ("", "`` is not a list of buckets: write their lower bounds, such as `0,1ms,10ms`"),
            ("[]", "`[]` is not a list of buckets: write their lower bounds, such as `0,1ms,10ms`"),
            ("[1]", "`1` has no unit: write `1ms` or `1s`"),
            ("[2ms,1ms]", "the buckets `[2ms,1ms]` do not ascend"),
        ] {
            assert_eq!(text.parse::<Buckets>().unwrap_err().to_string(), error);
        }
    }
}
