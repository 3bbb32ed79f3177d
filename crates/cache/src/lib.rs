//! A cache whose strategy is a value.
//!
//! What a lookup does when the answer is missing is the strategy: who loads, who waits and for how
//! long, who stores. Here that is a [`Strategy`], composed of orthogonal axes, not a family of
//! functions; [`PRESETS`] names the known compositions. A lookup goes
//!
//! ```text
//! fresh                -> hit; early and xfetch may begin a refresh
//! stale, within swr    -> stale, and one refresh begins
//! missing, independent -> this caller loads
//! missing, coalesce    -> the first caller leads, the others wait for its answer
//! no load answers      -> what is stale, within sie: fallback
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
//! # When the source fails
//!
//! An answer is fresh for `ttl`, then stale and refreshed on request for `swr`, then the last resort for
//! `sie`, then gone: nothing older is ever served. While it is the last resort, a request waits for a load,
//! its `soft_timeout` at most, and is given the stale answer if that fails. Then the key is left alone for
//! `throttle`; and when too many loads have failed the [`Breaker`] opens: everybody who has something stale is
//! answered at once, and a few probes in the background find out when the source is back. The
//! [`reason`](Answer::reason) of an answer tells which it was.
//!
//! ```
//! use std::time::Duration;
//! use stockade_cache::{Breaker, Cache, Error, Outcome, Reason, Strategy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let strategy = Strategy {
//!     ttl: Some(Duration::ZERO),
//!     breaker: Some(Breaker { min_calls: 50, ..Breaker::DEFAULT }),
//!     ..Strategy::preset("breaker")?
//! };
//! let cache: Cache<u64, String> = Cache::new(strategy)?;
//! cache.get_with(7, async || Ok::<_, std::io::Error>("Ada".to_owned())).await?;
//!
//! // It is stale now, and the database is down.
//! let answer = cache.get_with(7, async || Err::<String, _>("no route to host")).await?;
//! assert_eq!((answer.value.as_str(), answer.outcome), ("Ada", Outcome::Fallback));
//! assert!(matches!(answer.reason, Reason::Failed(Error::Load(_))));
//! # Ok(())
//! # }
//! ```
//!
//! Values that know themselves how long they are good for say so: [`Builder::lifespan`]. Those that come piece by
//! piece are answered with as soon as they begin: [`Cache::get_arriving`]. Routes that differ in strategy and
//! share what there is room for are [views](Cache::view) of one cache.
//!
//! A not-found is an answer, not a failure: [`Builder::not_found`] tells which values stand for one. What
//! changes at the source is [invalidated](Cache::invalidate) by key, by [tag](Builder::tags) or altogether.
//!
//! # Limits
//!
//! Without a [`Limit`] whatever is stored stays until it has expired, and goes as others are stored:
//! every store looks at two more entries. With a limit, in entries or in bytes, the ceiling is held
//! inline: whoever stores makes the room first, so the peak is the limit, not some time after it.
//!
//! Bytes count keys, values, what an entry costs besides, and what loads under way may bring: a load
//! reserves as much as its key's entry has, else [`max_object`](Limit::max_object). Loads may reserve
//! half of the limit; the others queue. **A value larger than `max_object` is answered and not
//! stored**; it is 1 MiB if not given, or a sixteenth of the limit if that is less.
//!
//! ```
//! use std::time::Duration;
//! use stockade_cache::{Cache, Limit, Load, Policy, Strategy, heap_bytes};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let strategy = Strategy {
//!     ttl: Some(Duration::from_secs(30)),
//!     limit: Some(Limit { policy: Policy::named("s3-fifo")?, ..Limit::bytes(64 << 20) }),
//!     load: Load { max_concurrent: Some(100), queue: 1_000, ..Load::DEFAULT },
//!     ..Strategy::preset("stampede")?
//! };
//! let cache: Cache<u64, Vec<u8>> = Cache::builder(strategy).weigh(heap_bytes).build()?;
//!
//! for key in 0..10_000 {
//!     cache.insert(key, vec![0; 10_000]);
//! }
//! let bytes = cache.bytes().expect("they are limited");
//! assert!(bytes.peak <= 64 << 20);
//! # Ok(())
//! # }
//! ```
//!
//! [`policy`] lists who goes when room is needed: sieve unless you say otherwise. Values come out as
//! clones, so large ones belong behind an `Arc` or in `bytes::Bytes`; values that leave are dropped when
//! no lock is held. The limit counts what the cache holds. The allocator adds its own: glibc gives each
//! thread a heap, and with large values stored from many threads keeps half as much again unless
//! `MALLOC_ARENA_MAX=1` is set (256 MiB of 300 KiB values from four threads: 451 MiB resident, 263 with
//! one heap).
//!
//! # Several nodes
//!
//! Nodes behind one source may share a [`tier`]; with the feature `redis` that is a Redis or Valkey. A load asks
//! it first; where nothing there will do, one node of all takes the key's lock and loads, and the others are woken
//! with its answer ([`Outcome::Coalesced`]). What another node loaded earlier is a hit, whose reason is
//! [`Reason::Shared`]. What one node [invalidates](Cache::invalidate) or [inserts](Cache::insert) the others do not
//! serve a round trip later; a node that is cut off serves it for its ttl at most. While the tier is gone, slow or
//! lying, each node coalesces and loads for itself. [`Shared`] says whether it is under this node's memory or in
//! place of it.
//!
//! # What it costs
//!
//! An entry costs 74 bytes beside its key and value, and what else its policy keeps:
//! [`Cache::entry_bytes`] tells the sum for your types. Instructions of a hit and of a miss (look up,
//! store, evict), `u64` to `u64`, without reading the clock:
//!
//! | policy | more bytes an entry | hit | miss, limit in entries | miss, in bytes |
//! |---|---|---|---|---|
//! | `sieve` | 0 | 126 | 999 | 1,229 |
//! | `lrw` | 0 | 123 | 973 | 1,203 |
//! | `lru` | 40 | 132 | 1,283 | 1,585 |
//! | `s3-fifo` | 48 | 128 | 1,313 | 1,535 |
//!
//! A hit shares its shard's lock, and writes to the lock's cache line and to an entry that was not
//! marked yet; under `lru` also to a counter of the shard. With a ttl it reads the coarse clock: two
//! loads, and a thread that wakes once a millisecond while there are lookups. [Counting
//! lookups](Builder::count_lookups) is one locked instruction more. A waiter costs under 1 KiB, its task
//! included. There are no default features; `redis` has `Redis`, `spec` reads
//! strategies from files, `tower` has `CacheLayer`.
//!
//! # Inside
//!
//! [`flight`] is the coalescing core: a synchronous state machine that knows no runtime. The shard
//! holds entries and their policy and decides, without a lock or an await; what an entry's age means and what
//! the breaker does are pure, too; the store locks shards and keeps the account of bytes; the writer performs stores, directly or through one mailbox as Kazoo's
//! cache process does.

