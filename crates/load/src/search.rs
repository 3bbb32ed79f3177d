//! Capacity: the highest rate at which some bounds hold.
//!
//! A [`Search`] says which rate to try next and is told whether the [`Bounds`] held; it knows no clock, and
//! sends nothing. It doubles the rate until it no longer holds, or the upper end is reached, and then halves
//! what is left in between until that is narrow enough.
//!
//! **Noise.** Every rate is tried several times, and holds if the bounds held in more than half of them. After a
//! rate has held no lower one is tried, and after one has not, no higher one: so what is found is never
//! contradicted by another rate. It can be contradicted by its own trials, and [`Found::unsteady`] says at which
//! rates they disagreed: where those are next to the border, the border is only as sharp as they are. An invalid
//! trial, in which the generator was the bottleneck, says nothing for the rate and counts as one that did not
//! hold; [`Found::is_of_the_generator`] says whether that is all there was against it.

mod bound;
mod metric;

use std::{fmt, time::Duration};

pub use bound::{Bound, BoundError, Bounds, Broken, Comparison, Held, Value};

use crate::schedule::Rate;

/// What is searched, and how thoroughly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The lowest rate, which is tried first. The others are whole numbers of requests in the same time: write
    /// `600/m` to look more closely than from `10/s`.
    pub from: Rate,
    /// The highest; none: as many as a rate can have.
    pub to: Option<Rate>,
    /// How often each rate is tried, from 1 to 1,000.
    pub repeats: u32,
    /// How wide what is left may be, of the rate that held: 0.05 is 5 %.
    pub precision: f64,
}

impl Settings {
    /// From so many requests on: three trials a rate, to within 5 %.
    #[must_use]
    pub const fn new(from: Rate) -> Self {
        Self { from, to: None, repeats: 3, precision: 0.05 }
    }
}

/// There is nothing to search like that.
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
    /// Not a number of trials.
    #[error("a rate is tried 1 to 1000 times, not {0}")]
    Repeats(u32),
    /// Not a share of a rate.
    #[error("a precision is above 0 and below 1, such as 0.05 for 5 %, not {0}")]
    Precision(f64),
}

/// One trial: a run at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// At this rate.
    pub rate: Rate,
    /// Which one at this rate, from 0.
    pub repeat: u32,
}

/// It was not this trial that was to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody asked for trial {} at {}", .0.repeat + 1, .0.rate)]
pub struct NotAsked(pub Trial);

/// A search under way.
///
/// ```
/// use stockade_load::search::{Held, Search, Settings};
///
/// let mut search = Search::new(Settings::new("100/s".parse()?))?;
/// while let Some(trial) = search.next() {
///     // Whoever is asked can do 850 requests a second.
///     let held = if trial.rate.per_second() <= 850.0 { Held::Yes } else { Held::No(Vec::new()) };
///     search.tell(trial, held)?;
/// }
/// let found = search.found();
/// assert_eq!(found.to_string(), "holds at 850/s, not at 875/s");
/// assert!(found.trials.len() <= search.most_trials());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    settings: Settings,
    /// The highest rate there is, in requests per time of the lowest.
    top: u32,
    /// The highest that held, and the lowest that did not.
    held: Option<u32>,
    broke: Option<u32>,
    trials: Vec<(Trial, Held)>,
    /// How many of the rate that is being tried, and in how many of them the bounds held.
    made: u32,
    yes: u32,
}

/// What a search has found so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<'a> {
    /// The highest rate that held.
    pub held: Option<Rate>,
    /// The lowest rate that did not.
    pub broke: Option<Rate>,
    /// Why there was nothing more to try.
    pub end: End,
    /// Rates at which some trials held and others did not, from the first that was tried.
    pub unsteady: Vec<Rate>,
    /// Every trial that was made, in that order.
    pub trials: &'a [(Trial, Held)],
}

/// Why a search is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is not.
    Open,
    /// What is between the two rates is narrow enough.
    Between,
    /// The highest rate held.
    Upper,
    /// The lowest rate did not hold.
    Lower,
}

impl Search {
    /// Nothing is tried yet.
    pub fn new(settings: Settings) -> Result<Self, SearchError> {
        let Settings { from, to, repeats, precision } = settings;
        let highest = u32::try_from(from.per().as_nanos()).unwrap_or(u32::MAX);
        let top = match to {
            Some(to) if from.is_above(to) => return Err(SearchError::Backwards { from, to }),
            Some(to) => u32::try_from(scaled(to, from.per())).unwrap_or(u32::MAX).min(highest),
            None => highest,
        };
        if !(1..=1_000).contains(&repeats) {
            return Err(SearchError::Repeats(repeats));
        }
        if !(precision > 0.0 && precision < 1.0) {
            return Err(SearchError::Precision(precision));
        }
        Ok(Self { settings, top, held: None, broke: None, trials: Vec::new(), made: 0, yes: 0 })
    }

