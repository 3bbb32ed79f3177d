//! A cache whose strategy is a value.
//!
//! What a lookup does when the answer is missing is the strategy: who loads, who waits and for how
//! long, who stores. Here that is a [`Strategy`], composed of orthogonal axes, not a family of
//! functions; [`PRESETS`] names the known compositions. A lookup goes
//!
//! ```text
//! fresh? -> hit
//! missing, independent -> this caller loads
//! missing, coalesce    -> the first caller leads, the others wait for its answer
//! ```
//!
//! and every load runs in a task of its own: no caller that gives up can take it along. A leader
//! that panics, is aborted or dropped hands the load to one waiter; one that fails shares its error
//! with those who wait and stores nothing; one that hangs is cancelled at its deadline.
//!
//! ```
//! use stockade_cache::{Cache, Strategy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache: Cache<String, String> = Cache::new(Strategy::preset("stampede")?)?;
//!
//! let fetch = async || Ok::<_, std::io::Error>("Ada Lovelace".to_owned());
//! let answer = cache.get_with("user:1".to_owned(), fetch).await?;
//! assert_eq!(answer.value, "Ada Lovelace");
//!
//! assert_eq!(cache.stats().loads, 1);
//! assert_eq!(cache.get("user:1").as_deref(), Some("Ada Lovelace"));
//! # Ok(())
//! # }
//! ```
//!
//! What is stored stays: limits and their policies are not built yet, so the number of keys has to be
//! bounded by whoever asks for them.
//!
//! Inside, [`flight`] is the coalescing core: a synchronous state machine that knows no runtime.
//! The shard holds entries and decides, without a lock or an await; the store locks shards; the
//! writer performs stores, directly or through one mailbox as Kazoo's cache process does.

mod admission;
mod answer;
mod budget;
mod builder;
mod busy;
mod cache;
pub mod flight;
mod limit;
pub mod policy;
mod preset;
mod refills;
mod seats;
mod shard;
mod sharded;
mod stats;
mod store;
mod strategy;
mod sync;
mod weigh;
mod writer;

pub use answer::{Answer, Error};
pub use builder::Builder;
pub use cache::{Bytes, Cache};
pub use limit::{Limit, Order};
pub use policy::Policy;
pub use preset::{PRESETS, Preset, UnknownPreset};
pub use stats::Stats;
pub use stockade_model::outcome::Outcome;
pub use strategy::{Fetch, InvalidStrategy, Load, Store, Strategy, Writer};
pub use weigh::{Weigh, heap_bytes};
