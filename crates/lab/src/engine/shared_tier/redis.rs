//! A shared tier in Redis.

use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use stockade_cache::{
    Codec, Live, RawCodec, RedisTier, RedisUrl, RedisUrlError, Runtime, SharedTier,
    tier::{Tier, TierError},
};
use stockade_model::{seed::Seed, time::Time};
use stockade_source::VersionedDocument;

use super::TierSettings;
use crate::{
    engine::node_js_cache::{Cached, NodeJsResult, NodeJsTable},
    services::RunService,
};

/// The address of a shared tier. Displayed without secrets.
///
/// ```
/// use stockade_lab::engine::RunTierUrl;
///
/// let url: RunTierUrl = "redis://:secret@127.0.0.1:6379?timeout=50ms".parse()?;
/// assert_eq!(url.to_string(), "redis://127.0.0.1:6379");
/// assert!("redis:".parse::<RunTierUrl>()?.is_started());
/// # Ok::<(), stockade_cache::RedisUrlError>(())
/// ```
#[derive(Clone)]
pub struct RunTierUrl {
    written: String,
    /// `None`: the run starts the server.
    server: Option<RedisUrl>,
}

impl RunTierUrl {
    /// True if the run starts and stops the server.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.server.is_none()
    }

    pub(crate) fn as_written(&self) -> &str {
        &self.written
    }

    /// Its URL without the settings of the tier.
    pub(in crate::engine) fn server(&self) -> &str {
        self.written.split_once('?').map_or(self.written.as_str(), |(server, _)| server)
    }
}

impl FromStr for RunTierUrl {
    type Err = RedisUrlError;

    fn from_str(url: &str) -> Result<Self, RedisUrlError> {
        let provided = RunService::from_url(url).filter(|(service, _)| *service == RunService::Redis);
        let checked: RedisUrl = match provided {
            // The settings that follow are checked before the server is started.
            Some((_, settings)) => format!("redis://localhost{settings}").parse()?,
            None => url.parse()?,
        };
        Ok(Self { written: url.to_owned(), server: provided.is_none().then_some(checked) })
    }
}

impl fmt::Display for RunTierUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Some(url) => url.fmt(f),
            None => f.write_str(&self.written),
        }
    }
}

impl fmt::Debug for RunTierUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A connected tier of one load.
#[derive(Clone)]
pub(in crate::engine) struct OpenTier {
    redis: Arc<RedisTier>,
    /// The prefix of the load's keys.
    prefix: String,
    /// URL without the settings of the tier.
    server: String,
    has_memory: bool,
}

impl OpenTier {
    /// Connects, with a key prefix for this load.
    pub(in crate::engine) async fn open(
        tier: &TierSettings,
        seed: Seed,
        live: &Live,
    ) -> Result<Self, TierError> {
        const PATIENCE: Duration = Duration::from_secs(2);
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let server = tier.url.server().to_owned();
        let Some(url) = tier.url.server.clone() else { return Err(TierError::Down) };
        let (process, number) = (std::process::id(), OPENED.fetch_add(1, Relaxed));
        let prefix = format!("stockade-{:016x}-{process}-{number}", seed.0);
        let redis = RedisTier::with_url(url.with_prefix(&prefix));
        redis.check().await?;
        let give_up = live.now() + PATIENCE;
        while !redis.is_connected() {
            if live.now() >= give_up {
                return Err(TierError::TimedOut);
            }
            live.sleep_until(live.now() + Duration::from_millis(1)).await;
        }
        Ok(Self { redis, prefix, server, has_memory: tier.has_memory })
    }

    /// The tier in the form that a cache's builder takes.
    pub(in crate::engine) fn shared(&self) -> SharedTier<Arc<str>, VersionedDocument> {
        let tier: Arc<dyn Tier> = Arc::<RedisTier>::clone(&self.redis);
        if self.has_memory {
            SharedTier::with_memory(tier, RawCodec, StampedCodec)
        } else {
            SharedTier::without_memory(tier, RawCodec, StampedCodec)
        }
    }

    /// The table of the Node test.
    pub(in crate::engine) async fn table(&self) -> Result<NodeJsTable, TierError> {
        let connect =
            async { redis::Client::open(self.server.as_str())?.get_multiplexed_async_connection().await };
        match connect.await {
            Ok(connection) => Ok(NodeJsTable::Redis(RedisTable { connection, prefix: self.prefix.clone() })),
            Err(error) => Err(TierError::Failed(error.to_string())),
        }
    }

    /// Removes every key of this load.
    pub(in crate::engine) async fn close(self) {
        // A key that cannot be removed expires with its ttl, if it has one.
        let _ = self.redis.remove_all().await;
    }
}

/// Encodes a document with its version and the time of its load on the load's clock.
struct StampedCodec;

impl Codec<VersionedDocument> for StampedCodec {
    fn encode(&self, stamped: &VersionedDocument) -> Bytes {
        let at = stamped.at.as_nanos();
        [&stamped.version.to_le_bytes()[..], &at.to_le_bytes(), &stamped.document].concat().into()
    }

    fn decode(&self, bytes: Bytes) -> Option<VersionedDocument> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (at, document) = rest.split_first_chunk()?;
        let document = bytes.slice_ref(document);
        let (version, at) = (u64::from_le_bytes(*version), u64::from_le_bytes(*at));
        Some(VersionedDocument { document, version, at: Time::from_nanos(at) })
    }
}

/// The Node test's keys in Redis.
pub(in crate::engine) struct RedisTable {
    connection: MultiplexedConnection,
    prefix: String,
}

/// A value of the Node test in Redis, as JSON: the test's two fields, then the document's version and the time
/// of its load.
#[derive(Serialize, Deserialize)]
struct RedisValue {
    data: String,
    delta: u64,
    version: u64,
    at_nanos: u64,
}

impl RedisTable {
    /// GET and TTL in one round: a value and its TTL in whole seconds.
    pub(in crate::engine) async fn get(&self, key: &str) -> NodeJsResult<Option<(Cached, u64)>> {
        let name = self.name(key);
        let mut both = redis::pipe();
        both.get(&name).ttl(&name);
        let (stored, ttl): (Option<Vec<u8>>, i64) = both.query_async(&mut self.connection.clone()).await?;
        let ttl = u64::try_from(ttl).unwrap_or(0);
        let Some(stored) = stored.filter(|_| ttl > 0) else { return Ok(None) };
        let RedisValue { data, delta, version, at_nanos } = serde_json::from_slice(&stored)?;
        let stamped = VersionedDocument { document: data.into(), version, at: Time::from_nanos(at_nanos) };
        Ok(Some((Cached { stamped, delta_ms: delta }, ttl)))
    }

    /// SETEX.
    pub(in crate::engine) async fn set(&self, key: &str, cached: Cached, ttl: Duration) -> NodeJsResult<()> {
        let Cached { stamped: VersionedDocument { document, version, at }, delta_ms } = cached;
        let data = String::from_utf8_lossy(&document).into_owned();
        let value = RedisValue { data, delta: delta_ms, version, at_nanos: at.as_nanos() };
        let json = serde_json::to_vec(&value)?;
        Ok(self.connection.clone().set_ex(self.name(key), json, ttl.as_secs()).await?)
    }

    /// DEL.
    pub(in crate::engine) async fn delete(&self, key: &str) -> NodeJsResult<()> {
        Ok(self.connection.clone().del(self.name(key)).await?)
    }

    fn name(&self, key: &str) -> String {
        format!("{}:{key}", self.prefix)
    }
}
