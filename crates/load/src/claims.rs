//! The verdicts of claims on a load.

use std::collections::BTreeMap;

use stockade_record::{
    judge::{LoadClaims, LoadDoubts, LoadEvidence},
    metrics::{FoldPart, ProcessUsage},
    record::{Expectation, LoadFigures, OpenFigures, Role, Run, Verdict},
};

use crate::{
    sample::FailureClass,
    search::TrialVerdict,
    summary::{GeneratorHealth, Summary},
};

impl Summary {
    /// A verdict on each comparison of the claims, in order.
    #[must_use]
    pub fn judge(&self, claims: &LoadClaims, was_interrupted: bool) -> Vec<Expectation> {
        let tally = &self.measured;
        // Its exact extremes are those of the successes alone.
        let open =
            OpenFigures { response: None, ..self.open_figures(self.schedule_end - self.measured_from) };
        let run = Run { load: LoadFigures::Open(open), ..self.run_record(None) };
        let whole = FoldPart {
            outcomes: run.outcomes,
            times: tally.times.clone(),
            retries: Some(tally.retries),
            dropped: Some(self.dropped),
            usage: BTreeMap::from([(Role::Load, self.generator.used())]),
            ..FoldPart::default()
        };
        let evidence = LoadEvidence {
            run: &run,
            whole: &whole,
            unanswered: tally.without_response(),
            hit_ratio: tally.hit_ratio(),
            doubts: self.doubts(was_interrupted),
            reasons: &self.generator.invalid_reasons,
        };
        claims.judge(&evidence)
    }

    /// The verdict on a trial of a search. An invalid run has no other verdict, unless the limit of requests in flight is the only
    /// reason, and a claim does not hold without the waits for it either.
    #[must_use]
    pub fn judge_trial(&self, claims: &LoadClaims) -> TrialVerdict {
        let invalid = || TrialVerdict::Invalid(self.generator.invalid_reasons.clone());
        if self.is_generator_limited() {
            return invalid();
        }
        let expectations = self.judge(claims, false);
        let failed =
            expectations.iter().filter(|of| matches!(of.verdict, Verdict::Refuted | Verdict::Inconclusive));
        let failed: Vec<_> = failed.map(|of| format!("{}: {}", of.expr, of.reason)).collect();
        if !failed.is_empty() {
            TrialVerdict::Failed(failed)
        } else if self.generator.is_valid() {
            TrialVerdict::Held
        } else {
            invalid()
        }
    }

    fn doubts(&self, was_interrupted: bool) -> LoadDoubts {
        let classes = [FailureClass::NoPorts, FailureClass::NoFiles];
        let is_short = classes.into_iter().any(|class| self.measured.failures_of(class) > 0);
        let GeneratorHealth { late, in_flight_limit, is_incomplete, invalid_reasons, .. } = &self.generator;
        let named = usize::from(late.is_some()) + usize::from(in_flight_limit.is_some());
        LoadDoubts {
            of_all: was_interrupted || *is_incomplete || is_short,
            of_times: invalid_reasons.len() > named,
            of_lateness: late.is_some(),
            of_own_queue: in_flight_limit.is_some(),
        }
    }
}

impl GeneratorHealth {
    fn used(&self) -> ProcessUsage {
        ProcessUsage {
            rss_max_bytes: self.resident_bytes_max.unwrap_or_default(),
            rss_last_bytes: self.resident_bytes_last.unwrap_or_default(),
            cpu_sum: self.cpu_mean,
            cpu_max: self.cpu_max,
            seconds: 1,
        }
    }
}

#[cfg(test)]
mod tests;
