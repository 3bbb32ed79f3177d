//! Events of an open load of the engine: purges.

use std::{fmt, time::Duration};

use stockade_cache::Invalidation;

/// A purge and its time since the start of the load: the documents change at the source, and then their keys are invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineEvent {
    pub at: Duration,
    pub purge: PurgedKeys,
    pub invalidation: Invalidation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgedKeys {
    All,
    /// From 0. Under Zipf's law this is the order of popularity.
    One(usize),
}

/// As in the experiment.
impl fmt::Display for EngineEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.purge {
            PurgedKeys::All => f.write_str("purge *")?,
            PurgedKeys::One(key) => write!(f, "purge key {}", key + 1)?,
        }
        if self.invalidation == Invalidation::Soft { f.write_str(", soft") } else { Ok(()) }
    }
}
