//! Verdicts on times: the interval of the effect has to lie on one side.
//!
//! | comparison | supported: the interval of ln(left / right) lies | refuted: it lies |
//! |---|---|---|
//! | `<` | below minus the minimum effect | above the minimum effect |
//! | `<=` | below the minimum effect | above it |
//! | `<`, `<=` beside a constant | below 0 | above 0 |
//! | `==` | within the minimum effect of 0 | outside of it |
//!
//! `>`, `>=` and `!=` are their mirror images. A comparison that leaves the test or the arm open is supported where all of its
//! bindings are, and refuted where one is, at a level that is divided by their number.

use std::fmt::Write as _;

use stockade_model::record::{Effect, Expectation, Verdict};

use super::{
    Case, Comparison, Figures, Selector, existing,
    expr::Op,
    statistics::{Bounds, Effects, MACHINE_SPREAD, Region, RepeatEffect},
};
use crate::metrics::Evidence;

/// A comparison of times and its effects.
pub(super) struct TimesCase {
    regions: Regions,
    bindings: Vec<BindingEffects>,
    min_effect: f64,
}

/// Where the interval of an effect supports a comparison, and where it refutes it.
struct Regions {
    good: Vec<Region>,
    bad: Vec<Region>,
}

/// The effects in one assignment of tests and arms.
struct BindingEffects {
    place: String,
    effects: Effects,
    /// The means of the sides.
    sides: Option<(f64, f64)>,
    /// Repeats without a figure.
    missing: u32,
    /// Repeats with an invalid measurement.
    invalid: u32,
    /// How late the generator was, in a repeat in which it was.
    late: Option<String>,
}

impl Regions {
    fn of(comparison: &Comparison, min_effect: f64) -> Self {
        let (below, above) =
            (|to| Region { from: f64::NEG_INFINITY, to }, |from| Region { from, to: f64::INFINITY });
        let margin = min_effect.ln_1p();
        // A bound is where it was written.
        let side = if comparison.measured_sides() < 2 { 0.0 } else { margin };
        let within = Region { from: -margin, to: margin };
        let outside = vec![below(-margin), above(margin)];
        let (good, bad) = match comparison.op {
            Op::Lt => (vec![below(-side)], vec![above(side)]),
            Op::Le => (vec![below(side)], vec![above(side)]),
            Op::Gt => (vec![above(side)], vec![below(-side)]),
            Op::Ge => (vec![above(-side)], vec![below(-side)]),
            Op::Eq => (vec![within], outside),
            Op::Ne => (outside, vec![within]),
        };
        Self { good, bad }
    }
}

/// ln(left / right); where a side is not positive, their difference as a share of the larger one.
fn effect(left: f64, right: f64) -> f64 {
    if left > 0.0 && right > 0.0 {
        return (left / right).ln();
    }
    let larger = left.abs().max(right.abs());
    if larger > 0.0 { (left - right) / larger } else { 0.0 }
}

