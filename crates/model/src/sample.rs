//! One request as the load saw it.

use std::time::Duration;

use crate::{outcome::Outcome, time::Time};

/// One request: when it was due, when it began, when it ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When the schedule wanted it to start.
    pub scheduled: Time,
    /// When it did start.
    pub started: Time,
    /// When its answer, or its failure, was complete.
    pub finished: Time,
    /// What the cache did.
    pub outcome: Outcome,
    /// Size of the answer's body; 0 for an error.
    pub bytes: u64,
}

impl Sample {
    /// What the user waited, counted from when the request was due.
    #[must_use]
    pub fn response_time(&self) -> Duration {
        self.finished - self.scheduled
    }

    /// What the request took once it was under way.
    #[must_use]
    pub fn service_time(&self) -> Duration {
        self.finished - self.started
    }

    /// How late the load was in starting it.
    #[must_use]
    pub fn send_lag(&self) -> Duration {
        self.started - self.scheduled
    }
}
