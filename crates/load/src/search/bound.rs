//! Bounds on the metrics of a run.

use std::{fmt, str::FromStr, time::Duration};

use stockade_model::units::{UnitError, format_duration, parse_duration};

use super::metric::{BoundMetric, BoundUnit};
use crate::summary::Summary;

/// A comparison of a metric with a value.
///
/// | metric | meaning |
/// |---|---|
/// | `response.S`, or `S` alone | from the due time of a request to the end of its response |
/// | `service.S` | from sending a request to the end of its response |
/// | `send_lag.S` | how late requests were sent |
/// | `success` | the share of ended requests with a status of 200 to 399: 0 to 1 |
/// | `failed` | requests without a response, or with a status other than 200 to 399 |
/// | `achieved` | the share of due requests that ended within the schedule: 0 to 1 |
/// | `achieved_rate` | requests sent within the schedule, per second |
/// | `dropped` | requests that were due and never sent |
/// | `requests`, `retries` | requests that ended; attempts after the first of each |
/// | `hit_ratio` | hits / lookups, where the cache states outcomes |
/// | `bytes_in.total`, `bytes_in.mean` | decoded bytes of all bodies, and by request |
/// | `throughput` | successes a second |
/// | `in_flight.max` | the most requests in flight at once |
///
/// `S` is `min`, `mean`, `max` or a percentile such as `p50` or `p99.9`, which is also written `p999`. A request without a response counts as slower than
/// every response: `p99 < 50ms` does not hold where more than one request in a hundred has none.
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
    /// As written.
    name: String,
    metric: BoundMetric,
    comparison: Comparator,
    value: BoundValue,
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparator {
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

impl Comparator {
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

impl fmt::Display for Comparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::ALL.into_iter().find(|(_, comparison)| comparison == self);
        f.write_str(known.map_or("", |(text, _)| text))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BoundValue {
    Time(Duration),
    /// A count, a ratio or a rate.
    Number(f64),
}

/// Why a bound is refused. The message names the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BoundError {
    /// The comparison, or one side of it, is missing.
    #[error(
        "`{0}` is not a bound: write a metric, a comparison and a value, such as `p99 < 50ms` or `success >= 0.999`"
    )]
    Malformed(String),
    /// The comparison is unknown.
    #[error("`{0}` is not a comparison: use <, <=, >, >=, == or !=")]
    UnknownComparison(String),
    /// The metric is unknown.
    #[error("`{name}` is not a metric: {remedy}")]
    UnknownMetric {
        /// The unknown name.
        name: String,
        /// The remedy.
        remedy: String,
    },
    /// The percentile is out of range.
    #[error("`{0}` is not a percentile: write one above 0 and at most 100, such as p99.9")]
    Quantile(String),
    /// Histograms round times to three digits, so they are not compared for equality.
    #[error("`{0}` is a time, and measured times are never equal: compare it with <, <=, > or >=")]
    Exactly(String),
    /// The value is not a time.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The value is not a number.
    #[error("`{metric}` is a number, and `{text}` is not: write one such as 0.999 or 10")]
    Number {
        /// The metric.
        metric: String,
        /// The value as written.
        text: String,
    },
}

impl FromStr for Bound {
    type Err = BoundError;

