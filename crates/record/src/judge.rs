//! Judges hypotheses by the evidence.
//!
//! A metric without a test or an arm means all of them: the comparison has one assignment for each
//! combination of tests and arms, and each assignment is checked in every repeat.
//!
//! - Counts (`counts`) must hold in every repeat: one counterexample refutes. In virtual time, times are counts, too.
//! - Times (`times`) vary from run to run. The interval of their effect has to lie on one side.
//! - A claim about the whole experiment is not judged in a scaled run. Its figures are shown.
//! - An invalid measurement proves nothing. A late generator makes times longer, by a known bound.
//!
//! Judging is a pure function of the evidence.

mod counts;
mod early;
mod expr;
mod load;
mod times;

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{ClockKind, Expectation, Hypothesis, Look, NoiseArm, Verdict};
pub use early::{EarlyJudge, Latest, Refutation};
pub use expr::{Comparison, ExprError, Names, Selector, is_below, parse, parse_all, selector};
pub use load::{LOAD_ARM, LoadClaims, LoadDoubts, LoadEvidence};

use crate::{
    metrics::{Evidence, FigureWindow, Results},
    statistics::holm,
};
use times::TimedComparison;

/// A claim and its comparisons.
#[derive(Clone, Debug)]
pub struct Claim {
    pub text: String,
    /// The text of each comparison and its parsed form.
    pub expect: Vec<(String, Comparison)>,
    /// The least difference of times that matters, as a share.
    pub min_effect: f64,
    /// Its refutation ends the run.
    pub abort: bool,
    /// It holds for a scaled run, too.
    pub any_scale: bool,
    /// False: the run is scaled, and it is about the whole.
    pub is_judged: bool,
}

/// The minimum effect of a hypothesis that names none: one percent.
pub const CLAIM_MIN_EFFECT: f64 = 0.01;

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
    /// When comparisons of times are judged, once at least: a verdict of one look stays.
    pub looks: &'a [Look],
    /// The arm that repeats another one: a difference of that size does not count between others.
    pub noise: Option<&'a NoiseArm>,
    pub clock: ClockKind,
}

impl Case<'_> {
    /// True if a comparison is judged by intervals: computed times are exact.
    fn is_timed(&self, comparison: &Comparison) -> bool {
        comparison.is_timing() && self.clock == ClockKind::Live
    }
}

/// The verdicts on all claims.
#[derive(Clone, Debug)]
pub struct Judgement {
    pub hypotheses: Vec<Hypothesis>,
    /// Comparisons of times that more repeats may decide.
    pub open_count: usize,
}

/// Counts are judged after the last repeat, and times at each look until one decides them.
#[must_use]
pub fn judge(claims: &[Claim], case: Case<'_>, results: &Results) -> Judgement {
    let figures = Figures::of(results.runs());
    let comparisons: Vec<_> = claims
        .iter()
        .flat_map(|claim| {
            claim.expect.iter().map(move |(expr, comparison)| (claim, expr.as_str(), comparison))
        })
        .collect();
    let is_timed = |at: &usize| case.is_timed(comparisons[*at].2);
    let is_judged = |at: &usize| comparisons[*at].0.is_judged;
    let (mut open, timed_unjudged): (Vec<usize>, Vec<usize>) =
        (0..comparisons.len()).filter(is_timed).partition(is_judged);
    let counts = (0..comparisons.len()).filter(|at| !is_timed(at)).map(|at| {
        let (_, expr, comparison) = comparisons[at];
        (at, counts::expectation(expr, comparison, case, &figures))
    });
    let mut expectations: BTreeMap<usize, Expectation> = counts.collect();
    if let Some(last) = case.looks.last() {
        expectations.extend(timed_unjudged.into_iter().map(|at| {
            let (claim, expr, comparison) = comparisons[at];
            let timed = TimedComparison::new(comparison, claim.min_effect, last.repeats, case, &figures);
            (at, timed.expectation(expr, last.error_rate))
        }));
    }
    for (_, expectation) in expectations.iter_mut().filter(|(at, _)| !is_judged(at)) {
        expectation.verdict = Verdict::NotJudged;
        expectation.effect = None;
        "the run is scaled".clone_into(&mut expectation.reason);
    }
    let mut open_count = 0;
    for look in case.looks {
        let timed: Vec<TimedComparison> = open
            .iter()
            .map(|at| {
                let (claim, _, comparison) = comparisons[*at];
                TimedComparison::new(comparison, claim.min_effect, look.repeats, case, &figures)
            })
            .collect();
        let p_values: Vec<f64> = timed.iter().map(TimedComparison::p_value).collect();
        let alphas = holm(&p_values, look.error_rate);
        for ((at, timed), alpha) in open.iter().zip(&timed).zip(alphas) {
            expectations.insert(*at, timed.expectation(comparisons[*at].1, alpha));
        }
        let is_open =
            |at: usize| matches!(expectations[&at].verdict, Verdict::Inconclusive | Verdict::Invalid);
        open_count =
            open.iter().zip(&timed).filter(|(at, timed)| is_open(**at) && timed.has_figures()).count();
        open.retain(|at| is_open(*at));
    }
    let mut expectations = expectations.into_values();
    let hypotheses = claims.iter().map(|claim| {
        let expect: Vec<_> = expectations.by_ref().take(claim.expect.len()).collect();
        let verdict = Verdict::worst(expect.iter().map(|expectation| expectation.verdict));
        Hypothesis { text: claim.text.clone(), verdict, expect }
    });
    Judgement { hypotheses: hypotheses.collect(), open_count }
}

