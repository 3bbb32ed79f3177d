//! How many requests per time.

use std::{fmt, str::FromStr, time::Duration};

use stockade_model::units::{UnitError, parse_duration};

/// Requests per time: `425/s`, `1000/m`, `5/100ms`.
///
/// ```
/// use stockade_load::schedule::Rate;
///
/// let rate: Rate = "1_000/m".parse()?;
/// assert_eq!(rate.to_string(), "1000/m");
/// assert_eq!(
///     "425".parse::<Rate>().unwrap_err().to_string(),
///     "`425` does not say per what time: write `425/s` or `425/m`",
/// );
/// # Ok::<(), stockade_load::schedule::RateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    requests: u32,
    per: Duration,
}

/// A rate could not be read. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// A bare number: nobody can tell what it means.
    #[error("`{0}` does not say per what time: write `{0}/s` or `{0}/m`")]
    NoTime(String),
    /// Not a number of requests per time.
    #[error("`{0}` is no rate: write requests per time, such as `425/s`, `1000/m` or `5/100ms`")]
    Malformed(String),
    /// The time is none.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Nobody would come, or more than can be.
    #[error("`{0}` is no rate of a load: write from 1 request on, and at most one a nanosecond")]
    OutOfRange(String),
}

impl Rate {
    /// So many requests per so much time; `None` for no requests, or more than one a nanosecond.
    #[must_use]
    pub const fn new(requests: u32, per: Duration) -> Option<Self> {
        if requests > 0 && requests as u128 <= per.as_nanos() { Some(Self { requests, per }) } else { None }
    }

    /// The rate nearest to so many requests in a second, to nine digits; `None` where there is none.
    #[must_use]
    pub fn nearest(per_second: f64) -> Option<Self> {
        // So long that the count has nine or ten digits, and no longer than 30 years.
        let seconds = (0..=9).map(|power| 10_u64.pow(power));
        let fitting = seconds.rev().find(|seconds| per_second * (*seconds as f64) < 4e9)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
        let requests = (per_second * fitting as f64).round() as u32;
        let common = greatest_common_divisor(u64::from(requests), fitting).max(1);
        let requests = u32::try_from(u64::from(requests) / common).ok()?;
        Self::new(requests, Duration::from_secs(fitting / common))
    }

    /// How many requests per [`per`](Self::per).
    #[must_use]
    pub const fn requests(self) -> u32 {
        self.requests
    }

    /// Per what time.
    #[must_use]
    pub const fn per(self) -> Duration {
        self.per
    }

    /// How many requests are due in so much time: those at its very end are not.
    #[must_use]
    pub fn within(self, time: Duration) -> u64 {
        // Request n is due at n * per / requests, rounded down, so this is the first n at `time` or later.
        let due = (time.as_nanos() * u128::from(self.requests)).div_ceil(self.per.as_nanos());
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// When request `n` (from 0) is due if they come evenly. Computed from `n`, so it never drifts.
    #[must_use]
    pub fn due(self, n: u64) -> Duration {
        let nanos = u128::from(n) * self.per.as_nanos() / u128::from(self.requests);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Requests in a second.
    #[must_use]
    pub fn per_second(self) -> f64 {
        f64::from(self.requests) / self.per.as_secs_f64()
    }

    pub(super) fn per_nano(self) -> f64 {
        f64::from(self.requests) / self.per.as_nanos() as f64
    }

    /// Requests in so many nanoseconds: a whole number wherever it is one.
    pub(super) fn over(self, nanos: f64) -> f64 {
        f64::from(self.requests) * nanos / self.per.as_nanos() as f64
    }

    /// Whether it is higher than another: exactly.
    pub(crate) fn is_above(self, other: Self) -> bool {
        let times = |rate: Self, other: Self| u128::from(rate.requests) * other.per.as_nanos();
        times(self, other) > times(other, self)
    }
}

/// A rate, or none at all: where a ramp may begin or end.
///
/// ```
/// use stockade_load::schedule::Level;
///
/// let level: Level = "0/s".parse()?;
/// assert_eq!((level, level.to_string()), (Level::NONE, "0/s".to_owned()));
/// # Ok::<(), stockade_load::schedule::RateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(Option<Rate>);

impl Level {
    /// Nobody comes.
    pub const NONE: Self = Self(None);

    /// The rate, if there is any.
    #[must_use]
    pub const fn rate(self) -> Option<Rate> {
        self.0
    }

    /// Requests in a second.
    #[must_use]
    pub fn per_second(self) -> f64 {
        self.0.map_or(0.0, Rate::per_second)
    }

    pub(super) fn over(self, nanos: f64) -> f64 {
        self.0.map_or(0.0, |rate| rate.over(nanos))
    }
}

impl From<Rate> for Level {
    fn from(rate: Rate) -> Self {
        Self(Some(rate))
    }
}

impl FromStr for Level {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        match parts(text)? {
            (0, per) if !per.is_zero() => Ok(Self::NONE),
            _ => text.parse::<Rate>().map(Self::from),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rate) => rate.fmt(f),
            None => f.write_str("0/s"),
        }
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (requests, per) = parts(text)?;
        let rate = u32::try_from(requests).ok().and_then(|requests| Self::new(requests, per));
        rate.ok_or_else(|| RateError::OutOfRange(text.trim().to_owned()))
    }
}

/// How many requests, and per what time.
fn parts(text: &str) -> Result<(u64, Duration), RateError> {
    let text = text.trim();
    let number = |text: &str| text.replace('_', "").parse::<u64>();
    let Some((requests, time)) = text.split_once('/') else {
        let error = if text.parse::<f64>().is_ok() { RateError::NoTime } else { RateError::Malformed };
        return Err(error(text.to_owned()));
    };
    let (requests, time) = (requests.trim(), time.trim());
    let requests = number(requests).map_err(|_| RateError::Malformed(text.to_owned()))?;
    // `s` is one second.
    let is_unit_alone = time.starts_with(|c: char| c.is_alphabetic());
    let per = parse_duration(&if is_unit_alone { format!("1{time}") } else { time.to_owned() })?;
    Ok((requests, per))
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// With the largest unit of which the time is a whole number.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u128); 7] = [
            ("d", 86_400_000_000_000),
            ("h", 3_600_000_000_000),
            ("m", 60_000_000_000),
            ("s", 1_000_000_000),
            ("ms", 1_000_000),
            ("us", 1_000),
            ("ns", 1),
        ];
        let per = self.per.as_nanos();
        let unit = UNITS.into_iter().find(|(_, nanos)| per.is_multiple_of(*nanos));
        let (unit, nanos) = unit.expect("nanoseconds are whole");
        match per / nanos {
            1 => write!(f, "{}/{unit}", self.requests),
            many => write!(f, "{}/{many}{unit}", self.requests),
        }
    }
}
