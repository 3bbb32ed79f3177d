//! Verdicts on times: the interval of the effect has to lie on one side.
//!
//! | comparison | supported: the interval of ln(left / right) lies | refuted: it lies |
//! |---|---|---|
//! | `<` | below minus the minimum effect | above the minimum effect |
//! | `<=` | below the minimum effect | above it |
//! | `<`, `<=` without a second arm or test | below 0 | above 0 |
//! | `==` | within the minimum effect of 0 | outside of it |
//!
//! `>`, `>=` and `!=` are their mirror images. A comparison that leaves the test or the arm open is supported where all of its
//! assignments are, and refuted where one is, at a level that is divided by their number.

use std::{collections::BTreeSet, fmt::Write as _};

use crate::record::{Effect, Expectation, NoiseArm, Run, Verdict};

use super::{Assignment, Case, Comparison, Figures, Selector, existing, expr::Op};
use crate::{
    metrics::Evidence,
    statistics::{
        AssumedSpread, Effects, Estimate, Quantity, Region, RepeatEffect, STALL_S, effect_of_equals, ratio,
        root_mean_square, standard_deviation,
    },
};

/// A comparison of times and its effects.
pub(super) struct TimedComparison {
    regions: Regions,
    assignments: Vec<ComparisonEffects>,
    /// `None`: the comparison has no second arm or test.
    min_effect: Option<f64>,
    /// The effect between equal arms, if one is measured twice.
    noise: f64,
}

/// Where the interval of an effect supports a comparison, and where it refutes it.
struct Regions {
    supporting: Vec<Region>,
    refuting: Vec<Region>,
}

/// The effects in one assignment of tests and arms.
struct ComparisonEffects {
    place: String,
    effects: Effects,
    /// The geometric means of the sides as positive quantities.
    side_means: Option<(f64, f64)>,
    /// Repeats without a figure.
    missing: u32,
    /// Repeats with an invalid measurement.
    invalid: u32,
    /// How late the generator was, or what disturbed the load, in a repeat in which that was so.
    doubt: Option<String>,
    /// The widest that a figure rests on.
    assumed_spread: AssumedSpread,
}

impl Regions {
    /// `min_effect` is a share; equal arms have this effect, ln(left / right), without a difference.
    fn of(op: Op, min_effect: f64, noise: f64, has_margin: bool) -> Self {
        let least = min_effect.ln_1p();
        let beyond_noise = least.max(noise);
        // A bound is where it was written.
        let [equal, apart] = if has_margin { [least, beyond_noise] } else { [0.0; 2] };
        let (below, above) = (Region::below, Region::above);
        let within = vec![Region::within(least)];
        let outside = vec![below(-beyond_noise), above(beyond_noise)];
        let (supporting, refuting) = match op {
            Op::Lt => (vec![below(-apart)], vec![above(apart)]),
            Op::Le => (vec![below(equal)], vec![above(apart)]),
            Op::Gt => (vec![above(apart)], vec![below(-apart)]),
            Op::Ge => (vec![above(-equal)], vec![below(-apart)]),
            Op::Eq => (within, outside),
            Op::Ne => (outside, within),
        };
        Self { supporting, refuting }
    }
}

