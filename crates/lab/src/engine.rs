//! The engine as the target: a cache in this process, under a burst of workers or an open load.

mod app;
mod audit;
mod burst;
mod documents;
mod gate;
mod node_test;
mod open;
mod shared;
mod since;
mod tally;
mod target;
mod traffic;
mod world;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub use app::{App, Counted, NoDocument, Serving};
pub use burst::Burst;
pub(crate) use burst::cache;
pub use documents::{Docs, DocsError, Popularity};
pub use node_test::{NodeTest, Unit};
pub use open::Open;
pub use shared::{SharedTier, TierUrl};
pub use stockade_load::drive::Stop;
use stockade_model::{
    outcome::Outcomes,
    record::{self, Times},
};
pub use target::Target;
pub use traffic::{Retries, Traffic, Writes};
pub use world::{EngineError, Library, World};

/// What an arm has to bear.
#[derive(Clone, Debug)]
pub enum Load {
    /// Everyone at once.
    Burst(Burst),
    /// Everyone when they are due.
    Open(Open),
}

/// What became of a load.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What only such a load has.
    pub load: record::Load,
    /// The sum of the answered workers' whole milliseconds: the published report of a burst truncates
    /// before it adds.
    pub whole_ms_sum: Option<u64>,
    /// How the requests were answered.
    pub outcomes: Outcomes,
    /// Bytes of all answers.
    pub bytes_in: u64,
    /// Service times of all requests, failed ones too, added up.
    pub service_sum: Duration,
    /// What the cache did.
    pub did: Did,
    /// What it held.
    pub cache: record::CacheFigures,
    /// What the failed were told.
    pub errors: BTreeMap<String, u64>,
    /// What it has besides if it went over HTTP.
    pub http: Option<record::HttpFigures>,
}

/// What a cache did while it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// Waits for another caller's load.
    pub waiters: u64,
    /// Stores that the load waited for.
    pub stores_sync: u64,
    /// Stores that nobody waited for.
    pub stores_async: u64,
    /// Stores left to another load that had claimed the same version.
    pub stores_skipped: u64,
    /// Stores lost to a full mailbox.
    pub stores_dropped: u64,
    /// Refill episodes.
    pub episodes: u64,
}

/// The requests that finished in one second of a load.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// Seconds since the start.
    pub second: u64,
    /// How they were answered.
    pub outcomes: Outcomes,
    /// How long they took.
    pub times: Times,
    /// What else happened in it, under an open load.
    pub open: Option<OpenSecond>,
    /// What processes used, where all parts are some.
    pub usage: BTreeMap<record::Role, record::Usage>,
    /// What the cache held, where it is one of them.
    pub holds: Option<record::Holds>,
}

impl Second {
    /// Whether nothing happened in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outcomes.requests() == 0 && self.open.is_none_or(|open| open == OpenSecond::default())
    }
}

/// What an open load counts in a second besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenSecond {
    /// Fetches at the source's door.
    pub source_loads: u64,
    /// Attempts after a request's first.
    pub retries: u64,
    /// Requests that were not sent.
    pub dropped: u64,
    /// The age of the oldest answer.
    pub age_max: Option<Duration>,
}

/// A document that was drawn is gone. Its request fails, as the published test's crash on `not_found`.
#[derive(Debug, thiserror::Error)]
#[error("the source has no document `{0}` any more")]
struct NotFound(Arc<str>);
