//! The cache for programs without an async runtime: callers block until they are answered.
//!
//! ```
//! use stockade_cache::{Strategy, sync::Cache};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache: Cache<u64, String> = Cache::new(Strategy::preset("stampede")?)?;
//!
//! // However many threads ask at once, one load runs, and the others wait for its value.
//! let answer = cache.get_with(7, || Ok::<_, std::io::Error>("Ada Lovelace".to_owned()))?;
//! assert_eq!(answer.value, "Ada Lovelace");
//! assert_eq!(cache.get(&7).as_deref(), Some("Ada Lovelace"));
//! # Ok(())
//! # }
//! ```
//!
//! The strategies are those of [`crate::Cache`], and so are the answers. All caches of a process share one thread for timers and
//! for storing loaded values, and threads for loads: as many as run at once, 512 at most, which end ten seconds after their
//! last load. A hit uses none of them. A load may call another cache for threads, but both take a thread meanwhile.
//!
//! A load is a function that blocks, so it cannot be cancelled once it runs: after its deadline its callers receive
//! [`Error::Deadline`], and it goes on until it returns; its value is dropped. Its place among the
//! [concurrent loads](crate::LoadBounds::max_concurrent) is free from the deadline on. A load that has no thread yet at its
//! deadline does not run.

use std::{
    borrow::Borrow,
    future::{Future, pending},
    hash::Hash,
    io,
    panic::resume_unwind,
    sync::OnceLock,
    thread,
};

use stockade_model::{seed::Seed, time::Live};
use tokio::{
    runtime::{Builder as RuntimeBuilder, Handle},
    task::JoinHandle,
};

use crate::{
    answer::Answer,
    batch::{BatchLoader, Batching},
    builder::Builder,
    cache::Validated,
    engine::{insertion::Insertion, loader::BoxError, update::Update},
    error::{Error, InvalidStrategy},
    store::{StoredValue, invalidation::Invalidation},
    strategy::Strategy,
};

/// A cache for threads. Clones share it. See the [module](self).
///
/// A task of tokio must use [`crate::Cache`]: in it, the methods that may wait would block a thread of tokio, and panic when
/// they have to wait, for `get_with` at the first miss. On a thread of `spawn_blocking` they may be called.
pub struct Cache<K: Hash + Eq + Clone, V: Clone>(crate::Cache<K, V>);

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// An empty cache. With more than a strategy: [`Builder::build_sync`].
    pub fn new(strategy: Strategy) -> Result<Self, InvalidStrategy> {
        crate::Cache::builder(strategy).build_sync()
    }

    /// The cache beneath, with its other methods: invalidation by tag, entries, statistics. A load that is passed to it runs on
    /// the thread of the timers: it must not block, and has no sockets of tokio.
    #[must_use]
    pub fn as_async(&self) -> &crate::Cache<K, V> {
        &self.0
    }

    /// The fresh value of `key`: [`crate::Cache::get`].
    #[must_use]
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    /// Stores a value that did not come from a load: [`crate::Cache::insert`].
    pub fn insert(&self, key: K, value: V) -> Insertion {
        self.0.insert(key, value)
    }

    /// Changes the value of `key` by a function of the fresh one: [`crate::Cache::update`].
    pub fn update(&self, key: &K, change: impl FnMut(Option<&StoredValue<V>>) -> Update<V>) -> Option<V> {
        self.0.update(key, change)
    }

    /// Invalidates the entry of `key`: [`crate::Cache::invalidate`].
    pub fn invalidate<Q>(&self, key: &Q, how: Invalidation) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.0.invalidate(key, how)
    }

    /// The value of `key`, loaded by `load` if the strategy needs it: [`crate::Cache::get_with`]. `load` runs on a thread for
    /// loads, once for all callers that wait for the key.
    pub fn get_with<E>(
        &self,
        key: K,
        load: impl FnOnce() -> Result<V, E> + Send + 'static,
    ) -> Result<Answer<V>, Error>
    where
        E: Into<BoxError> + Send + 'static,
    {
        if let Some(answer) = self.fresh(&key) {
            return Ok(answer);
        }
        wait_for(self.0.get_with(key, move || on_thread(load)))
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
        if let Some(answer) = self.fresh(&key) {
            return Ok(answer);
        }
        wait_for(self.0.get_validated(key, move |stored| on_thread(move || load(stored))))
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
        self.0.batch_loader(batching, move |keys| {
            let load = load.clone();
            on_thread(move || load(keys))
        })
    }

    /// The values of many keys, in their order: [`crate::Cache::get_many_with`].
    pub fn get_many_with(
        &self,
        keys: impl IntoIterator<Item = K>,
        loader: &BatchLoader<K, V>,
    ) -> Vec<Result<Answer<V>, Error>> {
        wait_for(self.0.get_many_with(keys, loader))
    }

    /// Waits until no load is in flight: [`crate::Cache::wait_idle`].
    pub fn wait_idle(&self) {
        wait_for(self.0.wait_idle());
    }

    /// Answers a hit without the runtime.
    #[inline]
    fn fresh(&self, key: &K) -> Option<Answer<V>> {
        let answer = self.0.get_answer(key)?;
        self.0.record_request(key);
        Some(answer)
    }
}

impl<K, V> Builder<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// An empty cache for threads.
    pub fn build_sync(self) -> Result<Cache<K, V>, InvalidStrategy> {
        let runtime = Live::on(handle()?.clone()).with_past();
        self.build_on(runtime, Seed::from_entropy()).map(Cache)
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Hash + Eq + Clone, V: Clone> std::fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

/// The runtime of all caches for threads.
static HANDLE: OnceLock<io::Result<Handle>> = OnceLock::new();

fn handle() -> Result<&'static Handle, InvalidStrategy> {
    let handle = HANDLE.get_or_init(|| {
        let runtime =
            RuntimeBuilder::new_current_thread().enable_time().thread_name("stockade-load").build()?;
        let handle = runtime.handle().clone();
        let run = move || runtime.block_on(pending::<()>());
        thread::Builder::new().name("stockade-timers".to_owned()).spawn(run)?;
        Ok(handle)
    });
    handle.as_ref().map_err(|_| InvalidStrategy("the thread of the timers cannot be started"))
}

/// Blocks until the future is ready.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    handle().expect("a cache has been built").block_on(future)
}

/// A load on its thread, or in the queue for one. It leaves the queue if this is dropped.
struct ThreadedLoad<T>(JoinHandle<T>);

impl<T> Drop for ThreadedLoad<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a load on a thread for loads. A panic of the load continues in the task that waits for it.
async fn on_thread<T: Send + 'static>(load: impl FnOnce() -> T + Send + 'static) -> T {
    let mut threaded = ThreadedLoad(handle().expect("a cache has been built").spawn_blocking(load));
    match (&mut threaded.0).await {
        Ok(loaded) => loaded,
        Err(error) => resume_unwind(error.try_into_panic().unwrap_or_else(|error| Box::new(error))),
    }
}
