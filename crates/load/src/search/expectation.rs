//! Verdicts on the bounds that a load has to meet.

use stockade_record::record::{Expectation, Verdict};

use super::{
    bound::{Bound, Bounds},
    metric::BoundUnit,
};
use crate::{sample::FailureClass, summary::Summary};

impl Bounds {
    /// A verdict on each bound, in order; times in milliseconds.
    ///
    /// An invalid run makes a bound invalid only where the reason can change its figure: a busy generator changes times and rates, not
    /// counts. A late one makes response times longer: they lie between the service times and what was measured, and a bound that holds
    /// for both, or for neither, is decided. Where requests waited for the limit of those in flight, the server had less load than was asked
    /// for, so nothing is supported; a claim that does not hold without these waits is refuted. A machine without ports or files, and an interrupt, can change every figure.
    #[must_use]
    pub fn expectations(&self, run: &Summary, was_interrupted: bool) -> Vec<Expectation> {
        self.as_slice().iter().map(|bound| bound.expectation(run, was_interrupted)).collect()
    }
}

impl Bound {
    fn expectation(&self, run: &Summary, was_interrupted: bool) -> Expectation {
        let left = self.left(run);
        let verdict = match left.map(|left| self.holds(left)) {
            _ if self.is_doubtful(run, was_interrupted, left) => Verdict::Invalid,
            None => Verdict::Inconclusive,
            Some(_) if self.is_held_by_own_queue(run) => Verdict::Invalid,
            Some(false) => Verdict::Refuted,
            Some(true) if run.generator.in_flight_limit.is_some() => Verdict::Invalid,
            Some(true) => Verdict::Supported,
        };
        let mut reason = self.found(left);
        if verdict == Verdict::Invalid {
            reason = [&reason, "; ", &run.generator.invalid_reasons.join("; ")].concat();
        }
        let scale = if self.metric().unit() == BoundUnit::Time { 1e6 } else { 1.0 };
        Expectation {
            expr: self.to_string(),
            left: left.filter(|left| left.is_finite()).map(|left| left / scale),
            right: Some(self.right() / scale),
            verdict,
            effect: None,
            reason,
        }
    }

    /// True if the reasons against the run, other than the limit of requests in flight, can change the figure. A time without a response is infinite,
    /// however late its request was.
    fn is_doubtful(&self, run: &Summary, was_interrupted: bool, left: Option<f64>) -> bool {
        let classes = [FailureClass::NoPorts, FailureClass::NoFiles];
        let is_short = classes.into_iter().any(|class| run.measured.failures_of(class) > 0);
        was_interrupted
            || run.generator.is_incomplete
            || is_short
            || (self.metric().is_timing()
                && run.is_generator_limited()
                && left.is_none_or(f64::is_finite)
                && !self.is_decided_without_lateness(run, left))
    }

    /// True if lateness is the only reason, and the bound is met or not met without it as well.
    fn is_decided_without_lateness(&self, run: &Summary, left: Option<f64>) -> bool {
        let generator = &run.generator;
        let others = generator.invalid_reasons.len() - usize::from(generator.late.is_some());
        let is_late_only =
            generator.late.is_some() && others == usize::from(generator.in_flight_limit.is_some());
        let on_time = self.metric().without_lateness().and_then(|metric| metric.read(run));
        let verdicts = left.zip(on_time).map(|(left, on_time)| (self.holds(left), self.holds(on_time)));
        is_late_only && verdicts.is_some_and(|(measured, on_time)| measured == on_time)
    }
}