/// The largest effect between the arm that is measured twice and itself, in the metrics, windows and tests of a comparison.
fn noise_of(
    comparison: &Comparison,
    assignments: &[Assignment<'_>],
    repeats: u32,
    noise: &NoiseArm,
    figures: &Figures<'_>,
) -> f64 {
    let selectors = comparison.selectors();
    let effects = assignments.iter().flat_map(|assignment| {
        selectors.iter().filter_map(|selector| {
            let (test, _) = assignment.cell(selector)?;
            let time = |arm: &str, repeat| {
                figures.of_cell(test, arm, repeat)?.valid_time(selector.metric, selector.window)
            };
            let pairs =
                (1..=repeats).filter_map(|repeat| time(&noise.of, repeat).zip(time(&noise.arm, repeat)));
            Some(effect_of_equals(pairs))
        })
    });
    effects.fold(0.0, f64::max)
}

impl ComparisonEffects {
    fn of<'e>(
        comparison: &Comparison,
        place: String,
        repeats: u32,
        evidence: impl Fn(&Selector, u32) -> Option<&'e Evidence>,
    ) -> Self {
        let selectors = comparison.selectors();
        let mut effects = Effects::default();
        let mut spreads = Vec::new();
        let (mut missing, mut invalid, mut doubt) = (0, 0, None);
        let mut assumed_spread = AssumedSpread::default();
        let (mut ln_left, mut ln_right) = (0.0, 0.0);
        for repeat in 1..=repeats {
            let runs = || selectors.iter().filter_map(|selector| evidence(selector, repeat)).map(|e| &e.run);
            if runs().any(Run::is_invalid) {
                invalid += 1;
                continue;
            }
            let quantity =
                |selector: &Selector| evidence(selector, repeat)?.quantity(selector.metric, selector.window);
            let Some((left, right)) = comparison.sides(&quantity) else {
                missing += 1;
                continue;
            };
            doubt = doubt.or_else(|| runs().find_map(doubt_of));
            let assumed = selectors.iter().filter_map(|selector| {
                Some(evidence(selector, repeat)?.assumed_spread(selector.metric, selector.window))
            });
            assumed_spread = assumed.fold(assumed_spread, AssumedSpread::max);
            effects.repeats.push(RepeatEffect::of(left, right));
            (ln_left, ln_right) = (ln_left + left.measured.ln(), ln_right + right.measured.ln());
            spreads.extend(batch_standard_error(comparison, |selector| evidence(selector, repeat)));
        }
        effects.within_run = root_mean_square(&spreads);
        let count = effects.repeats.len() as f64;
        let side_means = (count > 0.0).then(|| ((ln_left / count).exp(), (ln_right / count).exp()));
        Self { place, effects, side_means, missing, invalid, doubt, assumed_spread }
    }

    /// The least alpha whose interval lies in one of the regions.
    fn p_value_within_any(&self, regions: &[Region]) -> f64 {
        if self.effects.repeats.is_empty() {
            return f64::INFINITY;
        }
        least_p_value(&self.effects.estimate(), regions)
    }

    /// Without the bounds that lateness and disturbances leave.
    fn as_measured(&self) -> Self {
        let repeats = self.effects.repeats.iter().map(|effect| effect.as_measured()).collect();
        let effects = Effects { repeats, ..self.effects };
        Self { effects, place: self.place.clone(), doubt: self.doubt.clone(), ..*self }
    }
}

/// The least alpha whose interval lies in one of the regions.
fn least_p_value(estimate: &Estimate, regions: &[Region]) -> f64 {
    regions.iter().map(|region| estimate.p_value_within(*region)).fold(f64::INFINITY, f64::min)
}

/// The cause of longer times whose share is known: late sends, or disturbed seconds.
fn doubt_of(run: &Run) -> Option<String> {
    let http = run.http.as_ref()?;
    http.late.clone().or_else(|| http.disturbed.clone())
}

/// The standard error of the effect of one run, from batches of its seconds: neighbouring seconds are alike, batches of
/// them less so (batch means).
fn batch_standard_error<'e>(
    comparison: &Comparison,
    evidence: impl Fn(&Selector) -> Option<&'e Evidence>,
) -> Option<f64> {
    let effects: Vec<f64> = (0..Evidence::BATCHES)
        .filter_map(|batch| {
            let figure = |selector: &Selector| {
                let evidence = evidence(selector)?;
                evidence.batch_figure(selector.metric, selector.window, batch).map(Quantity::exact)
            };
            let (left, right) = comparison.sides(&figure)?;
            Some(RepeatEffect::of(left, right).measured)
        })
        .collect();
    Some(standard_deviation(&effects)? / (effects.len() as f64).sqrt())
}

fn assignment_effects(
    comparison: &Comparison,
    assignment: &Assignment<'_>,
    repeats: u32,
    figures: &Figures<'_>,
) -> ComparisonEffects {
    let evidence = |selector: &Selector, repeat| assignment.evidence(selector, repeat, figures);
    ComparisonEffects::of(comparison, assignment.names().join(", "), repeats, evidence)
}

impl TimedComparison {
    pub(super) fn new(
        comparison: &Comparison,
        min_effect: f64,
        repeats: u32,
        case: Case<'_>,
        figures: &Figures<'_>,
    ) -> Self {
        let assignments = existing(&comparison.selectors(), case);
        Self::in_assignments(comparison, min_effect, &assignments, repeats, case, figures)
    }

