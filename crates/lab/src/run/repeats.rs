//! How many repeats a run makes, and after which of them it looks at its verdicts.
//!
//! Each look at a verdict may be wrong. So each look spends a part of the error rate (alpha spending): a tenth of what earlier looks
//! have left, and the last look all of it. The parts add up to the error rate whatever the looks have in common, and whenever the last one comes,
//! as long as the verdicts do not choose it.

use std::time::Duration;

use stockade_record::record::Look;

use stockade_record::statistics::FAMILY_ERROR_RATE;

/// The bounds of a run that goes on until its comparisons are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntilDecided {
    pub repeats_max: u32,
    /// No repeat begins that would end after it.
    pub budget: Option<Duration>,
}

/// The looks of a run so far.
#[derive(Clone, Debug)]
pub(super) struct LookSchedule {
    repeats_min: u32,
    repeats_max: u32,
    budget: Option<Duration>,
    looks: Vec<Look>,
    next_look: u32,
    error_rate_left: f64,
}

/// The action after a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    Repeat,
    /// The next repeat follows where something is open.
    Look,
    End,
}

impl LookSchedule {
    /// The share of the remaining error rate that a look spends.
    const SPENT_SHARE: f64 = 0.1;

    /// One look after the last repeat.
    pub(super) fn fixed(repeats: u32) -> Self {
        Self::sequential(repeats, UntilDecided { repeats_max: repeats, budget: None })
    }

    /// Looks from `repeats_min` on.
    pub(super) fn sequential(repeats_min: u32, until: UntilDecided) -> Self {
        Self {
            repeats_min,
            repeats_max: until.repeats_max.max(repeats_min),
            budget: until.budget,
            looks: Vec::new(),
            next_look: repeats_min,
            error_rate_left: FAMILY_ERROR_RATE,
        }
    }

    /// Takes a look if one is due after `repeat`, which ended at `elapsed`.
    pub(super) fn after(&mut self, repeat: u32, elapsed: Duration) -> NextAction {
        let of_one = elapsed / repeat.max(1);
        let is_over = |budget: Duration| elapsed.saturating_add(of_one) > budget;
        if repeat >= self.repeats_max || repeat >= self.repeats_min && self.budget.is_some_and(is_over) {
            self.end(repeat);
            return NextAction::End;
        }
        if repeat < self.next_look {
            return NextAction::Repeat;
        }
        // Half as many again, and two at least: a look that follows soon learns little.
        self.next_look = (repeat + 2).max(repeat + repeat / 2);
        self.look(repeat, Self::SPENT_SHARE);
        NextAction::Look
    }

    /// The look that is due after `repeat`, unless the budget ends the run before.
    pub(super) fn due_after(&self, repeat: u32) -> Option<Look> {
        let is_due = repeat >= self.next_look || repeat >= self.repeats_max;
        is_due.then(|| Look { repeats: repeat, error_rate: self.error_rate_left * self.share(repeat) })
    }

    /// The share of the remaining error rate that a look after `repeat` spends.
    fn share(&self, repeat: u32) -> f64 {
        if repeat >= self.repeats_max { 1.0 } else { Self::SPENT_SHARE }
    }

    /// Takes the look of a run that a claim ends in or after `repeat`, unless that was the last look. A verdict has chosen it, so it does
    /// not spend the rest.
    pub(super) fn abort(&mut self, repeat: u32) {
        if self.looks.last().is_none_or(|look| look.repeats < repeat) {
            self.look(repeat, self.share(repeat));
        }
    }

    /// Takes a look that spends the whole remaining error rate.
    pub(super) fn end(&mut self, repeats: u32) {
        self.look(repeats, 1.0);
    }

    fn look(&mut self, repeats: u32, share: f64) {
        let error_rate = self.error_rate_left * share;
        self.error_rate_left -= error_rate;
        self.looks.push(Look { repeats, error_rate });
    }

