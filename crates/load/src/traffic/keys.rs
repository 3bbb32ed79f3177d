//! Keys that are drawn for URLs.

use std::{fmt, str::FromStr};

use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use stockade_model::{nearest::remedy, seed::Seed};

/// Which key a request is for: a number from 0 on.
///
/// | written | drawn |
/// |---|---|
/// | `zipf:N`, `zipf:N:EXPONENT` | by Zipf's law from N keys: key k as often as 1 / (k + 1)^EXPONENT; 0.99 where none is given, as YCSB has it |
/// | `uniform:N` | each of N keys as often as any other |
/// | `scan:N` | one after the other, and from the first again |
///
/// ```
/// use stockade_load::traffic::Keys;
/// use stockade_model::seed::Seed;
///
/// let keys: Keys = "zipf:10_000".parse()?;
/// assert_eq!(keys.to_string(), "zipf:10000:0.99");
/// assert_eq!(keys.nth(7, Seed(1)), keys.nth(7, Seed(1)));
/// assert_eq!(
///     "zipf".parse::<Keys>().unwrap_err().to_string(),
///     "`zipf` does not say how many keys there are: write `zipf:10000`",
/// );
/// # Ok::<(), stockade_load::traffic::KeysError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keys {
    law: Law,
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Law {
    Zipf { exponent: f64, law: Zipf<f64> },
    Uniform,
    Scan,
}

/// Keys could not be read. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// No way to draw has this name.
    #[error("`{0}` is no way to draw keys: {remedy}", remedy = remedy(.0, NAMES))]
    Unknown(String),
    /// A name alone.
    #[error("`{0}` does not say how many keys there are: write `{0}:10000`")]
    NoCount(String),
    /// Not a number of keys.
    #[error("`{text}` is no number of keys: write `{name}:10000`")]
    Count {
        /// What was written.
        text: String,
        /// How they are drawn.
        name: String,
    },
    /// No keys, or more than can be told apart.
    #[error("`{0}` cannot be drawn from: write from 1 to 1_000_000_000_000_000 keys")]
    OutOfRange(String),
    /// Not an exponent.
    #[error(
        "`{0}` is no exponent: write from 0 (all alike) to 10; about 1 is usual, as in `zipf:10000:0.99`"
    )]
    Exponent(String),
    /// More than there is to say.
    #[error("`{text}` says too much: write `{instead}`")]
    TooMuch {
        /// What was written.
        text: String,
        /// The part of it that is understood.
        instead: String,
    },
}

const NAMES: [&str; 3] = ["zipf", "uniform", "scan"];
/// Floating point, which Zipf's law is drawn in, tells more whole numbers than these apart.
const COUNT_MAX: u64 = 1_000_000_000_000_000;
/// As in YCSB.
const EXPONENT: f64 = 0.99;

impl Keys {
    /// How many there are: every key is below.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The key of the `n`th request; the lower ones are the hot ones.
    #[must_use]
    pub fn nth(&self, n: u64, seed: Seed) -> u64 {
        match self.law {
            Law::Zipf { law, .. } => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a whole number from 1 on, far below 2^53"
                )]
                let rank = law.sample(&mut seed.nth(n)) as u64;
                (rank.max(1) - 1).min(self.count - 1)
            }
            Law::Uniform => seed.nth(n).random_range(0..self.count),
            Law::Scan => n % self.count,
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
        let law = match name {
            "zipf" => zipf(count, exponent)?,
            "uniform" => Law::Uniform,
            _ => Law::Scan,
        };
        Ok(Self { law, count })
    }
}

fn zipf(count: u64, exponent: Option<&str>) -> Result<Law, KeysError> {
    let wrong = || KeysError::Exponent(exponent.unwrap_or_default().to_owned());
    let exponent = exponent.map_or(Ok(EXPONENT), str::parse::<f64>).map_err(|_| wrong())?;
    if !(0.0..=10.0).contains(&exponent) {
        return Err(wrong());
    }
    let law = Zipf::new(count as f64, exponent).map_err(|_| wrong())?;
    Ok(Law::Zipf { exponent, law })
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        match self.law {
            Law::Zipf { exponent, .. } => write!(f, "zipf:{count}:{exponent}"),
            Law::Uniform => write!(f, "uniform:{count}"),
            Law::Scan => write!(f, "scan:{count}"),
        }
    }
}