/// The evidence by test, arm and repeat.
struct Figures<'a>(BTreeMap<(&'a str, &'a str, u32), &'a Evidence>);

impl<'a> Figures<'a> {
    fn of(evidence: &'a [Evidence]) -> Self {
        let key = |e: &'a Evidence| (e.run.test.as_str(), e.run.arm.as_str(), e.run.repeat);
        Self(evidence.iter().map(|evidence| (key(evidence), evidence)).collect())
    }

    fn of_cell(&self, test: &str, arm: &str, repeat: u32) -> Option<&'a Evidence> {
        self.0.get(&(test, arm, repeat)).copied()
    }
}

/// One assignment of tests and arms to the names that a comparison leaves open.
struct Assignment<'a> {
    /// The test for each path prefix; `None`: for selectors without one.
    tests: BTreeMap<Option<&'a str>, &'a str>,
    arm: Option<&'a str>,
}

impl Assignment<'_> {
    fn evidence<'e>(&self, of: &Selector, repeat: u32, figures: &Figures<'e>) -> Option<&'e Evidence> {
        let (test, arm) = self.cell(of)?;
        figures.of_cell(test, arm, repeat)
    }

    /// True if the counts of a selected measurement are not valid evidence.
    fn has_invalid_counts(&self, selectors: &[&Selector], repeat: u32, figures: &Figures<'_>) -> bool {
        let evidence = |selector: &&Selector| self.evidence(selector, repeat, figures);
        selectors.iter().filter_map(evidence).any(|evidence| evidence.run.has_invalid_counts())
    }

    /// The selected test and arm.
    fn cell<'s>(&'s self, of: &'s Selector) -> Option<(&'s str, &'s str)> {
        Some((self.tests.get(&of.test.as_deref())?, of.arm.as_deref().or(self.arm)?))
    }

    /// True if each selected arm exists in its selected test.
    fn exists(&self, selectors: &[&Selector], cells: &BTreeSet<(String, String)>) -> bool {
        let cell =
            |selector: &Selector| self.cell(selector).map(|(test, arm)| (test.to_owned(), arm.to_owned()));
        selectors.iter().all(|selector| cell(selector).is_some_and(|cell| cells.contains(&cell)))
    }

    /// The names that were filled in.
    fn names(&self) -> Vec<&str> {
        let mut words: Vec<&str> = self.tests.values().copied().filter(|test| !test.is_empty()).collect();
        words.dedup();
        words.extend(self.arm);
        words
    }
}

/// Every assignment of the open names whose tests and arms exist.
fn existing<'a>(selectors: &[&'a Selector], case: Case<'a>) -> Vec<Assignment<'a>> {
    let mut all = assignments(selectors, case.names);
    all.retain(|assignment| assignment.exists(selectors, case.cells));
    all
}

/// Every assignment of the open names. Equal prefixes mean the same test.
fn assignments<'a>(selectors: &[&'a Selector], names: Names<'a>) -> Vec<Assignment<'a>> {
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
        |tests: BTreeMap<_, _>| arms.iter().map(move |arm| Assignment { tests: tests.clone(), arm: *arm });
    tests.into_iter().flat_map(pair).collect()
}

#[cfg(test)]
mod tests;
