//! Rates: requests per period.

use std::{fmt, str::FromStr, time::Duration};

use crate::units::{UnitError, greatest_common_divisor, parse_duration};

/// Requests per period: `425/s`, `1000/m`, `5/100ms`.
///
/// ```
/// use stockade_model::rate::Rate;
///
/// let rate: Rate = "1_000/m".parse()?;
/// assert_eq!(rate.to_string(), "1000/m");
/// assert_eq!(
///     "425".parse::<Rate>().unwrap_err().to_string(),
///     "`425` has no period: write `425/s` or `425/m`",
/// );
/// # Ok::<(), stockade_model::rate::RateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "(u32, Duration)", into = "(u32, Duration)")
)]
pub struct Rate {
    requests: u32,
    per: Duration,
}

/// Why a text is not a rate. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// A bare number.
    #[error("`{0}` has no period: write `{0}/s` or `{0}/m`")]
    NoTime(String),
    /// Not a number of requests per period.
    #[error("`{0}` is not a rate: write requests per period, such as `425/s`, `1000/m` or `5/100ms`")]
    Malformed(String),
    /// The period is not a duration.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Zero, or more than one request a nanosecond.
    #[error("`{0}` is out of range: write at least 1 request, and at most one a nanosecond")]
    OutOfRange(String),
}

impl TryFrom<(u32, Duration)> for Rate {
    type Error = RateError;

    fn try_from((requests, per): (u32, Duration)) -> Result<Self, RateError> {
        Self::new(requests, per).ok_or_else(|| RateError::OutOfRange(format!("{requests} per {per:?}")))
    }
}

impl From<Rate> for (u32, Duration) {
    fn from(rate: Rate) -> Self {
        (rate.requests, rate.per)
    }
}

impl Rate {
    /// `None` for no requests, or for more than one a nanosecond.
    #[must_use]
    pub const fn new(requests: u32, per: Duration) -> Option<Self> {
        if requests > 0 && requests as u128 <= per.as_nanos() { Some(Self { requests, per }) } else { None }
    }

    /// The nearest rate, to nine digits; `None` if it is out of range.
    #[must_use]
    pub fn nearest(per_second: f64) -> Option<Self> {
        // A period for which the count has nine or ten digits, at most 30 years.
        let seconds = (0..=9).map(|power| 10_u64.pow(power));
        let fitting = seconds.rev().find(|seconds| per_second * (*seconds as f64) < 4e9)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
        let requests = (per_second * fitting as f64).round() as u32;
        let common = greatest_common_divisor(u64::from(requests), fitting).max(1);
        let requests = u32::try_from(u64::from(requests) / common).ok()?;
        Self::new(requests, Duration::from_secs(fitting / common))
    }

    /// Requests per [`per`](Self::per).
    #[must_use]
    pub const fn requests(self) -> u32 {
        self.requests
    }

    /// The period.
    #[must_use]
    pub const fn per(self) -> Duration {
        self.per
    }

    /// The requests that are due before `time`.
    #[must_use]
    pub fn within(self, time: Duration) -> u64 {
        // Request n is due at n * per / requests, rounded down, so this is the first n at `time` or later.
        let due = (time.as_nanos() * u128::from(self.requests)).div_ceil(self.per.as_nanos());
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// The due time of request `n`, from 0, with constant arrivals. Computed from `n`, so it does not drift.
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

    /// Requests in a nanosecond.
    #[must_use]
    pub fn per_nano(self) -> f64 {
        f64::from(self.requests) / self.per.as_nanos() as f64
    }

    /// Expected requests in `nanos`; exact where that is a whole number.
    #[must_use]
    pub fn over(self, nanos: f64) -> f64 {
        f64::from(self.requests) * nanos / self.per.as_nanos() as f64
    }

    /// True if it is higher than another; exact.
    #[must_use]
    pub fn is_above(self, other: Self) -> bool {
        let times = |rate: Self, other: Self| u128::from(rate.requests) * other.per.as_nanos();
        times(self, other) > times(other, self)
    }
}

/// A rate or zero: the start or the end of a ramp.
///
/// ```
/// use stockade_model::rate::RateOrZero;
///
/// let level: RateOrZero = "0/s".parse()?;
/// assert_eq!((level, level.to_string()), (RateOrZero::ZERO, "0/s".to_owned()));
/// # Ok::<(), stockade_model::rate::RateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RateOrZero(Option<Rate>);

impl RateOrZero {
    /// No requests.
    pub const ZERO: Self = Self(None);

    /// The rate, unless it is zero.
    #[must_use]
    pub const fn rate(self) -> Option<Rate> {
        self.0
    }

    /// Requests in a second.
    #[must_use]
    pub fn per_second(self) -> f64 {
        self.0.map_or(0.0, Rate::per_second)
    }

    /// As [`Rate::over`].
    #[must_use]
    pub fn over(self, nanos: f64) -> f64 {
        self.0.map_or(0.0, |rate| rate.over(nanos))
    }
}

impl From<Rate> for RateOrZero {
    fn from(rate: Rate) -> Self {
        Self(Some(rate))
    }
}

impl FromStr for RateOrZero {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        match parse_parts(text)? {
            (0, per) if !per.is_zero() => Ok(Self::ZERO),
            _ => text.parse::<Rate>().map(Self::from),
        }
    }
}

impl fmt::Display for RateOrZero {
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
        let (requests, per) = parse_parts(text)?;
        let rate = u32::try_from(requests).ok().and_then(|requests| Self::new(requests, per));
        rate.ok_or_else(|| RateError::OutOfRange(text.trim().to_owned()))
    }
}

/// The requests and the period.
fn parse_parts(text: &str) -> Result<(u64, Duration), RateError> {
    let text = text.trim();
    let number = |text: &str| text.replace('_', "").parse::<u64>();
    let Some((requests, time)) = text.split_once('/') else {
        let error = if text.parse::<f64>().is_ok() { RateError::NoTime } else { RateError::Malformed };
        return Err(error(text.to_owned()));
    };
    let (requests, time) = (requests.trim(), time.trim());
    let requests = number(requests).map_err(|_| RateError::Malformed(text.to_owned()))?;
    // `s` stands for `1s`.
    let is_unit_alone = time.starts_with(|c: char| c.is_alphabetic());
    let per = parse_duration(&if is_unit_alone { format!("1{time}") } else { time.to_owned() })?;
    Ok((requests, per))
}

/// Uses the largest unit that divides the period.
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
