//! Runs experiments, judges their hypotheses, and reports.
//!
//! ```text
//! experiment.toml -> spec -> run -> target (burst, open load, fleet, proxy, app, url)
//!                             |        |
//!                             |        +-> intervals ---------+
//!                             +-> stockade_record: judge -----+-> record on disk -> reports
//! ```
//!
//! [`spec`] parses and validates the file before anything runs. A [`target`] measures. The results are in `stockade_record`.
//! [`stampede`] is the published load test without a file.

#![allow(
    missing_docs,
    reason = "only the program uses this crate; comments are for units, bounds and reasons"
)]

pub mod engine;
pub mod fleet;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod host;
#[cfg(feature = "http")]
pub mod http;
pub mod run;
pub mod services;
pub mod spec;
pub mod stampede;
pub mod target;
