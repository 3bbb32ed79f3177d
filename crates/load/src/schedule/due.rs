//! When requests are due, one after the other.

use std::time::Duration;

use rand_distr::{Distribution, Exp1};
use stockade_model::seed::Rng;

use super::step::Step;

/// When each request of a [`Schedule`](super::Schedule) is due, in ascending order.
///
/// [`nth`](Iterator::nth) passes over requests without working out when they are due, so that `k` threads can
/// share a schedule: thread `j` takes `arrivals(seed).skip(j).step_by(k)`.
#[derive(Clone, Debug)]
pub struct Due<'a> {
    warmup: Walk<'a>,
    measured: Walk<'a>,
    /// How many more of those that are measured there may be.
    left: u64,
    latest: Duration,
}

impl<'a> Due<'a> {
    pub(super) fn new(warmup: Walk<'a>, measured: Walk<'a>, most: Option<u64>) -> Self {
        Self { warmup, measured, left: most.unwrap_or(u64::MAX), latest: Duration::ZERO }
    }
}

impl Iterator for Due<'_> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.nth(0)
    }

    fn nth(&mut self, n: usize) -> Option<Duration> {
        let mut over = n as u64;
        let due = match self.warmup.pass(&mut over) {
            Some(due) => due,
            None if over >= self.left => {
                self.left = 0;
                return None;
            }
            None => {
                self.left -= over + 1;
                self.measured.pass(&mut over)?
            }
        };
        // Two roots that are nearly the same may be rounded past each other.
        self.latest = self.latest.max(due);
        Some(self.latest)
    }
}

/// A walk along some steps.
#[derive(Clone, Debug)]
pub(super) struct Walk<'a> {
    /// From the one that it has come to.
    steps: &'a [Step],
    /// When that began.
    began: Duration,
    /// How many of its requests are left, if they are evenly spread, and which is next.
    left: u64,
    next: u64,
    /// How far into it the last request by chance was, as [`Step::advance`] counts it, and how far it goes.
    position: f64,
    end: f64,
    /// What is left of a gap that began in an earlier step: gaps that span two steps are drawn once, and stay
    /// exponential on either side.
    gap: Option<f64>,
    draws: Rng,
}

impl<'a> Walk<'a> {
    pub(super) fn new(steps: &'a [Step], began: Duration, draws: Rng) -> Self {
        let mut walk = Self { steps, began, left: 0, next: 0, position: 0.0, end: 0.0, gap: None, draws };
        walk.enter(steps);
        walk
    }

    /// Begins with the first of these.
    fn enter(&mut self, steps: &'a [Step]) {
        let (left, end) = steps.first().map_or((0, 0.0), |step| (step.requests(), step.end()));
        (self.steps, self.left, self.next, self.position, self.end) = (steps, left, 0, 0.0, end);
    }

    /// Passes over so many requests, and says when the one after them is due. At the end `over` is what there
    /// was nobody for.
    fn pass(&mut self, over: &mut u64) -> Option<Duration> {
        loop {
            let (step, later) = self.steps.split_first()?;
            let due = if step.is_poisson() { self.by_chance(step, over) } else { self.evenly(step, over) };
            if let Some(due) = due {
                return Some(self.began.saturating_add(due));
            }
            self.began = self.began.saturating_add(step.lasts());
            self.enter(later);
        }
    }

    fn evenly(&mut self, step: &Step, over: &mut u64) -> Option<Duration> {
        if *over >= self.left {
            *over -= self.left;
            return None;
        }
        let n = self.next + *over;
        (self.left, self.next, *over) = (self.left - *over - 1, n + 1, 0);
        Some(step.due(n))
    }

    fn by_chance(&mut self, step: &Step, over: &mut u64) -> Option<Duration> {
        loop {
            let gap = self.gap.take().unwrap_or_else(|| Exp1.sample(&mut self.draws));
            match step.advance(self.position, self.end, gap) {
                Ok(position) => self.position = position,
                Err(rest) => {
                    self.gap = Some(rest);
                    return None;
                }
            }
            if *over == 0 {
                return Some(step.reached(self.position));
            }
            *over -= 1;
        }
    }
}