    /// The trial to make now: the same until its end is told. `None`: the search is over.
    #[must_use]
    pub fn next(&self) -> Option<Trial> {
        Some(Trial { rate: self.rate(self.candidate().ok()?), repeat: self.made })
    }

    /// How the trial ended that was to be made.
    pub fn tell(&mut self, trial: Trial, held: Held) -> Result<(), NotAsked> {
        let (Some(asked), Ok(candidate)) = (self.next(), self.candidate()) else {
            return Err(NotAsked(trial));
        };
        if asked != trial {
            return Err(NotAsked(trial));
        }
        self.made += 1;
        self.yes += u32::from(held == Held::Yes);
        self.trials.push((trial, held));
        if self.made == self.settings.repeats {
            let decided = if self.yes > self.made / 2 { &mut self.held } else { &mut self.broke };
            *decided = Some(candidate);
            (self.made, self.yes) = (0, 0);
        }
        Ok(())
    }

    /// More trials than these are never made: a rate for each doubling from the lowest to the highest, one for
    /// each halving that makes a width of the whole one of `precision`, and one more, all of them `repeats` times.
    #[must_use]
    pub fn most_trials(&self) -> usize {
        let from = self.settings.from.requests();
        let mut doublings = 1;
        let mut rate = from;
        while rate < self.top {
            (rate, doublings) = (rate.saturating_mul(2), doublings + 1);
        }
        // Nothing is narrower than one request of at most 2^32.
        let halvings = (1.0 / self.settings.precision).log2().ceil().clamp(0.0, 32.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 32")]
        let halvings = halvings as usize + 1;
        (doublings + halvings) * self.settings.repeats as usize
    }

    /// What is known by now.
    #[must_use]
    pub fn found(&self) -> Found<'_> {
        let unsteady = self.trials.chunk_by(|(one, _), (other, _)| one.rate == other.rate).filter(|trials| {
            let yes = trials.iter().filter(|(_, held)| *held == Held::Yes).count();
            yes > 0 && yes < trials.len()
        });
        Found {
            held: self.held.map(|requests| self.rate(requests)),
            broke: self.broke.map(|requests| self.rate(requests)),
            end: self.candidate().err().unwrap_or(End::Open),
            unsteady: unsteady.map(|trials| trials[0].0.rate).collect(),
            trials: &self.trials,
        }
    }

    /// The rate to try, in requests per time of the lowest, or why there is none.
    fn candidate(&self) -> Result<u32, End> {
        match (self.held, self.broke) {
            (None, None) => Ok(self.settings.from.requests()),
            (None, Some(_)) => Err(End::Lower),
            (Some(held), None) if held == self.top => Err(End::Upper),
            (Some(held), None) => Ok(held.saturating_mul(2).min(self.top)),
            (Some(held), Some(broke)) => {
                let width = broke - held;
                let is_narrow = width <= 1 || f64::from(width) <= self.settings.precision * f64::from(held);
                if is_narrow { Err(End::Between) } else { Ok(held + width / 2) }
            }
        }
    }

    fn rate(&self, requests: u32) -> Rate {
        Rate::new(requests, self.settings.from.per()).unwrap_or(self.settings.from)
    }
}

/// How many whole requests of that rate come in so much time.
fn scaled(rate: Rate, per: Duration) -> u128 {
    u128::from(rate.requests()) * per.as_nanos() / rate.per().as_nanos()
}

impl Found<'_> {
    /// The trials at the lowest rate that did not hold.
    pub fn against(&self) -> impl Iterator<Item = &Held> {
        self.trials.iter().filter(|(trial, _)| Some(trial.rate) == self.broke).map(|(_, held)| held)
    }

    /// Whether the search ended where the generator could not follow: no valid trial at the lowest rate that did
    /// not hold broke a bound. What is tested may well bear more.
    #[must_use]
    pub fn is_of_the_generator(&self) -> bool {
        self.broke.is_some() && !self.against().any(|held| matches!(held, Held::No(_)))
    }
}

/// `holds at 850/s, not at 875/s`
impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.held, self.broke) {
            (Some(held), Some(broke)) => write!(f, "holds at {held}, not at {broke}")?,
            (Some(held), None) => write!(f, "holds at {held}")?,
            (None, Some(broke)) => write!(f, "does not hold at {broke}")?,
            (None, None) => f.write_str("nothing is known yet")?,
        }
        match self.end {
            End::Open | End::Between => Ok(()),
            End::Upper => f.write_str(", the highest rate that was to be tried"),
            End::Lower => f.write_str(", the lowest rate that was to be tried"),
        }
    }
}

#[cfg(test)]
mod tests;
