//! Benchmarks of Stockade's parts and of comparable programs.

pub mod cache_soak;
pub mod clock;
pub mod command;
pub mod contenders;
pub mod differential;
pub mod generators;
pub mod herd;
pub mod hits;
pub mod hostile;
pub mod known_times;
pub mod misses;
pub mod origin;
pub mod process;
pub mod proxies;
pub mod responder;
pub mod samples;
pub mod scenarios;
pub mod soak;
pub mod stampede;
pub mod statistics;
pub mod suite;
pub mod verdicts;
pub mod workload;
