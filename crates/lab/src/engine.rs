//! The engine as the target: a cache in this process, under a burst of workers or an open load.
//!
//! ```text
//! EngineTarget<Burst>    --> EngineRuntime --> gate: N lookups at one moment --> Cache       --> source
//! EngineTarget<OpenLoad> --> EngineRuntime --> requests when they are due    --> TestedCache --> source
//! ```

mod answer_audit;
#[cfg(feature = "http")]
mod app;
mod burst;
mod clock;
mod documents;
mod event;
mod fetch;
mod gate;
mod node_js_cache;
mod open;
mod open_tally;
mod open_traffic;
mod runtime;
mod shared_tier;
mod target;
mod tested_cache;

#[cfg(feature = "http")]
pub use app::{DocumentApp, DocumentError, RunningApp};
use stockade_model::outcome::Outcome;
use stockade_record::timing::Timing;

pub use burst::Burst;
pub(crate) use burst::cache;
pub use documents::{DocumentCount, DocumentCountError, Popularity};
pub use event::{EngineEvent, PurgedKeys};
pub use node_js_cache::{NodeJsTest, TtlUnit};
pub use open::OpenLoad;
pub use open_traffic::{ClientRetries, OpenTraffic, TrafficLimitError, Writes};
pub use runtime::{DocumentSet, EngineError, EngineRuntime};
pub use shared_tier::{RunTierUrl, TierSettings};
pub use target::EngineTarget;
pub use tested_cache::TestedCache;
pub use tokio_util::sync::CancellationToken;

/// One request to a cache of this process.
#[derive(Clone, Copy, Debug)]
struct LookupSample {
    timing: Timing,
    outcome: Outcome,
    /// Size of the document; 0 for an error.
    bytes: u64,
}
