//! One interface to four caches: ours and moka's, each for tasks and for threads.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use moka::Expiry;
use stockade_cache::{Builder, Fetch, Invalidation, Lifespan, Limit, LoadBounds, Strategy};

use super::executor::{block_on, on_thread};

/// What a load or a build returns; the error is its message.
pub type Answer<V> = Result<V, String>;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Is called with each removed entry.
pub type Listener<V> = Arc<dyn Fn(u64, V) -> BoxFuture + Send + Sync>;

/// The limit of a cache.
pub enum Capacity<V> {
    Entries(u64),
    /// The sum of the weights. `u64::MAX` as a weight is the largest one that the cache's weigher can return.
    Weight(u64, fn(&V) -> u64),
}

pub struct Settings<V> {
    pub capacity: Capacity<V>,
    pub ttl: Option<Duration>,
    /// The ttl of each entry, in place of the cache's.
    pub entry_ttl: Option<Duration>,
    pub listener: Option<Listener<V>>,
    /// How long a load and the wait for one may take, in a cache that has such bounds.
    pub bound: Option<Duration>,
}

impl<V> Default for Settings<V> {
    /// The limit and the ttl of our default strategy, for all.
    fn default() -> Self {
        Self {
            capacity: Capacity::Entries(10_000),
            ttl: Some(Duration::from_mins(1)),
            entry_ttl: None,
            listener: None,
            bound: None,
        }
    }
}

/// A cache with keys of `u64`.
pub trait Contender<V>: Clone + Send + Sync + 'static {
    /// True if a load, or the wait for one, can have a bound in time.
    const HAS_BOUNDS: bool;
    /// The callers whose threads a load occupies.
    const BLOCKED_BY_LOAD: usize;

    /// The error is the message of a refused setting.
    fn build(settings: Settings<V>) -> Answer<Self>;

    /// The value of `key`, from the cache or from `load`.
    fn load<F>(&self, key: u64, load: F) -> impl Future<Output = Answer<V>> + Send
    where
        F: Future<Output = Answer<V>> + Send + 'static;

    fn get(&self, key: u64) -> impl Future<Output = Option<V>> + Send;

    fn insert(&self, key: u64, value: V) -> impl Future<Output = ()> + Send;

    fn invalidate(&self, key: u64) -> impl Future<Output = ()> + Send;

    fn invalidate_all(&self);

    /// Invalidates the entries that match, and removes them.
    fn invalidate_if(
        &self,
        matches: impl Fn(u64, &V) -> bool + Send + Sync + 'static,
    ) -> impl Future<Output = ()> + Send;

    /// The work that the cache leaves for later: evictions, and the removal of expired entries.
    fn maintain(&self) -> impl Future<Output = ()> + Send;

    /// A lookup for functions that cannot wait.
    fn contains(&self, key: u64) -> bool;

    fn entries(&self) -> Vec<(u64, V)>;

    /// The sum of the weights, with the overhead of entries where it counts.
    fn weight(&self) -> u64;
}

/// The bounds of a value.
pub trait Value: Clone + Send + Sync + 'static {}

impl<V: Clone + Send + Sync + 'static> Value for V {}

type Ours<V> = stockade_cache::Cache<u64, V>;
type OursThreads<V> = stockade_cache::sync::Cache<u64, V>;
type Moka<V> = moka::future::Cache<u64, V>;
type MokaThreads<V> = moka::sync::Cache<u64, V>;

fn our_builder<V: Value>(settings: Settings<V>) -> Builder<u64, V> {
    let Settings { capacity, ttl, entry_ttl, listener, bound } = settings;
    let limit = match &capacity {
        Capacity::Entries(entries) => Limit::entries(size(*entries)),
        // As in moka, the limit is the only bound of an entry.
        Capacity::Weight(weight, _) => Limit {
            max_object: Some(size(*weight).min(u32::MAX as usize - 1)),
            ..Limit::bytes(size(*weight))
        },
    };
    let mut strategy = Strategy { ttl, limit: Some(limit), ..Strategy::default() };
    if let Some(bound) = bound {
        strategy.fetch = Fetch::coalesce(bound);
        strategy.load = LoadBounds { deadline: bound, ..strategy.load };
    }
    let mut builder = Ours::<V>::builder(strategy);
    if let Capacity::Weight(_, weigh) = capacity {
        builder = builder.weigh(move |_, value| size(weigh(value)));
    }
    if let Some(ttl) = entry_ttl {
        builder = builder.lifespan(move |_| Some(Lifespan { ttl, ..Lifespan::NONE }));
    }
    if let Some(listener) = listener {
        builder = builder.on_removal(move |key, value, _| block_on(listener(*key, value.clone())));
    }
    builder
}

