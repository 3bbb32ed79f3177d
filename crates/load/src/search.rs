//! A search for capacity: the highest rate at which some claims hold.
//!
//! A [`Search`] proposes the next trial and records whether the claims held; it has no clock and sends nothing. It
//! doubles the rate until the claims do not hold, or the upper end is reached, and then halves the interval in between
//! until that is narrow enough.
//!
//! **Noise.** Every rate is tried several times, and passes if the claims held in more than half of its trials. No lower
//! rate is tried after one that passed, and no higher one after one that failed, so no two rates contradict each other.
//! Trials of one rate can: [`SearchResult::unsteady`] lists the rates where they do, and next to the limit they show how
//! sharp it is. An invalid trial, in which the generator was the bottleneck, counts as failed;
//! [`SearchResult::is_generator_limited`] is true if only such trials failed.

use std::{fmt, time::Duration};

use crate::schedule::Rate;

/// The range and the precision of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchOptions {
    /// The lowest rate, tried first. All others are whole numbers of requests in the same period: `600/m` gives finer
    /// steps than `10/s`.
    pub from: Rate,
    /// The highest rate; none: the highest that a [`Rate`] can have.
    pub to: Option<Rate>,
    /// The trials of each rate, from 1 to 1,000.
    pub repeats: u32,
    /// The width of the final interval, relative to its lower end: 0.05 is 5 %.
    pub precision: f64,
}

impl SearchOptions {
    /// Three trials per rate, and a precision of 5 %.
    #[must_use]
    pub const fn new(from: Rate) -> Self {
        Self { from, to: None, repeats: 3, precision: 0.05 }
    }
}

/// Why a search cannot start.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SearchError {
    /// The upper end is below the lower one.
    #[error("there is no rate from {from} to {to}: write the lower one first")]
    Backwards {
        /// The lower end.
        from: Rate,
        /// The upper end.
        to: Rate,
    },
    /// The number of trials is out of range.
    #[error("a rate is tried 1 to 1000 times, not {0}")]
    Repeats(u32),
    /// The precision is out of range.
    #[error("a precision is above 0 and below 1, such as 0.05 for 5 %, not {0}")]
    Precision(f64),
}

/// One trial: a run at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The rate.
    pub rate: Rate,
    /// The index among the trials of this rate, from 0.
    pub repeat: u32,
}

/// The verdict of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum TrialVerdict {
    /// Every claim was supported.
    Held,
    /// These claims did not hold, with their figures.
    Failed(Vec<String>),
    /// The run is invalid for these reasons.
    Invalid(Vec<String>),
}

/// `p99 < 50ms: it was 73ms; failed == 0: it was 3`
impl fmt::Display for TrialVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::Failed(claims) => f.write_str(&claims.join("; ")),
            Self::Invalid(reasons) => write!(f, "invalid: {}", reasons.join("; ")),
        }
    }
}

/// The recorded trial is not [`Search::next_trial`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected trial {} at {}", .0.repeat + 1, .0.rate)]
pub struct UnexpectedTrial(pub Trial);

/// A search in progress.
///
/// ```
/// use stockade_load::search::{TrialVerdict, Search, SearchOptions};
///
/// let mut search = Search::new(SearchOptions::new("100/s".parse()?))?;
/// while let Some(trial) = search.next_trial() {
///     // A server that sustains 850 requests a second.
///     let held = if trial.rate.per_second() <= 850.0 { TrialVerdict::Held } else { TrialVerdict::Failed(Vec::new()) };
///     search.record(trial, held)?;
/// }
/// let found = search.result();
/// assert_eq!(found.to_string(), "holds at 850/s, not at 875/s");
/// assert!(found.trials.len() <= search.trials_max());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    options: SearchOptions,
    /// Rates are in requests per period of the lowest rate.
    rate_max: u32,
    highest_passed: Option<u32>,
    lowest_failed: Option<u32>,
    trials: Vec<(Trial, TrialVerdict)>,
    /// The trials made at the current rate.
    made: u32,
    /// Trials in which the claims held.
    held: u32,
}

/// The result of a search so far.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResult<'a> {
    /// The highest rate that passed.
    pub highest_passed: Option<Rate>,
    /// The lowest rate that failed.
    pub lowest_failed: Option<Rate>,
    /// The reason why the search is over, if it is.
    pub status: SearchStatus,
    /// Rates with both held and failed trials, in the order of trials.
    pub unsteady: Vec<Rate>,
    /// All trials, in order.
    pub trials: &'a [(Trial, TrialVerdict)],
}

/// The state of a search: running, or the reason of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchStatus {
    /// There is a next trial.
    Running,
    /// The interval is narrow enough.
    Converged,
    /// The highest rate of the range passed.
    HighestPassed,
    /// The lowest rate of the range failed.
    LowestFailed,
}

impl Search {
    /// A search without trials.
    pub fn new(options: SearchOptions) -> Result<Self, SearchError> {
        let SearchOptions { from, to, repeats, precision } = options;
        let highest = u32::try_from(from.per().as_nanos()).unwrap_or(u32::MAX);
        let rate_max = match to {
            Some(to) if from.is_above(to) => return Err(SearchError::Backwards { from, to }),
            Some(to) => u32::try_from(requests_in(to, from.per())).unwrap_or(u32::MAX).min(highest),
            None => highest,
        };
        if !(1..=1_000).contains(&repeats) {
            return Err(SearchError::Repeats(repeats));
        }
        if !(precision > 0.0 && precision < 1.0) {
            return Err(SearchError::Precision(precision));
        }
        Ok(Self {
            options,
            rate_max,
            highest_passed: None,
            lowest_failed: None,
            trials: Vec::new(),
            made: 0,
            held: 0,
        })
    }

