//! The result of a load, whether it ran on this node or on another.

use std::time::Duration;

use stockade_model::time::Time;

use crate::{error::Error, freshness::Lifetime, invalidation::InvalidationSeq};

/// The result of a load, shared by the leader and all waiters.
pub(crate) type LoadResult<V> = Result<Loaded<V>, Error>;

/// A value from a load or from the shared tier.
#[derive(Clone, Debug)]
pub(crate) struct Loaded<V> {
    pub(crate) value: V,
    /// `None`: it is not stored.
    pub(crate) life: Option<Lifetime>,
    /// The end of its load.
    pub(crate) at: Time,
    pub(crate) took: Duration,
    /// The sequence number of the last invalidation before the load, or before the lookup in the tier.
    pub(crate) since: InvalidationSeq,
    pub(crate) via: LoadedFrom,
}

/// Where a value came from.
#[derive(Clone, Debug)]
pub(crate) enum LoadedFrom {
    /// A load on this node.
    Load,
    /// The shared tier.
    Shared,
    /// The load of another node, for which this node waited.
    OtherNode,
    /// The shared tier. The value is stale and is being refreshed.
    Stale,
    /// The shared tier. The value is stale, and the load failed with this error.
    Fallback(Error),
}
