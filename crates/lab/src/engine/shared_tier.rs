//! The shared tier of the caches of an open load.

#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "redis"))]
mod without;

#[cfg(feature = "redis")]
pub use redis::RunTierUrl;
#[cfg(feature = "redis")]
pub(super) use redis::{OpenTier, RedisTable};
#[cfg(not(feature = "redis"))]
pub use without::RunTierUrl;
#[cfg(not(feature = "redis"))]
pub(super) use without::{OpenTier, RedisTable};

/// The settings of a shared tier.
#[derive(Clone, Debug)]
pub struct TierSettings {
    pub url: RunTierUrl,
    /// True if the cache has a memory tier above it.
    pub has_memory: bool,
}
