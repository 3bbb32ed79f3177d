//! The seam to a second tier of the cache, a store that several nodes share over a network.
//!
//! Before a load begins, the engine looks its key up in the [`Tier`]; afterwards it stores the result there.
//! Every call may fail: the engine then works as if there were no tier. `RedisTier`, of the feature `redis`, implements it.

#[cfg(feature = "redis")]
pub(crate) mod redis;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::{codec::Codec, invalidation::Invalidation};

/// The future that a tier's methods return.
pub type TierFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store that nodes share, with a lock for each key.
///
/// An implementation bounds its own time: a call that takes longer than a fraction of a second returns
/// [`TierError::TimedOut`]. It may be unavailable or return corrupt data at any time; a value that fails its checks
/// is to be reported as not found.
pub trait Tier: Send + Sync + 'static {
    /// Looks up a key. If the tier has nothing that satisfies the query, it may take the key's lock for this node.
    fn lookup<'a>(&'a self, key: &'a [u8], query: TierQuery) -> TierFuture<'a, Result<TierReply, TierError>>;

    /// Sends an event to the tier and to all other nodes, without waiting. Events take effect in the order of the
    /// calls, and before any lookup that this node begins afterwards. While the tier is unavailable they are
    /// queued.
    fn publish(&self, event: TierEvent);

    /// Registers the function that receives the events of other nodes. Called once, before any other method.
    fn subscribe(&self, listener: EventListener);
}

/// Receives the events of other nodes.
pub type EventListener = Box<dyn Fn(TierEvent) + Send + Sync>;

/// The values that satisfy a lookup, and the request for the key's lock if no value is found.
#[derive(Clone, Copy, Debug, Default)]
pub struct TierQuery {
    /// A fresh value satisfies the lookup only if its age is below this. `None`: any fresh value does.
    pub younger_than: Option<Duration>,
    /// How long this node has waited for another node's load. A value that was loaded within that time satisfies
    /// the lookup whether or not it is still fresh. `None`: the node has not waited.
    pub waited: Option<Duration>,
    /// Take the key's lock if no value satisfies the lookup.
    pub wants_lock: bool,
}

/// The result of a lookup.
pub enum TierReply {
    /// A value that satisfies the query.
    Found(TierValue),
    /// No value satisfies the query.
    NotFound {
        /// A value that does not satisfy the query, to be served if the load fails.
        stale: Option<TierValue>,
        /// The node that may load the key.
        right: LoadRight,
    },
}

/// The node that may load a key.
pub enum LoadRight {
    /// This node. It holds the key's lock if the query [wanted](TierQuery::wants_lock) it.
    Granted(Box<dyn Lease>),
    /// Another node, which holds the lock.
    HeldElsewhere {
        /// Time until the other node's lease ends if it is not renewed.
        lease_remaining: Duration,
        /// Resolves when the other node's load has ended, or when its outcome can no longer be learned.
        outcome: TierFuture<'static, RemoteLoad>,
    },
}

/// The lock of a key and the right to store its value. The implementation renews it until it is completed; it is
/// released when it is dropped or its node dies.
pub trait Lease: Send {
    /// Releases the lock and wakes the nodes that wait for the key. A loaded value is stored, unless the lock was
    /// lost meanwhile because the key was invalidated or the lease ended. An error is the failure's message.
    fn complete(self: Box<Self>, result: Result<TierValue, String>) -> TierFuture<'static, ()>;
}

/// The outcome of another node's load, as the waiting nodes learn it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteLoad {
    /// The value is in the tier.
    Stored,
    /// The load failed with this message.
    Failed(String),
    /// The load succeeded, but its value is not shared, for example because it is too large. A waiting node loads
    /// for itself, without waiting again.
    NotShared,
    /// The lock was released with an unknown outcome. A waiting node looks the key up again and competes for its
    /// lock.
    Released,
}

/// A value with its times, as a tier stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierValue {
    /// The encoded value.
    pub body: Bytes,
    /// Time since its load ended, rounded up by the uncertainty of the clocks.
    pub age: Duration,
    /// How long its load took.
    pub load_duration: Duration,
    /// How long it is fresh, counted from the end of its load; `None`: for ever.
    pub fresh_for: Option<Duration>,
    /// How long it may be served after that.
    pub stale_for: Duration,
    /// True if it stands for a [not-found](crate::Builder::not_found).
    pub is_negative: bool,
    /// Its [tags](crate::Builder::tags). A tier that stores only their hashes returns none.
    pub tags: Vec<String>,
}

/// A change that a node publishes to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierEvent {
    /// Stored values, and values whose load is in flight, are outdated.
    Invalidated(InvalidationTarget, Invalidation),
    /// The encoded key has a new value that no load returned. Other nodes treat it as an invalidation.
    Written(Bytes, TierValue),
}

/// The values that an invalidation concerns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InvalidationTarget {
    /// The value of an encoded key.
    Key(Bytes),
    /// All values with a tag.
    Tag(String),
    /// All values.
    All,
}

/// Why a call of a tier failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// The tier is known to be unavailable; no request was sent.
    #[error("the shared tier is down")]
    Down,
    /// The tier did not answer within its timeout.
    #[error("the shared tier did not answer in time")]
    TimedOut,
    /// The tier returned an error, or the connection broke.
    #[error("the shared tier failed: {0}")]
    Failed(String),
}

/// How many keys a node looks up in the tier at once. Further loads do without the tier.
const LOOKUPS_MAX: usize = 10_000;

/// A [`Tier`] that a cache shares with other nodes, and the encoding of its keys and values.
///
/// Where the strategy coalesces, loads of one key are coalesced over all nodes: one node holds the key's lock and
/// loads, the others wait for its value. An invalidation on one node takes effect on all.
pub struct SharedTier<K, V> {
    pub(crate) tier: Arc<dyn Tier>,
    pub(crate) keys: Box<dyn Codec<K>>,
    pub(crate) values: Box<dyn Codec<V>>,
    pub(crate) has_memory: bool,
    pub(crate) lookups: Semaphore,
}

impl<K, V> SharedTier<K, V> {
    /// A tier below the memory of this node: a lookup that memory can answer does not reach the tier.
    pub fn with_memory(tier: Arc<dyn Tier>, keys: impl Codec<K>, values: impl Codec<V>) -> Self {
        let (keys, values, lookups) = (Box::new(keys), Box::new(values), Semaphore::new(LOOKUPS_MAX));
        Self { tier, keys, values, has_memory: true, lookups }
    }

    /// A tier in place of the memory of this node: every request looks its key up in the tier. Where the strategy
    /// coalesces, concurrent requests for one key share one lookup.
    pub fn without_memory(tier: Arc<dyn Tier>, keys: impl Codec<K>, values: impl Codec<V>) -> Self {
        Self { has_memory: false, ..Self::with_memory(tier, keys, values) }
    }
}
