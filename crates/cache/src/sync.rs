//! The cache for programs without an async runtime: callers block until they are answered.
//!
//! ```
//! use stockade_cache::{Strategy, sync::Cache};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache: Cache<u64, String> = Cache::new(Strategy::default())?;
//!
//! // However many threads ask at once, one load runs, and the others wait for its value. (One that is very slow is hedged.)
//! let answer = cache.get_with(7, || Ok::<_, std::io::Error>("Ada Lovelace".to_owned()))?;
//! assert_eq!(answer.value, "Ada Lovelace");
//! assert_eq!(cache.get(&7).as_deref(), Some("Ada Lovelace"));
//! # Ok(())
//! # }
//! ```
//!
//! The strategies are those of [`crate::Cache`], and so are the answers. A load runs on the thread of the caller that starts it, as in
//! any function call: it may block, call other caches, and panic. Refreshes in the background, batches, and loads with a
//! [soft timeout](crate::LoadBounds::soft_timeout) run on threads of the cache, 64 at most, which end ten seconds after their last load:
//! the source of one cache takes no thread from another. All caches of a process share one thread for timers.
//!
//! A load is a function that blocks, so it cannot be cancelled once it runs. Its caller waits until it returns. The others wait for the
//! strategy's `wait_timeout`; a load that has passed its [deadline](crate::LoadBounds::deadline) counts as one that its source has not
//! answered in time. The place of a background load among the [concurrent loads](crate::LoadBounds::max_concurrent) is free from its
//! deadline on.

use std::{
    borrow::Borrow,
    future::Future,
    hash::Hash,
    io,
    panic::resume_unwind,
    sync::{Arc, OnceLock},
};

use stockade_model::{
    seed::Seed,
    time::{Live, background, block_on, is_own_load},
};
use tokio::{
    runtime::{Builder as RuntimeBuilder, Runtime as TokioRuntime},
    task::JoinHandle,
};

use crate::{
    answer::Answer,
    batch::{BatchLoader, Batching},
    builder::Builder,
    cache::Validated,
    engine::{
        insertion::Insertion,
        loader::{BoxError, WithoutSource},
        update::Update,
    },
    error::{Error, InvalidStrategy},
    freshness::Lifespan,
    invalidation::Invalidation,
    stats::Stats,
    store::StoredValue,
    strategy::Strategy,
};

/// A cache for threads. Clones share it. See the [module](self).
///
/// A task of tokio should use [`crate::Cache`]: in it, the methods that may wait block a thread of tokio.
pub struct Cache<K: Hash + Eq + Clone, V: Clone> {
    cache: crate::Cache<K, V>,
    background: Arc<BackgroundLoads>,
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// An empty cache. With more than a strategy: [`Builder::build_sync`].
    pub fn new(strategy: Strategy) -> Result<Self, InvalidStrategy> {
        crate::Cache::builder(strategy).build_sync()
    }