impl BindingEffects {
    fn of<'e>(
        comparison: &Comparison,
        place: String,
        repeats: u32,
        evidence: impl Fn(&Selector, u32) -> Option<&'e Evidence>,
    ) -> Self {
        let selectors = comparison.selectors();
        let mut effects = Effects { sides: comparison.measured_sides(), ..Effects::default() };
        let mut sides = Vec::new();
        let mut spreads = Vec::new();
        let (mut missing, mut invalid, mut late) = (0, 0, None);
        for repeat in 1..=repeats {
            let figure =
                |selector: &Selector| evidence(selector, repeat)?.figure(selector.metric, selector.window);
            let bounds = |selector: &Selector| {
                let evidence = evidence(selector, repeat)?;
                let low = evidence.figure_without_lateness(selector.metric, selector.window)?;
                Some(Bounds { low, high: evidence.figure(selector.metric, selector.window)? })
            };
            let measured = comparison.left.value(&figure).zip(comparison.right.value(&figure));
            let known = comparison.left.bounds(&bounds).zip(comparison.right.bounds(&bounds));
            let Some(((left, right), (left_bounds, right_bounds))) = measured.zip(known) else {
                missing += 1;
                continue;
            };
            if selectors.iter().any(|of| evidence(of, repeat).is_some_and(|e| e.run.is_invalid())) {
                invalid += 1;
                continue;
            }
            late = late.or_else(|| {
                selectors
                    .iter()
                    .find_map(|selector| evidence(selector, repeat)?.run.http.as_ref()?.late.clone())
            });
            effects.repeats.push(RepeatEffect {
                measured: effect(left, right),
                bounds: Bounds {
                    low: effect(left_bounds.low, right_bounds.high),
                    high: effect(left_bounds.high, right_bounds.low),
                },
            });
            sides.push((left, right));
            spreads.extend(batch_spread(comparison, |selector| evidence(selector, repeat)));
        }
        effects.within_run = root_mean_square(&spreads);
        let count = sides.len() as f64;
        let mean = |side: fn(&(f64, f64)) -> f64| sides.iter().map(side).sum::<f64>() / count;
        let sides = (!sides.is_empty()).then(|| (mean(|sides| sides.0), mean(|sides| sides.1)));
        Self { place, effects, sides, missing, invalid, late }
    }

    /// The least `miss` whose interval lies in one of the regions.
    fn least_miss(&self, regions: &[Region]) -> f64 {
        if self.effects.repeats.is_empty() {
            return f64::INFINITY;
        }
        regions.iter().map(|region| self.effects.miss_within(*region)).fold(f64::INFINITY, f64::min)
    }

    /// Without the bounds that lateness leaves.
    fn as_measured(&self) -> Self {
        let repeats =
            self.effects.repeats.iter().map(|effect| RepeatEffect::exact(effect.measured)).collect();
        let effects = Effects { repeats, ..self.effects.clone() };
        Self { effects, place: String::new(), late: None, ..*self }
    }
}

/// The standard error of the effect of one run, from batches of its seconds: neighbouring seconds are alike, batches of
/// them less so (batch means).
fn batch_spread<'e>(
    comparison: &Comparison,
    evidence: impl Fn(&Selector) -> Option<&'e Evidence>,
) -> Option<f64> {
    let effects: Vec<f64> = (0..Evidence::BATCHES)
        .filter_map(|batch| {
            let figure = |selector: &Selector| {
                evidence(selector)?.batch_figure(selector.metric, selector.window, batch)
            };
            Some(effect(comparison.left.value(&figure)?, comparison.right.value(&figure)?))
        })
        .collect();
    let count = effects.len() as f64;
    let mean = effects.iter().sum::<f64>() / count;
    let squares: f64 = effects.iter().map(|effect| (effect - mean).powi(2)).sum();
    (effects.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt())
}

fn root_mean_square(values: &[f64]) -> Option<f64> {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (!values.is_empty()).then(|| (squares / values.len() as f64).sqrt())
}

