//! Runs experiments, judges their hypotheses, and reports.
//!
//! ```text
//! experiment.toml -> spec -> run -> target (burst, open load, fleet, proxy, app, url)
//!                             |        |
//!                             |        +-> intervals -> storage
//!                             +-> judge -> record ----> storage -> report (one file per format)
//! ```
//!
//! [`spec`] parses and validates the file before anything runs. A [`target`] measures. [`judge`] is a pure
//! function of the evidence, and every [`report`] one of a record, which [`storage`] keeps on disk.
//! [`stampede`] is the published load test
//! without a file.

#![allow(
    missing_docs,
    reason = "only the program uses this crate; comments are for units, bounds and reasons"
)]

pub mod compare;
pub mod engine;
pub mod fleet;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod history;
pub mod host;
#[cfg(feature = "http")]
pub mod http;
pub mod judge;
pub mod metrics;
pub mod ratios;
mod reference;
pub mod report;
pub mod run;
pub mod services;
pub mod spec;
pub mod stampede;
mod statistics;
pub mod storage;
pub mod target;
