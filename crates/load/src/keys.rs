//! The keys that stand for `{key}` in URLs.

use std::{fmt, str::FromStr};

use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use stockade_model::{nearest::remedy, seed::Seed};

/// The distribution of keys, which are numbers from 0.
///
/// | text | keys |
/// |---|---|
/// | `zipf:N`, `zipf:N:EXPONENT` | Zipf's law over N keys: key k has the weight 1 / (k + 1)^EXPONENT; the default is 0.99, as in YCSB |
/// | `uniform:N` | N keys with equal probability |
/// | `scan:N` | N keys in sequence, repeatedly |
///
/// ```
/// use stockade_load::keys::Keys;
/// use stockade_model::seed::Seed;
///
/// let keys: Keys = "zipf:10_000".parse()?;
/// assert_eq!(keys.to_string(), "zipf:10000:0.99");
/// assert_eq!(keys.nth(7, Seed(1)), keys.nth(7, Seed(1)));
/// assert_eq!(
///     "zipf".parse::<Keys>().unwrap_err().to_string(),
///     "`zipf` does not say how many keys there are: write `zipf:10000`",
/// );
/// # Ok::<(), stockade_load::keys::KeysError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keys {
    distribution: KeyDistribution,
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum KeyDistribution {
    Zipf { exponent: f64, distribution: Zipf<f64> },
    Uniform,
    Scan,
}

/// Why a text is not [`Keys`]. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// The distribution is unknown.
    #[error("`{0}` is not a distribution of keys: {remedy}", remedy = remedy(.0, NAMES))]
    Unknown(String),
    /// The number of keys is missing.
    #[error("`{0}` does not say how many keys there are: write `{0}:10000`")]
    NoCount(String),
    /// The number of keys is not a number.
    #[error("`{text}` is not a number of keys: write `{name}:10000`")]
    Count {
        /// The text.
        text: String,
        /// The distribution.
        name: String,
    },
    /// The number of keys is out of range.
    #[error("`{0}` has a number of keys out of range: write from 1 to 1_000_000_000_000_000 keys")]
    OutOfRange(String),
    /// The exponent is out of range.
    #[error("`{0}` is not an exponent: write from 0 (uniform) to 10, such as `zipf:10000:0.99`")]
    Exponent(String),
    /// The text has too many parts.
    #[error("`{text}` has too many parts: write `{instead}`")]
    TooMuch {
        /// The text.
        text: String,
        /// Its valid part.
        instead: String,
    },
}

const NAMES: [&str; 3] = ["zipf", "uniform", "scan"];
/// Below 2^53, so that floats, in which Zipf's law is drawn, are exact.
const COUNT_MAX: u64 = 1_000_000_000_000_000;
const EXPONENT_DEFAULT: f64 = 0.99;

impl Keys {
    /// The number of keys; every key is below it.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The key of the `n`th request. Lower keys are hotter.
    #[must_use]
    pub fn nth(&self, n: u64, seed: Seed) -> u64 {
        match self.distribution {
            KeyDistribution::Zipf { distribution, .. } => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a whole number from 1 to 2^53"
                )]
                let rank = distribution.sample(&mut seed.nth(n)) as u64;
                (rank.max(1) - 1).min(self.count - 1)
            }
            KeyDistribution::Uniform => seed.nth(n).random_range(0..self.count),
            KeyDistribution::Scan => n % self.count,
        }
    }
}

impl FromStr for Keys {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<Self, KeysError> {
        let text = text.trim();
        let mut parts = text.split(':').map(str::trim);
        let name = parts.next().unwrap_or_default();
        if !NAMES.contains(&name) {
            return Err(KeysError::Unknown(name.to_owned()));
        }
        let Some(count) = parts.next().filter(|count| !count.is_empty()) else {
            return Err(KeysError::NoCount(name.to_owned()));
        };
        let count = count.replace('_', "");
        if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(KeysError::Count { text: text.to_owned(), name: name.to_owned() });
        }
        let out_of_range = || KeysError::OutOfRange(text.to_owned());
        let count =
            count.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count)).ok_or_else(out_of_range)?;
        let exponent = if name == "zipf" { parts.next() } else { None };
        if parts.next().is_some() {
            let instead = match exponent {
                Some(exponent) => format!("{name}:{count}:{exponent}"),
                None => format!("{name}:{count}"),
            };
            return Err(KeysError::TooMuch { text: text.to_owned(), instead });
        }
        let distribution = match name {
            "zipf" => zipf(count, exponent)?,
            "uniform" => KeyDistribution::Uniform,
            _ => KeyDistribution::Scan,
        };
        Ok(Self { distribution, count })
    }
}

fn zipf(count: u64, exponent: Option<&str>) -> Result<KeyDistribution, KeysError> {
    let error = || KeysError::Exponent(exponent.unwrap_or_default().to_owned());
    let exponent = exponent.map_or(Ok(EXPONENT_DEFAULT), str::parse::<f64>).map_err(|_| error())?;
    if !(0.0..=10.0).contains(&exponent) {
        return Err(error());
    }
    let distribution = Zipf::new(count as f64, exponent).map_err(|_| error())?;
    Ok(KeyDistribution::Zipf { exponent, distribution })
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        match self.distribution {
            KeyDistribution::Zipf { exponent, .. } => write!(f, "zipf:{count}:{exponent}"),
            KeyDistribution::Uniform => write!(f, "uniform:{count}"),
            KeyDistribution::Scan => write!(f, "scan:{count}"),
        }
    }
}
