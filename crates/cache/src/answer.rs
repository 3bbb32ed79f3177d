//! The answer to a request.

use std::time::Duration;

use stockade_model::outcome::Outcome;

use crate::error::Error;

/// A value, and how the cache obtained it.
#[derive(Clone, Debug)]
pub struct Answer<V> {
    /// The value.
    pub value: V,
    /// How the cache answered.
    pub outcome: Outcome,
    /// The time since the end of the value's load, accurate to 2 ms.
    pub age: Duration,
    /// Why it has this outcome.
    pub reason: Reason,
}

impl<V> Answer<V> {
    pub(crate) fn hit(value: V, age: Duration) -> Self {
        Self { value, outcome: Outcome::Hit, age, reason: Reason::Fresh }
    }
}

/// Why an answer has its outcome.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The value was fresh: a hit, or a stored not-found.
    Fresh,
    /// No value was stored, so it was loaded.
    Absent,
    /// The stored value had expired, so it was loaded.
    Expired,
    /// The value was fresh, and this caller was chosen to load it again.
    Early,
    /// The caller asked for a [reload](crate::CacheMode::Reload), although a value was stored.
    Reload,
    /// The value was stale, and is served while it is refreshed.
    Revalidating,
    /// The value was not stored on this node, and was fresh in the shared tier.
    Shared,
    /// The request has no key, so no lookup was made.
    NoKey,
    /// The value was stale, and the load failed with this error.
    Failed(Error),
}
