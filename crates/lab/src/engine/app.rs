//! The document app of the published Node test: documents of a database by their ids, through a cache, for whoever serves
//! them over HTTP.

use std::sync::Arc;

use stockade_cache::Live;
use stockade_model::{
    latency::Latency,
    outcome::Outcome,
    record::CacheFigures,
    seed::Seed,
    source::{Document, SourceError},
};
use stockade_source::{Conduct, SourceUrl, Staged};

use super::{
    EngineError, NotFound, SharedTier, Target,
    node_test::Table,
    shared::OpenTier,
    target::{Asked, Unanswered},
};

/// Where documents come from, and what stands before that.
#[derive(Clone, Debug)]
pub struct App {
    /// Where they truly live.
    pub source: SourceUrl,
    /// What is asked for them.
    pub target: Target,
    /// Where that keeps them, or has them under its own memory.
    pub shared: Option<SharedTier>,
}

/// An [`App`] that runs.
pub struct Serving {
    asked: Asked<Live>,
    source: Arc<Staged<Live>>,
    tier: Option<OpenTier>,
}

/// There is no document, and why.
#[derive(Debug, thiserror::Error)]
pub enum NoDocument {
    /// The source has none of that name.
    #[error("no such document")]
    Missing,
    /// The source was too slow.
    #[error("{0}")]
    TimedOut(String),
    /// It failed, or the tier did.
    #[error("{0}")]
    Failed(String),
}

/// What it has counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Fetches at the source.
    pub source_loads: u64,
    /// Requests that waited for another's load.
    pub waiters: u64,
    /// What the cache holds, and did about it.
    pub cache: CacheFigures,
}

impl App {
    /// Opens what it takes, on the runtime of the caller.
    pub async fn start(&self, live: Live, seed: Seed) -> Result<Serving, EngineError> {
        let source = self.source.open().await?;
        let source = Arc::new(Staged::new(source, &Conduct::from(Latency::default()), live.clone(), seed));
        let (tier, table) = match &self.shared {
            Some(shared) => {
                let (tier, table) = self.target.tier(shared, seed, &live).await?;
                (Some(tier), table)
            }
            None => (None, Table::in_memory()),
        };
        let asked = self.target.start(&source, &live, seed, tier.as_ref(), table)?;
        source.begin();
        Ok(Serving { asked, source, tier })
    }
}

impl Serving {
    /// The document of this id, and what was done for it.
    pub async fn document(&self, id: &str) -> Result<(Document, Outcome), NoDocument> {
        match self.asked.ask(&id.into()).await {
            Ok(answer) => Ok((answer.value.document, answer.outcome)),
            Err(unanswered) => Err(unanswered.into()),
        }
    }

    /// What it has counted so far.
    #[must_use]
    pub fn counted(&self) -> Counted {
        Counted {
            source_loads: self.source.fetches(),
            waiters: self.asked.did().waiters,
            cache: self.asked.held(),
        }
    }

    /// Ends it, and leaves nothing behind where it is shared.
    pub async fn close(self) {
        if let Some(tier) = self.tier {
            tier.close().await;
        }
    }
}

impl From<Unanswered> for NoDocument {
    fn from(unanswered: Unanswered) -> Self {
        let said = unanswered.to_string();
        let cause: Option<&(dyn std::error::Error + 'static)> = match &unanswered {
            Unanswered::Cache(stockade_cache::Error::Load(error)) => Some(error.as_ref()),
            Unanswered::Cache(_) => None,
            Unanswered::Node(error) => Some(error.as_ref()),
        };
        match cause {
            Some(cause) if cause.is::<NotFound>() => Self::Missing,
            Some(cause) if matches!(cause.downcast_ref(), Some(SourceError::TimedOut { .. })) => {
                Self::TimedOut(said)
            }
            _ => Self::Failed(said),
        }
    }
}
