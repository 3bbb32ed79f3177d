//! The cache through its public API.

mod auto;
mod batches;
mod breaker_scope;
mod faults;
mod flood;
mod idle;
mod invalidation;
#[cfg(feature = "tower")]
mod layer;
mod leaders;
mod limits;
mod linearizable;
mod live;
mod loading;
mod lock_deadline;
mod many_entries;
#[cfg(feature = "metrics")]
mod metrics;
mod own_times;
mod queues;
#[cfg(feature = "redis")]
mod redis;
mod refresh;
mod removals;
mod runtimes;
mod snapshots;
mod spans;
mod strategies;
mod streaming;
mod threads;
mod updates;
mod without_tokio;
mod writes;
