//! A load generator that tells the truth.
//!
//! It flows one way: a [`Schedule`](schedule::Schedule) says when requests are due, [`Traffic`](traffic::Traffic) says
//! what each of them asks for; both are pure. Every request becomes a [`Sample`](sample::Sample), with the time
//! it was due beside the time it was sent; samples are counted in a [`Tally`](tally::Tally), and a
//! [`Summary`](summary::Summary) is what every report folds.

mod alarm;
mod body;
mod client;
mod connect;
pub mod drive;
mod endpoint;
mod follow;
mod http1;
mod http2;
pub mod outcome;
pub mod plan;
pub mod report;
mod retry;
pub mod sample;
pub mod schedule;
pub mod search;
pub mod summary;
pub mod tally;
pub mod target;
pub mod targets;
mod tls;
pub mod traffic;
mod watch;

pub use body::Digest;
pub use client::Options;
pub use endpoint::Endpoint;
pub use retry::Retries;
pub use tls::{Trust, TrustError};
