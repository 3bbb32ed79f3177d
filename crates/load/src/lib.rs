//! A load generator that tells the truth.
//!
//! It flows one way. A [`Plan`](plan::Plan) says when requests are due, [`Traffic`](traffic::Traffic) says what each of them
//! asks for: both are pure, so any thread knows its part. [`Load::run`](drive::Load::run) sends each when it is due, whatever
//! became of those before, on connections of its own. Every request becomes a [`Sample`](sample::Sample), with the time
//! it was due beside the time it was sent.
//!
//! Samples are counted in a [`Tally`](tally::Tally), second by second, in constant memory. What a run came to is a
//! [`Summary`](summary::Summary), with what the generator knows of itself; every [`report`] is a fold over it, or a
//! stream of samples.
//!
//! A [`Search`](search::Search) says which rate to try next for whoever wants to know how much a server can do.
//!
//! ```
//! use std::{io, net::TcpListener, sync::Arc, thread, time::Duration};
//!
//! use stockade_load::{
//!     Options,
//!     drive::{Begins, Load, Observer, Progress, Stop},
//!     plan::Plan,
//!     sample::Sample,
//!     target::{Target, read_url},
//!     traffic::Traffic,
//! };
//! use stockade_model::seed::Seed;
//!
//! /// Does not look while it goes on.
//! struct Away;
//!
//! impl Observer for Away {
//!     fn begins(&mut self, _: Begins) {}
//!     fn second(&mut self, _: &Progress<'_>) {}
//!     fn sample(&mut self, _: &Sample) -> io::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! // A server that closes every connection without a word.
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let url = format!("http://{}/news", listener.local_addr()?);
//! thread::spawn(move || listener.incoming().for_each(drop));
//!
//! let load = Load {
//!     id: "example".to_owned(),
//!     plan: Plan::constant("100/s".parse()?, Duration::from_millis(50))?,
//!     traffic: Arc::new(Traffic::one(Target::get(read_url(&url)?))),
//!     options: Options { timeout: Duration::from_secs(1), ..Options::default() },
//!     max_in_flight: 100,
//!     drain: Duration::from_secs(1),
//!     threads: 1.try_into()?,
//!     seed: Seed(1),
//!     first: 0,
//!     tells_samples: false,
//! };
//! let summary = load.run(&mut Away, &Stop::default())?.summary;
//! assert_eq!((summary.measured.requests(), summary.measured.failed()), (5, 5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
