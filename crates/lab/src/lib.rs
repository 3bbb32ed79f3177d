//! Runs experiments, judges their hypotheses, and reports.
//!
//! ```text
//! experiment.toml -> spec -> run -> engine (bursts, live or virtual)
//!                             |        |
//!                             |        +-> intervals -> storage
//!                             +-> judge -> record ----> storage -> report (text, md, html, json, kazoo)
//! ```
//!
//! What was typed becomes what it means in [`spec`], before anything runs. [`engine`] measures,
//! [`judge`] is a pure function of the evidence, and every [`report`] a fold over a record that
//! [`storage`] keeps on disk. [`stampede`] is the published load test without a file.

pub mod engine;
pub mod host;
pub mod http;
pub mod judge;
pub mod metrics;
mod reference;
pub mod report;
pub mod run;
pub mod services;
pub mod spec;
pub mod stampede;
pub mod storage;
