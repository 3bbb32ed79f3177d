//! The storage of the Node test: Redis, or a table in memory with the same semantics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use stockade_model::time::Time;
use stockade_source::VersionedDocument;

use crate::engine::shared_tier::RedisTable;

/// Cached values with their expiry.
pub(in crate::engine) enum NodeJsTable {
    /// In this process, on the clock of its load.
    Memory(Mutex<BTreeMap<Arc<str>, NodeEntry>>),
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "built with Redis only"))]
    Redis(RedisTable),
}

/// A document and the duration of its load in whole milliseconds.
#[derive(Clone)]
pub(in crate::engine) struct Cached {
    pub(in crate::engine) stamped: VersionedDocument,
    pub(in crate::engine) delta_ms: u64,
}

/// An entry of the table in memory.
pub(in crate::engine) struct NodeEntry {
    cached: Cached,
    expires: Time,
}

pub(in crate::engine) type NodeJsResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

impl NodeJsTable {
    pub(in crate::engine) fn in_memory() -> Self {
        Self::Memory(Mutex::default())
    }

    /// A value and its TTL in whole seconds.
    pub(super) async fn get(&self, key: &Arc<str>, now: Time) -> NodeJsResult<Option<(Cached, u64)>> {
        match self {
            Self::Memory(entries) => Ok(lock(entries).get(key).and_then(|entry| {
                let ttl = ttl_secs(entry.expires - now);
                (ttl > 0).then(|| (entry.cached.clone(), ttl))
            })),
            Self::Redis(redis) => redis.get(key).await,
        }
    }

    pub(super) async fn set(
        &self,
        key: &Arc<str>,
        cached: Cached,
        ttl: Duration,
        now: Time,
    ) -> NodeJsResult<()> {
        match self {
            Self::Memory(entries) => {
                lock(entries).insert(Arc::clone(key), NodeEntry { cached, expires: now + ttl });
                Ok(())
            }
            Self::Redis(redis) => redis.set(key, cached, ttl).await,
        }
    }

    pub(super) async fn delete(&self, key: &Arc<str>) -> NodeJsResult<()> {
        match self {
            Self::Memory(entries) => {
                lock(entries).remove(key);
                Ok(())
            }
            Self::Redis(redis) => redis.delete(key).await,
        }
    }
}

/// Redis' TTL: whole seconds, to the nearest (`(ttl + 500) / 1000`, db.c and expire.c).
fn ttl_secs(left: Duration) -> u64 {
    u64::try_from((left.as_millis() + 500) / 1_000).unwrap_or(u64::MAX)
}

fn lock<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_is_rounded_to_the_nearest_second() {
        for (left, secs) in [(0, 0), (499, 0), (500, 1), (1_499, 1), (1_500, 2), (30_000, 30)] {
            assert_eq!(ttl_secs(Duration::from_millis(left)), secs, "{left} ms");
        }
    }
}
