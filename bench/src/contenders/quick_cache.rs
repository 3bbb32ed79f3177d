//! `quick_cache`: a modified CLOCK-Pro in shards, as many as four a core by default.

use std::convert::Infallible;

use quick_cache::sync::Cache;

use super::{Contender, Value};
use crate::{
    clock::{self, Expiring},
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
