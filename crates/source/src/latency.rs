//! How much slower a source is made.

use std::{str::FromStr, time::Duration};

use rand::RngExt;
use stockade_model::{
    seed::Rng,
    units::{UnitError, format_duration, parse_duration},
};

/// Extra latency: fixed (`20ms`), or drawn uniformly, ends included, for every fetch (`10ms..30ms`).
///
/// ```
/// use stockade_source::Latency;
///
/// let latency: Latency = "10ms..30ms".parse()?;
/// assert_eq!(latency.to_string(), "10ms..30ms");
/// assert!("30ms..10ms".parse::<Latency>().is_err());
/// # Ok::<(), stockade_source::LatencyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    min: Duration,
    max: Duration,
}

/// A latency could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LatencyError {
    /// One of its ends is no duration.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The ends of a range are the wrong way round.
    #[error("`{0}` ends before it begins: write the smaller latency first")]
    Backwards(String),
}

impl Latency {
    pub(crate) fn draw(self, rng: &mut Rng) -> Duration {
        if self.min == self.max { self.min } else { rng.random_range(self.min..=self.max) }
    }
}

impl FromStr for Latency {
    type Err = LatencyError;

    fn from_str(text: &str) -> Result<Self, LatencyError> {
        let (min, max) = match text.split_once("..") {
            Some((min, max)) => (parse_duration(min)?, parse_duration(max)?),
            None => (parse_duration(text)?, parse_duration(text)?),
        };
        if min > max {
            return Err(LatencyError::Backwards(text.to_owned()));
        }
        Ok(Self { min, max })
    }
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&format_duration(self.min))?;
        if self.min < self.max {
            write!(f, "..{}", format_duration(self.max))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stockade_model::seed::Seed;

    use super::*;

    #[test]
    fn a_range_is_drawn_uniformly_with_both_ends() {
        let latency: Latency = "1ns..4ns".parse().unwrap();
        let mut rng = Seed(1).stream("latency");
        let mut drawn = [0_u32; 4];
        for _ in 0..40_000 {
            let nanos = usize::try_from(latency.draw(&mut rng).as_nanos()).unwrap();
            drawn[nanos - 1] += 1;
        }
        // Chi-squared, 3 degrees of freedom: 16.27 is exceeded by chance once in a thousand seeds.
        let chi_squared: f64 = drawn.iter().map(|n| (f64::from(*n) - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi_squared < 16.27, "{drawn:?}");
    }
}