    /// A builder, for more than a strategy: it ends with [`build_sync`](Builder::build_sync).
    ///
    /// ```
    /// use stockade_cache::{Strategy, sync::Cache};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pages: Cache<String, String> =
    ///     Cache::builder(Strategy::default()).count_lookups().build_sync()?;
    /// assert_eq!(pages.stats().lookups.map(|lookups| lookups.total), Some(0));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn builder(strategy: Strategy) -> Builder<K, V> {
        crate::Cache::builder(strategy)
    }

    /// The counters of this cache: [`crate::Cache::stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.cache.stats()
    }

    /// The cache beneath, with its other methods: entries, batches, snapshots. A load that is passed to it runs on
    /// the thread of the timers: it must not block, and has no sockets of tokio.
    #[must_use]
    pub fn as_async(&self) -> &crate::Cache<K, V> {
        &self.cache
    }

    /// The fresh value of `key`: [`crate::Cache::get`].
    #[must_use]
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.cache.get(key)
    }

    /// Stores a value that did not come from a load: [`crate::Cache::insert`].
    pub fn insert(&self, key: K, value: V) -> Insertion {
        self.cache.insert(key, value)
    }

    /// True if [`get`](Self::get) would return a value: [`crate::Cache::contains_key`].
    #[must_use]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.cache.contains_key(key)
    }

    /// Changes the value of `key` by a function of the fresh one: [`crate::Cache::update`].
    pub fn update<Q>(&self, key: &Q, change: impl FnMut(Option<&StoredValue<V>>) -> Update<V>) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.cache.update(key, change)
    }

    /// Removes the entry of `key` and returns its value, if it was fresh: [`crate::Cache::remove`].
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.cache.remove(key)
    }

    /// Invalidates the entry of `key`: [`crate::Cache::invalidate`].
    pub fn invalidate<Q>(&self, key: &Q, how: Invalidation) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.cache.invalidate(key, how)
    }

    /// Invalidates the entries with a tag: [`crate::Cache::invalidate_tag`].
    #[expect(clippy::must_use_candidate, reason = "most callers do not care how many there were")]
    pub fn invalidate_tag(&self, tag: &str, how: Invalidation) -> usize {
        self.cache.invalidate_tag(tag, how)
    }

    /// Invalidates all entries: [`crate::Cache::invalidate_all`].
    #[expect(clippy::must_use_candidate, reason = "most callers do not care how many there were")]
    pub fn invalidate_all(&self, how: Invalidation) -> usize {
        self.cache.invalidate_all(how)
    }

    /// The value of `key`, loaded by `load` if the strategy needs it: [`crate::Cache::get_with`]. `load` runs on this thread, once
    /// for all callers that wait for the key.
    pub fn get_with<E>(
        &self,
        key: K,
        load: impl FnOnce() -> Result<V, E> + Send + 'static,
    ) -> Result<Answer<V>, Error>
    where
        E: Into<BoxError> + Send + 'static,
    {
        self.answer(key, |key, background| self.cache.get_with(key, move || background.run(load)))
    }

    /// As [`get_with`](Self::get_with), with a borrowed key: [`crate::Cache::get_with_by_ref`].
    pub fn get_with_by_ref<Q, E>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<V, E> + Send + 'static,
    ) -> Result<Answer<V>, Error>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
        E: Into<BoxError> + Send + 'static,
    {
        self.cache.hit(key).map_or_else(|| self.get_with(key.to_owned().into(), load), Ok)
    }

    /// As [`get_with`](Self::get_with), where `load` returns how long its value is served: [`crate::Cache::get_with_lifespan`].
    pub fn get_with_lifespan<E>(
        &self,
        key: K,
        load: impl FnOnce() -> Result<(V, Lifespan), E> + Send + 'static,
    ) -> Result<Answer<V>, Error>
    where
        E: Into<BoxError> + Send + 'static,
    {
        self.answer(key, |key, background| self.cache.get_with_lifespan(key, move || background.run(load)))
    }

    /// Loads the value of `key` anew: [`crate::Cache::refresh`].
    pub fn refresh<E>(
        &self,
        key: K,
        load: impl FnOnce() -> Result<V, E> + Send + 'static,
    ) -> Result<Answer<V>, Error>
    where
        E: Into<BoxError> + Send + 'static,
    {
        let background = Arc::clone(&self.background);
        self.wait_for(self.cache.refresh(key, move || background.run(load)))
    }

    /// As [`get_with`](Self::get_with), where `load` receives the stored value and may find it unchanged:
    /// [`crate::Cache::get_validated`].
    pub fn get_validated<E>(
        &self,
        key: K,
        load: impl FnOnce(Option<V>) -> Result<Validated<V>, E> + Send + 'static,
    ) -> Result<Answer<V>, Error>
    where
        E: Into<BoxError> + Send + 'static,
    {
        self.answer(key, |key, background| {
            self.cache.get_validated(key, move |stored| background.run(move || load(stored)))
        })
    }

    /// A loader of many keys with one call of `load`: [`crate::Cache::batch_loader`].
    #[must_use]
    pub fn batch_loader<I, E>(
        &self,
        batching: Batching,
        load: impl Fn(Vec<K>) -> Result<I, E> + Clone + Send + Sync + 'static,
    ) -> BatchLoader<K, V>
    where
        I: IntoIterator<Item = (K, Result<V, E>)> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let background = Arc::clone(&self.background);
        self.cache.batch_loader(batching, move |keys| {
            let (background, load) = (Arc::clone(&background), load.clone());
            async move {
                let load = move || load(keys).map(|pairs| pairs.into_iter().collect::<Vec<_>>());
                let pairs = background.run(load).await?;
                let boxed = |(key, value): (K, Result<V, E>)| (key, value.map_err(Into::into));
                Ok::<Vec<(K, Result<V, BoxError>)>, BoxError>(pairs.into_iter().map(boxed).collect())
            }
        })
    }

    /// The values of many keys, in their order: [`crate::Cache::get_many_with`].
    pub fn get_many_with(
        &self,
        keys: impl IntoIterator<Item = K>,
        loader: &BatchLoader<K, V>,
    ) -> Vec<Result<Answer<V>, Error>> {
        self.wait_for(self.cache.get_many_with(keys, loader))
    }

    /// Waits until no load is in flight: [`crate::Cache::wait_idle`].
    pub fn wait_idle(&self) {
        self.wait_for(self.cache.wait_idle());
    }

    /// Blocks until the future is ready.
    fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(self.cache.runtime(), future)
    }

    /// Answers a hit without the runtime, and other requests by the future that `serve` returns.
    #[inline]
    fn answer<F: Future<Output = Result<Answer<V>, Error>>>(
        &self,
        key: K,
        serve: impl FnOnce(K, Arc<BackgroundLoads>) -> F,
    ) -> Result<Answer<V>, Error> {
        match self.cache.hit(&key) {
            Some(answer) => Ok(answer),
            None => self.wait_for(serve(key, Arc::clone(&self.background))),
        }
    }
}

