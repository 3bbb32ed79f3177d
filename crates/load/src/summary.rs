//! The summary of a run, from which reports are rendered.

use std::{
    ops::AddAssign,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use stockade_model::time::Time;
use stockade_record::record::AgentFigures;

use crate::tally::Tally;

/// A run from its start to the end of its last request.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The unique id of the run.
    pub id: String,
    /// The plan as text: `60s at 425/s`.
    pub schedule: String,
    /// The time of day at the clock's zero.
    pub clock_zero: SystemTime,
    /// The start of the measured part: the end of the warm-up.
    pub measured_from: Time,
    /// The end of the plan, before the drain.
    pub schedule_end: Time,
    /// The measured part.
    pub measured: Tally,
    /// The warm-up, if there was one.
    pub warmup: Option<Tally>,
    /// The measured part, second by second.
    pub seconds: Vec<SecondCounts>,
    /// Requests that were due and never sent.
    pub dropped: u64,
    /// Requests that were due while the limit of requests in flight was reached, and waited.
    pub held_back: u64,
    /// Those of them that were sent after the end of the plan.
    pub sent_after_end: u64,
    /// Requests in flight at the end of the plan.
    pub in_flight_at_end: u64,
    /// The most requests in flight at once.
    pub in_flight_max: u64,
    /// Connections opened, warm-up included.
    pub connections: u64,
    /// The measurements of the load generator.
    pub generator: GeneratorHealth,
    /// The generators on other machines; none if this process has sent the load.
    pub agents: Vec<AgentFigures>,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondCounts {
    /// Requests sent.
    pub sent: u64,
    /// Requests that ended.
    pub finished: u64,
    /// Finished requests that failed: without a response, or with a status other than 200 to 399.
    pub failed: u64,
}

/// The measurements of the load generator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorHealth {
    /// The mean processor time of the sending threads while they send; 1.0 is one core.
    pub cpu_mean: f64,
    /// The same in the busiest second.
    pub cpu_max: f64,
    /// The processor time of the sending threads.
    pub cpu_total: Duration,
    /// The most resident bytes of the process at the end of a second, if known.
    pub resident_bytes_max: Option<u64>,
    /// The resident bytes at the end of the run, if known.
    pub resident_bytes_last: Option<u64>,
    /// The share of processor time that the host gave to other machines (steal), if known.
    pub steal: Option<f64>,
    /// The one of `invalid_reasons` that says how late the generator was. Without lateness a response time lies between
    /// the service time and the measured one.
    pub late: Option<String>,
    /// The one of `invalid_reasons` that says how many requests waited for the limit of those in flight, or were never sent: less
    /// load was sent than asked for, later.
    pub in_flight_limit: Option<String>,
    /// True if a part of the load or of its record is missing: then no figure is that of the load.
    pub is_incomplete: bool,
    /// Why the run is invalid; empty if it is valid.
    pub invalid_reasons: Vec<String>,
    /// The number of reasons at the start of `invalid_reasons` that concern times only: a late generator changes no counts.
    pub time_reason_count: usize,
}

impl AddAssign for SecondCounts {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.finished += other.finished;
        self.failed += other.failed;
    }
}

impl GeneratorHealth {
    /// True if there is no reason against the run.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.invalid_reasons.is_empty()
    }
}

impl Summary {
    /// The summary of these requests, in which nothing else is known.
    #[must_use]
    pub fn of(measured: Tally) -> Self {
        Self {
            id: String::new(),
            schedule: String::new(),
            clock_zero: SystemTime::UNIX_EPOCH,
            measured_from: Time::ZERO,
            schedule_end: Time::ZERO,
            measured,
            warmup: None,
            seconds: Vec::new(),
            dropped: 0,
            held_back: 0,
            sent_after_end: 0,
            in_flight_at_end: 0,
            in_flight_max: 0,
            connections: 0,
            generator: GeneratorHealth::default(),
            agents: Vec::new(),
        }
    }

    /// True if the run is invalid for another reason than the limit of requests in flight.
    #[must_use]
    pub fn is_generator_limited(&self) -> bool {
        self.generator.invalid_reasons.len() > usize::from(self.generator.in_flight_limit.is_some())
    }

    /// From the first to the last due time, as in Vegeta.
    #[must_use]
    pub fn attack_duration(&self) -> Duration {
        match (self.measured.earliest, self.measured.latest) {
            (Some(earliest), Some(latest)) => latest - earliest,
            _ => Duration::ZERO,
        }
    }

    /// From the last due time to the end of the last request.
    #[must_use]
    pub fn wait_duration(&self) -> Duration {
        match (self.measured.latest, self.measured.end) {
            (Some(latest), Some(end)) => end - latest,
            _ => Duration::ZERO,
        }
    }

    /// Requests sent within the schedule, per second; none if all were due at once.
    #[must_use]
    pub fn achieved_rate(&self) -> Option<f64> {
        let lasted = (self.schedule_end - self.measured_from).as_secs_f64();
        let in_time = self.measured.requests().saturating_sub(self.sent_after_end);
        (lasted > 0.0).then(|| in_time as f64 / lasted)
    }

    /// A time of the run's clock as a time of day.
    #[must_use]
    pub fn time_of_day(&self, time: Time) -> SystemTime {
        self.clock_zero + time.elapsed()
    }
}
