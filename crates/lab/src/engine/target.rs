//! What an open load asks: a cache with a strategy, or the Node test's.

use std::{hash::Hash, sync::Arc, time::Duration};

use stockade_cache::{
    Answer, Builder, Cache, Error, InvalidStrategy, Invalidation, Live, Stats, Strategy, heap_bytes,
    tier::TierError,
};
use stockade_model::{record::CacheFigures, seed::Seed, time::Runtime};
use stockade_source::{Staged, Stamped};

use super::{
    Did, EngineError, NotFound,
    node_test::{Node, NodeTest, Table},
    shared::{OpenTier, SharedTier},
};

/// What stands between an open load and the source.
#[derive(Clone, Debug)]
pub enum Target {
    /// The cache that is shipped.
    Cache(Box<Strategy>),
    /// The one of the published Node test, in front of a Redis, or of a table in memory that is like one.
    NodeTest(NodeTest),
}

impl Target {
    /// Whether there can be such a one.
    pub(super) fn check(&self) -> Result<(), InvalidStrategy> {
        match self {
            Self::Cache(strategy) => cache(strategy).check(),
            Self::NodeTest(_) => Ok(()),
        }
    }

    /// How old what it serves may be; `None`: as old as it likes.
    pub(super) fn hard_limit(&self) -> Option<Duration> {
        match self {
            Self::Cache(strategy) => strategy.hard_limit(),
            Self::NodeTest(test) => Some(test.ttl),
        }
    }

    /// Connects to what it shares: the tier itself, and the Node test's table there.
    pub(super) async fn tier(
        &self,
        shared: &SharedTier,
        seed: Seed,
        live: &Live,
    ) -> Result<(OpenTier, Table), EngineError> {
        let broken =
            |error: TierError| EngineError::Tier { url: shared.url.to_string(), reason: error.to_string() };
        let tier = OpenTier::open(shared, seed, live).await.map_err(broken)?;
        let table = match self {
            Self::NodeTest(_) => tier.table().await.map_err(broken)?,
            Self::Cache(_) => Table::in_memory(),
        };
        Ok((tier, table))
    }

    /// A new one, with nothing in it.
    pub(super) fn start<R: Runtime>(
        &self,
        source: &Arc<Staged<R>>,
        time: &R,
        seed: Seed,
        tier: Option<&OpenTier>,
        table: Table,
    ) -> Result<Asked<R>, InvalidStrategy> {
        Ok(match self {
            Self::Cache(strategy) => {
                let mut cache = cache(strategy);
                if let Some(tier) = tier {
                    cache = cache.shared(tier.shared());
                }
                Asked::Cache(cache.build_on(time.clone(), seed.child("cache"))?, Arc::clone(source))
            }
            Self::NodeTest(test) => {
                Asked::Node(Arc::new(Node::new(*test, Arc::clone(source), time.clone(), seed, table)))
            }
        })
    }
}

/// A cache as open loads ask it: what it stores knows its age.
fn cache(strategy: &Strategy) -> Builder<Arc<str>, Stamped> {
    let weigh = |key: &Arc<str>, stamped: &Stamped| heap_bytes(key, &stamped.document);
    Cache::builder(strategy.clone()).weigh(weigh)
}

/// A [`Target`] under load.
pub(super) enum Asked<R: Runtime> {
    Cache(Cache<Arc<str>, Stamped, R>, Arc<Staged<R>>),
    Node(Arc<Node<R>>),
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error(transparent)]
    Cache(#[from] Error),
    #[error("the load failed: {0}")]
    Node(Box<dyn std::error::Error + Send + Sync>),
}

impl<R: Runtime> Asked<R> {
    pub(super) async fn ask(&self, key: &Arc<str>) -> Result<Answer<Stamped>, Unanswered> {
        match self {
            Self::Cache(cache, source) => {
                let (source, id) = (Arc::clone(source), Arc::clone(key));
                Ok(cache.get_with(Arc::clone(key), move || fetch(source, id)).await?)
            }
            Self::Node(node) => node.ask(key).await.map_err(Unanswered::Node),
        }
    }

    /// Waits until nothing is under way any more.
    pub(super) async fn idle(&self) {
        match self {
            Self::Cache(cache, _) => cache.idle().await,
            // Its loads end when their requests do, or nobody knows when.
            Self::Node(_) => {}
        }
    }

    /// A document was written at the source.
    pub(super) async fn invalidate(&self, key: &Arc<str>, how: Invalidation) {
        match self {
            Self::Cache(cache, _) => drop(cache.invalidate(key, how)),
            Self::Node(node) => node.delete(key).await,
        }
    }

    pub(super) fn did(&self) -> Did {
        match self {
            Self::Cache(cache, _) => cache.stats().into(),
            Self::Node(node) => node.did(),
        }
    }

    pub(super) fn held(&self) -> CacheFigures {
        match self {
            Self::Cache(cache, _) => held(cache),
            Self::Node(node) => CacheFigures { entries: node.entries(), ..CacheFigures::default() },
        }
    }
}

/// What a cache holds, and what it did about that.
pub(super) fn held<K, V, R>(cache: &Cache<K, V, R>) -> CacheFigures
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    let stats = cache.stats();
    CacheFigures {
        entries: cache.len(),
        bytes_max: cache.bytes().map(|bytes| bytes.peak),
        evicted: stats.evicted_size,
        invalidated: stats.invalidated,
        stores_refused: stats.stores_refused,
        loads_rejected: stats.loads_rejected,
        loads_refused: stats.loads_refused,
        refreshes: stats.refreshes_early + stats.refreshes_xfetch + stats.refreshes_swr + stats.probes,
    }
}

/// The load of one request.
pub(super) async fn fetch<R: Runtime>(
    source: Arc<Staged<R>>,
    id: Arc<str>,
) -> Result<Stamped, Box<dyn std::error::Error + Send + Sync>> {
    match source.fetch_stamped(&id).await? {
        Some(stamped) => Ok(stamped),
        None => Err(Box::from(NotFound(id))),
    }
}

impl From<Stats> for Did {
    fn from(stats: Stats) -> Self {
        Self {
            waiters: stats.waiters,
            stores_sync: stats.stores_sync,
            stores_async: stats.stores_async,
            stores_skipped: stats.stores_skipped,
            stores_dropped: stats.stores_dropped,
            episodes: stats.episodes,
        }
    }
}

impl Did {
    /// What it did since it had done `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            waiters: self.waiters - before.waiters,
            stores_sync: self.stores_sync - before.stores_sync,
            stores_async: self.stores_async - before.stores_async,
            stores_skipped: self.stores_skipped - before.stores_skipped,
            stores_dropped: self.stores_dropped - before.stores_dropped,
            episodes: self.episodes - before.episodes,
        }
    }
}
