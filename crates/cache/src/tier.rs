//! The seam to a store that several nodes share: a second tier of the cache, over a network.
//!
//! The engine asks a [`Tier`] before it loads, and tells it what it loaded. All of it may fail: then the
//! engine does without, as if there were no such tier. [`Redis`](crate::Redis) is one.

use std::{future::Future, pin::Pin, time::Duration};

use bytes::Bytes;

use crate::shard::Invalidation;

/// What a tier's calls return.
pub type TierFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store that nodes share. It may be slow, gone, or lie.
///
/// It has its own bounds in time: no call takes longer than a small part of a second.
pub trait Tier: Send + Sync + 'static {
    /// Looks for a key. Where what is there is not what is wanted, it may take the key's lock for this node.
    fn ask<'a>(&'a self, key: &'a [u8], want: Want) -> TierFuture<'a, Result<Asked, TierError>>;

    /// Tells the tier and all other nodes something, without waiting: in the order of the calls, and before
    /// anything that this node asks from then on. What cannot be told now is told when the tier is back.
    fn tell(&self, note: Note);

    /// Has somebody told what other nodes say. Called once, before anything else.
    fn listen(&self, listener: Listener);
}

/// Somebody who is told what other nodes say.
pub type Listener = Box<dyn Fn(Note) + Send + Sync>;

/// What a node needs of a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Want {
    /// What is fresh is good enough only if it is younger than this.
    pub younger_than: Option<Duration>,
    /// What has been loaded since is good enough, fresh or not: the node has waited so long for it.
    pub waited: Option<Duration>,
    /// Whether to take the key's lock if there is nothing good enough.
    pub locks: bool,
}

/// What a tier says about a key.
pub enum Asked {
    /// It has what is wanted.
    Found(Kept),
    /// It has not.
    Wanting {
        /// What it has instead: something that may serve if the load fails.
        instead: Option<Kept>,
        /// Whose turn it is to load.
        turn: Turn,
    },
}

/// Whose turn it is to load a key.
pub enum Turn {
    /// This node's. It has the key's lock, if it wanted that.
    Ours(Box<dyn Lease>),
    /// Another node's.
    Theirs {
        /// When its lease ends, unless it is renewed.
        lease_left: Duration,
        /// Completes when that node has settled, or when nobody knows whether it will.
        settled: TierFuture<'static, Settled>,
    },
}

/// The lock of a key, and the right to store. It is kept as long as this is, and freed when it is dropped or
/// its node dies.
pub trait Lease: Send {
    /// Frees the key and tells the nodes that wait for it what became of its load. What was loaded is stored
    /// only if the lock was not lost meanwhile: to an invalidation, or because the node or its network stood
    /// still.
    fn settle(self: Box<Self>, load: Ended) -> TierFuture<'static, ()>;
}

/// How a load ended, on the node that began it.
#[derive(Clone, Debug)]
pub enum Ended {
    /// With a value. Who waits for it is given it, even if it is not fresh for any time at all.
    Loaded(Kept),
    /// It failed, and says why.
    Failed(String),
}

/// What became of a key's load, on the nodes that wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is there.
    Stored,
    /// It failed, and says why.
    Failed(String),
    /// It has an answer which is not to be shared: who needs it loads it, without waiting for anybody.
    Unshared,
    /// Nobody knows. Who waits competes for the lock again.
    Freed,
}

/// A value as a tier keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The value, encoded.
    pub body: Bytes,
    /// How long ago its load ended; rather more than less.
    pub age: Duration,
    /// How long its load took.
    pub took: Duration,
    /// How long it is fresh, from the end of its load; `None`: for ever.
    pub fresh_for: Option<Duration>,
    /// How long it may serve after that.
    pub stale_for: Duration,
    /// Whether it stands for a not-found.
    pub is_negative: bool,
    /// Its tags.
    pub tags: Vec<String>,
}

/// What nodes tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// What is stored is outdated, and what is being loaded.
    Invalidated(What, Invalidation),
    /// A key has a new value that no load brought. To other nodes it is an invalidation.
    Written(Bytes, Kept),
}

/// What an invalidation is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A key, encoded.
    Key(Bytes),
    /// Everything with a tag.
    Tag(String),
    /// Everything.
    Everything,
}

/// A tier did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// It has not been there for a while, and was not asked.
    #[error("the shared tier is down")]
    Down,
    /// It did not answer in its time.
    #[error("the shared tier did not answer in time")]
    TimedOut,
    /// It refused, or the connection broke.
    #[error("the shared tier failed: {0}")]
    Failed(String),
}

/// How keys or values become bytes, for a tier.
pub trait Codec<T>: Send + Sync + 'static {
    /// As bytes. The same on every node.
    fn encode(&self, value: &T) -> Bytes;

    /// From bytes. A value that cannot be read is taken for absent.
    fn decode(&self, bytes: Bytes) -> Option<T>;
}

/// Strings and bytes as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Codec<Bytes> for Plain {
    fn encode(&self, value: &Bytes) -> Bytes {
        value.clone()
    }

    fn decode(&self, bytes: Bytes) -> Option<Bytes> {
        Some(bytes)
    }
}

impl Codec<Vec<u8>> for Plain {
    fn encode(&self, value: &Vec<u8>) -> Bytes {
        Bytes::copy_from_slice(value)
    }

    fn decode(&self, bytes: Bytes) -> Option<Vec<u8>> {
        Some(bytes.into())
    }
}

impl Codec<String> for Plain {
    fn encode(&self, value: &String) -> Bytes {
        Bytes::copy_from_slice(value.as_bytes())
    }

    fn decode(&self, bytes: Bytes) -> Option<String> {
        String::from_utf8(bytes.into()).ok()
    }
}

impl Codec<std::sync::Arc<str>> for Plain {
    fn encode(&self, value: &std::sync::Arc<str>) -> Bytes {
        Bytes::copy_from_slice(value.as_bytes())
    }

    fn decode(&self, bytes: Bytes) -> Option<std::sync::Arc<str>> {
        std::str::from_utf8(&bytes).ok().map(Into::into)
    }
}
