//! What a run was: every report is a fold over it.

use std::{
    ops::AddAssign,
    time::{Duration, SystemTime},
};

use stockade_model::time::Time;

use crate::tally::Tally;

/// A run from its start until its last request was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Tells this run from all others.
    pub id: String,
    /// What the load was, in words: `60s at 425/s`.
    pub schedule: String,
    /// The time of day at the clock's zero.
    pub clock_zero: SystemTime,
    /// When the measured part began: after the warm-up.
    pub began: Time,
    /// When its last request was due at the latest: the end of the schedule, before the drain.
    pub ended: Time,
    /// The measured part.
    pub measured: Tally,
    /// The warm-up, where there was one.
    pub warmup: Option<Tally>,
    /// The measured part, second by second.
    pub seconds: Vec<Second>,
    /// Requests that were due and never sent.
    pub dropped: u64,
    /// Requests that had waited for others under way, and were sent when the schedule was over already.
    pub sent_after_end: u64,
    /// Requests that were under way when the schedule ended.
    pub in_flight_at_end: u64,
    /// The most requests under way at once.
    pub in_flight_max: u64,
    /// Connections opened, warm-up included.
    pub connections: u64,
    /// What the load generator knows of itself.
    pub generator: Generator,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Requests sent.
    pub sent: u64,
    /// Requests that ended, whichever way.
    pub finished: u64,
    /// Those of them without an answer.
    pub failed: u64,
}

/// What the load generator knows of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generator {
    /// Cores' worth of processor time of the threads that send, while they send, on average: 1.0 is one core.
    pub cpu_mean: f64,
    /// The same in the second with the most.
    pub cpu_max: f64,
    /// Bytes of the whole process in memory, the most at the end of any second, and at the end; none: nobody knows.
    pub resident_max: Option<u64>,
    /// See [`resident_max`](Self::resident_max).
    pub resident_last: Option<u64>,
    /// The share of this machine's processor time that its host gave to others meanwhile; none: nobody knows.
    pub steal: Option<f64>,
    /// Why the run does not tell what it seems to tell; none: it is valid.
    pub reasons: Vec<String>,
}

impl AddAssign for Second {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.finished += other.finished;
        self.failed += other.failed;
    }
}

impl Generator {
    /// A [`steal`](Self::steal) above this is told: answers are slower for it.
    pub const STEAL_MAX: f64 = 0.01;

    /// Whether the run tells what it seems to tell.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.reasons.is_empty()
    }
}

impl Summary {
    /// How long requests were due: from the first to the last, as Vegeta has it.
    #[must_use]
    pub fn attack(&self) -> Duration {
        match (self.measured.earliest, self.measured.latest) {
            (Some(earliest), Some(latest)) => latest - earliest,
            _ => Duration::ZERO,
        }
    }

    /// From when the last request was due until the last one was done.
    #[must_use]
    pub fn wait(&self) -> Duration {
        match (self.measured.latest, self.measured.end) {
            (Some(latest), Some(end)) => end - latest,
            _ => Duration::ZERO,
        }
    }

    /// A moment of the run's clock as a time of day.
    #[must_use]
    pub fn time_of_day(&self, time: Time) -> SystemTime {
        self.clock_zero + time.elapsed()
    }
}
