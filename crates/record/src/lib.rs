//! The results of a run or a load: records, histograms, and the figures that are exported.
//!
//! The load generator, the lab, the planner, the agents and the servers measure with these types; reports and exporters are folds
//! over them. This crate is above [`stockade_model`], and the cache does not need it: it has the dependencies that results need.
//!
//! - [`timing`], [`histogram`]: the times of a request, and the distribution of many.
//! - [`record`]: the files of a run; [`storage`] keeps them on disk. Each [`report`] is a fold over them.
//! - [`metrics`]: the registry of figures, and how seconds become figures.
//! - [`judge`]: verdicts on claims, a pure function of the figures; [`ratios`]: those of another program.
//! - [`compare`], [`history`]: two records, and many.
//! - [`progress`]: a run in progress.
//! - [`server`]: the servers that a run starts, and where; [`statement`]: what an origin states about its responses.
//! - [`telemetry`]: the figures of a run, and of a server, in the formats of other systems.
//! - [`page`]: the style and the plots of HTML pages.

#![allow(missing_docs, reason = "used by this workspace alone; a comment states what a name cannot")]

pub mod clock;
pub mod compare;
pub mod histogram;
pub mod history;
pub mod judge;
pub mod metrics;
pub mod page;
pub mod progress;
pub mod ratios;
pub mod record;
mod reference;
pub mod report;
pub mod server;
pub mod statement;
pub mod statistics;
pub mod storage;
pub mod telemetry;
pub mod timing;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
