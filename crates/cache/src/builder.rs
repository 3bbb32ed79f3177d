//! Making a cache.

use std::{hash::Hash, sync::Arc};

use stockade_model::{
    seed::Seed,
    time::{Live, Runtime},
};

use crate::{
    breaker::RouteOf,
    cache::Cache,
    life::Lifespan,
    shard::Shard,
    shared::Shared,
    store::Told,
    strategy::{InvalidStrategy, Strategy},
};

/// A cache to be: its strategy, and what a strategy cannot tell.
///
/// ```
/// use stockade_cache::{Cache, Limit, Strategy, heap_bytes};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let strategy = Strategy { limit: Some(Limit::bytes(64 << 20)), ..Strategy::preset("stampede")? };
/// let cache: Cache<String, String> = Cache::builder(strategy).weigh(heap_bytes).build()?;
///
/// cache.insert("greeting".to_owned(), "good morning".to_owned());
/// assert!(cache.bytes().is_some_and(|bytes| (1..1_000).contains(&bytes.held)));
/// # Ok(())
/// # }
/// ```
pub struct Builder<K, V>(Plan<K, V>);

/// What values tell of themselves.
pub(crate) struct Values<V> {
    pub(crate) not_found: Option<IsNotFound<V>>,
    pub(crate) lifespan: Option<LifespanOf<V>>,
}

/// Tells a value that stands for a not-found.
pub(crate) type IsNotFound<V> = Arc<dyn Fn(&V) -> bool + Send + Sync>;

/// Tells how long a value is good for.
pub(crate) type LifespanOf<V> = Arc<dyn Fn(&V) -> Option<Lifespan> + Send + Sync>;

impl<V> Values<V> {
    /// Whether there can be a cache of them with this strategy.
    pub(crate) fn check(&self, strategy: &Strategy) -> Result<(), InvalidStrategy> {
        strategy.check()?;
        if strategy.negative_ttl.is_some() && self.not_found.is_none() {
            return Err(InvalidStrategy(
                "`negative_ttl` has to be told which values are not-founds: Builder::not_found",
            ));
        }
        Ok(())
    }
}

impl<V> Clone for Values<V> {
    fn clone(&self) -> Self {
        Self { not_found: self.not_found.clone(), lifespan: self.lifespan.clone() }
    }
}

/// What a cache is made of.
pub(crate) struct Plan<K, V> {
    pub(crate) strategy: Strategy,
    pub(crate) told: Told<K, V>,
    pub(crate) values: Values<V>,
    pub(crate) route: Option<RouteOf<K>>,
    pub(crate) shared: Option<Shared<K, V>>,
    /// Of the cache, in metrics.
    pub(crate) name: Option<String>,
}

