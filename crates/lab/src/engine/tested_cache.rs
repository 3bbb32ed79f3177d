//! The cache under an open load: ours with a strategy, or that of the published Node test.

use std::{sync::Arc, time::Duration};

use stockade_cache::{
    Answer, Builder, Cache, Error, InvalidStrategy, Invalidation, Live, Stats, Strategy, heap_bytes,
    tier::TierError,
};
use stockade_model::{seed::Seed, time::Runtime};
use stockade_source::{StagedSource, VersionedDocument};

use super::{
    EngineError,
    fetch::fetch,
    node_js_cache::{NodeJsCache, NodeJsTable, NodeJsTest},
    shared_tier::{OpenTier, TierSettings},
};

#[derive(Clone, Debug)]
pub enum TestedCache {
    /// Our cache.
    Cache(Box<Strategy>),
    /// The cache of the published Node test, in front of Redis or of a table in memory.
    NodeJsTest(NodeJsTest),
}

impl TestedCache {
    pub(super) fn check(&self) -> Result<(), InvalidStrategy> {
        match self {
            Self::Cache(strategy) => cache(strategy).check(),
            Self::NodeJsTest(_) => Ok(()),
        }
    }

    /// The greatest age of its answers; `None`: unlimited.
    pub(super) fn hard_limit(&self) -> Option<Duration> {
        match self {
            Self::Cache(strategy) => strategy.max_served_age(),
            Self::NodeJsTest(test) => Some(test.ttl),
        }
    }

    /// Connects to the shared tier, or to the Node test's table in it.
    pub(super) async fn connect(
        &self,
        tier: &TierSettings,
        seed: Seed,
        live: &Live,
    ) -> Result<(OpenTier, NodeJsTable), EngineError> {
        let failed = |error: TierError| EngineError::tier(tier, &error);
        let tier = OpenTier::open(tier, seed, live).await.map_err(failed)?;
        let table = match self {
            Self::NodeJsTest(_) => tier.table().await.map_err(failed)?,
            Self::Cache(_) => NodeJsTable::in_memory(),
        };
        Ok((tier, table))
    }

    /// Starts it empty.
    pub(super) fn start<R: Runtime>(
        &self,
        source: &Arc<StagedSource<R>>,
        time: &R,
        seed: Seed,
        tier: Option<&OpenTier>,
        table: NodeJsTable,
    ) -> Result<RunningCache<R>, InvalidStrategy> {
        Ok(match self {
            Self::Cache(strategy) => {
                let mut cache = cache(strategy);
                if let Some(tier) = tier {
                    cache = cache.shared_tier(tier.shared());
                }
                RunningCache::Cache(cache.build_on(time.clone(), seed.child("cache"))?, Arc::clone(source))
            }
            Self::NodeJsTest(test) => RunningCache::NodeJsCache(Arc::new(NodeJsCache::new(
                *test,
                Arc::clone(source),
                time.clone(),
                seed,
                table,
            ))),
        })
    }
}

/// A cache for open loads: each document has the time of its load.
fn cache(strategy: &Strategy) -> Builder<Arc<str>, VersionedDocument> {
    let weigh = |key: &Arc<str>, stamped: &VersionedDocument| heap_bytes(key, &stamped.document);
    Cache::builder(strategy.clone()).weigh(weigh)
}

/// A [`TestedCache`] under load.
pub(super) enum RunningCache<R: Runtime> {
    Cache(Cache<Arc<str>, VersionedDocument, R>, Arc<StagedSource<R>>),
    NodeJsCache(Arc<NodeJsCache<R>>),
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookupError {
    #[error(transparent)]
    Cache(#[from] Error),
    #[error(transparent)]
    NodeJsCache(Box<dyn std::error::Error + Send + Sync>),
}

impl<R: Runtime> RunningCache<R> {
    pub(super) async fn request(&self, key: &Arc<str>) -> Result<Answer<VersionedDocument>, LookupError> {
        match self {
            Self::Cache(cache, source) => {
                let (source, id) = (Arc::clone(source), Arc::clone(key));
                Ok(cache.get_with(Arc::clone(key), move || fetch(source, id)).await?)
            }
            Self::NodeJsCache(node) => node.request(key).await.map_err(LookupError::NodeJsCache),
        }
    }

    /// Waits until no load is in flight.
    pub(super) async fn idle(&self) {
        match self {
            Self::Cache(cache, _) => cache.wait_idle().await,
            // Its loads end with their requests, or at an unknown time.
            Self::NodeJsCache(_) => {}
        }
    }

    /// A document was written to the source.
    pub(super) async fn invalidate(&self, key: &Arc<str>, how: Invalidation) {
        match self {
            Self::Cache(cache, _) => drop(cache.invalidate(key, how)),
            Self::NodeJsCache(node) => node.delete(key).await,
        }
    }

    /// All documents were written: `keys` are all that the load requests.
    pub(super) async fn invalidate_all(&self, keys: &[Arc<str>], how: Invalidation) {
        match self {
            Self::Cache(cache, _) => drop(cache.invalidate_all(how)),
            Self::NodeJsCache(node) => {
                for key in keys {
                    node.delete(key).await;
                }
            }
        }
    }

    pub(super) fn stats(&self) -> Stats {
        match self {
            Self::Cache(cache, _) => cache.stats(),
            Self::NodeJsCache(node) => node.stats(),
        }
    }

    /// The most bytes that it held, if they are limited.
    pub(super) fn peak_bytes(&self) -> Option<usize> {
        match self {
            Self::Cache(cache, _) => cache.byte_usage().map(|bytes| bytes.peak),
            Self::NodeJsCache(_) => None,
        }
    }
}
