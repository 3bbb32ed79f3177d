//! A tier-1 HTTP cache: the engine in front of any origin.
//!
//! ```text
//! frontend --- a connection, its bounds and timeouts ------> Request
//!   serve ---- policy: may a stored response answer it? ---> Cache (stockade_cache)
//!              none may: a load --------------------------> upstream (or a source of documents)
//!              policy: may it be stored, for how long? ----> Stored
//!   <--------- Response, its body complete or streaming
//! ```
//!
//! Pure functions in [`policy`] apply the rules of HTTP; [`frontend`](stockade_http::frontend) and
//! [`upstream`](stockade_http::upstream) handle bytes and clocks and know
//! nothing about caching; [`serve`] connects them.
#![allow(
    missing_docs,
    reason = "the crate is used inside this workspace only; a comment states what a name cannot"
)]

pub mod admin;
pub mod check;
pub mod config;
pub mod documents;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod health_watch;
pub mod log;
mod memory;
pub mod policy;
pub mod serve;
pub mod server;
pub mod snapshot;