fn size(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

impl<V: Value> Contender<V> for Ours<V> {
    const HAS_BOUNDS: bool = true;
    const BLOCKED_BY_LOAD: usize = 0;

    fn build(settings: Settings<V>) -> Answer<Self> {
        our_builder(settings).build().map_err(|error| error.to_string())
    }

    async fn load<F>(&self, key: u64, load: F) -> Answer<V>
    where
        F: Future<Output = Answer<V>> + Send + 'static,
    {
        let answer = self.get_with(key, move || load).await;
        answer.map(|answer| answer.value).map_err(|error| error.to_string())
    }

    async fn get(&self, key: u64) -> Option<V> {
        Self::get(self, &key)
    }

    async fn insert(&self, key: u64, value: V) {
        Self::insert(self, key, value);
    }

    async fn invalidate(&self, key: u64) {
        Self::invalidate(self, &key, Invalidation::Hard);
    }

    fn invalidate_all(&self) {
        Self::invalidate_all(self, Invalidation::Hard);
    }

    async fn invalidate_if(&self, matches: impl Fn(u64, &V) -> bool + Send + Sync + 'static) {
        Self::invalidate_if(self, |key, value| matches(*key, value), Invalidation::Hard);
    }

    async fn maintain(&self) {
        self.purge_expired();
    }

    fn contains(&self, key: u64) -> bool {
        Self::get(self, &key).is_some()
    }

    fn entries(&self) -> Vec<(u64, V)> {
        Self::entries(self).map(|(key, stored)| (key, stored.value)).collect()
    }

    fn weight(&self) -> u64 {
        self.byte_usage().map_or(0, |usage| usage.used as u64)
    }
}

impl<V: Value> Contender<V> for OursThreads<V> {
    const HAS_BOUNDS: bool = true;
    const BLOCKED_BY_LOAD: usize = 1;

    fn build(settings: Settings<V>) -> Answer<Self> {
        our_builder(settings).build_sync().map_err(|error| error.to_string())
    }

    async fn load<F>(&self, key: u64, load: F) -> Answer<V>
    where
        F: Future<Output = Answer<V>> + Send + 'static,
    {
        let cache = self.clone();
        let answer = on_thread(move || cache.get_with(key, move || block_on(load))).await;
        answer.map(|answer| answer.value).map_err(|error| error.to_string())
    }

    async fn get(&self, key: u64) -> Option<V> {
        Self::get(self, &key)
    }

    async fn insert(&self, key: u64, value: V) {
        Self::insert(self, key, value);
    }

    async fn invalidate(&self, key: u64) {
        Self::invalidate(self, &key, Invalidation::Hard);
    }

    fn invalidate_all(&self) {
        self.as_async().invalidate_all(Invalidation::Hard);
    }

    async fn invalidate_if(&self, matches: impl Fn(u64, &V) -> bool + Send + Sync + 'static) {
        Contender::invalidate_if(self.as_async(), matches).await;
    }

    async fn maintain(&self) {
        self.as_async().purge_expired();
    }

    fn contains(&self, key: u64) -> bool {
        Self::get(self, &key).is_some()
    }

    fn entries(&self) -> Vec<(u64, V)> {
        Contender::entries(self.as_async())
    }

    fn weight(&self) -> u64 {
        Contender::weight(self.as_async())
    }
}

struct EntryTtl(Duration);

impl<V> Expiry<u64, V> for EntryTtl {
    fn expire_after_create(&self, _: &u64, _: &V, _: std::time::Instant) -> Option<Duration> {
        Some(self.0)
    }
}

/// The weight as moka's weigher returns it.
fn moka_weight(weight: u64) -> u32 {
    u32::try_from(weight).unwrap_or(u32::MAX)
}

/// The settings that both builders of moka have, and that differ in nothing but the type.
macro_rules! moka_builder {
    ($settings:ident) => {{
        let mut builder = Self::builder().support_invalidation_closures();
        builder = match $settings.capacity {
            Capacity::Entries(entries) => builder.max_capacity(entries),
            Capacity::Weight(weight, weigh) => {
                builder.max_capacity(weight).weigher(move |_, value| moka_weight(weigh(value)))
            }
        };
        if let Some(ttl) = $settings.ttl {
            builder = builder.time_to_live(ttl);
        }
        if let Some(ttl) = $settings.entry_ttl {
            builder = builder.expire_after(EntryTtl(ttl));
        }
        builder
    }};
}

/// moka's builder panics at a setting that it refuses.
fn refused<T>(build: impl FnOnce() -> T + std::panic::UnwindSafe) -> Answer<T> {
    std::panic::catch_unwind(build).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
    })
}

