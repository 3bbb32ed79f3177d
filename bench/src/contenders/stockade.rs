//! stockade-cache.

use std::{convert::Infallible, time::Duration};

use stockade_cache::{Cache, Fetch, Limit, Strategy, sync};
use tokio::runtime::{Builder, Runtime};

use super::{Contender, Value};
use crate::clock::TTL;
use crate::{
    misses::{self, Load},
    stampede::Coalesce,
};

/// Preset "stampede" with a limit and a time to live; the policy is the default one.
pub struct Stockade<V: Value> {
    cache: Cache<u64, V>,
    /// The runtime of the cache; hits and inserts do not wait for it.
    _runtime: Runtime,
}

impl<V: Value> Stockade<V> {
    pub fn new(capacity: usize) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime");
        let strategy = Strategy { limit: Some(Limit::entries(capacity)), ttl: Some(TTL), ..preset() };
        let cache = {
            let _context = runtime.enter();
            Cache::new(strategy).expect("the strategy is sound")
        };
        Self { cache, _runtime: runtime }
    }
}

impl<V: Value> Contender<V> for Stockade<V> {
    fn get(&self, key: u64) -> Option<V> {
        self.cache.get(&key)
    }

    fn insert(&self, key: u64, value: V) {
        self.cache.insert(key, value);
    }

    fn entries(&self) -> usize {
        self.cache.len()
    }
}

/// For stampedes: no waiter times out before a million tasks have requested.
pub fn patient(capacity: usize) -> Cache<u64, u64> {
    let fetch = Fetch::coalesce(Duration::from_mins(1));
    let strategy = Strategy { fetch, limit: Some(Limit::entries(capacity)), ..preset() };
    Cache::new(strategy).expect("the strategy is sound")
}

/// The time of misses under the default strategy, with another limit.
pub fn miss(how: Load, count: u64) -> Duration {
    let strategy = Strategy { limit: Some(Limit::entries(misses::CAPACITY)), ..Strategy::default() };
    if how == Load::Thread {
        let cache: sync::Cache<u64, u64> = sync::Cache::new(strategy).expect("the strategy is sound");
        return misses::by_thread(count, |key| cache.get_with(key, move || Ok::<_, Infallible>(key)));
    }
    misses::runtime().block_on(async {
        let cache: Cache<u64, u64> = Cache::new(strategy).expect("the strategy is sound");
        misses::by_task(count, |key| cache.get_with(key, move || misses::load(how, key))).await
    })
}

fn preset() -> Strategy {
    Strategy::preset("stampede").expect("there is a preset of that name")
}

impl Coalesce for Cache<u64, u64> {
    fn get_with<F>(
        &self,
        key: &'static u64,
        load: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Result<impl Send, impl Send>> + Send
    where
        F: Future<Output = Result<u64, Infallible>> + Send + 'static,
    {
        self.get_with(*key, load)
    }
}
