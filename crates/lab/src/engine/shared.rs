//! A tier that the caches of an open load share.

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
use stockade_cache::{
    Live, Redis, RedisUrl, RedisUrlError, Runtime, Shared,
    tier::{Codec, Plain, Tier, TierError},
};
use stockade_model::{seed::Seed, time::Time};
use stockade_source::Stamped;

use super::node_test::Table;
use crate::services::Service;

/// A shared tier, as an experiment has it.
#[derive(Clone, Debug)]
pub struct SharedTier {
    /// Where it is.
    pub url: TierUrl,
    /// Whether the cache has a memory of its own above it.
    pub has_memory: bool,
}

/// Where a shared tier is. Displayed without secrets.
///
/// ```
/// use stockade_lab::engine::TierUrl;
///
/// let url: TierUrl = "redis://:secret@127.0.0.1:6379?timeout=50ms".parse()?;
/// assert_eq!(url.to_string(), "redis://127.0.0.1:6379");
/// assert!("redis:".parse::<TierUrl>()?.is_started());
/// # Ok::<(), stockade_cache::RedisUrlError>(())
/// ```
#[derive(Clone)]
pub struct TierUrl {
    /// As it was written.
    written: String,
    /// None: it is started for the run.
    there: Option<RedisUrl>,
}

impl TierUrl {
    /// Whether it is a Redis that is started for the run, and gone with it.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.there.is_none()
    }

    /// As it was written.
    pub(super) fn written(&self) -> &str {
        &self.written
    }

    /// Its URL without what only the cache understands.
    pub(super) fn of_server(&self) -> &str {
        self.written.split_once('?').map_or(self.written.as_str(), |(server, _)| server)
    }
}

impl FromStr for TierUrl {
    type Err = RedisUrlError;

    fn from_str(url: &str) -> Result<Self, RedisUrlError> {
        let started = Service::meant_by(url).filter(|(service, _)| *service == Service::Redis);
        let checked: RedisUrl = match started {
            // What follows is checked as if it were there already.
            Some((_, settings)) => format!("redis://localhost{settings}").parse()?,
            None => url.parse()?,
        };
        Ok(Self { written: url.to_owned(), there: started.is_none().then_some(checked) })
    }
}

impl fmt::Display for TierUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.there {
            Some(url) => url.fmt(f),
            None => f.write_str(&self.written),
        }
    }
}

impl fmt::Debug for TierUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A tier that is there, for one load.
#[derive(Clone)]
pub(super) struct OpenTier {
    redis: Arc<Redis>,
    /// What the load's names begin with.
    prefix: String,
    /// Of the server alone.
    server: String,
    has_memory: bool,
}

impl OpenTier {
    /// Connects, with a prefix that no other load has.
    pub(super) async fn open(tier: &SharedTier, seed: Seed, live: &Live) -> Result<Self, TierError> {
        const PATIENCE: Duration = Duration::from_secs(2);
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let server = tier.url.of_server().to_owned();
        let Some(url) = tier.url.there.clone() else { return Err(TierError::Down) };
        let (process, number) = (std::process::id(), OPENED.fetch_add(1, Relaxed));
        let prefix = format!("stockade-{:016x}-{process}-{number}", seed.0);
        let redis = Redis::at(url.with_prefix(&prefix));
        redis.check().await?;
        let give_up = live.now() + PATIENCE;
        while !redis.is_up() {
            if live.now() >= give_up {
                return Err(TierError::TimedOut);
            }
            live.sleep_until(live.now() + Duration::from_millis(1)).await;
        }
        Ok(Self { redis, prefix, server, has_memory: tier.has_memory })
    }

    /// As a cache shares it.
    pub(super) fn shared(&self) -> Shared<Arc<str>, Stamped> {
        let tier: Arc<dyn Tier> = Arc::<Redis>::clone(&self.redis);
        if self.has_memory {
            Shared::under(tier, Plain, Documents)
        } else {
            Shared::alone(tier, Plain, Documents)
        }
    }

    /// As the Node test has it.
    pub(super) async fn table(&self) -> Result<Table, TierError> {
        let connect =
            async { redis::Client::open(self.server.as_str())?.get_multiplexed_async_connection().await };
        match connect.await {
            Ok(connection) => Ok(Table::Redis(connection, self.prefix.clone())),
            Err(error) => Err(TierError::Failed(error.to_string())),
        }
    }

    /// Leaves nothing behind.
    pub(super) async fn close(self) {
        // What cannot be removed goes with its ttl, if it has one.
        let _ = self.redis.sweep().await;
    }
}

/// Documents that know their age, on the clock of one load.
struct Documents;

impl Codec<Stamped> for Documents {
    fn encode(&self, stamped: &Stamped) -> Bytes {
        let at = stamped.at.as_nanos();
        [&stamped.version.to_le_bytes()[..], &at.to_le_bytes(), &stamped.document].concat().into()
    }

    fn decode(&self, bytes: Bytes) -> Option<Stamped> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (at, document) = rest.split_first_chunk()?;
        let document = bytes.slice_ref(document);
        let (version, at) = (u64::from_le_bytes(*version), u64::from_le_bytes(*at));
        Some(Stamped { document, version, at: Time::from_nanos(at) })
    }
}
