//! One request as the load measured it.

use std::time::Duration;

use crate::{outcome::Outcome, time::Time};

/// The times, the outcome and the size of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The start time in the schedule.
    pub scheduled: Time,
    /// The actual start time.
    pub started: Time,
    /// The time of the complete response, or of the failure.
    pub finished: Time,
    pub outcome: Outcome,
    /// Size of the response body; 0 for an error.
    pub bytes: u64,
}

impl Sample {
    /// Response time: from the scheduled start to the end, so it includes the delay of a late start.
    #[must_use]
    pub fn response_time(&self) -> Duration {
        self.finished - self.scheduled
    }

    /// Service time: from the actual start to the end.
    #[must_use]
    pub fn service_time(&self) -> Duration {
        self.finished - self.started
    }

    /// Delay of the actual start after the scheduled start.
    #[must_use]
    pub fn send_lag(&self) -> Duration {
        self.started - self.scheduled
    }
}
