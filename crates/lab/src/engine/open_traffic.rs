//! The traffic of an open load.

use std::time::Duration;

use stockade_cache::Invalidation;
use stockade_load::schedule::{REQUESTS_MAX, Schedule, ScheduleLimitError};

use super::documents::Popularity;

/// Requests, the behaviour of their clients, and concurrent writes.
#[derive(Clone, Debug)]
pub struct OpenTraffic {
    /// When the requests are due.
    pub schedule: Schedule,
    /// The number of keys, the first documents of the source; `None`: all.
    pub keys: Option<usize>,
    /// The distribution of requests over keys.
    pub popularity: Popularity,
    /// Loads every key once before the start, which is not counted.
    pub warm: bool,
    /// The timeout of an attempt; `None`: the end of the drain.
    pub timeout: Option<Duration>,
    pub retries: ClientRetries,
    /// The most requests in flight, and the most fetches. Requests beyond it are dropped.
    pub max_in_flight: usize,
    /// The time for answers after the end of the schedule.
    pub drain: Duration,
    pub writes: Option<Writes>,
}

/// A writer that runs during the load: it regularly writes a document to the source and then invalidates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writes {
    pub every: Duration,
    pub invalidation: Invalidation,
}

/// A client's attempts after a failure; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientRetries {
    /// The most attempts after the first.
    pub most: u32,
    /// The pause before each attempt.
    pub backoff: Duration,
}

impl OpenTraffic {
    /// The default of `max_in_flight`.
    pub const MAX_IN_FLIGHT: usize = 100_000;
    /// The default of `drain`.
    pub const DRAIN: Duration = Duration::from_secs(30);

    /// The number of writes in the schedule.
    #[must_use]
    pub fn writes_due(&self) -> u64 {
        let Some(writes) = self.writes else { return 0 };
        let due = self.schedule.duration().as_nanos() / writes.every.as_nanos().max(1);
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// Refuses a load that is too long, too large or empty.
    pub fn check(&self) -> Result<(), TrafficLimitError> {
        self.schedule.check()?;
        if self.schedule.requests().saturating_add(self.writes_due()) > REQUESTS_MAX {
            return Err(TrafficLimitError::Writes);
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrafficLimitError {
    #[error(transparent)]
    Schedule(#[from] ScheduleLimitError),
    #[error("more than 1,000,000,000 requests and writes: write a longer time between writes")]
    Writes,
    #[error("longer than 6 hours, the most of a fleet")]
    FleetTooLong,
}

impl TrafficLimitError {
    /// The message for a load that `--scale` makes invalid.
    pub(crate) fn when_scaled(self) -> String {
        match self {
            Self::Schedule(error @ ScheduleLimitError::NoRequests) => format!("so short that {error}"),
            Self::Schedule(error) => error.to_string(),
            Self::Writes => "more than 1,000,000,000 requests and writes".to_owned(),
            Self::FleetTooLong => self.to_string(),
        }
    }
}
