//! What has to hold of a run.

use std::{fmt, str::FromStr, time::Duration};

use stockade_model::units::{UnitError, format_duration, parse_duration};

use super::metric::{Metric, Unit};
use crate::summary::Summary;

/// A comparison that holds of a run, or does not.
///
/// | written | of a run |
/// |---|---|
/// | `response.S`, or `S` alone | from when a request was due until it was answered |
/// | `service.S` | from when it was sent until it was answered |
/// | `send_lag.S` | how late requests were sent |
/// | `success` | answered with 200 to 399, of all that ended: 0 to 1 |
/// | `failed` | how many have no answer |
/// | `achieved` | done when the schedule was over, of all that were due: 0 to 1 |
/// | `dropped` | how many were due and never sent |
/// | `requests` | how many ended, whichever way |
/// | `throughput` | successes a second |
/// | `in_flight_max` | the most under way at once |
///
/// `S` is `min`, `mean`, `max` or a percentile such as `p50` or `p99.9`. A request without an answer counts as slower than
/// every answer: `p99 < 50ms` does not hold where more than one in a hundred has none.
///
/// ```
/// use stockade_load::search::Bound;
///
/// let bound: Bound = "p99<50ms".parse()?;
/// assert_eq!(bound.to_string(), "p99 < 50ms");
/// assert_eq!(
///     "p99 < 50".parse::<Bound>().unwrap_err().to_string(),
///     "`50` has no unit: write `50ms` or `50s`",
/// );
/// # Ok::<(), stockade_load::search::BoundError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// As it was written.
    name: String,
    metric: Metric,
    comparison: Comparison,
    value: Value,
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl Comparison {
    const ALL: [(&str, Self); 6] = [
        ("<", Self::Less),
        ("<=", Self::AtMost),
        (">", Self::Greater),
        (">=", Self::AtLeast),
        ("==", Self::Equal),
        ("!=", Self::NotEqual),
    ];

    #[expect(clippy::float_cmp, reason = "counts and ratios are equal, or they are not")]
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::Greater => left > right,
            Self::AtLeast => left >= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::ALL.into_iter().find(|(_, comparison)| comparison == self);
        f.write_str(known.map_or("", |(text, _)| text))
    }
}

/// With what a figure is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A time.
    Time(Duration),
    /// A count, a ratio, a rate.
    Number(f64),
}

/// A bound could not be read. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BoundError {
    /// There is no comparison, or nothing on one side of it.
    #[error(
        "`{0}` is no bound: write a metric, a comparison and a value, such as `p99 < 50ms` or `success >= 0.999`"
    )]
    Malformed(String),
    /// Signs that compare nothing.
    #[error("`{0}` is no comparison: use <, <=, >, >=, == or !=")]
    UnknownComparison(String),
    /// No figure has this name.
    #[error("`{name}` is no metric: {remedy}")]
    UnknownMetric {
        /// What was written.
        name: String,
        /// What to write.
        remedy: String,
    },
    /// There is no such percentile.
    #[error("`{0}` is no percentile: they are above 0 and at most 100, such as p99.9")]
    Quantile(String),
    /// Times are counted to three digits.
    #[error("`{0}` is a time, and no time is quite another: compare it with <, <=, > or >=")]
    Exactly(String),
    /// A time that is none.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Not a number.
    #[error("`{metric}` is a plain number, and `{text}` is none: write one such as 0.999 or 10")]
    Number {
        /// What is bounded.
        metric: String,
        /// What was written.
        text: String,
    },
}

impl FromStr for Bound {
    type Err = BoundError;

    fn from_str(text: &str) -> Result<Self, BoundError> {
        let is_sign = |c: char| "<>=!".contains(c);
        let malformed = || BoundError::Malformed(text.trim().to_owned());
        let begin = text.find(is_sign).ok_or_else(malformed)?;
        let (name, rest) = text.split_at(begin);
        let end = rest.find(|c| !is_sign(c)).ok_or_else(malformed)?;
        let (sign, value) = rest.split_at(end);
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || value.is_empty() {
            return Err(malformed());
        }
        let known = Comparison::ALL.into_iter().find(|(known, _)| *known == sign);
        let (_, comparison) = known.ok_or_else(|| BoundError::UnknownComparison(sign.to_owned()))?;
        let metric = Metric::named(name)?;
        let number = || value.parse().ok().filter(|number: &f64| number.is_finite());
        let is_exact = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        let value = match metric.unit() {
            Unit::Time if is_exact => return Err(BoundError::Exactly(name.to_owned())),
            Unit::Time => Value::Time(parse_duration(value)?),
            Unit::Number => Value::Number(
                number()
                    .ok_or_else(|| BoundError::Number { metric: name.to_owned(), text: value.to_owned() })?,
            ),
        };
        Ok(Self { name: name.to_owned(), metric, comparison, value })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.comparison, self.value)
    }
}

