//! The public API of the cache.

use std::{borrow::Borrow, future::Future, hash::Hash, num::NonZeroU64, sync::Arc, time::Duration};

use stockade_model::{
    seed::Seed,
    time::{Live, Runtime},
};

use crate::{
    answer::Answer,
    batch::{BatchLoader, Batching, join::join_all},
    breaker::{BreakerPermit, BreakerState, LoadOutcome},
    engine::{
        Engine, EngineConfig,
        insertion::Insertion,
        loader::{
            BoxError, CacheMode, LifespanLoader, LoadedValue, RequestOptions, StreamLoader, ValueLoader,
        },
        update::Update,
    },
    error::{Error, InvalidStrategy},
    freshness::Lifespan,
    invalidation::Invalidation,
    limit::Limit,
    loading::LoadingCache,
    shadow::ShadowStats,
    stats::Stats,
    store::{NewValue, Reservation, Store, StoredValue, budget::ByteUsage, held::HeldEntries},
    strategy::Strategy,
    tier::{InvalidationTarget, SharedTier},
};

/// The breaker's permission for one call to the source. If it is dropped without a result, the call says nothing about
/// the source.
#[derive(Debug)]
pub struct CallPermit<R: Runtime = Live>(Option<BreakerPermit<R>>);

impl<R: Runtime> CallPermit<R> {
    /// Records the result of the call.
    pub fn record_result(self, is_answered: bool) {
        self.end(if is_answered { LoadOutcome::Answered } else { LoadOutcome::Failed });
    }

    /// The source has not answered in time: a failure only if it has answered no other load since the call started.
    pub fn record_timeout(self) {
        self.end(LoadOutcome::TimedOut);
    }

    fn end(self, outcome: LoadOutcome) {
        if let Some(permit) = self.0 {
            permit.record_result(outcome);
        }
    }
}

/// A cache with one strategy. Clones share it.
///
/// `K` and `V` are cloned often: a key with every load, a value with every answer. Put large values behind an `Arc`
/// or into `bytes::Bytes`. Cloning, comparing and hashing happen under a lock, so they must not call the cache.
pub struct Cache<K: Hash + Eq + Clone, V: Clone, R: Runtime = Live> {
    engine: Arc<Engine<K, V, R>>,
}