mod admission;
mod answer;
mod breaker;
mod budget;
mod builder;
mod busy;
mod cache;
mod chance;
pub mod flight;
mod invalidations;
#[cfg(feature = "tower")]
mod layer;
mod life;
mod limit;
mod load;
mod meter;
pub mod policy;
mod preset;
#[cfg(feature = "redis")]
mod redis;
mod refills;
mod request;
mod seats;
mod shard;
mod sharded;
mod shared;
#[cfg(feature = "spec")]
pub mod spec;
mod stats;
mod store;
mod strategy;
mod sync;
mod tags;
pub mod tier;
mod weigh;
mod writer;

pub use answer::{Answer, Error, Reason};
pub use breaker::{Breaker, BreakerState};
pub use builder::Builder;
pub use cache::{BytesHeld, Cache, Held, Insertion, Wish};
#[cfg(feature = "tower")]
pub use layer::{CacheLayer, CacheService};
pub use life::Lifespan;
pub use limit::{Limit, Order};
pub use load::{Arrival, Rest};
pub use policy::{Policy, UnknownPolicy};
pub use preset::{PRESETS, Preset, UnknownPreset};
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisUrl, RedisUrlError};
pub use shard::Invalidation;
pub use shared::Shared;
pub use stats::{Lookups, Stats};
pub use stockade_model::{
    outcome::{Outcome, Outcomes},
    seed::Seed,
    time::{Live, Runtime},
};
pub use store::{Refused, Room};
pub use strategy::{Fetch, InvalidStrategy, Load, Refresh, Store, Strategy, Writer};
pub use weigh::{Weigh, heap_bytes};
