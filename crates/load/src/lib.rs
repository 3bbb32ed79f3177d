//! A load generator: open and closed loops over HTTP/1.1 and HTTP/2, in constant memory.
//!
//! ```text
//! Plan (when) + Traffic (what) -> LoadTest::run -> Sample -> Tally -> Summary -> report
//! ```
//!
//! - [`Plan`](plan::Plan) states when requests are due, [`Traffic`](traffic::Traffic) what the `n`th request is. Both are
//!   pure functions of `n` and a seed, so each thread computes its own part.
//! - [`LoadTest::run`](generator::LoadTest::run) sends every request at its due time, also while earlier ones wait for their
//!   responses. A [`Sample`](sample::Sample) holds the due time and the time of sending: response times count from
//!   the due time, which avoids coordinated omission.
//! - [`Tally`](tally::Tally) counts samples in HDR histograms, a second at a time. [`Summary`](summary::Summary) adds what
//!   the generator measured of itself, and whether the run is valid.
//! - [`report`] renders a summary, or encodes samples while the run continues.
//! - [`Search`](search::Search) finds the highest rate at which claims such as `p99 < 50ms` hold;
//!   [`Summary::judge`](summary::Summary::judge) has the verdicts on one load.
//!
//! ```
//! use std::{io, net::TcpListener, num::NonZeroUsize, sync::Arc, thread, time::Duration};
//!
//! use stockade_load::{
//!     ClientOptions,
//!     generator::{CancellationToken, LoadProgress, LoadStart, LoadTest, Observer, Share},
//!     plan::Plan,
//!     sample::Sample,
//!     template::RequestTemplate,
//!     traffic::Traffic,
//!     url::parse_url,
//! };
//! use stockade_model::seed::Seed;
//!
//! /// Ignores all events.
//! struct Silent;
//!
//! impl Observer for Silent {
//!     fn on_start(&mut self, _: LoadStart) {}
//!     fn on_second(&mut self, _: &LoadProgress<'_>) {}
//!     fn on_sample(&mut self, _: &Sample) -> io::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! // A server that closes every connection without a response.
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let url = format!("http://{}/news", listener.local_addr()?);
//! thread::spawn(move || listener.incoming().for_each(drop));
//!
//! let load = LoadTest {
//!     id: "example".to_owned(),
//!     plan: Plan::constant("100/s".parse()?, Duration::from_millis(50))?,
//!     traffic: Arc::new(Traffic::single_unchecked(RequestTemplate::get(parse_url(&url)?))),
//!     options: ClientOptions { timeout: Duration::from_secs(1), ..ClientOptions::default() },
//!     max_in_flight: Some(100),
//!     drain: Duration::from_secs(1),
//!     threads: NonZeroUsize::new(1),
//!     seed: Seed(1),
//!     first_request: 0,
//!     share: Share::WHOLE,
//!     observes_samples: false,
//! };
//! let summary = load.run(&mut Silent, &CancellationToken::new())?.summary;
//! assert_eq!((summary.measured.requests(), summary.measured.failed()), (5, 5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "http")]
mod address_rules;
#[cfg(feature = "http")]
mod allowed;
#[cfg(feature = "http")]
mod bundle;
#[cfg(feature = "http")]
mod claims;
#[cfg(feature = "http")]
mod client;
#[cfg(feature = "http")]
mod endpoint;
#[cfg(feature = "http")]
mod follow;
#[cfg(all(feature = "http", any(test, fuzzing)))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "http")]
pub mod generator;
pub mod keys;
pub mod plan;
#[cfg(feature = "http")]
mod record;
pub mod report;
mod retry;
pub mod sample;
pub mod schedule;
pub mod search;
#[cfg(feature = "http")]
pub mod settings;
pub mod summary;
pub mod tally;
#[cfg(feature = "http")]
pub mod targets;
#[cfg(feature = "http")]
pub mod template;
#[cfg(feature = "http")]
mod tls;
#[cfg(feature = "http")]
pub mod traffic;
pub mod truth;
#[cfg(feature = "http")]
pub mod url;

#[cfg(feature = "http")]
pub use address_rules::{AddressRuleError, ConnectToRule, ResolveRule};
#[cfg(feature = "http")]
pub use allowed::{AllowedTargets, TargetPattern, TargetPatternError};
#[cfg(feature = "http")]
pub use bundle::BundleError;
#[cfg(feature = "http")]
pub use client::Sha256Digest;
#[cfg(feature = "http")]
pub use record::LoadRecord;
pub use retry::Retries;
#[cfg(feature = "http")]
pub use settings::ClientOptions;
#[cfg(feature = "http")]
pub use tls::{ClientCertificate, Trust, TrustError};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;
