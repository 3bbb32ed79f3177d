//! A fleet of caching nodes in virtual time, at sizes that no full simulation reaches: thousands of nodes, a billion keys.
//!
//! ```text
//! keys -> partitions, each independent of the others -> requests -> node's memory -> shared tier -> origin
//!                                                                                 -> FleetTally: integers, which are added
//! ```
//!
//! Poisson processes add up: the requests of a partition are a Poisson process with the partition's share of the rate. Nothing else
//! connects the keys of two partitions if each node's memory is divided among them, as the shards of a real cache are. So partitions are
//! simulated one after the other, each for the whole load, and the state of one fits into the caches of a processor.

#[cfg(all(test, feature = "redis"))]
mod full;
mod keys;
mod life;
mod memory;
mod partition;
mod simulate;
mod table;
mod tally;
mod target;

use std::{fmt, time::Duration};

use stockade_load::schedule::Schedule;
use stockade_model::latency::Latency;

use crate::engine::Popularity;

/// Nodes with a cache each, in front of one origin, and their load.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The name in reports.
    pub name: String,
    /// The number of nodes.
    pub nodes: u32,
    /// The node of a request.
    pub route: Route,
    /// The cache of each node.
    pub cache: NodeCache,
    /// The tier that all nodes share.
    pub tier: Option<FleetTier>,
    /// The time of each load.
    pub origin: Latency,
    /// The number of keys.
    pub keys: u64,
    /// The distribution of requests over keys.
    pub popularity: Popularity,
    /// When requests are due: Poisson processes.
    pub schedule: Schedule,
    /// In the order of time.
    pub events: Vec<FleetEvent>,
}

/// The choice of the node for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Any node, with equal probability.
    Random,
    /// Each key has one node.
    ConsistentHash,
}

/// The axes of a strategy that a fleet simulates.
#[derive(Clone, Debug)]
pub struct NodeCache {
    /// Requests for a key that a node loads wait for that load.
    pub coalesces: bool,
    /// `None`: for ever.
    pub ttl: Option<Duration>,
    /// The share of its ttl that a value may lose at random.
    pub jitter: f64,
    /// A request after this share of the ttl starts a refresh.
    pub early: Option<f64>,
    /// How long a stale value is served while it is refreshed.
    pub swr: Duration,
    /// Entries of a node's memory, under SIEVE; `None`: no limit.
    pub entries: Option<usize>,
}

/// A store that all nodes share, without a limit.
#[derive(Clone, Debug)]
pub struct FleetTier {
    /// The time of a lookup and of a store.
    pub latency: Duration,
    /// One node loads a key, the others wait for its value.
    pub locks: bool,
}

/// Something that happens to the fleet during the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetEvent {
    /// Since the start of the load.
    pub at: Duration,
    pub kind: FleetEventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetEventKind {
    /// The shared tier loses all values.
    FlushSharedTier,
    /// All values are invalidated, on the nodes and in the shared tier.
    Purge,
    /// The nodes lose their memories, all at once.
    RestartNodes,
}

impl fmt::Display for FleetEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FlushSharedTier => "shared tier flushed",
            Self::Purge => "everything purged",
            Self::RestartNodes => "all nodes restarted",
        })
    }
}

impl Fleet {
    /// The longest load: each second of it takes some kilobytes on each thread.
    pub const DURATION_MAX: Duration = Duration::from_hours(6);
    /// The most entries of a node's limit. The entries of a partition are searched one by one, at this limit 245.
    pub const ENTRIES_MAX: usize = 1_000_000;

    /// The longest time of a request: it waits for another node's load, and looks the key up before and after that.
    #[must_use]
    pub fn longest_response(&self) -> Duration {
        let tier = self.tier.as_ref().map_or(Duration::ZERO, |tier| tier.latency * 4);
        self.origin.max().unwrap_or_default() + tier
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests;