impl<K, V> Builder<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(strategy: Strategy) -> Self {
        let told = Told { weigh: None, tags: None, counts_lookups: false };
        let values = Values { not_found: None, lifespan: None };
        Self(Plan { strategy, told, values, route: None, shared: None, name: None })
    }

    /// Tells what a key and its value own beyond their own size, in bytes: a limit in bytes needs it.
    ///
    /// [`heap_bytes`](crate::heap_bytes) knows strings and bytes. What an entry costs besides is
    /// counted without being asked for.
    #[must_use]
    pub fn weigh(mut self, weigh: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        self.0.told.weigh = Some(Box::new(weigh));
        self
    }

    /// Tells which values stand for a not-found, such as `Option::is_none`. They are answers: nothing falls
    /// back because of them, and the breaker counts them as good. They are kept for the strategy's
    /// `negative_ttl`, and are neither refreshed nor served stale.
    #[must_use]
    pub fn not_found(mut self, is_not_found: impl Fn(&V) -> bool + Send + Sync + 'static) -> Self {
        self.0.values.not_found = Some(Arc::new(is_not_found));
        self
    }

    /// Tells how long a value is good for, where that is not for the strategy to say: an answer of HTTP knows
    /// it. `None`: as the strategy has it. A [not-found](Self::not_found) is kept for its ttl.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stockade_cache::{Cache, Lifespan, Strategy};
    ///
    /// #[derive(Clone)]
    /// struct Token {
    ///     valid_for: Duration,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let lifespan = |token: &Token| Some(Lifespan { ttl: token.valid_for, ..Lifespan::NONE });
    /// let tokens: Cache<u64, Token> =
    ///     Cache::builder(Strategy::preset("swr")?).lifespan(lifespan).build()?;
    ///
    /// tokens.insert(1, Token { valid_for: Duration::ZERO });
    /// tokens.insert(2, Token { valid_for: Duration::from_secs(60) });
    /// assert!(tokens.get(&1).is_none() && tokens.get(&2).is_some());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lifespan(mut self, lifespan: impl Fn(&V) -> Option<Lifespan> + Send + Sync + 'static) -> Self {
        self.0.values.lifespan = Some(Arc::new(lifespan));
        self
    }

    /// Tells the tags of a value, one call each, for [`Cache::invalidate_tag`].
    ///
    /// A tag costs up to 72 bytes, which count under a limit.
    ///
    /// ```
    /// use stockade_cache::{Cache, Invalidation, Strategy};
    ///
    /// #[derive(Clone)]
    /// struct Page {
    ///     topics: Vec<String>,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pages: Cache<u64, Page> = Cache::builder(Strategy::preset("stampede")?)
    ///     .tags(|_, page: &Page, tag| page.topics.iter().for_each(|topic| tag(topic)))
    ///     .build()?;
    ///
    /// pages.insert(1, Page { topics: vec!["sport".to_owned(), "wales".to_owned()] });
    /// assert_eq!(pages.invalidate_tag("wales", Invalidation::Hard), 1);
    /// assert!(pages.get(&1).is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn tags(mut self, tags: impl Fn(&K, &V, &mut dyn FnMut(&str)) + Send + Sync + 'static) -> Self {
        self.0.told.tags = Some(Box::new(tags));
        self
    }

    /// Tells the route of a key: each has a breaker of its own. Without routes there is one for all keys.
    /// After 1,024 different ones the others share one.
    #[must_use]
    pub fn route(mut self, route: impl for<'a> Fn(&'a K) -> &'a str + Send + Sync + 'static) -> Self {
        self.0.route = Some(Box::new(route));
        self
    }

    /// Shares a tier with the caches of other nodes. A tier belongs to one cache.
    #[must_use]
    pub fn shared(mut self, shared: Shared<K, V>) -> Self {
        self.0.shared = Some(shared);
        self
    }

    /// Counts lookups and hits, for [`Stats::lookups`](crate::Stats::lookups): one more locked instruction
    /// for each of them.
    #[must_use]
    pub fn count_lookups(mut self) -> Self {
        self.0.told.counts_lookups = true;
        self
    }

    /// Tells the recorder of the `metrics` facade that is installed when the cache is built what the cache
    /// does, with this name as label `cache`; no two caches may have one name. Lookups are counted then. A
    /// task tells counts and gauges once a second, histograms are told as waits and loads end.
    ///
    /// | metric | what it is |
    /// |---|---|
    /// | `stockade_requests_total` | by `outcome`: hit, stale, miss, coalesced, fallback, negative, error |
    /// | `stockade_loads_total`, `_failed_total` | loads begun; those that failed, were cancelled or lost |
    /// | `stockade_loads_refused_total`, `_rejected_total` | not begun: the breaker's doing, the queue's |
    /// | `stockade_loads_in_flight` | loads under way |
    /// | `stockade_load_seconds`, `stockade_wait_seconds` | histograms of loads, and of waits for another's load |
    /// | `stockade_waiters_total` | waits for another's load |
    /// | `stockade_refreshes_total` | by `refresh`: early, xfetch, swr, probe |
    /// | `stockade_shared_total` | by `what` came of asking the shared tier: hit, miss, wait, failure |
    /// | `stockade_evicted_total` | by `reason`: expired, size |
    /// | `stockade_reclaims_total` | the limit was met, and a share of it cleared |
    /// | `stockade_invalidated_total` | entries that were invalidated |
    /// | `stockade_entries`, `stockade_bytes` | entries stored; bytes held of the limit |
    /// | `stockade_breaker_state` | by `route`: 0 closed, 1 ramp, 2 half-open, 3 open |
    #[must_use]
    pub fn metrics(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self.count_lookups()
    }

    /// An empty cache in real time, on the tokio runtime of the caller.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn build(self) -> Result<Cache<K, V>, InvalidStrategy> {
        self.build_on(Live::new(), Seed::from_entropy())
    }

    /// An empty cache that lives by `runtime` and draws its chance from `seed`: hashing, xfetch, jitter.
    pub fn build_on<R: Runtime>(self, runtime: R, seed: Seed) -> Result<Cache<K, V, R>, InvalidStrategy> {
        self.check()?;
        Ok(Cache::start(runtime, seed, self.0))
    }

    /// Whether there can be a cache of these keys and values with this strategy.
    pub fn check(&self) -> Result<(), InvalidStrategy> {
        let Plan { strategy, told, values, .. } = &self.0;
        values.check(strategy)?;
        let Some(limit) = &strategy.limit else { return Ok(()) };
        if limit.bytes.is_some() && told.weigh.is_none() {
            return Err(InvalidStrategy(
                "a limit in bytes has to be told what entries weigh: Builder::weigh",
            ));
        }
        if limit.is_too_small_for(Shard::<K, V>::ENTRY_BYTES) {
            return Err(InvalidStrategy(
                "nothing could be stored: an entry alone costs more than `max_object`",
            ));
        }
        Ok(())
    }
}

impl<K, V> std::fmt::Debug for Builder<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("strategy", &self.0.strategy).finish_non_exhaustive()
    }
}
