//! What `stockade-cache` costs, beside its peers: who takes part, and how they are measured.

pub mod clock;
pub mod contenders;
pub mod hits;
pub mod process;
pub mod stampede;
pub mod statistics;
pub mod workload;