    pub(super) fn looks(&self) -> &[Look] {
        &self.looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rand::{SeedableRng, rngs::SmallRng};
    use rand_distr::{Distribution, Normal};

    use stockade_record::statistics::{AssumedSpread, Effects, Quantity, Region, RepeatEffect};

    const MINUTE: Duration = Duration::from_mins(1);

    /// Repeats of a minute each, until the schedule ends.
    fn looks(mut schedule: LookSchedule) -> Vec<Look> {
        for repeat in 1..=1_000 {
            if schedule.after(repeat, MINUTE * repeat) == NextAction::End {
                return schedule.looks;
            }
        }
        panic!("it does not end");
    }

    fn repeats(schedule: LookSchedule) -> Vec<u32> {
        looks(schedule).iter().map(|look| look.repeats).collect()
    }

    #[test]
    fn fixed_run_looks_once_with_the_whole_error_rate() {
        assert_eq!(looks(LookSchedule::fixed(5)), [Look { repeats: 5, error_rate: FAMILY_ERROR_RATE }]);
    }

    #[test]
    fn looks_become_rarer() {
        let until = UntilDecided { repeats_max: 30, budget: None };
        assert_eq!(repeats(LookSchedule::sequential(1, until)), [1, 3, 5, 7, 10, 15, 22, 30]);
        assert_eq!(repeats(LookSchedule::sequential(5, until)), [5, 7, 10, 15, 22, 30]);
        assert_eq!(repeats(LookSchedule::sequential(40, until)), [40], "the minimum wins");
    }

    #[test]
    fn looks_spend_the_whole_error_rate() {
        for repeats_max in [1, 2, 10, 1_000] {
            let all = looks(LookSchedule::sequential(1, UntilDecided { repeats_max, budget: None }));
            let spent: f64 = all.iter().map(|look| look.error_rate).sum();
            assert!((spent - FAMILY_ERROR_RATE).abs() < 1e-12, "{repeats_max}: {spent}");
            assert!(all.iter().all(|look| look.error_rate > 0.0));
        }
    }

    #[test]
    fn aborted_run_looks_once_more_and_keeps_the_rest() {
        let mut schedule = LookSchedule::sequential(1, UntilDecided { repeats_max: 30, budget: None });
        schedule.abort(1);
        assert_eq!(schedule.looks, [Look { repeats: 1, error_rate: FAMILY_ERROR_RATE * 0.1 }]);
        schedule.abort(1);
        assert_eq!(schedule.looks.len(), 1, "after a look");
    }

    #[test]
    fn no_repeat_begins_that_would_end_after_the_budget() {
        let of = |minutes| {
            repeats(LookSchedule::sequential(
                2,
                UntilDecided { repeats_max: 1_000, budget: Some(MINUTE * minutes) },
            ))
        };
        assert_eq!(of(9), [2, 4, 6, 9]);
        assert_eq!(of(0), [2], "the least repeats are always made");
    }

    /// The repeats after which `a < b` had its verdict, and whether `a` was less; `None`: never.
    fn decided(random: &mut SmallRng, effect: f64, spread: f64, repeats_max: u32) -> Option<(u32, bool)> {
        let run = Normal::new(0.0, spread).unwrap();
        let mut figure = |effect: f64| {
            let time_ms = 10.0 * (effect + run.sample(random)).exp();
            Quantity::figure(time_ms, time_ms, AssumedSpread::Machine)
        };
        let mut effects = Effects::default();
        let mut schedule = LookSchedule::sequential(1, UntilDecided { repeats_max, budget: None });
        for repeat in 1..=repeats_max {
            effects.repeats.push(RepeatEffect::of(figure(effect), figure(0.0)));
            if schedule.after(repeat, Duration::ZERO) == NextAction::Repeat {
                continue;
            }
            let (estimate, alpha) = (effects.estimate(), schedule.looks.last().unwrap().error_rate);
            let below = Region { from: f64::NEG_INFINITY, to: -0.01 };
            let above = Region { from: 0.01, to: f64::INFINITY };
            for (region, is_less) in [(below, true), (above, false)] {
                if estimate.p_value_within(region) <= alpha {
                    return Some((repeat, is_less));
                }
            }
        }
        None
    }

    #[test]
    fn looks_at_equal_arms_have_few_false_verdicts() {
        let mut random = SmallRng::seed_from_u64(24);
        for (spread, repeats_max) in [(0.02, 30), (0.1, 30), (0.3, 30), (0.1, 5), (0.1, 100)] {
            let pairs = 2_000;
            let wrong =
                (0..pairs).filter(|_| decided(&mut random, 0.0, spread, repeats_max).is_some()).count();
            // 5 % and two standard errors.
            assert!(wrong * 1_000 <= pairs * 60, "spread {spread}, {repeats_max}: {wrong} of {pairs}");
        }
    }

    #[test]
    fn differences_are_found_after_few_repeats() {
        let mut random = SmallRng::seed_from_u64(25);
        // A factor of ten needs one repeat, a tenth at a spread of 5 % about eight.
        for (effect, spread, repeats_mean_max) in [(2.3, 0.2, 1.1), (0.1, 0.05, 15.0), (0.1, 0.02, 7.0)] {
            let pairs = 500;
            let found: Vec<_> = (0..pairs).filter_map(|_| decided(&mut random, effect, spread, 30)).collect();
            let right = found.iter().filter(|(_, is_less)| !is_less).count();
            assert!(right * 10 >= pairs * 9 && found.len() - right <= 5, "{effect}: {right} of {pairs}");
            let mean = found.iter().map(|(repeats, _)| f64::from(*repeats)).sum::<f64>() / found.len() as f64;
            assert!(mean <= repeats_mean_max, "effect {effect}: {mean} repeats");
        }
    }
}
