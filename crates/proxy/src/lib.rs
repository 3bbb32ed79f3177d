//! A tier-1 HTTP cache: the engine in front of any origin.
//!
//! ```text
//! frontend --- a connection, its bounds and timeouts ------> Request
//!   serve ---- policy: may a stored answer do? ------------> Cache (stockade_cache)
//!              nothing does: a load ----------------------> upstream (or a source of documents)
//!              policy: may it be stored, for how long? ----> Stored
//!   <--------- Response, its body whole or still arriving
//! ```
//!
//! What HTTP says is decided by pure functions in [`policy`]; [`frontend`] and [`upstream`] know bytes and clocks and
//! nothing about caching; [`serve`] is where they meet.
#![allow(
    missing_docs,
    reason = "the crate is used inside this workspace only; a comment states what a name cannot"
)]

pub mod admin;
pub mod config;
pub mod documents;
pub mod frontend;
pub mod log;
pub mod policy;
pub mod serve;
pub mod server;
pub mod upstream;
