//! Judges hypotheses by the evidence.
//!
//! A metric without a test or an arm means all of them: such a comparison has one binding for each
//! combination of tests and arms, and each binding is checked in every repeat.
//!
//! - Counts must hold in every repeat: one counterexample refutes.
//! - Times vary from run to run. They need at least five repeats: a comparison that is as likely to fail as to
//!   hold holds in all five once in 32 times (a sign test at 3 %). Holding in every repeat supports, holding in
//!   none refutes, holding in some is inconclusive. In virtual time they are computed, and judged as counts.
//! - An invalid measurement proves nothing: a claim is invalid if it uses one, unless the valid ones refute it. A late
//!   generator makes times invalid, and not counts.
//!
//! Judging is a pure function of the evidence.

mod expr;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

pub use expr::{Comparison, ExprError, Names, Selector, is_below, parse, parse_all, selector};
use stockade_model::record::{ClockKind, Expectation, Hypothesis, Run, Verdict};

use crate::metrics::{Evidence, FigureWindow, Results};

/// A claim and its comparisons.
#[derive(Clone, Debug)]
pub struct Claim {
    pub text: String,
    /// The text of each comparison and its parsed form.
    pub expect: Vec<(String, Comparison)>,
}

impl Claim {
    pub fn windows(&self) -> impl Iterator<Item = FigureWindow> {
        self.expect.iter().flat_map(|(_, read)| read.selectors()).filter_map(|selector| selector.window)
    }
}

/// The names that claims may use, and how the evidence was measured.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub names: Names<'a>,
    /// The pairs of test and arm that exist.
    pub cells: &'a BTreeSet<(String, String)>,
    /// Planned repeats of each pair.
    pub repeats: u32,
    pub clock: ClockKind,
}

/// The repeats that a verdict on times needs.
const TIMING_REPEATS_MIN: u32 = 5;

#[must_use]
pub fn judge(claims: &[Claim], case: Case<'_>, results: &Results) -> Vec<Hypothesis> {
    let figures = Figures::of(results.runs());
    let hypothesis = |claim: &Claim| {
        let expect: Vec<_> =
            claim.expect.iter().map(|(expr, read)| expectation(expr, read, case, &figures)).collect();
        let verdict = Verdict::worst(expect.iter().map(|expectation| expectation.verdict));
        Hypothesis { text: claim.text.clone(), verdict, expect }
    };
    claims.iter().map(hypothesis).collect()
}

/// The evidence by test, arm and repeat.
struct Figures<'a>(BTreeMap<(&'a str, &'a str, u32), &'a Evidence>);

impl<'a> Figures<'a> {
    fn of(evidence: &'a [Evidence]) -> Self {
        let key = |e: &'a Evidence| (e.run.test.as_str(), e.run.arm.as_str(), e.run.repeat);
        Self(evidence.iter().map(|evidence| (key(evidence), evidence)).collect())
    }
}

/// One assignment of tests and arms to the names that a comparison leaves open.
struct Binding<'a> {
    /// The test for each path prefix; `None`: for selectors without one.
    tests: BTreeMap<Option<&'a str>, &'a str>,
    arm: Option<&'a str>,
}

impl Binding<'_> {
    fn evidence<'e>(&self, of: &Selector, repeat: u32, figures: &Figures<'e>) -> Option<&'e Evidence> {
        let test = self.tests.get(&of.test.as_deref())?;
        let arm = of.arm.as_deref().or(self.arm)?;
        figures.0.get(&(*test, arm, repeat)).copied()
    }

    /// True if each selected arm exists in its selected test.
    fn exists(&self, selectors: &[&Selector], cells: &BTreeSet<(String, String)>) -> bool {
        let cell = |selector: &&Selector| {
            let test = self.tests.get(&selector.test.as_deref())?;
            Some(((*test).to_owned(), selector.arm.as_deref().or(self.arm)?.to_owned()))
        };
        selectors.iter().all(|selector| cell(selector).is_some_and(|cell| cells.contains(&cell)))
    }

    /// The names that were filled in, and the repeat.
    fn place(&self, repeat: u32) -> String {
        let mut words: Vec<&str> = self.tests.values().copied().filter(|test| !test.is_empty()).collect();
        words.dedup();
        words.extend(self.arm);
        let repeat = format!("repeat {repeat}");
        words.push(&repeat);
        words.join(", ")
    }
}

