//! The nouns that every part of Stockade shares.
//!
//! This crate stands at the start of the one-way street: the cache, the sources and the lab import
//! it, it imports none of them. It holds what crosses their borders and nothing that decides:
//!
//! - [`time`]: a [`Runtime`](time::Runtime) tells the time, sleeps and spawns. [`Live`](time::Live)
//!   is tokio, [`Precise`](time::Precise) tokio to the microsecond; [`Virtual`](time::Virtual) runs hours in milliseconds and repeats itself to the byte.
//! - [`seed`]: every random choice is drawn from a named stream of one seed.
//! - [`source`]: where documents truly live.
//! - [`latency`], [`capacity`]: how long something takes, and how much of it can be done at once.
//! - [`outcome`], [`sample`], [`histogram`]: what happened to one request, when, and to all of them.
//! - [`record`]: what a run leaves on disk. Every report is a fold over it.
//! - [`units`], [`nearest`]: how durations are written, and what a misspelt name was meant to be.

pub mod capacity;
pub mod histogram;
pub mod latency;
pub mod nearest;
pub mod outcome;
pub mod record;
pub mod sample;
pub mod seed;
pub mod source;
pub mod time;
pub mod units;
