//! Claims that cannot hold any more, while the run goes on.

use std::slice;

use crate::record::Look;

use super::{Assignment, Case, Claim, Comparison, Figures, Selector, existing, times::TimedComparison};
use crate::{
    metrics::{Results, RunningFigures},
    statistics::Quantity,
};

/// Claims whose refutation ends the run.
#[derive(Clone, Copy)]
pub struct EarlyJudge<'a> {
    pub claims: &'a [Claim],
    pub case: Case<'a>,
    /// The look at the end of the current repeat, if there is one: times are judged at no other.
    pub look: Option<Look>,
}

/// The measurement that may refute a claim: in progress, or complete.
#[derive(Clone, Copy)]
pub struct Latest<'a> {
    pub test: &'a str,
    pub arm: &'a str,
    pub repeat: u32,
    /// `None`: it is complete, and among the results.
    pub running: Option<RunningFigures<'a>>,
}

/// A comparison that cannot hold any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Refutation {
    /// The index of the claim.
    pub claim: usize,
    /// The index of the comparison in it.
    pub comparison: usize,
    /// Both sides, where they come closest.
    pub left: f64,
    pub right: f64,
}

impl EarlyJudge<'_> {
    /// The first comparison with `abort = true` that cannot hold any more because of the latest measurement.
    #[must_use]
    pub fn refutation(&self, results: &Results, latest: Latest<'_>) -> Option<Refutation> {
        if !self.judged().any(|(_, claim)| claim.abort) {
            return None;
        }
        let figures = Figures::of(results.runs());
        let timed_count = self
            .judged()
            .flat_map(|(_, claim)| &claim.expect)
            .filter(|(_, comparison)| self.case.is_timed(comparison));
        let alpha = self.look.map(|look| look.error_rate / timed_count.count().max(1) as f64);
        let aborting = self.judged().filter(|(_, claim)| claim.abort);
        let mut comparisons = aborting.flat_map(|(at, claim)| {
            claim
                .expect
                .iter()
                .enumerate()
                .map(move |(of_claim, (_, comparison))| (at, of_claim, claim, comparison))
        });
        comparisons.find_map(|(claim, of_claim, Claim { min_effect, .. }, comparison)| {
            let selectors = comparison.selectors();
            let assignments = existing(&selectors, self.case);
            let alpha = alpha.map(|alpha| alpha / assignments.len() as f64);
            let is_latest = |assignment: &&Assignment<'_>| {
                selectors.iter().any(|selector| assignment.cell(selector) == Some((latest.test, latest.arm)))
            };
            assignments.iter().filter(is_latest).find_map(|assignment| {
                let failure = if self.case.is_timed(comparison) {
                    self.failure_of_times(comparison, *min_effect, assignment, &figures, latest, alpha?)
                } else {
                    failure_of_counts(comparison, assignment, &figures, latest)
                };
                failure.map(|(left, right)| Refutation { claim, comparison: of_claim, left, right })
            })
        })
    }

    /// The claims with a verdict, by index.
    fn judged(&self) -> impl Iterator<Item = (usize, &Claim)> {
        self.claims.iter().enumerate().filter(|(_, claim)| claim.is_judged)
    }

    /// Both sides of times that are refuted in this assignment.
    fn failure_of_times(
        &self,
        comparison: &Comparison,
        min_effect: f64,
        assignment: &Assignment<'_>,
        figures: &Figures<'_>,
        latest: Latest<'_>,
        alpha: f64,
    ) -> Option<(f64, f64)> {
        let (left, right) = sides(comparison, assignment, figures, latest)?;
        let one = slice::from_ref(assignment);
        let effects = |repeats| {
            TimedComparison::in_assignments(comparison, min_effect, one, repeats, self.case, figures)
        };
        let is_refuted = if latest.running.is_none() {
            effects(latest.repeat).is_refuted(alpha)
        } else {
            let evidence = |selector: &Selector| assignment.evidence(selector, latest.repeat, figures);
            let is_valid = !comparison
                .selectors()
                .into_iter()
                .filter_map(evidence)
                .any(|evidence| evidence.run.is_invalid());
            is_valid && effects(latest.repeat - 1).refutes_with(left, right, alpha)
        };
        is_refuted.then_some((left.measured, right.measured))
    }
}

/// Both sides of counts, where they come closest, if they hold no more in this assignment.
fn failure_of_counts(
    comparison: &Comparison,
    assignment: &Assignment<'_>,
    figures: &Figures<'_>,
    latest: Latest<'_>,
) -> Option<(f64, f64)> {
    let (left, right) = sides(comparison, assignment, figures, latest)?;
    let is_valid = !assignment.has_invalid_counts(&comparison.selectors(), latest.repeat, figures);
    comparison.op.failure(left.bounds, right.bounds).filter(|_| is_valid)
}

/// Both sides in the repeat of the latest measurement, as far as they are known; `None`: another measurement is missing.
fn sides(
    comparison: &Comparison,
    assignment: &Assignment<'_>,
    figures: &Figures<'_>,
    latest: Latest<'_>,
) -> Option<(Quantity, Quantity)> {
    let quantity = |selector: &Selector| {
        let of_latest =
            latest.running.filter(|_| assignment.cell(selector) == Some((latest.test, latest.arm)));
        match of_latest {
            Some(running) => Some(running.quantity(selector.metric, selector.window)),
            None => assignment
                .evidence(selector, latest.repeat, figures)?
                .quantity(selector.metric, selector.window),
        }
    };
    let (left, right) = comparison.sides(&quantity)?;
    let is_known = |side: Quantity| !side.bounds.low.is_nan() && !side.bounds.high.is_nan();
    (is_known(left) && is_known(right)).then_some((left, right))
}
