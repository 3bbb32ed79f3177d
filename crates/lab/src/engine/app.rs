//! The document app of the published Node test: it fetches documents of a database by their ids, through
//! a cache. An HTTP server calls it.

use std::sync::Arc;

use stockade_cache::{Live, Stats};
use stockade_model::{
    latency::Latency,
    outcome::Outcome,
    seed::Seed,
    source::{Document, SourceError},
};
use stockade_source::{SourceBehavior, SourceUrl, StagedSource};

use super::{
    EngineError, TestedCache, TierSettings,
    fetch::NotFound,
    node_js_cache::NodeJsTable,
    shared_tier::OpenTier,
    tested_cache::{LookupError, RunningCache},
};

/// A source of documents and the cache in front of it.
#[derive(Clone, Debug)]
pub struct DocumentApp {
    /// The database.
    pub source: SourceUrl,
    /// The cache.
    pub target: TestedCache,
    /// The cache's only tier, or its second tier under its memory.
    pub shared: Option<TierSettings>,
}

/// A running [`DocumentApp`].
pub struct RunningApp {
    cache: RunningCache<Live>,
    source: Arc<StagedSource<Live>>,
    tier: Option<OpenTier>,
}

/// There is no document, and why.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The source has no document of that name.
    #[error("no such document")]
    Missing,
    /// The source was too slow.
    #[error("{0}")]
    TimedOut(String),
    /// It failed, or the tier activity.
    #[error("{0}")]
    Failed(String),
}

impl DocumentApp {
    /// Opens the source and the tier on the caller's runtime.
    pub async fn start(&self, live: Live, seed: Seed) -> Result<RunningApp, EngineError> {
        let source = self.source.open().await?;
        let source = Arc::new(StagedSource::new(
            source,
            &SourceBehavior::from(Latency::default()),
            live.clone(),
            seed,
        ));
        let (tier, table) = match &self.shared {
            Some(shared) => {
                let (tier, table) = self.target.connect(shared, seed, &live).await?;
                (Some(tier), table)
            }
            None => (None, NodeJsTable::in_memory()),
        };
        let cache = self.target.start(&source, &live, seed, tier.as_ref(), table)?;
        source.start();
        Ok(RunningApp { cache, source, tier })
    }
}

impl RunningApp {
    /// The document with this id, and the outcome of the lookup.
    pub async fn document(&self, id: &str) -> Result<(Document, Outcome), DocumentError> {
        match self.cache.request(&id.into()).await {
            Ok(answer) => Ok((answer.value.document, answer.outcome)),
            Err(unanswered) => Err(unanswered.into()),
        }
    }

    /// The statistics of the cache; loads are fetches at the source.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { loads: self.source.fetches(), ..self.cache.stats() }
    }

    /// Ends it, and leaves nothing behind where it is shared.
    pub async fn close(self) {
        if let Some(tier) = self.tier {
            tier.close().await;
        }
    }
}

impl From<LookupError> for DocumentError {
    fn from(unanswered: LookupError) -> Self {
        let message = unanswered.to_string();
        let cause: Option<&(dyn std::error::Error + 'static)> = match &unanswered {
            LookupError::Cache(stockade_cache::Error::Load(error)) => Some(error.as_ref()),
            LookupError::Cache(_) => None,
            LookupError::NodeJsCache(error) => Some(error.as_ref()),
        };
        match cause {
            Some(cause) if cause.is::<NotFound>() => Self::Missing,
            Some(cause) if matches!(cause.downcast_ref(), Some(SourceError::TimedOut { .. })) => {
                Self::TimedOut(message)
            }
            _ => Self::Failed(message),
        }
    }
}
