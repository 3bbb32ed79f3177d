//! A cache whose strategy is a value.
//!
//! A [`Strategy`] says what a lookup does when the value is missing: which caller loads, which callers wait and for how
//! long, and when the value is stored. It is composed of independent axes; [`PRESETS`] names the known compositions.
//! A lookup:
//!
//! ```text
//! fresh                -> hit; early and xfetch may start a refresh
//! stale, within swr    -> stale; one refresh starts
//! missing, independent -> this caller loads
//! missing, coalesce    -> the first caller leads, the others wait for its result; a slow load may be hedged
//! the load failed      -> fallback: the stale value, within sie
//! ```
//!
//! A load that has to wait goes on in a task of its own, which no caller's cancellation ends (that of a [cache for threads](sync) on its
//! caller's thread). If the leader panics, is aborted or is dropped, a waiter takes over the load. If the load fails, its waiters receive
//! the error and nothing is stored. If it takes longer than its deadline, it is cancelled.
//!
//! ```
//! use stockade_cache::{Cache, Strategy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache: Cache<String, String> = Cache::new(Strategy::default())?;
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
//! A value is fresh for `ttl`, then stale and refreshed on request for `swr`, then served if a load fails for `sie`, then
//! gone. In the time of `sie` a request waits for a load, for its `soft_timeout` at most, and receives the stale value
//! if the load fails. Then loads of the key are suppressed for `throttle`. When too many loads have failed the
//! [`Breaker`] opens: requests with a stale value are answered at once, and a few probes in the background test whether
//! the source is back. The [`reason`](Answer::reason) of an answer says which of these happened.
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
//! Values that define their own times: [`Builder::lifespan`]. Values that are served while they are received:
//! [`Cache::get_streaming`]. Routes that differ in strategy and share one limit: [`Cache::view`].
//!
//! A not-found is an answer, not a failure: [`Builder::not_found`] recognises them. After a change at the source,
//! [invalidate](Cache::invalidate) by key, by [tag](Builder::tags) or altogether.
//!
//! # Limits
//!
//! Without a [`Limit`] values stay until they have expired, or no request has found them for an [idle time](Builder::time_to_idle); every
//! store examines two entries and removes expired ones. A limit, in entries or in bytes, holds at every moment: room is made before a value
//! is stored.
//!
//! Bytes count keys, values, the overhead of entries, and reservations of loads in flight: a load reserves the size of
//! its key's entry, else the mean of the last loaded ones, and what it needs beyond makes room when it arrives. Loads reserve half of
//! the limit at most; further loads queue. **A value larger than `max_object` is answered and not stored**; the default is 1 MiB, or a sixteenth of the
//! limit if that is less.
//!
//! ```
//! use std::time::Duration;
//! use stockade_cache::{Cache, Limit, LoadBounds, Policy, Strategy, heap_bytes};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let strategy = Strategy {
//!     ttl: Some(Duration::from_secs(30)),
//!     limit: Some(Limit { policy: Policy::named("s3-fifo")?, ..Limit::bytes(64 << 20) }),
//!     load: LoadBounds { max_concurrent: Some(100), queue: 1_000, ..Strategy::DEFAULT.load },
//!     ..Strategy::default()
//! };
//! let cache: Cache<u64, Vec<u8>> = Cache::builder(strategy).weigh(heap_bytes).build()?;
//!
//! for key in 0..10_000 {
//!     cache.insert(key, vec![0; 10_000]);
//! }
//! let bytes = cache.byte_usage().expect("they are limited");
//! assert!(bytes.peak <= 64 << 20);
//! # Ok(())
//! # }
//! ```
//!
//! [`policy`] lists the eviction policies; the default is sieve. Under [`Policy::AUTO`] simulated caches of some policies choose one of them
//! while the cache runs; [`Cache::shadow_stats`] says which. Values are returned as clones, so put large ones behind
//! an `Arc` or into `bytes::Bytes`. Removed values are dropped outside the locks; [`Builder::on_removal`] tells of them. The limit counts what the cache holds;
//! the allocator adds its own overhead. glibc gives each thread a heap, and with large values stored from many threads
//! keeps half as much again unless `MALLOC_ARENA_MAX=1` is set (256 MiB of 300 KiB values from four threads: 451 MiB
//! resident, 263 with one heap). Where threads and runtimes come and go, jemalloc keeps far less: after half an hour of four caches on three
//! runtimes (`cache_soak` in the project's `bench`) 271 MiB were resident with glibc, and growing, and 77 with jemalloc.
//!
//! # Many keys, and restarts
//!
//! [`Cache::get_many_with`] loads the missing ones of many keys together, also with those of other callers.
//! [`Cache::get_validated`] is for sources that can tell that a value has not changed. [`SnapshotFile`] keeps the entries through a
//! restart, and [`Cache::entries`] lists them.
//!
//! # Threads, and other runtimes
//!
//! [`sync`] has a cache for programs without an async runtime. The cache itself has no runtime of its own: [`Builder::build`] uses the
//! tokio runtime of the caller, and [`Builder::build_on`] any other [`Runtime`]: a clock, timers and tasks. Loads, their deadlines, the
//! stores of their values and refreshes run there; a hit and an insert run on the thread of the caller.
//!
//! # Another size, policy or ttl
//!
//! [`Builder::shadow`] simulates other limits, policies and ttls alongside the cache, over a sample of the keys.
//!
//! # Several nodes
//!
//! Nodes behind one source may share a [`tier`]; with the feature `redis` that is a Redis or Valkey. A load looks its
//! key up there first. If the tier has no usable value, one node takes the key's lock and loads, and the others wait for
//! its result ([`Outcome::Coalesced`]). A value that another node loaded earlier is a hit with the reason
//! [`Reason::Shared`]. When a node [invalidates](Cache::invalidate), [inserts](Cache::insert) or [updates](Cache::update), the others stop serving
//! the old value a round trip later; a disconnected node serves it for its ttl at most. While the tier is unavailable,
//! slow or returns corrupt data, each node coalesces and loads for itself. [`SharedTier`] is below the memory of a node
//! or in place of it.
//!
//! # What it costs
//!
//! An entry costs 58 bytes in addition to its key and value, 16 more once a value of its shard may be stale, negative or refreshed by
//! xfetch, 8 more with an [idle time](Builder::time_to_idle), and what else its policy keeps: [`Cache::entry_overhead_bytes`] returns the
//! sum for your types, which counts under a limit in bytes. Instructions of a hit and of a miss (look up, store, evict), `u64` to `u64`,
//! without reading the clock:
//!
//! | policy | more bytes an entry | hit | miss, limit in entries | miss, in bytes |
//! |---|---|---|---|---|
//! | `sieve` | 0 | 141 | 841 | 1,206 |
//! | `lrw` | 0 | 138 | 826 | 1,185 |
//! | `lru` | 40 | 149 | 1,171 | 1,600 |
//! | `s3-fifo` | 18 | 143 | 1,188 | 1,584 |
//! | `lfu` | 72 | 159 | 1,214 | 1,629 |
//! | `gdsf` | 80 | 172 | 1,272 | 1,687 |
//! | `auto` | 98 | as the chosen one | | |
//!
//! `auto` costs some 700 instructions more for each request of a sampled key: at most 10,000 a second, and 1,000 while
//! all keys are sampled. Its ghosts have 14 MiB at most.
//!
//! A hit takes its shard's lock shared, and writes to the lock's cache line and to an entry that was not marked yet;
//! under `lru` also to a counter of the shard. With a ttl it reads the coarse clock: two loads, and a thread that wakes
//! once a millisecond while there are lookups. [Counting lookups](Builder::count_lookups) costs one locked instruction.
//! A waiter costs under 1 KiB, with its task.
//!
//! # Features
//!
//! None is on by default. `metrics` has `Builder::metrics`, `redis` has `RedisTier`, `spec` reads strategies from files, `schema` has
//! their JSON schema, and `tower` has `CacheLayer`. With `redis` or `spec`, the error about an unknown preset, policy or setting
//! suggests the known name that was probably meant; without them it lists the known names.
//!
//! # Inside
//!
//! A `get_with` passes five files, each once: `cache` (the API), `engine/request` (looks up, classifies, waits, answers),
//! [`coalesce`] (a synchronous state machine of leaders and waiters), `engine/load` (the task of a load) and `store`
//! (shards behind locks, and the account of bytes). A plain `get` passes `cache`, `store`, `store/shard`, `policy`
//! and the policy. `freshness`, `breaker` and each policy are pure.

