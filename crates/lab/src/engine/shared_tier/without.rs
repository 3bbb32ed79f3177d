//! A build without the feature `redis`: files cannot name a tier.

use std::{convert::Infallible, fmt, str::FromStr, sync::Arc, time::Duration};

use stockade_cache::{Live, SharedTier, tier::TierError};
use stockade_model::seed::Seed;
use stockade_source::VersionedDocument;

use super::TierSettings;
use crate::engine::node_js_cache::{Cached, NodeJsResult, NodeJsTable};

/// Uninhabited: this build has no shared tiers.
#[derive(Clone, Debug)]
pub struct RunTierUrl(Infallible);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this build has no shared tiers: build it with the default features, or with `--features redis`")]
pub struct NoSharedTier;

impl RunTierUrl {
    pub(crate) fn as_written(&self) -> &str {
        match self.0 {}
    }
}

impl FromStr for RunTierUrl {
    type Err = NoSharedTier;

    fn from_str(_: &str) -> Result<Self, NoSharedTier> {
        Err(NoSharedTier)
    }
}

impl fmt::Display for RunTierUrl {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

#[derive(Clone)]
pub(in crate::engine) struct OpenTier(Infallible);

impl OpenTier {
    #[expect(clippy::unused_async, reason = "with Redis it connects")]
    pub(in crate::engine) async fn open(tier: &TierSettings, _: Seed, _: &Live) -> Result<Self, TierError> {
        match tier.url.0 {}
    }

    pub(in crate::engine) fn shared(&self) -> SharedTier<Arc<str>, VersionedDocument> {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "with Redis it connects")]
    pub(in crate::engine) async fn table(&self) -> Result<NodeJsTable, TierError> {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "with Redis it removes keys")]
    pub(in crate::engine) async fn close(self) {
        match self.0 {}
    }
}

pub(in crate::engine) struct RedisTable(Infallible);

impl RedisTable {
    #[expect(clippy::unused_async, reason = "with Redis it sends a command")]
    pub(in crate::engine) async fn get(&self, _: &str) -> NodeJsResult<Option<(Cached, u64)>> {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "with Redis it sends a command")]
    pub(in crate::engine) async fn set(&self, _: &str, _: Cached, _: Duration) -> NodeJsResult<()> {
        match self.0 {}
    }

    #[expect(clippy::unused_async, reason = "with Redis it sends a command")]
    pub(in crate::engine) async fn delete(&self, _: &str) -> NodeJsResult<()> {
        match self.0 {}
    }
}
