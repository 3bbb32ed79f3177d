//! What comes at whom an open load asks.

use std::time::Duration;

use stockade_cache::Invalidation;
use stockade_load::schedule::Schedule;

use super::documents::Popularity;

/// Requests, what their clients do, and writes beside them.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// When the requests are due.
    pub schedule: Schedule,
    /// For how many documents they are, the first ones of the source; `None`: all.
    pub keys: Option<usize>,
    /// How often for which of them.
    pub popularity: Popularity,
    /// Whether every key is loaded once before the start; that is not counted.
    pub warm: bool,
    /// When a client gives up an attempt; `None`: it waits for as long as the load is watched.
    pub timeout: Option<Duration>,
    /// What a client does about a failure.
    pub retries: Retries,
    /// How many requests may be under way at once, and how many fetches. What is due beyond that is
    /// dropped.
    pub max_in_flight: usize,
    /// How long after the end of the schedule requests may still be answered.
    pub drain: Duration,
    /// Who writes meanwhile; `None`: nobody.
    pub writes: Option<Writes>,
}

/// A writer beside the load: now and then it writes a document at the source, and then invalidates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writes {
    /// How far apart.
    pub every: Duration,
    /// What it asks of the cache.
    pub invalidation: Invalidation,
}

/// What a client does about a failure: nothing, if it is as by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retries {
    /// How many more attempts it makes.
    pub most: u32,
    /// How long it waits before each.
    pub backoff: Duration,
}

impl Traffic {
    /// Where no other number is given.
    pub const MAX_IN_FLIGHT: usize = 100_000;
    /// Where no other time is given.
    pub const DRAIN: Duration = Duration::from_secs(30);

    /// How many writes there are in all.
    #[must_use]
    pub fn writes_due(&self) -> u64 {
        let Some(writes) = self.writes else { return 0 };
        let due = self.schedule.lasts().as_nanos() / writes.every.as_nanos().max(1);
        u64::try_from(due).unwrap_or(u64::MAX)
    }
}