mod answer;
mod batch;
mod breaker;
mod builder;
mod cache;
pub mod coalesce;
mod codec;
mod engine;
mod entries;
mod error;
mod freshness;
#[cfg(all(feature = "redis", any(test, fuzzing)))]
#[doc(hidden)]
pub mod fuzzing;
mod invalidation;
#[cfg(feature = "tower")]
mod layer;
mod limit;
mod loading;
mod locks;
mod panics;
pub mod policy;
mod random;
mod shadow;
mod sharded;
pub mod simulation;
mod snapshot;
#[cfg(feature = "spec")]
pub mod spec;
mod stats;
mod store;
mod strategy;
pub mod sync;
pub mod tier;

pub use answer::{Answer, Reason};
pub use batch::{BatchLoader, Batching};
pub use breaker::{Breaker, BreakerState};
pub use builder::Builder;
pub use cache::{Cache, CallPermit, Validated};
pub use codec::{Codec, RawCodec};
pub use engine::{
    insertion::Insertion,
    loader::{CacheMode, LoadedValue, Remainder, RequestOptions, SourceTimeout, WithoutSource},
    update::Update,
};
pub use entries::Entries;
pub use error::{Error, InvalidStrategy};
pub use freshness::{Lifespan, Refresh};
pub use invalidation::Invalidation;
#[cfg(feature = "tower")]
pub use layer::{CacheLayer, CacheService};
pub use limit::{EvictionOrder, Limit};
pub use loading::LoadingCache;
pub use policy::Policy;
pub use shadow::{GHOSTS_MAX, Ghost, GhostCounts, GhostStats, GhostTtl, Shadow, ShadowStats};
pub use snapshot::{RestoreError, Restored, SnapshotFile, Snapshots};
pub use stats::{Lookups, RequestStats, Stats, StoreStats};
pub use stockade_model::{
    outcome::{Outcome, Outcomes},
    registry::{Registry, UnknownName},
    seed::Seed,
    time::{Live, Runtime, Time},
};
pub use store::{
    Reservation, StoreRejection, StoredValue,
    budget::ByteUsage,
    removal::RemovalReason,
    weigh::{Weigh, heap_bytes},
};
pub use strategy::{
    AfterWait, Fetch, HedgeAfter, LoadBounds, StoreMode, Strategy, Writer,
    preset::{PRESETS, Preset},
};
pub use tier::SharedTier;
#[cfg(feature = "redis")]
pub use tier::redis::{RedisTier, RedisUrl, RedisUrlError};

/// Compiles the examples of the crate's README and of the book.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../docs/guide/embed-the-library.md")]
struct Examples;
