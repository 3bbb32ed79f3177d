//! A soak test of `stockade proxy`: hours of mixed traffic, with faults on a schedule.
//!
//! Two proxies have half of the traffic each. *Steady* lives for the whole run: its resident memory is compared between
//! the first and the last hour. *Rolled* is replaced again and again, as behind a load balancer: a new process takes the
//! new connections, the old one gets SIGTERM and completes its open requests.
//!
//! The bytes of each body are a pure function of seed, path, variant and version ([`content`]), which the `ETag` names.
//! So every received byte is compared with the expected one, ranges and unfinished bodies included. The nth request is
//! a pure function of seed and n ([`traffic`]), and so is the schedule of the faults ([`schedule`]).
//!
//! An *incident* is anything unexpected: a wrong body, a hang, a status, a closed connection ([`incident`]). A fault
//! excuses some kinds of incidents on the proxies that it concerns, from its start to the end of its recovery; all
//! others fail the run. No fault excuses a wrong body.

mod abuse;
mod child;
mod client;
mod content;
mod context;
mod exchange;
mod incident;
mod inject;
mod options;
mod origin;
mod pattern;
mod plot;
mod report;
mod run;
mod sampler;
mod schedule;
mod tally;
mod traffic;
mod verify;

pub use options::{Command, OriginOptions, RunOptions, USAGE, parse};
pub use origin::serve as serve_origin;
pub use run::run;

/// Errors of the tool itself, shown to the user.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
