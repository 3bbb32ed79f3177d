//! Where the Node test caches: in Redis, or in a table in memory that answers as Redis does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{AsyncCommands, RedisError, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use stockade_model::time::Time;
use stockade_source::Stamped;

/// What is cached, and for how long.
pub(in crate::engine) enum Table {
    /// Of this process: it lives by whatever time its load does.
    Memory(Mutex<BTreeMap<Arc<str>, Entry>>),
    /// A Redis, and what names in it begin with.
    Redis(MultiplexedConnection, String),
}

/// A document, and how long its load took in whole milliseconds.
#[derive(Clone)]
pub(super) struct Cached {
    pub(super) stamped: Stamped,
    pub(super) delta_ms: u64,
}

/// What lies in the table in memory.
pub(in crate::engine) struct Entry {
    cached: Cached,
    expires: Time,
}

/// What lies in Redis, as JSON: the test's two fields, and what tells us how old it is.
#[derive(Serialize, Deserialize)]
struct Stored {
    data: String,
    delta: u64,
    version: u64,
    at_nanos: u64,
}

/// What comes of asking it.
pub(super) type Asked<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

impl Table {
    /// In memory, with nothing in it.
    pub(in crate::engine) fn in_memory() -> Self {
        Self::Memory(Mutex::default())
    }

    /// GET and TTL in one step: a value and its TTL in whole seconds.
    pub(super) async fn get(&self, key: &Arc<str>, now: Time) -> Asked<Option<(Cached, u64)>> {
        match self {
            Self::Memory(entries) => Ok(lock(entries).get(key).and_then(|entry| {
                let ttl = ttl_secs(entry.expires - now);
                (ttl > 0).then(|| (entry.cached.clone(), ttl))
            })),
            Self::Redis(redis, prefix) => {
                let name = format!("{prefix}:{key}");
                let mut both = redis::pipe();
                both.get(&name).ttl(&name);
                let (stored, ttl): (Option<Vec<u8>>, i64) = both.query_async(&mut redis.clone()).await?;
                let ttl = u64::try_from(ttl).unwrap_or(0);
                let Some(stored) = stored.filter(|_| ttl > 0) else { return Ok(None) };
                let Stored { data, delta, version, at_nanos } = serde_json::from_slice(&stored)?;
                let stamped = Stamped { document: data.into(), version, at: Time::from_nanos(at_nanos) };
                Ok(Some((Cached { stamped, delta_ms: delta }, ttl)))
            }
        }
    }

    /// SETEX.
    pub(super) async fn set(&self, key: &Arc<str>, cached: Cached, ttl: Duration, now: Time) -> Asked<()> {
        match self {
            Self::Memory(entries) => {
                lock(entries).insert(Arc::clone(key), Entry { cached, expires: now + ttl });
            }
            Self::Redis(redis, prefix) => {
                let Cached { stamped: Stamped { document, version, at }, delta_ms } = cached;
                let data = String::from_utf8_lossy(&document).into_owned();
                let stored = Stored { data, delta: delta_ms, version, at_nanos: at.as_nanos() };
                let (name, json) = (format!("{prefix}:{key}"), serde_json::to_vec(&stored)?);
                let (): () = redis.clone().set_ex(name, json, ttl.as_secs()).await?;
            }
        }
        Ok(())
    }

    /// DEL.
    pub(super) async fn delete(&self, key: &Arc<str>) -> Result<(), RedisError> {
        match self {
            Self::Memory(entries) => drop(lock(entries).remove(key)),
            Self::Redis(redis, prefix) => redis.clone().del(format!("{prefix}:{key}")).await?,
        }
        Ok(())
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
    fn a_ttl_is_rounded_to_the_nearest_second() {
        for (left, secs) in [(0, 0), (499, 0), (500, 1), (1_499, 1), (1_500, 2), (30_000, 30)] {
            assert_eq!(ttl_secs(Duration::from_millis(left)), secs, "{left} ms");
        }
    }
}
