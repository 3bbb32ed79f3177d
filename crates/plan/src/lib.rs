//! How a cache would do under recorded traffic.
//!
//! ```text
//! log or trace -> Trace (keys numbered, times from 0) -> replays of each policy, size and lifetime -> curves
//!                                                                              curves -> a recommendation
//! ```
mod assemble;
pub mod curve;
pub mod diagnosis;
pub mod exchange;
pub mod experiment;
#[cfg(test)]
mod oracles;
pub mod outlook;
pub mod peaks;
mod policy;
pub mod read;
pub mod recommend;
mod replay;
pub mod report;
pub mod routes;
mod sample;
mod scale;
pub mod strategies;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod traffic;
pub mod verify;
mod warmup;

pub use assemble::{
    LatencyOption, OVERHEAD_BYTES, PlanError, PlanOptions, RESERVED_BYTES, SizeOption, TtlOption, plan,
};
pub use policy::{POLICIES, Policy};
pub use replay::{CacheSetup, Capacity, Replay, Ttl};
pub use stockade_logs::{
    FORMATS as LOG_FORMATS, Format as LogFormat, Input as LogInput, KnownValues, LogError, LogReader,
    LogSummary,
};
pub use warmup::{CountedRequests, Warmup};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
