//! Making a cache.

use std::hash::Hash;

use stockade_model::{
    seed::Seed,
    time::{Live, Runtime},
};

use crate::{
    cache::Cache,
    shard::Shard,
    store::WeighBy,
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
pub struct Builder<K, V> {
    strategy: Strategy,
    weigh: Option<WeighBy<K, V>>,
    counts_lookups: bool,
}

impl<K, V> Builder<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(strategy: Strategy) -> Self {
        Self { strategy, weigh: None, counts_lookups: false }
    }

    /// Tells what a key and its value own beyond their own size, in bytes: a limit in bytes needs it.
    ///
    /// [`heap_bytes`](crate::heap_bytes) knows strings and bytes. What an entry costs besides is
    /// counted without being asked for.
    #[must_use]
    pub fn weigh(mut self, weigh: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        self.weigh = Some(Box::new(weigh));
        self
    }

    /// Counts lookups and hits, for [`Stats::lookups`](crate::Stats::lookups): one more locked instruction
    /// for each of them.
    #[must_use]
    pub fn count_lookups(mut self) -> Self {
        self.counts_lookups = true;
        self
    }

    /// An empty cache in real time, on the tokio runtime of the caller.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn build(self) -> Result<Cache<K, V>, InvalidStrategy> {
        self.build_on(Live::new(), Seed::from_entropy())
    }

    /// An empty cache that lives by `runtime` and draws its chance (hashing) from `seed`.
    pub fn build_on<R: Runtime>(self, runtime: R, seed: Seed) -> Result<Cache<K, V, R>, InvalidStrategy> {
        self.check()?;
        let Self { strategy, weigh, counts_lookups } = self;
        Ok(Cache::start(runtime, seed, strategy, weigh, counts_lookups))
    }

    /// Whether there can be a cache of these keys and values with this strategy.
    pub fn check(&self) -> Result<(), InvalidStrategy> {
        self.strategy.check()?;
        let Some(limit) = &self.strategy.limit else { return Ok(()) };
        if limit.bytes.is_some() && self.weigh.is_none() {
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
        f.debug_struct("Builder").field("strategy", &self.strategy).finish_non_exhaustive()
    }
}
