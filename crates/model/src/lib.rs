//! The types that all parts of Stockade share.
//!
//! This crate is the base of the dependency graph: the cache, the sources and the lab depend on it, and it depends on
//! none of them. It contains data types and no decisions:
//!
//! - [`time`]: a [`Runtime`](time::Runtime) provides the time, sleeps and tasks. [`Live`](time::Live) is tokio,
//!   [`Precise`](time::Precise) is tokio with more precise sleeps, [`Virtual`](time::Virtual) is deterministic.
//! - [`seed`]: each random choice comes from a named stream of one seed.
//! - [`source`]: the origin of documents.
//! - [`latency`], [`capacity`]: the service time and the concurrency of an origin.
//! - [`outcome`], [`timing`], [`histogram`]: the result of a request, its times, and their distribution.
//! - [`record`]: the files of a run. Each report is a fold over them.
//! - [`rate`]: requests per period.
//! - [`page`]: the style and the plots of HTML pages.
//! - [`units`], [`nearest`], [`message`]: durations and sizes with units, suggestions for misspelt names, texts of others in
//!   messages.
//! - [`private_file`]: files that only their owner can read.

#![allow(missing_docs, reason = "used by this workspace alone; a comment states what a name cannot")]

pub mod capacity;
pub mod histogram;
pub mod latency;
pub mod message;
pub mod nearest;
pub mod outcome;
pub mod page;
pub mod private_file;
pub mod rate;
pub mod record;
pub mod seed;
pub mod server;
pub mod source;
pub mod telemetry;
pub mod time;
pub mod timing;
pub mod units;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
