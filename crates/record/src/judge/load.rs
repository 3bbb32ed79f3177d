//! Verdicts on claims about one load that is over.
//!
//! They concern the load that was sent, so its times are exact. Times and the hit ratio are those of responses with any status; a
//! request without a response is slower than every response. A doubt makes a claim invalid only where it can change its figure:
//!
//! - A busy generator changes times and rates, not counts.
//! - A late one makes response times longer: they lie between the service times and what was measured.
//! - A limit of requests in flight leaves the server with less load than was asked for: nothing is supported, and a claim that fails
//!   without the waits for it is refuted.

use std::{fmt, str::FromStr};

use stockade_model::units::format_milliseconds;

use super::{Comparison, ExprError, Names, Selector, expr::Op, parse_all};
use crate::{
    histogram::Statistic,
    metrics::{FigureUnit, FoldPart, Metric, Raw, TimeKind, is_known},
    record::{Expectation, Run, Verdict},
};

/// The arm of a load.
pub const LOAD_ARM: &str = "load";

/// A time that is longer than every other, in milliseconds.
const NEVER_MS: f64 = 1e15;

/// Claims about one load, joined by `and` or `&&`.
///
/// ```
/// use stockade_record::judge::LoadClaims;
///
/// let claims: LoadClaims = "p99 < 50ms and success >= 0.999".parse()?;
/// assert_eq!(claims.to_string(), "p99 < 50ms and success >= 0.999");
/// let unknown = "sucess > 0.9".parse::<LoadClaims>().unwrap_err();
/// assert_eq!(unknown.to_string(), "unknown metric `sucess`: did you mean `success`?");
/// # Ok::<(), stockade_record::judge::ExprError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LoadClaims(Vec<(String, Comparison)>);

/// A load that is over.
#[derive(Debug)]
pub struct LoadEvidence<'a> {
    pub run: &'a Run,
    /// The counts of the whole load, and the times of all responses.
    pub whole: &'a FoldPart,
    /// Requests without a response.
    pub unanswered: u64,
    /// Hits / lookups of the responses with any status, as for the times; `None`: unknown.
    pub hit_ratio: Option<f64>,
    pub doubts: LoadDoubts,
    /// The doubts in words.
    pub reasons: &'a [String],
}

/// Why the figures of a load may not be those of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent")]
pub struct LoadDoubts {
    /// Every figure may be another: the load was interrupted, or a part of it is missing.
    pub of_all: bool,
    /// Times and rates may be others: the generator was busy.
    pub of_times: bool,
    /// Requests were sent late: response times are at least the service times.
    pub of_lateness: bool,
    /// Requests waited for the limit of those in flight.
    pub of_own_queue: bool,
}

impl FromStr for LoadClaims {
    type Err = ExprError;

    fn from_str(text: &str) -> Result<Self, ExprError> {
        let (tests, arms) = ([String::new()], [LOAD_ARM.to_owned()]);
        let all = parse_all(text, Names { tests: &tests, arms: &arms })?;
        for (_, comparison) in &all {
            let refused = |message: &str, at| Err(ExprError { message: message.to_owned(), at });
            let selectors = comparison.selectors();
            if let Some(windowed) = selectors.iter().find(|selector| selector.window.is_some()) {
                return refused(
                    "a claim about a load is about the whole: remove the window",
                    windowed.at.clone(),
                );
            }
            if matches!(comparison.op, Op::Eq | Op::Ne) && comparison.unit() == FigureUnit::Time {
                return refused(
                    "measured times are never equal: compare them with <, <=, > or >=",
                    0..text.len(),
                );
            }
        }
        Ok(Self(all))
    }
}

impl fmt::Display for LoadClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(|(text, _)| text.as_str()).collect();
        f.write_str(&texts.join(" and "))
    }
}

impl LoadClaims {
    /// A verdict on each comparison, in order; times in milliseconds.
    #[must_use]
    pub fn judge(&self, load: &LoadEvidence<'_>) -> Vec<Expectation> {
        self.0.iter().map(|(text, comparison)| load.expectation(text, comparison)).collect()
    }
}

