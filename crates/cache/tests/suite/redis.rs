//! A shared tier on real Redis servers.

mod alone;
mod basics;
mod bounds;
mod cluster;
mod failures;
mod invalidation;
mod lies;
mod nodes;
mod outage;
mod processes;
