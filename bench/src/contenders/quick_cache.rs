//! `quick_cache`: a modified CLOCK-Pro in shards, as many as four a core by default.

use std::{convert::Infallible, time::Duration};

use quick_cache::sync::Cache;

use super::{Contender, Value};
use crate::{
    clock::{self, Expiring},
    misses::{self, Load},
    stampede::Coalesce,
};

/// The cache with the defaults of its crate, which hashes with foldhash.
pub struct QuickCache<V>(Cache<u64, Expiring<V>>);

impl<V: Value> QuickCache<V> {
    pub fn new(capacity: usize) -> Self {
        clock::start();
        Self(Cache::new(capacity))
    }
}

impl<V: Value> Contender<V> for QuickCache<V> {
    fn get(&self, key: u64) -> Option<V> {
        self.0.get(&key).and_then(Expiring::fresh)
    }

    fn insert(&self, key: u64, value: V) {
        self.0.insert(key, Expiring::new(value));
    }

    fn entries(&self) -> usize {
        self.0.len()
    }
}

/// The time of misses, without a time to live.
pub fn miss(how: Load, count: u64) -> Duration {
    let cache: Cache<u64, u64> = Cache::new(misses::CAPACITY);
    if how == Load::Thread {
        return misses::by_thread(count, |key| cache.get_or_insert_with(&key, || Ok::<_, Infallible>(key)));
    }
    let miss = async |key| cache.get_or_insert_async(&key, misses::load(how, key)).await;
    misses::runtime().block_on(misses::by_task(count, miss))
}

/// For stampedes, with its defaults.
impl Coalesce for Cache<u64, u64> {
    fn get_with<F>(
        &self,
        key: &'static u64,
        load: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Result<impl Send, impl Send>> + Send
    where
        F: Future<Output = Result<u64, Infallible>> + Send + 'static,
    {
        self.get_or_insert_async(key, load())
    }
}