impl LoadEvidence<'_> {
    fn expectation(&self, text: &str, comparison: &Comparison) -> Expectation {
        let figure = |of: &Selector| self.figure(of.metric);
        let measured = comparison.values(&figure);
        let on_time = comparison.values(&|of: &Selector| self.figure(of.metric.without_lateness()));
        let holds = measured.map(|(left, right)| comparison.op.holds(left, right));
        let selectors = comparison.selectors();
        // Late sends change a rate in ways that are not known.
        let is_rate = selectors.iter().any(|of| of.metric.is_timing && of.metric.time().is_none());
        let holds_on_time =
            on_time.filter(|_| !is_rate).map(|(left, right)| comparison.op.holds(left, right));
        // A request without a response is slower than all others, however late it was.
        let is_never = selectors.iter().any(|of| self.figure(of.metric) == Some(NEVER_MS));
        let LoadDoubts { of_all, of_times, of_lateness, of_own_queue } = self.doubts;
        let is_doubtful = comparison.is_timing()
            && !is_never
            && (of_times || of_lateness && (holds.is_none() || holds != holds_on_time));
        let verdict = match holds {
            _ if of_all || is_doubtful => Verdict::Invalid,
            None => Verdict::Inconclusive,
            Some(holds) if of_own_queue && (holds || holds_on_time != Some(false)) => Verdict::Invalid,
            Some(false) => Verdict::Refuted,
            Some(true) => Verdict::Supported,
        };
        let mut reason = match measured {
            None => "there was nothing to measure".to_owned(),
            Some(_) if is_never => "too many requests had no response".to_owned(),
            Some((left, right)) => found(comparison, left, right),
        };
        if verdict == Verdict::Invalid {
            reason = [&reason, "; ", &self.reasons.join("; ")].concat();
        }
        Expectation {
            expr: text.to_owned(),
            left: measured.map(|(left, _)| left).filter(|_| !is_never),
            right: comparison.right.value(&figure),
            verdict,
            effect: None,
            reason,
        }
    }

    /// The figure of a metric, with each request without a response as slower than every other.
    fn figure(&self, metric: &Metric) -> Option<f64> {
        if metric.name == "hit_ratio" {
            return self.hit_ratio;
        }
        if !is_known(self.run, metric.name) {
            return None;
        }
        let read = |metric: &Metric| metric.computed(&Raw { run: self.run, part: self.whole });
        let Some((kind @ (TimeKind::Response | TimeKind::Service), statistic)) = metric.time() else {
            return read(metric);
        };
        let times = &self.whole.times;
        let answered =
            if kind == TimeKind::Response { times.response.count() } else { times.service.count() };
        match statistic {
            Statistic::Max if self.unanswered > 0 => Some(NEVER_MS),
            Statistic::Quantile(quantile) if self.unanswered > 0 => {
                let rank = quantile * (answered + self.unanswered) as f64;
                // The tolerance keeps 0.99 of 1,000 at 990.
                if rank > answered as f64 * (1.0 + 1e-12) {
                    return Some(NEVER_MS);
                }
                let of_answered = Statistic::Quantile((rank / answered as f64).min(1.0));
                read(&metric.with_statistic(of_answered))
            }
            _ => read(metric),
        }
    }
}

/// `it was 73ms`; with figures on both sides `it was 73ms, against 50ms`.
fn found(comparison: &Comparison, left: f64, right: f64) -> String {
    let shown = |value: f64| match comparison.unit() {
        FigureUnit::Time => format_milliseconds(value),
        FigureUnit::Number => ((value * 1e6).round() / 1e6).to_string(),
    };
    let mut text = format!("it was {}", shown(left));
    let is_bound = comparison.right.value(&|_| None).is_some();
    if !is_bound {
        text.push_str(", against ");
        text.push_str(&shown(right));
    }
    text
}