    /// The next trial: the same until it is recorded. `None` when the search is over.
    #[must_use]
    pub fn next_trial(&self) -> Option<Trial> {
        Some(Trial { rate: self.rate(self.candidate().ok()?), repeat: self.made })
    }

    /// Records the verdict of [`next_trial`](Self::next_trial).
    pub fn record(&mut self, trial: Trial, verdict: TrialVerdict) -> Result<(), UnexpectedTrial> {
        let (Some(expected), Ok(candidate)) = (self.next_trial(), self.candidate()) else {
            return Err(UnexpectedTrial(trial));
        };
        if expected != trial {
            return Err(UnexpectedTrial(trial));
        }
        self.made += 1;
        self.held += u32::from(verdict == TrialVerdict::Held);
        self.trials.push((trial, verdict));
        if self.made == self.options.repeats {
            let passed = self.held > self.made / 2;
            *(if passed { &mut self.highest_passed } else { &mut self.lowest_failed }) = Some(candidate);
            (self.made, self.held) = (0, 0);
        }
        Ok(())
    }

    /// An upper bound on the number of trials: a rate per doubling from the lowest to the highest, one per halving down
    /// to `precision`, and one more, each with `repeats` trials.
    #[must_use]
    pub fn trials_max(&self) -> usize {
        let from = self.options.from.requests();
        let mut doublings = 1;
        let mut rate = from;
        while rate < self.rate_max {
            (rate, doublings) = (rate.saturating_mul(2), doublings + 1);
        }
        // No interval of at most 2^32 requests takes more halvings.
        let halvings = (1.0 / self.options.precision).log2().ceil().clamp(0.0, 32.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 32")]
        let halvings = halvings as usize + 1;
        (doublings + halvings) * self.options.repeats as usize
    }

    /// The result so far.
    #[must_use]
    pub fn result(&self) -> SearchResult<'_> {
        let unsteady = self.trials.chunk_by(|(one, _), (other, _)| one.rate == other.rate).filter(|trials| {
            let held = trials.iter().filter(|(_, verdict)| *verdict == TrialVerdict::Held).count();
            held > 0 && held < trials.len()
        });
        SearchResult {
            highest_passed: self.highest_passed.map(|requests| self.rate(requests)),
            lowest_failed: self.lowest_failed.map(|requests| self.rate(requests)),
            status: self.candidate().err().unwrap_or(SearchStatus::Running),
            unsteady: unsteady.map(|trials| trials[0].0.rate).collect(),
            trials: &self.trials,
        }
    }

    /// The next rate, or the reason why the search has ended.
    fn candidate(&self) -> Result<u32, SearchStatus> {
        match (self.highest_passed, self.lowest_failed) {
            (None, None) => Ok(self.options.from.requests()),
            (None, Some(_)) => Err(SearchStatus::LowestFailed),
            (Some(passed), None) if passed == self.rate_max => Err(SearchStatus::HighestPassed),
            (Some(passed), None) => Ok(passed.saturating_mul(2).min(self.rate_max)),
            (Some(passed), Some(failed)) => {
                let width = failed - passed;
                let is_narrow = width <= 1 || f64::from(width) <= self.options.precision * f64::from(passed);
                if is_narrow { Err(SearchStatus::Converged) } else { Ok(passed + width / 2) }
            }
        }
    }

    fn rate(&self, requests: u32) -> Rate {
        Rate::new(requests, self.options.from.per()).unwrap_or(self.options.from)
    }
}

/// Whole requests of a rate in this time.
fn requests_in(rate: Rate, per: Duration) -> u128 {
    u128::from(rate.requests()) * per.as_nanos() / rate.per().as_nanos()
}

impl SearchResult<'_> {
    /// The verdicts at the lowest rate that failed.
    pub fn failed_trials(&self) -> impl Iterator<Item = &TrialVerdict> {
        self.trials
            .iter()
            .filter(|(trial, _)| Some(trial.rate) == self.lowest_failed)
            .map(|(_, verdict)| verdict)
    }

    /// True if the generator was the limit: no valid trial at the lowest failed rate refuted a claim. The tested system
    /// may sustain more.
    #[must_use]
    pub fn is_generator_limited(&self) -> bool {
        self.lowest_failed.is_some()
            && !self.failed_trials().any(|verdict| matches!(verdict, TrialVerdict::Failed(_)))
    }
}

/// `holds at 850/s, not at 875/s`
impl fmt::Display for SearchResult<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.highest_passed, self.lowest_failed) {
            (Some(passed), Some(failed)) => write!(f, "holds at {passed}, not at {failed}")?,
            (Some(passed), None) => write!(f, "holds at {passed}")?,
            (None, Some(failed)) => write!(f, "does not hold at {failed}")?,
            (None, None) => f.write_str("no rate has been tried")?,
        }
        match self.status {
            SearchStatus::Running | SearchStatus::Converged => Ok(()),
            SearchStatus::HighestPassed => f.write_str(", the highest rate of the search"),
            SearchStatus::LowestFailed => f.write_str(", the lowest rate of the search"),
        }
    }
}

#[cfg(test)]
mod tests;
