//! What was answered, route by route.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use http::StatusCode;

use crate::stages::{FAULTS, Fault};

/// The statuses that an answer can have.
const STATUSES: std::ops::RangeInclusive<u16> = 200..=599;

/// How one route's requests ended.
#[derive(Debug)]
pub struct Counts {
    statuses: [AtomicU64; 400],
    faults: [AtomicU64; FAULTS.len()],
    rejected: AtomicU64,
    abandoned: AtomicU64,
}

/// The same at some moment, without what never happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Answers by status; those of full queues among them.
    pub statuses: Vec<(u16, u64)>,
    /// What went wrong as the recipe has it, by name.
    pub faults: Vec<(&'static str, u64)>,
    /// Turned away with 503 because the queue was full.
    pub rejected: u64,
    /// Whoever asked gave up before there was an answer.
    pub abandoned: u64,
}

/// How many there are at once.
#[derive(Debug, Default)]
pub struct Gauge {
    now: AtomicU64,
    max: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        let none = || AtomicU64::new(0);
        Self {
            statuses: array::from_fn(|_| none()),
            faults: array::from_fn(|_| none()),
            rejected: none(),
            abandoned: none(),
        }
    }
}

impl Counts {
    /// It was answered so.
    pub fn answered(&self, status: StatusCode) {
        let at = status.as_u16().checked_sub(*STATUSES.start()).map(usize::from);
        if let Some(count) = at.and_then(|at| self.statuses.get(at)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// It went wrong so.
    pub fn failed(&self, fault: Fault) {
        if let Some(at) = FAULTS.iter().position(|(_, known)| *known == fault) {
            self.faults[at].fetch_add(1, Relaxed);
        }
    }

    /// The queue was full.
    pub fn rejected(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    /// Whoever asked gave up.
    pub fn abandoned(&self) {
        self.abandoned.fetch_add(1, Relaxed);
    }

    /// What there is now.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let some = |count: &AtomicU64| Some(count.load(Relaxed)).filter(|count| *count > 0);
        let statuses = STATUSES.zip(&self.statuses).filter_map(|(code, count)| Some((code, some(count)?)));
        let faults =
            FAULTS.iter().zip(&self.faults).filter_map(|((name, _), count)| Some((*name, some(count)?)));
        Counted {
            statuses: statuses.collect(),
            faults: faults.collect(),
            rejected: self.rejected.load(Relaxed),
            abandoned: self.abandoned.load(Relaxed),
        }
    }

    /// From none on again.
    pub fn clear(&self) {
        for count in self.statuses.iter().chain(&self.faults).chain([&self.rejected, &self.abandoned]) {
            count.store(0, Relaxed);
        }
    }
}

impl Counted {
    /// How many requests there were, whatever became of them, but for those that were given up.
    #[must_use]
    pub fn total(&self) -> u64 {
        let statuses = self.statuses.iter().map(|(_, count)| count);
        statuses.chain(self.faults.iter().map(|(_, count)| count)).sum()
    }
}

impl Gauge {
    /// One more, until it leaves.
    pub fn join(&self) {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        // Only read, most often: a write would take the line away from the other cores.
        if now > self.max.load(Relaxed) {
            self.max.fetch_max(now, Relaxed);
        }
    }

    /// One less.
    pub fn leave(&self) {
        self.now.fetch_sub(1, Relaxed);
    }

    /// How many there are.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// The most that there were since it was cleared.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// The most from now on.
    pub fn clear(&self) {
        self.max.store(self.now(), Relaxed);
    }
}