    /// In these assignments only.
    pub(super) fn in_assignments(
        comparison: &Comparison,
        min_effect: f64,
        assignments: &[Assignment<'_>],
        repeats: u32,
        case: Case<'_>,
        figures: &Figures<'_>,
    ) -> Self {
        let measured: BTreeSet<_> =
            comparison.selectors().into_iter().map(|selector| (&selector.test, &selector.arm)).collect();
        let has_margin = measured.len() > 1;
        let noise = case.noise.filter(|_| has_margin);
        let noise = noise.map_or(0.0, |noise| noise_of(comparison, assignments, repeats, noise, figures));
        let of = |assignment| assignment_effects(comparison, assignment, repeats, figures);
        Self {
            regions: Regions::of(comparison.op, min_effect, noise, has_margin),
            assignments: assignments.iter().map(of).collect(),
            min_effect: has_margin.then_some(min_effect),
            noise,
        }
    }

    /// True if an assignment refutes it.
    pub(super) fn is_refuted(&self, alpha: f64) -> bool {
        self.assignments
            .iter()
            .any(|assignment| assignment.p_value_within_any(&self.regions.refuting) <= alpha)
    }

    /// Adds a repeat in progress with the bounds of its sides so far, and returns whether that refutes it.
    pub(super) fn refutes_with(mut self, left: Quantity, right: Quantity, alpha: f64) -> bool {
        let refuting = &self.regions.refuting;
        self.assignments.iter_mut().any(|assignment| {
            assignment.effects.repeats.push(RepeatEffect::of(left, right));
            let estimate = assignment.effects.estimate_of_growing();
            estimate.is_some_and(|estimate| least_p_value(&estimate, refuting) <= alpha)
        })
    }

    /// The least alpha at which it is decided.
    pub(super) fn p_value(&self) -> f64 {
        if self.assignments.is_empty() {
            return f64::INFINITY;
        }
        let all = |regions: &[Region]| -> Vec<f64> {
            self.assignments.iter().map(|assignment| assignment.p_value_within_any(regions)).collect()
        };
        let supported = all(&self.regions.supporting).into_iter().fold(0.0, f64::max);
        let refuted = all(&self.regions.refuting).into_iter().fold(f64::INFINITY, f64::min);
        supported.min(refuted * self.assignments.len() as f64)
    }

    /// True if every valid repeat has a figure: a figure that is absent will not come.
    pub(super) fn has_figures(&self) -> bool {
        !self.assignments.is_empty() && self.assignments.iter().all(|assignment| assignment.missing == 0)
    }

    /// The verdict at `alpha`, with the assignment that decides it.
    pub(super) fn expectation(&self, expr: &str, alpha: f64) -> Expectation {
        let (verdict, deciding) = self.decide(alpha);
        let effect = deciding.and_then(|assignment| self.effect(assignment, verdict, alpha));
        let reason = self.reason(verdict, deciding, effect.as_ref());
        let (left, right) = deciding.and_then(|assignment| assignment.side_means).unzip();
        Expectation { expr: expr.to_owned(), left, right, verdict, effect, reason }
    }

    fn decide(&self, alpha: f64) -> (Verdict, Option<&ComparisonEffects>) {
        let is_supported =
            |assignment: &ComparisonEffects| assignment.p_value_within_any(&self.regions.supporting) <= alpha;
        // One assignment is enough to refute: the chance of a false verdict is divided among them.
        let is_refuted = |assignment: &ComparisonEffects| {
            assignment.p_value_within_any(&self.regions.refuting) <= self.alpha_of_one(alpha)
        };
        let by_refuting = |a: &&ComparisonEffects, b: &&ComparisonEffects| {
            a.p_value_within_any(&self.regions.refuting)
                .total_cmp(&b.p_value_within_any(&self.regions.refuting))
        };
        let by_supporting = |a: &&ComparisonEffects, b: &&ComparisonEffects| {
            a.p_value_within_any(&self.regions.supporting)
                .total_cmp(&b.p_value_within_any(&self.regions.supporting))
        };
        if let Some(refuted) =
            self.assignments.iter().filter(|assignment| is_refuted(assignment)).min_by(by_refuting)
        {
            return (Verdict::Refuted, Some(refuted));
        }
        let open: Vec<_> = self.assignments.iter().filter(|assignment| !is_supported(assignment)).collect();
        let invalid = |assignment: &&&ComparisonEffects| {
            let is_doubtful = || {
                assignment.doubt.is_some() && {
                    let measured = assignment.as_measured();
                    is_supported(&measured) || is_refuted(&measured)
                }
            };
            assignment.effects.repeats.is_empty() && assignment.invalid > 0 || is_doubtful()
        };
        if let Some(invalid) = open.iter().find(invalid) {
            return (Verdict::Invalid, Some(invalid));
        }
        if let Some(open) = open.into_iter().max_by(by_supporting) {
            return (Verdict::Inconclusive, Some(open));
        }
        match self.assignments.iter().find(|assignment| assignment.missing > 0) {
            // An arm without a figure may be one that answered nothing.
            Some(partial) => (Verdict::Inconclusive, Some(partial)),
            None if self.assignments.is_empty() => (Verdict::Inconclusive, None),
            None => (Verdict::Supported, self.assignments.iter().max_by(by_supporting)),
        }
    }

    fn alpha_of_one(&self, alpha: f64) -> f64 {
        alpha / self.assignments.len() as f64
    }

    fn effect(&self, assignment: &ComparisonEffects, verdict: Verdict, alpha: f64) -> Option<Effect> {
        let effects = &assignment.effects;
        if effects.repeats.is_empty() {
            return None;
        }
        let alpha = if verdict == Verdict::Refuted { self.alpha_of_one(alpha) } else { alpha };
        let estimate = effects.estimate();
        let (low, high) = estimate.ratios(alpha);
        let Regions { supporting, refuting } = &self.regions;
        let regions: Vec<Region> = supporting.iter().chain(refuting).copied().collect();
        let is_open = verdict == Verdict::Inconclusive && assignment.missing == 0;
        Some(Effect {
            ratio: ratio(estimate.measured),
            low,
            high,
            level: 1.0 - alpha,
            repeats: u32::try_from(effects.repeats.len()).unwrap_or(u32::MAX),
            is_assumed: estimate.rests_on_assumed_spread(alpha),
            repeats_to_decide: is_open.then(|| effects.repeats_to_decide(alpha, &regions)).flatten(),
        })
    }

    fn reason(
        &self,
        verdict: Verdict,
        deciding: Option<&ComparisonEffects>,
        effect: Option<&Effect>,
    ) -> String {
        let Some(assignment) = deciding else { return "no test and arm has both sides".to_owned() };
        let mut reason = match assignment.place.as_str() {
            "" => String::new(),
            place => format!("{place}: "),
        };
        let Some(effect) = effect else {
            let _ = match assignment.invalid {
                0 => write!(reason, "no repeat has a figure"),
                invalid => write!(reason, "{invalid} invalid"),
            };
            return reason;
        };
        let Effect { ratio, low, high, level, repeats, .. } = effect;
        let _ = write!(
            reason,
            "left / right is {} ({} to {} at {} %), {repeats} repeat{}",
            figure(*ratio),
            figure(*low),
            figure(*high),
            // A level above that is below 100 %.
            ((level * 1e4).round() / 100.0).min(99.99),
            if *repeats == 1 { "" } else { "s" },
        );
        if effect.is_assumed {
            let off = assignment.assumed_spread.deviation();
            let _ = match assignment.assumed_spread {
                AssumedSpread::Machine => {
                    write!(reason, ", if times of a run are {:.0} % off", off.exp_m1() * 100.0)
                }
                AssumedSpread::Stall => write!(
                    reason,
                    ", if a figure that one stall of {STALL_S} s decides is off by a factor of {:.0}",
                    off.exp()
                ),
                AssumedSpread::Disturbed => write!(
                    reason,
                    ", if times of a run with disturbed seconds are off by a factor of {:.0}",
                    off.exp()
                ),
            };
            reason.push_str(" (one standard deviation)");
        }
        if assignment.missing > 0 {
            let _ = write!(reason, ", {} without a figure", assignment.missing);
        }
        if assignment.invalid > 0 {
            let _ = write!(reason, ", {} invalid", assignment.invalid);
        }
        if self.noise > 0.0 {
            let _ = write!(reason, ", equal arms differ by {} %", figure(self.noise.exp_m1() * 100.0));
        }
        match verdict {
            Verdict::Invalid => {
                let doubt = assignment.doubt.as_deref().unwrap_or_default();
                let _ = write!(reason, "; this may explain it: {doubt}");
            }
            Verdict::Inconclusive if assignment.missing == 0 => reason.push_str(&self.remedy(effect)),
            _ => {}
        }
        reason
    }

    /// How an open comparison is decided.
    fn remedy(&self, effect: &Effect) -> String {
        let is_within =
            |min_effect: f64| effect.low > 1.0 / (1.0 + min_effect) && effect.high < 1.0 + min_effect;
        match (effect.repeats_to_decide, self.min_effect) {
            (Some(repeats), _) => format!("; about {repeats} repeats decide it"),
            (None, Some(min_effect)) if is_within(min_effect) => {
                format!("; they differ by less than the minimum effect of {} %", figure(min_effect * 100.0))
            }
            _ if effect.repeats < 3 => "; 3 repeats show how much times vary".to_owned(),
            _ => "; more repeats hardly decide it: the sides are too close".to_owned(),
        }
    }
}

/// A number with three significant digits, without a unit.
fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 99.95 => 0,
        middle if middle >= 9.995 => 1,
        one if one >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}
