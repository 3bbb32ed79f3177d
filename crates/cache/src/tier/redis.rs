//! A [`Tier`] in Redis or Valkey.
//!
//! ```text
//! PREFIX:v:{:KEY}   a value, after a header line                             (envelope.rs)
//! PREFIX:l:{:KEY}   the key's lock: the token of the loading node, for a lease
//! PREFIX:w:{:KEY}   the channels of the nodes that wait for the load
//! PREFIX:log        a stream of the nodes' invalidations                   (log.rs)
//! PREFIX:events     the channel that publishes them at once
//! PREFIX:node:ID    the channel of one node
//! ```
//!
//! A fresh value takes one GET; every other step on a key is one script. One task, the session, owns the connection:
//! it connects, catches up with the log, sends the outbox and checks every quarter of a second whether Redis is
//! reachable. While it is not, lookups fail at once.

mod bounded_connection;
mod clock;
mod connection;
mod envelope;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod lease;
mod log;
mod lookup;
mod outbox;
mod reply_bound;
mod session;
mod state;
mod url;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use stockade_model::time::Runtime;

use self::state::RedisState;
use super::{EventListener, Tier, TierError, TierEvent, TierFuture, TierQuery, TierReply};

pub use self::url::{RedisUrl, RedisUrlError};

/// Redis or Valkey, 6.2 or newer, alone or as a cluster.
///
/// ```no_run
/// use stockade_cache::{Cache, RedisTier, SharedTier, Strategy, RawCodec};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = RedisTier::open("redis://:secret@127.0.0.1:6379/0?prefix=people&lease=2s&timeout=100ms")?;
/// redis.check().await?;
/// let people: Cache<String, String> = Cache::builder(Strategy::default())
///     .shared_tier(SharedTier::with_memory(redis, RawCodec, RawCodec))
///     .build()?;
/// # Ok(())
/// # }
/// ```
///
/// | in the URL | meaning |
/// |---|---|
/// | `redis://`, `rediss://` | without and with TLS; `redis+cluster://A:1,B:2` and `rediss+cluster://` with some hosts of a cluster |
/// | `prefix` | prefix of all names in Redis; caches with the same prefix share their entries (`stockade`) |
/// | `timeout` | bound of each operation (100 ms); Redis counts as down if one takes longer |
/// | `lease` | how long a lock outlives its node (2 s); the node renews it while the load runs |
/// | `ca` | file with trusted certificates in PEM, in place of the system's |
///
/// Replies are bounded, except those of a cluster with a `ca`: a server that sends more than a value of 64 MiB
/// ([`RedisUrl::with_value_bytes_max`]) and 16 MiB of other data is disconnected. The clusters of a process share the largest bound.
pub struct RedisTier(Arc<RedisState>);

impl RedisTier {
    /// A tier at this URL. It connects in the background, and again whenever the connection is lost.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(url: &str) -> Result<Arc<Self>, RedisUrlError> {
        Ok(Self::with_url(url.parse()?))
    }

    /// A tier at a parsed URL.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn with_url(url: RedisUrl) -> Arc<Self> {
        let inner = Arc::new(RedisState::new(url));
        inner.live.spawn(session::run(Arc::downgrade(&inner), inner.live.clone()));
        Arc::new(Self(inner))
    }

    /// Waits until all invalidations and inserted values that were published so far have been sent.
    pub async fn flush(&self) -> Result<(), TierError> {
        self.0.link()?;
        self.0.wait_sent(self.0.deadline()).await
    }

    /// Removes everything under the prefix. Not for a cluster.
    pub async fn remove_all(&self) -> Result<(), TierError> {
        session::remove_all(&self.0).await
    }

    /// Checks whether Redis can be reached and used.
    pub async fn check(&self) -> Result<(), TierError> {
        session::check(&self.0).await
    }

    /// True if the connection is up, as far as is known without a request.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.link.lock().is_some()
    }
}

impl std::fmt::Debug for RedisTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RedisState { url, outbox, waiters, .. } = &*self.0;
        let waiters = waiters.lock().values().map(Vec::len).sum::<usize>();
        f.debug_struct("RedisTier")
            .field("url", url)
            .field("is_connected", &self.is_connected())
            .field("waiting", &waiters)
            .field("pending", &outbox.len())
            .finish()
    }
}

impl Drop for RedisTier {
    fn drop(&mut self) {
        // The session ends when the tier is dropped.
        self.0.wake_up.notify_one();
    }
}

impl Tier for RedisTier {
    fn lookup<'a>(&'a self, key: &'a [u8], query: TierQuery) -> TierFuture<'a, Result<TierReply, TierError>> {
        Box::pin(self.0.lookup(Bytes::copy_from_slice(key), query))
    }

    fn publish(&self, event: TierEvent) {
        self.0.publish(event);
    }

    fn subscribe(&self, listener: EventListener) {
        let is_first = self.0.listener.set(listener).is_ok();
        assert!(is_first, "a tier belongs to one cache: open another tier for this one");
    }
}