impl TimesCase {
    pub(super) fn new(
        comparison: &Comparison,
        min_effect: f64,
        case: Case<'_>,
        figures: &Figures<'_>,
    ) -> Self {
        let selectors = comparison.selectors();
        let of = |binding: &super::Binding<'_>| {
            let place = binding.names().join(", ");
            let evidence = |selector: &Selector, repeat| binding.evidence(selector, repeat, figures);
            BindingEffects::of(comparison, place, case.repeats, evidence)
        };
        let bindings = existing(&selectors, case).iter().map(of).collect();
        Self { regions: Regions::of(comparison, min_effect), bindings, min_effect }
    }

    /// The least `miss` at which it is decided.
    pub(super) fn least_miss(&self) -> f64 {
        let of = |regions: &[Region]| -> Vec<f64> {
            self.bindings.iter().map(|binding| binding.least_miss(regions)).collect()
        };
        let supported = of(&self.regions.good).into_iter().fold(0.0, f64::max);
        let refuted = of(&self.regions.bad).into_iter().fold(f64::INFINITY, f64::min);
        supported.min(refuted * self.bindings.len() as f64)
    }

    /// The verdict at `miss`, with the binding that decides it.
    pub(super) fn expectation(&self, expr: &str, miss: f64) -> Expectation {
        let (verdict, deciding) = self.decide(miss);
        let effect = deciding.and_then(|binding| self.effect(binding, verdict, miss));
        let reason = self.reason(verdict, deciding, effect.as_ref());
        let (left, right) = deciding.and_then(|binding| binding.sides).unzip();
        Expectation { expr: expr.to_owned(), left, right, verdict, effect, reason }
    }

    fn decide(&self, miss: f64) -> (Verdict, Option<&BindingEffects>) {
        let by = |regions: &[Region], a: &BindingEffects, b: &BindingEffects| {
            a.least_miss(regions).total_cmp(&b.least_miss(regions))
        };
        let worst = self.bindings.iter().min_by(|a, b| by(&self.regions.bad, a, b));
        if let Some(worst) =
            worst.filter(|worst| worst.least_miss(&self.regions.bad) <= self.miss_of_one(miss))
        {
            return (Verdict::Refuted, Some(worst));
        }
        let without = self.bindings.iter().find(|binding| binding.effects.repeats.is_empty());
        let closest = self.bindings.iter().max_by(|a, b| by(&self.regions.good, a, b));
        let is_decided = |binding: &BindingEffects| {
            binding.least_miss(&self.regions.good) <= miss
                || binding.least_miss(&self.regions.bad) <= self.miss_of_one(miss)
        };
        let verdict = match (without, closest) {
            (Some(binding), _) if binding.invalid > 0 => Verdict::Invalid,
            (Some(_), _) | (_, None) => Verdict::Inconclusive,
            (_, Some(closest)) if is_decided(closest) => Verdict::Supported,
            // Late sends are the reason why it is open.
            (_, Some(closest)) if is_decided(&closest.as_measured()) => Verdict::Invalid,
            _ => Verdict::Inconclusive,
        };
        (verdict, without.or(closest))
    }

    /// One of the bindings is enough to refute: the chance of a false verdict is divided among them.
    fn miss_of_one(&self, miss: f64) -> f64 {
        miss / self.bindings.len() as f64
    }

    fn effect(&self, binding: &BindingEffects, verdict: Verdict, miss: f64) -> Option<Effect> {
        let effects = &binding.effects;
        if effects.repeats.is_empty() {
            return None;
        }
        let miss = if verdict == Verdict::Refuted { self.miss_of_one(miss) } else { miss };
        let interval = effects.interval(miss);
        let regions: Vec<Region> = self.regions.good.iter().chain(&self.regions.bad).copied().collect();
        let is_open = verdict == Verdict::Inconclusive;
        Some(Effect {
            ratio: effects.mean_measured().exp(),
            low: interval.low.exp(),
            high: interval.high.exp(),
            level: 1.0 - miss,
            repeats: u32::try_from(effects.repeats.len()).unwrap_or(u32::MAX),
            is_assumed: effects.is_assumed(miss),
            repeats_to_decide: is_open.then(|| effects.repeats_to_decide(miss, &regions)).flatten(),
        })
    }

    fn reason(&self, verdict: Verdict, deciding: Option<&BindingEffects>, effect: Option<&Effect>) -> String {
        let Some(binding) = deciding else { return "no test and arm has both sides".to_owned() };
        let mut reason = match binding.place.as_str() {
            "" => String::new(),
            place => format!("{place}: "),
        };
        let Some(effect) = effect else {
            let _ = match binding.invalid {
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
            (level * 1e4).round() / 100.0,
            if *repeats == 1 { "" } else { "s" },
        );
        if effect.is_assumed {
            let _ = write!(
                reason,
                ", if times of a run are {:.0} % off (one standard deviation)",
                MACHINE_SPREAD.exp_m1() * 100.0
            );
        }
        if binding.missing > 0 {
            let _ = write!(reason, ", {} without a figure", binding.missing);
        }
        if binding.invalid > 0 {
            let _ = write!(reason, ", {} invalid", binding.invalid);
        }
        match verdict {
            Verdict::Invalid => {
                let late = binding.late.as_deref().unwrap_or_default();
                let _ = write!(reason, "; that may be the lateness of the generator: {late}");
            }
            Verdict::Inconclusive => reason.push_str(&self.remedy(effect)),
            _ => {}
        }
        reason
    }

    /// How an open comparison is decided.
    fn remedy(&self, effect: &Effect) -> String {
        let margin = 1.0 + self.min_effect;
        let is_small = effect.low > 1.0 / margin && effect.high < margin;
        match effect.repeats_to_decide {
            Some(repeats) => format!("; about {repeats} repeats decide it"),
            _ if is_small => {
                format!(
                    "; they differ by less than the minimum effect of {} %",
                    figure(self.min_effect * 100.0)
                )
            }
            None if effect.repeats < 3 => "; 3 repeats show how much times vary".to_owned(),
            None => "; more repeats hardly decide it: the sides are too close".to_owned(),
        }
    }
}

/// Three digits.
fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 99.95 => 0,
        middle if middle >= 9.995 => 1,
        one if one >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}
