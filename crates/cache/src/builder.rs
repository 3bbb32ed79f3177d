//! Configuration of a cache.

use std::{hash::Hash, sync::Arc, time::Duration};

use stockade_model::{
    seed::Seed,
    time::{Live, Runtime},
};

use crate::{
    cache::Cache,
    engine::{EngineConfig, ValueFunctions},
    error::InvalidStrategy,
    freshness::Lifespan,
    shadow::Shadow,
    store::{StoreConfig, removal::RemovalReason},
    strategy::Strategy,
    tier::SharedTier,
};

/// Configures a cache: its strategy, and functions of keys and values.
///
/// ```
/// use stockade_cache::{Cache, Limit, Strategy, heap_bytes};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let strategy = Strategy { limit: Some(Limit::bytes(64 << 20)), ..Strategy::default() };
/// let cache: Cache<String, String> = Cache::builder(strategy).weigh(heap_bytes).build()?;
///
/// cache.insert("greeting".to_owned(), "good morning".to_owned());
/// assert!(cache.byte_usage().is_some_and(|bytes| (1..1_000).contains(&bytes.used)));
/// # Ok(())
/// # }
/// ```
pub struct Builder<K, V>(EngineConfig<K, V>);

impl<K, V> Builder<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(strategy: Strategy) -> Self {
        let store_config = StoreConfig::default();
        let values = ValueFunctions { not_found: None, lifespan: None };
        Self(EngineConfig { strategy, store_config, values, route: None, shared: None, name: None })
    }

    /// The bytes that a key and its value own beyond their own size. Required with a limit in bytes.
    ///
    /// [`heap_bytes`](crate::heap_bytes) covers strings and bytes. The overhead of an entry is added.
    #[must_use]
    pub fn weigh(mut self, weigh: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        self.0.store_config.weigh = Some(Box::new(weigh));
        self
    }

    /// Returns true while something outside of the cache uses the memory of a value, such as a response that is being sent
    /// to a slow client: for an `Arc`, while its count is above 1.
    ///
    /// A removed entry that is held keeps its bytes under the [limit](crate::Limit::bytes) until a later store finds it
    /// released. While held entries have a quarter of the limit, nothing is evicted, and a value that finds no room is
    /// answered and not stored; loads start without a reservation. Only with a limit in bytes.
    #[must_use]
    pub fn held(mut self, is_held: impl Fn(&V) -> bool + Send + Sync + 'static) -> Self {
        self.0.store_config.is_held = Some(Box::new(is_held));
        self
    }

    /// Recognises values that stand for a not-found, such as `Option::is_none`. A not-found is a successful answer:
    /// it causes no fallback and counts as a success for the breaker. It is stored for the strategy's
    /// `negative_ttl`, and is neither refreshed nor served stale.
    #[must_use]
    pub fn not_found(mut self, is_not_found: impl Fn(&V) -> bool + Send + Sync + 'static) -> Self {
        self.0.values.not_found = Some(Arc::new(is_not_found));
        self
    }

    /// Returns how long a value is served, where the value defines it and not the strategy, as in HTTP. `None`: the
    /// strategy's times. A [not-found](Self::not_found) is stored for its ttl.
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

    /// Calls its last argument with each tag of a value, for [`Cache::invalidate_tag`].
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
    /// let pages: Cache<u64, Page> = Cache::builder(Strategy::default())
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
        self.0.store_config.tags = Some(Box::new(tags));
        self
    }

    /// Returns the route of a key. Each route has its own breaker. Without routes one breaker serves all keys. After
    /// 1,024 routes further ones share one.
    #[must_use]
    pub fn breaker_route(mut self, route: impl for<'a> Fn(&'a K) -> &'a str + Send + Sync + 'static) -> Self {
        self.0.route = Some(Box::new(route));
        self
    }

    /// Shares a tier with the caches of other nodes. A tier belongs to one cache.
    #[must_use]
    pub fn shared_tier(mut self, shared: SharedTier<K, V>) -> Self {
        self.0.shared = Some(shared);
        self
    }

    /// Simulates other limits, policies and ttls alongside the cache, over a sample of the keys: [`Cache::shadow_stats`].
    ///
    /// A `get`, a `get_with` and a `get_streaming` are requests; one that [reloads](crate::CacheMode::Reload) is not, and
    /// [`get_answer`](Cache::get_answer) only if it is [recorded](Cache::record_request). Loads of ghosts take as long as the last one of
    /// the same key in the cache, succeed, and are shared. After an [invalidation](Cache::invalidate_tag) by tag or by a function a
    /// ghost still has the keys that the cache did not have.
    ///
    /// A request for a key outside of the sample costs a hash more, one for a key in the sample some 0.4 us with eight ghosts. The
    /// sample has at most [`keys_max`](Shadow::keys_max) keys, and 10,000 requests a second; with more it shrinks.
    /// [`bytes_max`](crate::ShadowStats::bytes_max) bounds the memory. Only with a limit.
    ///
    /// ```
    /// use stockade_cache::{Cache, Limit, Shadow, Strategy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = Limit::entries(100);
    /// let strategy = Strategy { limit: Some(limit.clone()), ..Strategy::default() };
    /// let cache: Cache<u64, u64> = Cache::builder(strategy).shadow(Shadow::around(&limit)).build()?;
    /// for key in (0..150).cycle().take(300) {
    ///     cache.get_with(key, async move || Ok::<_, std::io::Error>(key)).await?;
    /// }
    ///
    /// let ghosts = cache.shadow_stats().expect("there are ghosts").ghosts;
    /// let twice = ghosts.iter().find(|ghost| ghost.name == "2x size").expect("by default");
    /// assert_eq!(twice.total.hits, 150);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shadow(mut self, shadow: Shadow) -> Self {
        self.0.store_config.shadow = Some(shadow);
        self
    }

    /// Recognises values after which a request is loaded all the same, such as a mark that a response may not be cached.
    /// [Ghosts](Self::shadow) count a request for one of them as a load.
    #[must_use]
    pub fn marker(mut self, is_marker: impl Fn(&V) -> bool + Send + Sync + 'static) -> Self {
        self.0.store_config.is_marker = Some(Box::new(is_marker));
        self
    }

    /// Is called with each entry that leaves the cache, and the reason: to close what a value has open, or to count. Not when
    /// the cache itself is dropped.
    ///
    /// The thread or task that removed the entry calls it, after the lock is released: a store, a load that reserves bytes, an
    /// invalidation or the task that carries it out, never a hit. It should be short, and may call methods of the cache that do not wait.
    /// An insert from it may evict again, and call it again within itself, so it must not insert for each evicted entry. A panic in it ends
    /// there.
    ///
    /// The calls for one key come in the order of its removals, unless two threads change that key at the same time: then their calls
    /// overlap. For work that waits, send the events to a task through a channel.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use stockade_cache::{Cache, Limit, RemovalReason, Strategy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let removed = Arc::new(Mutex::new(Vec::new()));
    /// let strategy = Strategy { limit: Some(Limit::entries(2)), ..Strategy::default() };
    /// let cache: Cache<u64, u64> = {
    ///     let removed = Arc::clone(&removed);
    ///     let listener = move |key: &u64, _: &u64, reason| removed.lock().unwrap().push((*key, reason));
    ///     Cache::builder(strategy).on_removal(listener).build()?
    /// };
    /// cache.insert(1, 10);
    /// cache.insert(1, 11);
    /// cache.insert(2, 20);
    /// cache.insert(3, 30);
    /// assert_eq!(*removed.lock().unwrap(), [(1, RemovalReason::Replaced), (2, RemovalReason::Evicted)]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_removal(mut self, listener: impl Fn(&K, &V, RemovalReason) + Send + Sync + 'static) -> Self {
        self.0.store_config.on_removal = Some(Box::new(listener));
        self
    }

    /// Sets the idle time: an entry that no request finds for this time is not served any more, fresh or stale, and a later store removes
    /// it. Without an idle time entries stay until they expire or the limit evicts them.
    ///
    /// It is accurate to a 128th of the time and 2 ms. An entry costs 8 bytes more. A [`peek`](Cache::peek) is not a request. A load that
    /// is stored, an [`insert`](Cache::insert) and the restore of a [snapshot](crate::Snapshots) begin a new idle time. Values in a
    /// [shared tier](Self::shared_tier) stay there, and [ghosts](Self::shadow) have no idle time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stockade_cache::{Cache, Strategy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sessions: Cache<u64, String> =
    ///     Cache::builder(Strategy::default()).time_to_idle(Duration::from_secs(30 * 60)).build()?;
    /// sessions.insert(7, "Ada".to_owned());
    /// // Each hit gives it another half an hour.
    /// assert!(sessions.get(&7).is_some());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn time_to_idle(mut self, idle: Duration) -> Self {
        self.0.store_config.idle = Some(idle);
        self
    }

    /// Counts lookups and hits, for [`Stats::lookups`](crate::Stats::lookups). Costs one locked instruction per
    /// lookup.
    #[must_use]
    pub fn count_lookups(mut self) -> Self {
        self.0.store_config.counts_lookups = true;
        self
    }

    /// Needs the feature `metrics`. Reports to the recorder of the `metrics` facade that is installed when the cache is built, with this name as
    /// label `cache`. Names must be unique. Implies [`count_lookups`](Self::count_lookups). Counters and gauges are
    /// recorded once a second, histograms when waits and loads end.
    /// The metrics are those of [`RequestStats`](crate::RequestStats) and [`StoreStats`](crate::StoreStats) under the names of
    /// their declarations, and:
    ///
    /// | metric | meaning |
    /// |---|---|
    /// | `stockade_requests_total` | requests by `outcome`: hit, stale, miss, coalesced, fallback, negative, error |
    /// | `stockade_load_seconds` | a histogram of loads, failed ones included |
    /// | `stockade_wait_seconds` | a histogram of waits for another load |
    /// | `stockade_breaker_state` | by `route`: 0 closed, 1 ramp, 2 half-open, 3 open |
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self.count_lookups()
    }

    /// An empty cache in real time. Loads and timers run on the tokio runtime of each caller, so that a cache in a `static` may
    /// serve several runtimes, one after the other or at once. No runtime is needed to build it.
    pub fn build(self) -> Result<Cache<K, V>, InvalidStrategy> {
        self.build_on(Live::of_callers().with_past(), Seed::from_entropy())
    }

    /// An empty cache on `runtime`. `seed` determines hashing, xfetch and jitter.
    pub fn build_on<R: Runtime>(self, runtime: R, seed: Seed) -> Result<Cache<K, V, R>, InvalidStrategy> {
        self.check()?;
        Ok(Cache::start(runtime, seed, self.0))
    }

    /// Checks the strategy for these keys and values.
    pub fn check(&self) -> Result<(), InvalidStrategy> {
        let EngineConfig { strategy, store_config, values, .. } = &self.0;
        values.check(strategy)?;
        if let Some(shadow) = &store_config.shadow {
            shadow.check(strategy.limit.as_ref())?;
        }
        if store_config.idle == Some(Duration::ZERO) {
            return Err(InvalidStrategy(
                "the idle time is zero, so that no entry could be found: Builder::time_to_idle",
            ));
        }
        let Some(limit) = &strategy.limit else { return Ok(()) };
        if limit.bytes.is_some() && store_config.weigh.is_none() {
            return Err(InvalidStrategy("a limit in bytes needs the size of entries: set Builder::weigh"));
        }
        if limit.is_too_small_for(store_config.entry_bytes()) {
            return Err(InvalidStrategy(
                "nothing could be stored: an entry alone costs more than `max_object`",
            ));
        }
        Ok(())
    }
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// An empty cache in real time: [`Builder::build`].
    pub fn new(strategy: Strategy) -> Result<Self, InvalidStrategy> {
        Self::builder(strategy).build()
    }

    /// A builder, for a cache that needs more than its strategy.
    #[must_use]
    pub fn builder(strategy: Strategy) -> Builder<K, V> {
        Builder::new(strategy)
    }
}

impl<K, V> std::fmt::Debug for Builder<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("strategy", &self.0.strategy).finish_non_exhaustive()
    }
}