impl<K, V, R> Cache<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// `plan` has been checked.
    pub(crate) fn start(runtime: R, seed: Seed, plan: EngineConfig<K, V>) -> Self {
        let engine = Engine::start(runtime, seed, plan);
        engine.subscribe_to_tier();
        Self { engine }
    }

    pub(crate) fn store(&self) -> &Store<K, V> {
        &self.engine.store
    }

    pub(crate) fn runtime(&self) -> &R {
        &self.engine.runtime
    }

    /// A cache over the same entries and loads, with another strategy, breaker and counts: for routes that handle a
    /// missing value differently and share one limit. The limit of `strategy` is ignored. The spans of the
    /// view have the name, and with the feature `metrics` the view reports under it what `Builder::metrics` lists.
    pub fn view(&self, strategy: &Strategy, name: Option<String>) -> Result<Self, InvalidStrategy> {
        self.engine.view(strategy, name).map(|engine| Self { engine })
    }

    /// The fresh value of `key`. Never loads, refreshes or waits.
    #[must_use]
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let now = self.engine.now_for_lookups();
        match self.engine.store.look_up::<true, _>(key, now) {
            Ok((value, _)) => Some(value),
            Err(lookup) => {
                let value = self.engine.look_closer(lookup, key, now);
                self.engine.store.record_request(key, now);
                value
            }
        }
    }

    /// The fresh value of `key` with its age. `None` also if the value may have to be refreshed: use
    /// [`get_with`](Self::get_with) then. It is not a request for [ghosts](crate::Builder::shadow), unless it is
    /// [recorded](Self::record_request).
    #[must_use]
    #[inline]
    pub fn get_answer<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Answer<V>>
    where
        K: Borrow<Q>,
    {
        let now = self.engine.now_for_lookups();
        let (value, loaded) = self.engine.store.look_up::<false, _>(key, now).ok()?;
        Some(Answer::hit(value, now - loaded))
    }

    /// As [`get_answer`](Self::get_answer), for a request that the ghosts count.
    #[inline]
    pub(crate) fn hit<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Answer<V>>
    where
        K: Borrow<Q>,
    {
        let answer = self.get_answer(key)?;
        self.record_request(key);
        Some(answer)
    }

    /// True if [`get`](Self::get) would return a value. Counts nothing, and is not a hit for the eviction policy.
    #[must_use]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.engine.store.is_fresh(key, self.engine.now_for_lookups())
    }

    /// Stores a value that did not come from a load, for the strategy's `ttl`.
    ///
    /// It follows all that was stored and invalidated before. A load of the same key in flight answers its waiters and is not stored.
    /// xfetch does not refresh the value
    /// before it expires, because the duration of a load is not known. A value that a limit in bytes rejects is not
    /// stored, and the stored value of its key is removed.
    pub fn insert(&self, key: K, value: V) -> Insertion {
        self.insert_as(key, value, None)
    }

    /// As [`insert`](Self::insert), with times of its own. ([`LoadedValue::lifespan`] is that of a load.)
    pub fn insert_for(&self, key: K, value: V, lifespan: Lifespan) -> Insertion {
        self.insert_as(key, value, Some(lifespan))
    }

    fn insert_as(&self, key: K, value: V, own: Option<Lifespan>) -> Insertion {
        let engine = &*self.engine;
        let journaled = engine.store.journal_target(&key);
        let since = engine.store.invalidation_seq();
        let insertion = engine.insert(NewValue { key, value, since, took: Duration::ZERO }, own);
        if let Some(target) = journaled {
            engine.store.write_journal(target);
        }
        insertion
    }

    /// Changes the value of `key` by a function of the fresh value, if there is one. Returns the value that `change` kept or that was stored.
    ///
    /// `change` runs without a lock, and should do nothing else: if the key was changed or invalidated in the meantime, it is called again with
    /// the new value. So callers lose no change of each other in this node's memory. As any value of a cache, it can be evicted
    /// between two calls. As after an [`insert`](Self::insert), a load in flight is not stored, nor is a value in the writer's mailbox.
    /// A value that a limit rejects, or that is not cacheable, removes the entry: `None`.
    ///
    /// A [shared tier](crate::Builder::shared_tier) receives the new value, but is not asked for the old one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stockade_cache::{Cache, Strategy, Update};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let strategy = Strategy { ttl: Some(Duration::from_secs(60)), ..Strategy::default() };
    /// let requests: Cache<&str, u32> = Cache::new(strategy)?;
    /// // Requests of a client in a minute that begins with the first.
    /// let count = |client| {
    ///     requests.update(&client, |counted| {
    ///         Update::StoreInPlace(counted.map_or(0, |counted| counted.value) + 1)
    ///     })
    /// };
    /// assert_eq!([count("192.0.2.1"), count("192.0.2.1"), count("192.0.2.2")], [Some(1), Some(2), Some(1)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn update<Q>(&self, key: &Q, change: impl FnMut(Option<&StoredValue<V>>) -> Update<V>) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.engine.update(key, change)
    }

    /// Removes the entry of `key`, as a [hard](Invalidation::Hard) [invalidation](Self::invalidate) does, and returns its value, if it was
    /// fresh. Of several callers one receives it. Looks at this node's memory only.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        let mut removed = None;
        self.update(key, |stored| {
            removed = stored.map(|stored| stored.value.clone());
            Update::Remove
        });
        removed
    }

    /// Invalidates the entry of `key`. Returns true if there was one.
    ///
    /// A load of the key in flight answers the requests that started before, and is not stored. Later requests start
    /// a new load.
    ///
    /// With a [shared tier](crate::Builder::shared_tier) all nodes invalidate the key: within a round trip or two, or when
    /// the tier is available again. Until then they serve their entries for the ttl at most. `RedisTier::flush` waits
    /// until the invalidation has been sent.
    ///
    /// `key` may be borrowed, as in [`get`](Self::get); a `K` is made of it for a shared tier only.
    pub fn invalidate<Q>(&self, key: &Q, how: Invalidation) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        // Published first: after this call no request on this node receives the tier's old value.
        let target =
            |shared: &SharedTier<K, V>| InvalidationTarget::Key(shared.keys.encode(&key.to_owned().into()));
        self.engine.publish_invalidation(target, how);
        self.engine.invalidate(key, how)
    }

    /// From now on the value of `key` is served only if a load fails, within its `sie`: as after
    /// [`Invalidation::Fallback`], but loads in flight are stored, and other nodes learn nothing. For an answer that says that a stale
    /// value is out of date, and that is not to be stored itself. False: nothing is stored.
    pub fn restrict_to_fallback(&self, key: &K) -> bool {
        self.engine.restrict_to_fallback(key)
    }

    /// Invalidates the entries with this [tag](crate::Builder::tags), and values with it that are being loaded. Returns the
    /// number of entries, also those that another invalidation has not removed yet. A load's tags are known when it ends: later requests
    /// wait for it, and load again if it has the tag.
    #[expect(clippy::must_use_candidate, reason = "most callers do not care how many there were")]
    pub fn invalidate_tag(&self, tag: &str, how: Invalidation) -> usize {
        self.engine.publish_invalidation(|_| InvalidationTarget::Tag(tag.to_owned()), how);
        self.engine.invalidate_tag(tag, how)
    }

    /// Invalidates the entries that match. Returns their number. Values that are being loaded are answered
    /// and not stored. Other nodes of a [shared tier](crate::Builder::shared_tier) invalidate everything.
    ///
    /// `matches` is called with copies of each entry, without a lock: it may call the cache.
    pub fn invalidate_if(&self, matches: impl Fn(&K, &V) -> bool, how: Invalidation) -> usize {
        self.engine.publish_invalidation(|_| InvalidationTarget::All, how);
        self.engine.invalidate_if(matches, how)
    }

    /// Invalidates all entries, and values that are being loaded. Returns the number of entries.
    ///
    /// No request receives them any more, or fresh, when this returns. They are removed or changed, and the
    /// [listener](crate::Builder::on_removal) is called: some 4,000 before this returns, the rest by a task, or by
    /// [`purge_expired`](Self::purge_expired).
    #[expect(clippy::must_use_candidate, reason = "most callers do not care how many there were")]
    pub fn invalidate_all(&self, how: Invalidation) -> usize {
        self.engine.publish_invalidation(|_| InvalidationTarget::All, how);
        self.engine.invalidate_all(how)
    }

    /// The value of `key`: from the store, from `load` or from another caller's load, as the strategy defines.
    ///
    /// The lookup happens when the future is first polled. `load` is called at most once. The load runs in this caller's task until it has
    /// to wait, and then in a task of its own, that no caller's cancellation ends. So what it computes before its first wait is not in parallel
    /// with this task. It may be called long after the lookup, if this caller is
    /// elected to replace a lost leader.
    pub fn get_with<L, F, E>(
        &self,
        key: K,
        load: L,
    ) -> impl Future<Output = Result<Answer<V>, Error>> + Send + use<'_, K, V, R, L, F, E>
    where
        L: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        self.engine.serve(key, ValueLoader(load), CacheMode::Default)
    }

    /// As [`get_with`](Self::get_with), with a borrowed key. A `K` is made only if the value is not fresh.
    pub async fn get_with_by_ref<Q, L, F, E>(&self, key: &Q, load: L) -> Result<Answer<V>, Error>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + Sync + ?Sized,
        L: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        if let Some(answer) = self.hit(key) {
            return Ok(answer);
        }
        self.engine.serve(key.to_owned().into(), ValueLoader(load), CacheMode::Default).await
    }

    /// As [`get_with`](Self::get_with), where the load returns how long its value is served: from a `Cache-Control`, or the end of a token.
    /// ([`Builder::lifespan`](crate::Builder::lifespan) is for values that contain it.) It is in place of all times of the strategy, also of
    /// `negative_ttl`; [`Strategy::lifespan`] keeps the others.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stockade_cache::{Cache, Lifespan, Strategy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tokens: Cache<&str, String> = Cache::new(Strategy::default())?;
    /// let load = async || {
    ///     let (token, expires_in) = ("2YotnFZFEjr1zCsicMWpAA".to_owned(), Duration::from_secs(3600));
    ///     // New a minute before its end.
    ///     let ttl = expires_in - Duration::from_secs(60);
    ///     Ok::<_, std::io::Error>((token, Lifespan { ttl, ..Lifespan::NONE }))
    /// };
    /// tokens.get_with_lifespan("api.example.com", load).await?;
    /// let stored = tokens.peek("api.example.com").expect("a token");
    /// assert!(stored.fresh_for > Duration::from_secs(3530));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_with_lifespan<L, F, E>(
        &self,
        key: K,
        load: L,
    ) -> impl Future<Output = Result<Answer<V>, Error>> + Send + use<'_, K, V, R, L, F, E>
    where
        L: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<(V, Lifespan), E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        self.engine.serve(key, LifespanLoader(load), CacheMode::Default)
    }

    /// Loads the value of `key` anew, although a fresh one may be stored: that is served to others until the load has ended. Joins a load
    /// that has begun, if it ends after this call. If the load fails, the answer is the stored value, if there is one, as a
    /// [fallback](crate::Outcome::Fallback).
    pub fn refresh<L, F, E>(
        &self,
        key: K,
        load: L,
    ) -> impl Future<Output = Result<Answer<V>, Error>> + Send + use<'_, K, V, R, L, F, E>
    where
        L: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        self.engine.serve(key, ValueLoader(load), CacheMode::Reload)
    }

    /// This cache with a function that loads its values.
    ///
    /// ```
    /// use stockade_cache::{Cache, Strategy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cache: Cache<u64, String> = Cache::new(Strategy::default())?;
    /// let users = cache.loading(async |id: u64| {
    ///     // SELECT name FROM users WHERE id = $1
    ///     if id < 100 { Ok(format!("user {id}")) } else { Err(std::io::Error::other("no such user")) }
    /// });
    /// assert_eq!(users.get(&7).await?.value, "user 7");
    /// let error = users.get(&100).await.expect_err("no user has this id");
    /// assert_eq!(error.of_load::<std::io::Error>().map(|error| error.kind()), Some(std::io::ErrorKind::Other));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn loading<L, F, E>(&self, load: L) -> LoadingCache<K, V, R>
    where
        L: Fn(K) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        LoadingCache::new(self.clone(), load)
    }

    /// A loader of many keys with one call of `load`, for [`get_many_with`](Self::get_many_with).
    ///
    /// `load` receives each key once, in the order in which the keys came. It returns pairs of a key and its value, or its
    /// error, in any order: a `Vec` or a map. A key without a pair fails with [`Error::NotInBatch`]. An error in place of the pairs fails all keys.
    /// Each key is a load of its own for the strategy's [bounds](crate::LoadBounds) and for the [breaker](crate::Breaker).
    #[must_use]
    pub fn batch_loader<L, F, I, E>(&self, batching: Batching, load: L) -> BatchLoader<K, V, R>
    where
        L: Fn(Vec<K>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<I, E>> + Send + 'static,
        I: IntoIterator<Item = (K, Result<V, E>)>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Engine { runtime, random, strategy, .. } = &*self.engine;
        BatchLoader::new(runtime.clone(), random.seed(), strategy.load.deadline, batching, load)
    }

    /// The values of many keys, in their order. Keys that need a load are loaded together, also with those of other
    /// callers: each as [`get_with`](Self::get_with) would, and the failure of one is not that of the others.
    ///
    /// Background refreshes are batches, too. A key waits for its batch for `load.deadline` at most
    /// ([`Error::QueueTimeout`], which says nothing about the source); then the batch has the same time.
    ///
    /// ```
    /// use stockade_cache::{Batching, Cache, Error, Strategy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cache: Cache<u64, String> = Cache::new(Strategy::default())?;
    /// let users = cache.batch_loader(Batching::DEFAULT, async |ids: Vec<u64>| {
    ///     // SELECT id, name FROM users WHERE id = ANY($1)
    ///     let rows = ids.into_iter().filter(|id| *id < 100).map(|id| (id, Ok(format!("user {id}"))));
    ///     Ok::<_, std::io::Error>(rows.collect::<Vec<_>>())
    /// });
    ///
    /// let found = cache.get_many_with([7, 8, 100], &users).await;
    /// assert_eq!(found[0].as_ref().map(|answer| answer.value.as_str()).ok(), Some("user 7"));
    /// assert!(matches!(found[2], Err(Error::NotInBatch)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_many_with<I: IntoIterator<Item = K>>(
        &self,
        keys: I,
        loader: &BatchLoader<K, V, R>,
    ) -> impl Future<Output = Vec<Result<Answer<V>, Error>>> + Send + use<'_, K, V, R, I> {
        let (keys, loader) = (keys.into_iter().collect::<Vec<_>>(), loader.clone());
        async move {
            let mut pending = Vec::new();
            let mut look_up = |key: K| match self.hit(&key) {
                Some(answer) => Some(Ok(answer)),
                None => {
                    pending.push(self.engine.serve(key.clone(), loader.one(key), CacheMode::Default));
                    None
                }
            };
            let found: Vec<_> = keys.into_iter().map(&mut look_up).collect();
            let mut loaded = join_all(pending).await.into_iter();
            found.into_iter().filter_map(|answer| answer.or_else(|| loaded.next())).collect()
        }
    }

    /// As [`get_with`](Self::get_with), for a value that can be served before it is complete, such as a response
    /// whose body is still being received.
    ///
    /// Callers are answered as soon as `load` returns a [`LoadedValue`]; the cache stores the result of its
    /// [remainder](LoadedValue::remainder). A request that comes in between receives the same unfinished value. No
    /// bytes are reserved before the load begins: it grows its [`Reservation`] as it learns how large the value is.
    pub fn get_streaming<O, L, F, E>(
        &self,
        key: K,
        options: O,
        load: L,
    ) -> impl Future<Output = Result<Answer<V>, Error>> + Send + use<'_, K, V, R, O, L, F, E>
    where
        O: Into<RequestOptions>,
        L: FnOnce(Reservation<K, V>) -> F + Send + 'static,
        F: Future<Output = Result<LoadedValue<K, V>, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        let RequestOptions { mode, client } = options.into();
        self.engine.serve(key, StreamLoader { load, client }, mode)
    }

    /// As [`get_with`](Self::get_with), for a source that can tell whether a value has changed, by a version or an entity
    /// tag: `load` receives the stored value, and returns [`Validated::Unchanged`] to serve it for another ttl.
    ///
    /// An expired value is there for the strategy's `swr` and `sie`, and for the [`keep`](Lifespan::keep) of its lifespan.
    ///
    /// ```
    /// use stockade_cache::{Cache, Strategy, Validated};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // The second of the pair is its version.
    /// let cache: Cache<u64, (String, u64)> = Cache::new(Strategy::default())?;
    /// let load = async |stored: Option<(String, u64)>| {
    ///     // SELECT name, version FROM users WHERE id = $1 AND version <> $2
    ///     let row = stored.is_none().then(|| ("Ada Lovelace".to_owned(), 3));
    ///     Ok::<_, std::io::Error>(row.map_or(Validated::Unchanged, Validated::Changed))
    /// };
    /// let answer = cache.get_validated(7, load).await?;
    /// assert_eq!(answer.value, ("Ada Lovelace".to_owned(), 3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_validated<L, F, E>(
        &self,
        key: K,
        load: L,
    ) -> impl Future<Output = Result<Answer<V>, Error>> + Send + use<'_, K, V, R, L, F, E>
    where
        L: FnOnce(Option<V>) -> F + Send + 'static,
        F: Future<Output = Result<Validated<V>, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        let (cache, stored_key) = (self.clone(), key.clone());
        self.get_with(key, move || {
            let stored = cache.peek(&stored_key).map(|stored| stored.value);
            let loaded = load(stored.clone());
            async move {
                match loaded.await.map_err(Into::into)? {
                    Validated::Changed(value) => Ok(value),
                    Validated::Unchanged => stored.ok_or_else(|| BoxError::from(NOTHING_TO_VALIDATE)),
                }
            }
        })
    }

    /// The stored value of `key`, whether or not it may be served, unless it is [idle](crate::Builder::time_to_idle). A load can validate it.
    /// Counts nothing, and is not a hit for the eviction policy.
    #[must_use]
    pub fn peek<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<StoredValue<V>>
    where
        K: Borrow<Q>,
    {
        let now = self.engine.runtime.coarse_now();
        self.engine.store.peek(key, now)
    }

    /// Removes the entries that are not served any more, fresh or stale, or are idle. Returns their number.
    ///
    /// Every store removes a few of them, so a cache into which values are stored needs no call. One that is only read keeps them until then;
    /// call this now and then if their memory, or the [listener](crate::Builder::on_removal), should not wait. It examines all entries, at most
    /// 256 at a time under one lock.
    #[expect(clippy::must_use_candidate, reason = "most callers do not care how many there were")]
    pub fn purge_expired(&self) -> usize {
        self.engine.store.purge_expired(self.engine.runtime.coarse_now())
    }

    /// Waits until no load is in flight and every store has been performed.
    ///
    /// With requests still coming in that may be never.
    pub async fn wait_idle(&self) {
        self.engine.pending_work.wait_idle().await;
    }

    /// Waits until no coalesced load of `key` is in flight. With requests still coming in that may take long.
    pub async fn wait_for_load(&self, key: &K) {
        // Polls: a completed load wakes the requests that want its value, not this caller.
        const LOOK_EVERY: Duration = Duration::from_millis(2);
        while self.engine.coalescer.is_in_flight(key) {
            self.engine.runtime.sleep_until(self.engine.runtime.now() + LOOK_EVERY).await;
        }
    }

    /// True if a coalesced load of `key` is in flight, and a request waits for it. A source may give a load up that it has not begun
    /// and for which no request waits any more.
    #[must_use]
    pub fn is_awaited(&self, key: &K) -> bool {
        self.engine.coalescer.is_awaited(key)
    }

    /// The counters of this cache.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Records a request for the [ghosts](crate::Builder::shadow): one that [`get_answer`](Self::get_answer) answered.
    #[inline]
    pub fn record_request<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if self.engine.store.has_ghosts() {
            self.engine.store.record_request(key, self.engine.runtime.coarse_now());
        }
    }

    /// The figures of the [ghosts](crate::Builder::shadow); `None`: the cache has no ghosts.
    #[must_use]
    pub fn shadow_stats(&self) -> Option<ShadowStats> {
        self.engine.store.shadow_stats(self.engine.runtime.coarse_now())
    }

    /// The number of loads started: one of the [`stats`](Self::stats), for the cost of one read.
    #[must_use]
    pub fn load_count(&self) -> u64 {
        self.engine.counters.loads.get()
    }

    /// Bytes in use of the [limit in bytes](crate::Limit::bytes), by entries and reservations; `None`: there is no
    /// such limit.
    #[must_use]
    pub fn byte_usage(&self) -> Option<ByteUsage> {
        self.engine.byte_usage()
    }

    /// Sets another size of the [limit](Strategy::limit): its entries, its bytes, or both, as the cache was built with. Its other fields stay
    /// as they were built, so that bytes have to have room for the largest entry. Entries beyond a smaller limit are evicted before this returns,
    /// but for bytes of loads in flight and of values that are [held](crate::Builder::held); shards that were made for a small limit stay
    /// few. [Ghosts](crate::Builder::shadow) keep their own limits. With 0 entries the cache is empty, and stores
    /// nothing until it is resized again; an insert at the same moment may report [`Stored`](Insertion::Stored).
    pub fn resize(&self, limit: &Limit) -> Result<(), InvalidStrategy> {
        self.engine.store.resize(self.engine.strategy.limit.as_ref(), limit)
    }

    /// Sets bytes of the [limit](crate::Limit::bytes) aside, in place of those before, for memory that entries do not use, such as what an
    /// allocator holds back; evicts entries where that is necessary. [`ByteUsage`] tells how many bytes are set aside: half of the
    /// limit at most, and fewer if nothing is left to evict. Without a limit in bytes nothing happens.
    pub fn set_aside(&self, bytes: usize) {
        self.engine.store.set_aside(bytes);
    }

    /// The share of their bound, a quarter of the limit, that removed entries use while they are
    /// [held](crate::Builder::held): from 0 to 1.
    #[must_use]
    pub fn held_fill(&self) -> f64 {
        self.engine.store.released_held().map_or(0.0, HeldEntries::fill)
    }

    /// The bytes of an entry in the store and in the eviction policy, without those that its key and value own.
    #[must_use]
    pub fn entry_overhead_bytes(&self) -> usize {
        self.engine.store.entry_bytes()
    }

    /// Number of entries, fresh or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.engine.store.len()
    }

    /// True if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of coalesced loads in flight, one per key.
    #[must_use]
    pub fn coalesced_loads(&self) -> usize {
        self.engine.coalescer.in_flight_count()
    }

    /// The state of each breaker by the name of its [route](crate::Builder::breaker_route); `""` is for keys without one. Empty
    /// without a breaker.
    #[must_use]
    pub fn breaker_states(&self) -> Vec<(String, BreakerState)> {
        self.engine.breaker_states()
    }

    /// Asks the breaker for a call to the source that is not a load of this cache, such as one whose answer is not stored.
    /// A refusal is counted as that of a load is. `client` is that of [`RequestOptions`]. After an outage the call waits for its turn as
    /// a load does, for `wait_timeout` at most.
    pub async fn admit_call(&self, key: &K, client: Option<NonZeroU64>) -> Result<CallPermit<R>, Error> {
        self.engine.breaker_permit(key, client).await.map(CallPermit)
    }

    /// Records all counters with the `metrics` recorder, if the cache was [built](crate::Builder::metrics) for it. This
    /// also happens once a second. Needs the feature `metrics`.
    #[cfg(feature = "metrics")]
    pub fn record_metrics(&self) {
        self.engine.record_metrics();
    }
}

/// The error of a load that returns [`Validated::Unchanged`] without a stored value.
const NOTHING_TO_VALIDATE: &str = "the load found the value unchanged, and none was stored";

/// The result of a load that has seen the stored value: [`Cache::get_validated`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validated<V> {
    /// The stored value is still right.
    Unchanged,
    /// The source has this value now.
    Changed(V),
}

impl<K: Hash + Eq + Clone, V: Clone, R: Runtime> Clone for Cache<K, V, R> {
    fn clone(&self) -> Self {
        Self { engine: Arc::clone(&self.engine) }
    }
}

impl<K, V, R> std::fmt::Debug for Cache<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("strategy", &self.engine.strategy)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
