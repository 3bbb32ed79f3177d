//! The types that all parts of Stockade share.
//!
//! This crate is the base of the dependency graph: the cache, the sources and the lab depend on it, and it depends on
//! no crate of the workspace. It contains data types and no decisions:
//!
//! - [`time`]: a [`Runtime`](time::Runtime) provides the time, sleeps and tasks. [`Live`](time::Live) is tokio,
//!   [`Precise`](time::Precise) is tokio with more precise sleeps, [`Virtual`](time::Virtual) is deterministic.
//! - [`seed`]: each random choice comes from a named stream of one seed.
//! - [`source`]: the origin of documents.
//! - `latency`, [`capacity`]: the service time and the concurrency of an origin.
//! - [`outcome`]: the result of a request.
//! - [`rate`]: requests per period.
//! - [`registry`]: what users choose by a name.
//! - [`telemetry`]: the declarations of metrics.
//! - [`units`], [`nearest`], [`message`]: durations and sizes with units, suggestions for misspelt names, texts of others in
//!   messages.
//! - [`private_file`]: files that only their owner can read.
//! - `proc`: processor time and memory of processes, their threads and the machine.
//!
//! No feature is on by default, because each program that embeds the cache compiles this crate: `latency` has the latencies, `precise` the
//! precise runtime, `proc` reads `/proc`, `serde` lets the types be written and read, and `suggestions` finds the known name that a misspelt one means.

#![allow(missing_docs, reason = "used by this workspace alone; a comment states what a name cannot")]

pub mod capacity;
#[cfg(feature = "latency")]
pub mod latency;
pub mod message;
pub mod nearest;
pub mod outcome;
pub mod private_file;
#[cfg(feature = "proc")]
pub mod proc;
pub mod rate;
pub mod registry;
pub mod seed;
pub mod source;
pub mod telemetry;
pub mod time;
pub mod units;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
