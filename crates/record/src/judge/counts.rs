//! Verdicts on counts: exact, in every repeat.

use std::fmt::Write;

use crate::record::{Expectation, Verdict};

use super::{Case, Comparison, Figures, Selector, existing};

/// The results of one comparison over the repeats of one assignment.
#[derive(Default)]
struct RepeatCount {
    held: u32,
    failed: u32,
    missing: u32,
    /// Repeats with an invalid measurement; they are not among the others.
    invalid: u32,
}

pub(super) fn expectation(
    expr: &str,
    comparison: &Comparison,
    case: Case<'_>,
    figures: &Figures<'_>,
) -> Expectation {
    let selectors = comparison.selectors();
    let mut all = RepeatCount::default();
    let mut verdict = Verdict::Supported;
    let mut failed: Option<Instance> = None;
    let mut closest: Option<Instance> = None;
    let mut invalid: Option<Instance> = None;
    for assignment in existing(&selectors, case) {
        let mut tally = RepeatCount::default();
        for repeat in 1..=case.repeats {
            let figure = |selector: &Selector| {
                assignment.evidence(selector, repeat, figures)?.figure(selector.metric, selector.window)
            };
            let Some((left, right)) = comparison.values(&figure) else {
                tally.missing += 1;
                continue;
            };
            let place = || [assignment.names(), vec![&*format!("repeat {repeat}")]].concat().join(", ");
            let instance = || Instance { left, right, place: place() };
            if assignment.has_invalid_counts(&selectors, repeat, figures) {
                tally.invalid += 1;
                invalid.get_or_insert_with(instance);
                continue;
            }
            if comparison.op.holds(left, right) {
                tally.held += 1;
                if closest.as_ref().is_none_or(|closest| (left - right).abs() < closest.abs_difference()) {
                    closest = Some(instance());
                }
            } else {
                tally.failed += 1;
                failed.get_or_insert_with(instance);
            }
        }
        verdict = verdict.max(tally.verdict());
        all.held += tally.held;
        all.failed += tally.failed;
        all.missing += tally.missing;
        all.invalid += tally.invalid;
    }
    let looked_at = all.held + all.failed;
    if looked_at + all.invalid == 0 {
        verdict = verdict.max(Verdict::Inconclusive);
    }
    if looked_at + all.invalid == 0 && all.missing > 0 {
        let reason = "no measurement has a figure for it".to_owned();
        return Expectation { expr: expr.to_owned(), left: None, right: None, verdict, effect: None, reason };
    }
    let mut reason = format!("held in {} of {looked_at}", all.held);
    match (&failed, &closest) {
        (Some(failed), _) => write!(reason, ", first failed in {}", failed.place),
        (None, Some(closest)) if closest.abs_difference() > 0.0 => {
            write!(reason, ", closest in {}", closest.place)
        }
        _ => Ok(()),
    }
    .expect("writing to a string cannot fail");
    if all.missing > 0 {
        let _ = write!(reason, ", {} without a figure", all.missing);
    }
    if all.invalid > 0 {
        let _ = write!(reason, ", {} invalid", all.invalid);
    }
    let (left, right) =
        failed.or(closest).or(invalid).map(|instance| (instance.left, instance.right)).unzip();
    Expectation { expr: expr.to_owned(), left, right, verdict, effect: None, reason }
}

/// A comparison in one place: where it failed, or where it came closest to failing.
struct Instance {
    left: f64,
    right: f64,
    place: String,
}

impl Instance {
    fn abs_difference(&self) -> f64 {
        (self.left - self.right).abs()
    }
}

impl RepeatCount {
    fn verdict(&self) -> Verdict {
        match self {
            // A counterexample refutes, whatever else is missing or invalid.
            Self { failed: 1.., .. } => Verdict::Refuted,
            Self { invalid: 1.., .. } => Verdict::Invalid,
            Self { missing: 1.., .. } | Self { held: 0, .. } => Verdict::Inconclusive,
            _ => Verdict::Supported,
        }
    }
}