impl<K, V> Builder<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// An empty cache for threads.
    pub fn build_sync(self) -> Result<Cache<K, V>, InvalidStrategy> {
        let timers = background();
        let timers = timers.map_err(|_| InvalidStrategy("the thread of the timers cannot be started"))?;
        let runtime = Live::on(timers.clone()).with_past();
        let cache = self.build_on(runtime, Seed::from_entropy())?;
        Ok(Cache { cache, background: Arc::new(BackgroundLoads(OnceLock::new())) })
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), background: Arc::clone(&self.background) }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> std::fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

/// The threads of one cache for loads that no caller runs.
struct BackgroundLoads(OnceLock<io::Result<TokioRuntime>>);

/// Of one cache.
const BACKGROUND_THREADS_MAX: usize = 64;

impl BackgroundLoads {
    /// A runtime that is never entered: it has the threads.
    fn threads(&self) -> Result<&TokioRuntime, WithoutSource> {
        let start = || {
            let threads = BACKGROUND_THREADS_MAX;
            RuntimeBuilder::new_current_thread()
                .max_blocking_threads(threads)
                .thread_name("stockade-load")
                .build()
        };
        let threads = self.0.get_or_init(start).as_ref();
        threads.map_err(|error| WithoutSource(format!("no thread for loads: {error}").into()))
    }

    /// Runs a load on this thread if it is that of a caller who waits for it, else on one for loads.
    async fn run<T, E>(
        self: Arc<Self>,
        load: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, BoxError>
    where
        T: Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        if is_own_load() {
            return load().map_err(Into::into);
        }
        let mut threaded = ThreadedLoad(self.threads()?.spawn_blocking(load));
        match (&mut threaded.0).await {
            Ok(loaded) => loaded.map_err(Into::into),
            // A panic of the load continues in the task that waits for it.
            Err(error) => resume_unwind(error.try_into_panic().unwrap_or_else(|error| Box::new(error))),
        }
    }
}

impl Drop for BackgroundLoads {
    /// Does not wait for loads that still run.
    fn drop(&mut self) {
        if let Some(Ok(threads)) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

/// A load on its thread, or in the queue for one. It leaves the queue if this is dropped.
struct ThreadedLoad<T>(JoinHandle<T>);

impl<T> Drop for ThreadedLoad<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