    fn from_str(text: &str) -> Result<Self, BoundError> {
        let is_sign = |c: char| "<>=!".contains(c);
        let malformed = || BoundError::Malformed(text.trim().to_owned());
        let start = text.find(is_sign).ok_or_else(malformed)?;
        let (name, rest) = text.split_at(start);
        let end = rest.find(|c| !is_sign(c)).ok_or_else(malformed)?;
        let (sign, value) = rest.split_at(end);
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || value.is_empty() {
            return Err(malformed());
        }
        let known = Comparator::ALL.into_iter().find(|(known, _)| *known == sign);
        let (_, comparison) = known.ok_or_else(|| BoundError::UnknownComparison(sign.to_owned()))?;
        let metric = BoundMetric::parse(name)?;
        let number = || value.parse().ok().filter(|number: &f64| number.is_finite());
        let is_exact = matches!(comparison, Comparator::Equal | Comparator::NotEqual);
        let value = match metric.unit() {
            BoundUnit::Time if is_exact => return Err(BoundError::Exactly(name.to_owned())),
            BoundUnit::Time => BoundValue::Time(parse_duration(value)?),
            BoundUnit::Number => BoundValue::Number(
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

/// Exact to the nanosecond, so that it can be parsed again.
impl fmt::Display for BoundValue {
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
    /// The violation, if the bound does not hold. A metric without a value violates every bound on it.
    #[must_use]
    pub fn violation(&self, run: &Summary) -> Option<Violation> {
        let value = self.left(run);
        let holds = value.is_some_and(|left| self.holds(left));
        (!holds).then(|| Violation { bound: self.clone(), value })
    }

    /// True if the limit of requests in flight may be why the bound does not hold: a rate was lower by it, and a response time longer.
    pub(super) fn is_held_by_own_queue(&self, run: &Summary) -> bool {
        run.generator.in_flight_limit.is_some()
            && match self.metric.without_lateness() {
                Some(on_time) => on_time.read(run).is_some_and(|on_time| self.holds(on_time)),
                None => self.metric.is_timing(),
            }
    }

    /// The value of the metric: times in nanoseconds, infinite for a request without a response.
    pub(super) fn left(&self, run: &Summary) -> Option<f64> {
        self.metric.read(run)
    }

    /// The value that the metric is compared with: times in nanoseconds.
    pub(super) fn right(&self) -> f64 {
        match self.value {
            BoundValue::Time(time) => time.as_nanos() as f64,
            BoundValue::Number(number) => number,
        }
    }

    pub(super) fn holds(&self, left: f64) -> bool {
        self.comparison.holds(left, self.right())
    }

    pub(super) fn metric(&self) -> BoundMetric {
        self.metric
    }

    /// The value in words: `it was 73ms`.
    pub(super) fn found(&self, value: Option<f64>) -> String {
        match (value, self.metric.unit()) {
            (None, _) => "there was nothing to measure".to_owned(),
            (Some(value), BoundUnit::Time) => match Duration::try_from_secs_f64(value / 1e9) {
                Ok(time) => format!("it was {}", format_duration(time)),
                Err(_) => "too many requests had no response".to_owned(),
            },
            (Some(value), BoundUnit::Number) => format!("it was {}", (value * 1e6).round() / 1e6),
        }
    }
}

/// A bound that does not hold for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The bound.
    pub bound: Bound,
    /// The value of the metric: times in nanoseconds, infinite for a request without a response.
    pub value: Option<f64>,
}

/// `p99 < 50ms: it was 73ms`
impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.bound, self.bound.found(self.value))
    }
}

/// Bounds that all have to hold: `p99 < 50ms and success >= 0.999`. `&&` is `and`; spaces around signs are optional.
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

/// The verdict of bounds on a run.
#[derive(Clone, Debug, PartialEq)]
pub enum BoundsVerdict {
    /// All bounds held.
    Held,
    /// These bounds did not hold.
    Violated(Vec<Violation>),
    /// The run is invalid for these reasons.
    Invalid(Vec<String>),
}

impl Bounds {
    /// The bounds, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Bound] {
        &self.0
    }

    /// The verdict of the bounds. An invalid run has no other verdict, unless the limit of requests in flight is the only reason, and a
    /// bound does not hold without the waits for it either.
    #[must_use]
    pub fn judge(&self, run: &Summary) -> BoundsVerdict {
        let violated = |bound: &Bound| bound.violation(run).filter(|_| !bound.is_held_by_own_queue(run));
        let violations: Vec<_> = self.0.iter().filter_map(violated).collect();
        let is_invalid = run.is_generator_limited() || violations.is_empty() && !run.generator.is_valid();
        match violations {
            _ if is_invalid => BoundsVerdict::Invalid(run.generator.invalid_reasons.clone()),
            none if none.is_empty() => BoundsVerdict::Held,
            violations => BoundsVerdict::Violated(violations),
        }
    }
}

impl FromStr for Bounds {
    type Err = BoundError;

    fn from_str(text: &str) -> Result<Self, BoundError> {
        let text = text.replace("&&", " and ");
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
impl fmt::Display for BoundsVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::Violated(violations) => {
                let texts: Vec<_> = violations.iter().map(Violation::to_string).collect();
                f.write_str(&texts.join("; "))
            }
            Self::Invalid(reasons) => write!(f, "invalid: {}", reasons.join("; ")),
        }
    }
}