impl<V: Value> Contender<V> for Moka<V> {
    const HAS_BOUNDS: bool = false;
    const BLOCKED_BY_LOAD: usize = 0;

    fn build(settings: Settings<V>) -> Answer<Self> {
        let mut builder = moka_builder!(settings);
        if let Some(listener) = settings.listener {
            builder = builder.async_eviction_listener(move |key, value, _| listener(*key, value));
        }
        refused(std::panic::AssertUnwindSafe(move || builder.build()))
    }

    async fn load<F>(&self, key: u64, load: F) -> Answer<V>
    where
        F: Future<Output = Answer<V>> + Send + 'static,
    {
        self.try_get_with(key, load).await.map_err(|error| error.to_string())
    }

    async fn get(&self, key: u64) -> Option<V> {
        Self::get(self, &key).await
    }

    async fn insert(&self, key: u64, value: V) {
        Self::insert(self, key, value).await;
    }

    async fn invalidate(&self, key: u64) {
        Self::invalidate(self, &key).await;
    }

    fn invalidate_all(&self) {
        Self::invalidate_all(self);
    }

    async fn invalidate_if(&self, matches: impl Fn(u64, &V) -> bool + Send + Sync + 'static) {
        let registered = self.invalidate_entries_if(move |key, value| matches(*key, value));
        registered.expect("closures are enabled");
        self.run_pending_tasks().await;
    }

    async fn maintain(&self) {
        self.run_pending_tasks().await;
    }

    fn contains(&self, key: u64) -> bool {
        self.contains_key(&key)
    }

    fn entries(&self) -> Vec<(u64, V)> {
        self.iter().map(|(key, value)| (*key, value)).collect()
    }

    fn weight(&self) -> u64 {
        self.weighted_size()
    }
}

impl<V: Value> Contender<V> for MokaThreads<V> {
    const HAS_BOUNDS: bool = false;
    const BLOCKED_BY_LOAD: usize = 1;

    fn build(settings: Settings<V>) -> Answer<Self> {
        let mut builder = moka_builder!(settings);
        if let Some(listener) = settings.listener {
            builder = builder.eviction_listener(move |key, value, _| block_on(listener(*key, value)));
        }
        refused(std::panic::AssertUnwindSafe(move || builder.build()))
    }

    async fn load<F>(&self, key: u64, load: F) -> Answer<V>
    where
        F: Future<Output = Answer<V>> + Send + 'static,
    {
        let cache = self.clone();
        let answer = on_thread(move || cache.try_get_with(key, move || block_on(load))).await;
        answer.map_err(|error| error.to_string())
    }

    async fn get(&self, key: u64) -> Option<V> {
        Self::get(self, &key)
    }

    async fn insert(&self, key: u64, value: V) {
        Self::insert(self, key, value);
    }

    async fn invalidate(&self, key: u64) {
        Self::invalidate(self, &key);
    }

    fn invalidate_all(&self) {
        Self::invalidate_all(self);
    }

    async fn invalidate_if(&self, matches: impl Fn(u64, &V) -> bool + Send + Sync + 'static) {
        let registered = self.invalidate_entries_if(move |key, value| matches(*key, value));
        registered.expect("closures are enabled");
        self.run_pending_tasks();
    }

    async fn maintain(&self) {
        self.run_pending_tasks();
    }

    fn contains(&self, key: u64) -> bool {
        self.contains_key(&key)
    }

    fn entries(&self) -> Vec<(u64, V)> {
        self.iter().map(|(key, value)| (*key, value)).collect()
    }

    fn weight(&self) -> u64 {
        self.weighted_size()
    }
}

/// A cache, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ours,
    OursThreads,
    Moka,
    MokaThreads,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Ours, Self::OursThreads, Self::Moka, Self::MokaThreads];

    /// On the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursThreads => "ours-threads",
            Self::Moka => "moka",
            Self::MokaThreads => "moka-threads",
        }
    }
}