/// To the nanosecond: what is written can be read.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Time(time) => {
                let nanos = time.as_nanos();
                let (unit, scale) = match nanos {
                    0 => return f.write_str("0"),
                    1..1_000 => ("ns", 1),
                    1_000..1_000_000 => ("us", 1_000),
                    1_000_000..1_000_000_000 => ("ms", 1_000_000),
                    _ => ("s", 1_000_000_000),
                };
                let digits = format!("{}.{:09}", nanos / scale, nanos % scale * (1_000_000_000 / scale));
                write!(f, "{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }
}

impl Bound {
    /// What breaks it, if anything does. A figure that a run does not have breaks every bound on it.
    #[must_use]
    pub fn broken_by(&self, run: &Summary) -> Option<Broken> {
        let right = match self.value {
            Value::Time(time) => time.as_nanos() as f64,
            Value::Number(number) => number,
        };
        let figure = self.metric.read(run);
        let holds = figure.is_some_and(|left| self.comparison.holds(left, right));
        (!holds).then(|| Broken { bound: self.clone(), figure })
    }
}

/// A bound that did not hold of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    /// Which.
    pub bound: Bound,
    /// What the run had: times in nanoseconds, infinite if it is that of a request without an answer.
    pub figure: Option<f64>,
}

/// `p99 < 50ms: it was 73ms`
impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.bound)?;
        match (self.figure, self.bound.metric.unit()) {
            (None, _) => f.write_str("there was nothing to measure"),
            (Some(figure), Unit::Time) => match Duration::try_from_secs_f64(figure / 1e9) {
                Ok(time) => write!(f, "it was {}", format_duration(time)),
                Err(_) => f.write_str("too many had no answer"),
            },
            (Some(figure), Unit::Number) => write!(f, "it was {}", (figure * 1e6).round() / 1e6),
        }
    }
}

/// Bounds that all have to hold: `p99 < 50ms and success >= 0.999`.
///
/// ```
/// use stockade_load::search::Bounds;
///
/// let bounds: Bounds = "p99 < 50ms and failed == 0".parse()?;
/// assert_eq!(bounds.to_string(), "p99 < 50ms and failed == 0");
/// # Ok::<(), stockade_load::search::BoundError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds(Vec<Bound>);

/// Whether bounds held of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    /// All of them did.
    Yes,
    /// Some did not: these.
    No(Vec<Broken>),
    /// The run does not tell, for these reasons.
    Invalid(Vec<String>),
}

impl Bounds {
    /// Each of them.
    #[must_use]
    pub fn each(&self) -> &[Bound] {
        &self.0
    }

    /// Whether they held. Of a run that is not valid nobody knows, unless it is so for what was never sent alone: that
    /// is the doing of whoever did not answer those under way.
    #[must_use]
    pub fn judge(&self, run: &Summary) -> Held {
        let has_dropped = run.dropped > 0;
        if run.generator.reasons.len() > usize::from(has_dropped) {
            return Held::Invalid(run.generator.reasons.clone());
        }
        let broken: Vec<_> = self.0.iter().filter_map(|bound| bound.broken_by(run)).collect();
        if broken.is_empty() && !has_dropped { Held::Yes } else { Held::No(broken) }
    }
}

impl FromStr for Bounds {
    type Err = BoundError;

    fn from_str(text: &str) -> Result<Self, BoundError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        words
            .split(|word| *word == "and")
            .map(|bound| bound.join(" ").parse())
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, bound) in self.0.iter().enumerate() {
            write!(f, "{}{bound}", if index == 0 { "" } else { " and " })?;
        }
        Ok(())
    }
}

/// `p99 < 50ms: it was 73ms; failed == 0: it was 3`
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("held"),
            Self::No(broken) if broken.is_empty() => f.write_str("requests were due and never sent"),
            Self::No(broken) => {
                let broken: Vec<_> = broken.iter().map(Broken::to_string).collect();
                f.write_str(&broken.join("; "))
            }
            Self::Invalid(reasons) => write!(f, "invalid: {}", reasons.join("; ")),
        }
    }
}
