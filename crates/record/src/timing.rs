//! The times of one request.

use std::time::Duration;

use stockade_model::time::Time;

/// When a request was due, when it started and when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The start time in the schedule.
    pub scheduled: Time,
    /// The actual start time. Over HTTP: when it was handed to a ready connection, or else when it ended.
    pub started: Time,
    /// The time of the complete response, or of the failure.
    pub finished: Time,
}

impl Timing {
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
