//! moka: W-TinyLFU, maintained in batches by its callers; it checks its time to live itself.

use std::{convert::Infallible, time::Duration};

use moka::sync::Cache;

use super::{Contender, Value};
use crate::{
    clock::TTL,
    misses::{self, Load},
    stampede::Coalesce,
};

/// The synchronous cache. Its time to live is exact, so every hit reads the clock of the operating system, where the
/// others read a variable. This is not its main cost: without a time to live, with its `quanta` feature or with an
/// initial capacity it is not faster.
pub struct Moka<V>(Cache<u64, V, foldhash::quality::RandomState>);

impl<V: Value> Moka<V> {
    pub fn new(capacity: usize) -> Self {
        let builder = Cache::builder().max_capacity(capacity as u64).time_to_live(TTL);
        Self(builder.build_with_hasher(foldhash::quality::RandomState::default()))
    }
}

impl<V: Value> Contender<V> for Moka<V> {
    fn get(&self, key: u64) -> Option<V> {
        self.0.get(&key)
    }

    fn insert(&self, key: u64, value: V) {
        self.0.insert(key, value);
    }

    fn entries(&self) -> usize {
        // The last inserts are not counted yet, and may be rejected.
        self.0.run_pending_tasks();
        usize::try_from(self.0.entry_count()).expect("they fit into memory")
    }
}

/// The time of misses, with a time to live.
pub fn miss(how: Load, count: u64) -> Duration {
    if how == Load::Thread {
        let builder = Cache::builder().max_capacity(misses::CAPACITY as u64).time_to_live(TTL);
        let cache = builder.build_with_hasher(foldhash::quality::RandomState::default());
        return misses::by_thread(count, |key| cache.try_get_with(key, || Ok::<_, Infallible>(key)));
    }
    let builder = moka::future::Cache::builder().max_capacity(misses::CAPACITY as u64).time_to_live(TTL);
    let cache = builder.build_with_hasher(foldhash::quality::RandomState::default());
    misses::runtime().block_on(misses::by_task(count, |key| cache.try_get_with(key, misses::load(how, key))))
}

/// The asynchronous cache, for stampedes, with its defaults.
impl Coalesce for moka::future::Cache<u64, u64> {
    fn get_with<F>(
        &self,
        key: &'static u64,
        load: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Result<impl Send, impl Send>> + Send
    where
        F: Future<Output = Result<u64, Infallible>> + Send + 'static,
    {
        self.try_get_with(*key, load())
    }
}
