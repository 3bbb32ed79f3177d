//! The iterator over due times.

use std::time::Duration;

use rand_distr::{Distribution, Exp1};
use stockade_model::seed::Rng;

use super::step::Step;

/// The due times of a [`Schedule`](super::Schedule), ascending.
///
/// [`nth`](Iterator::nth) skips requests without computing their due times, so `k` threads can share a schedule: thread
/// `j` takes `due_times(seed).skip(j).step_by(k)`.
#[derive(Clone, Debug)]
pub struct DueTimes<'a> {
    warmup: Walk<'a>,
    measured: Walk<'a>,
    /// The measured requests that remain within the limit.
    left: u64,
    latest: Duration,
}

impl<'a> DueTimes<'a> {
    pub(super) fn new(warmup: Walk<'a>, measured: Walk<'a>, requests_max: Option<u64>) -> Self {
        Self { warmup, measured, left: requests_max.unwrap_or(u64::MAX), latest: Duration::ZERO }
    }
}

impl Iterator for DueTimes<'_> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.nth(0)
    }

    fn nth(&mut self, n: usize) -> Option<Duration> {
        let mut skip = n as u64;
        let due = match self.warmup.next_after(&mut skip) {
            Some(due) => due,
            None if skip >= self.left => {
                self.left = 0;
                return None;
            }
            None => {
                self.left -= skip + 1;
                self.measured.next_after(&mut skip)?
            }
        };
        // Rounding may reverse two due times that are nearly equal.
        self.latest = self.latest.max(due);
        Some(self.latest)
    }
}

/// A position in a sequence of steps.
#[derive(Clone, Debug)]
pub(super) struct Walk<'a> {
    /// The current step and those after it.
    steps: &'a [Step],
    /// The start of the current step.
    start: Duration,
    /// Constant arrivals: the remaining requests of the step, and the index of the next one.
    left: u64,
    next: u64,
    /// Poisson arrivals: the position of the last request in the step and the end of the step, as [`Step::advance`] counts.
    position: f64,
    end: f64,
    /// The rest of a gap that started in an earlier step: a gap over several steps is drawn once, so it stays exponential.
    gap: Option<f64>,
    /// The share of the rate that Poisson arrivals have.
    share: f64,
    draws: Rng,
}

impl<'a> Walk<'a> {
    pub(super) fn new(steps: &'a [Step], start: Duration, draws: Rng) -> Self {
        let mut walk =
            Self { steps, start, left: 0, next: 0, position: 0.0, end: 0.0, gap: None, share: 1.0, draws };
        walk.enter(steps);
        walk
    }

    /// With this share of the rate, above 0.
    pub(super) fn with_share(self, share: f64) -> Self {
        Self { share, ..self }
    }

    /// Moves to the first of these steps.
    fn enter(&mut self, steps: &'a [Step]) {
        let (left, end) = steps.first().map_or((0, 0.0), |step| (step.requests(), step.end()));
        (self.steps, self.left, self.next, self.position, self.end) = (steps, left, 0, 0.0, end);
    }

    /// Skips `skip` requests, and returns the due time of the next one. At the end of the steps, `skip` is the number of
    /// requests that could not be skipped.
    fn next_after(&mut self, skip: &mut u64) -> Option<Duration> {
        loop {
            let (step, later) = self.steps.split_first()?;
            let due = if step.is_poisson() {
                self.next_poisson(step, skip)
            } else {
                self.next_constant(step, skip)
            };
            if let Some(due) = due {
                return Some(self.start.saturating_add(due));
            }
            self.start = self.start.saturating_add(step.duration());
            self.enter(later);
        }
    }

    fn next_constant(&mut self, step: &Step, skip: &mut u64) -> Option<Duration> {
        if *skip >= self.left {
            *skip -= self.left;
            return None;
        }
        let n = self.next + *skip;
        (self.left, self.next, *skip) = (self.left - *skip - 1, n + 1, 0);
        Some(step.due(n))
    }

    /// The expected requests of the whole rate until the next request.
    fn draw_gap(&mut self) -> f64 {
        let gap: f64 = Exp1.sample(&mut self.draws);
        gap / self.share
    }

    fn next_poisson(&mut self, step: &Step, skip: &mut u64) -> Option<Duration> {
        loop {
            let gap = self.gap.take().unwrap_or_else(|| self.draw_gap());
            match step.advance(self.position, self.end, gap) {
                Ok(position) => self.position = position,
                Err(rest) => {
                    self.gap = Some(rest);
                    return None;
                }
            }
            if *skip == 0 {
                return Some(step.due_at(self.position));
            }
            *skip -= 1;
        }
    }
}

/// The due times of one part of a Poisson process, ascending.
#[derive(Clone, Debug)]
pub struct ThinnedDueTimes<'a>(Walk<'a>);

impl<'a> ThinnedDueTimes<'a> {
    pub(super) fn new(walk: Walk<'a>) -> Self {
        Self(walk)
    }
}

impl Iterator for ThinnedDueTimes<'_> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next_after(&mut 0)
    }
}