/// Every assignment of the open names. Equal prefixes mean the same test.
fn bindings<'a>(selectors: &[&'a Selector], names: Names<'a>) -> Vec<Binding<'a>> {
    let arms: Vec<Option<&str>> = if selectors.iter().any(|selector| selector.arm.is_none()) {
        names.arms.iter().map(|arm| Some(arm.as_str())).collect()
    } else {
        vec![None]
    };
    let mut tests: Vec<BTreeMap<Option<&str>, &str>> = vec![BTreeMap::new()];
    for selector in selectors {
        let beginning = selector.test.as_deref();
        if tests.iter().all(|chosen| chosen.contains_key(&beginning)) {
            continue;
        }
        let below = || {
            names.tests.iter().filter(move |path| beginning.is_none_or(|beginning| is_below(path, beginning)))
        };
        tests = tests
            .iter()
            .flat_map(|chosen| {
                below().map(move |path| {
                    let mut chosen = chosen.clone();
                    chosen.insert(beginning, path.as_str());
                    chosen
                })
            })
            .collect();
    }
    let pair =
        |tests: BTreeMap<_, _>| arms.iter().map(move |arm| Binding { tests: tests.clone(), arm: *arm });
    tests.into_iter().flat_map(pair).collect()
}

/// The results of one comparison over the repeats of one binding.
#[derive(Default)]
struct RepeatCount {
    held: u32,
    failed: u32,
    missing: u32,
    /// Repeats with an invalid measurement; they are not among the others.
    invalid: u32,
}

fn expectation(expr: &str, comparison: &Comparison, case: Case<'_>, figures: &Figures<'_>) -> Expectation {
    let selectors = comparison.selectors();
    let is_timing = comparison.is_timing() && case.clock == ClockKind::Live;
    let mut all = RepeatCount::default();
    let mut verdict = Verdict::Supported;
    let mut failed: Option<Instance> = None;
    let mut closest: Option<Instance> = None;
    let mut invalid: Option<Instance> = None;
    let bindings = bindings(&selectors, case.names);
    for binding in bindings.iter().filter(|binding| binding.exists(&selectors, case.cells)) {
        let mut tally = RepeatCount::default();
        for repeat in 1..=case.repeats {
            let evidence = |selector: &Selector| binding.evidence(selector, repeat, figures);
            let figure = |selector: &Selector| evidence(selector)?.figure(selector.metric, selector.window);
            let Some((left, right)) = comparison.left.value(&figure).zip(comparison.right.value(&figure))
            else {
                tally.missing += 1;
                continue;
            };
            let instance = || Instance { left, right, place: binding.place(repeat) };
            let is_invalid = |run: &Run| run.has_invalid_counts() || is_timing && run.is_invalid();
            if selectors.iter().any(|selector| evidence(selector).is_some_and(|e| is_invalid(&e.run))) {
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
        verdict = verdict.max(tally.verdict(is_timing));
        all.held += tally.held;
        all.failed += tally.failed;
        all.missing += tally.missing;
        all.invalid += tally.invalid;
    }
    let looked_at = all.held + all.failed;
    if looked_at + all.invalid == 0 {
        verdict = verdict.max(Verdict::Inconclusive);
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
    if is_timing && case.repeats < TIMING_REPEATS_MIN {
        let _ = write!(reason, "; times need {TIMING_REPEATS_MIN} repeats, there were {}", case.repeats);
    }
    let (left, right) =
        failed.or(closest).or(invalid).map(|instance| (instance.left, instance.right)).unzip();
    Expectation { expr: expr.to_owned(), left, right, verdict, reason }
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
    fn verdict(&self, is_timing: bool) -> Verdict {
        let repeats = self.held + self.failed;
        match self {
            // A counterexample refutes, whatever else is missing or invalid.
            Self { failed: 1.., .. } if !is_timing => Verdict::Refuted,
            Self { held: 0, failed: TIMING_REPEATS_MIN.., .. } => Verdict::Refuted,
            Self { invalid: 1.., .. } => Verdict::Invalid,
            _ if is_timing && repeats < TIMING_REPEATS_MIN => Verdict::Inconclusive,
            Self { held: 0, failed: 1.., .. } => Verdict::Refuted,
            Self { failed: 1.., .. } | Self { missing: 1.., .. } | Self { held: 0, .. } => {
                Verdict::Inconclusive
            }
            _ => Verdict::Supported,
        }
    }
}

#[cfg(test)]
mod tests;
