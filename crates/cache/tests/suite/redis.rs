//! A shared tier on real Redis servers.

mod basics;
mod bounds;
mod cluster;
mod failures;
mod hostile;
mod invalid_data;
mod invalidation;
mod nodes;
mod outage;
mod processes;
mod without_memory;
