//! A strategy is a composition of values.

use std::time::Duration;

use crate::{breaker::Breaker, limit::Limit};

/// What a cache does about a missing answer. Every field is independent of the others.
///
/// ```
/// use std::time::Duration;
/// use stockade_cache::{Store, Strategy};
///
/// let mine = Strategy {
///     ttl: Some(Duration::from_secs(30)),
///     store: Store::Async,
///     ..Strategy::preset("stampede")?
/// };
/// # Ok::<(), stockade_cache::UnknownPreset>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Strategy {
    /// Who loads a missing key.
    pub fetch: Fetch,
    /// What bounds a load.
    pub load: Load,
    /// When the answer is stored, and whether the caller waits for that.
    pub store: Store,
    /// Whether a fresh answer is loaded again before it expires.
    pub refresh: Refresh,
    /// How long a stored answer is fresh, counted from the end of its load; `None`: for ever.
    pub ttl: Option<Duration>,
    /// How much of its ttl an answer may lose by chance, 0 to 1, so that what was loaded together does
    /// not expire together. It lengthens nothing.
    pub jitter: f64,
    /// Stale while revalidate, after the ttl: a request is given the stale answer and starts a refresh
    /// (RFC 5861; Varnish calls it grace). None in flight, and it is the only one.
    pub swr: Duration,
    /// Stale if error, after `ttl` and `swr`: a request waits for a load, and is given the stale answer
    /// if that fails (RFC 5861; Varnish calls it keep, others fail-safe). Then the answer is gone.
    pub sie: Duration,
    /// How long a [not-found](crate::Builder::not_found) is kept; `None`: it is answered and not stored.
    pub negative_ttl: Option<Duration>,
    /// How long a key is left alone after a load of it has failed, while there is something to answer
    /// with. No jitter touches it.
    pub throttle: Duration,
    /// What keeps loads from a source that fails; `None`: nothing.
    pub breaker: Option<Breaker>,
    /// Who writes into the store.
    pub writer: Writer,
    /// How much may be stored; `None`: all of it, for as long as it is fresh.
    pub limit: Option<Limit>,
}

impl Strategy {
    /// Whether there can be a cache with it.
    pub fn check(&self) -> Result<(), InvalidStrategy> {
        if self.load.max_concurrent == Some(0) {
            return Err(InvalidStrategy("`max_concurrent` has to be above 0: no load could ever begin"));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(InvalidStrategy("`jitter` is a share of the ttl, from 0 to 1"));
        }
        if self.ttl.is_none() && (self.has_stale() || self.refresh != Refresh::None || self.jitter > 0.0) {
            return Err(InvalidStrategy(
                "without a ttl nothing is ever stale: give one, or leave out `refresh`, `jitter`, `swr` and `sie`",
            ));
        }
        if let Load { soft_timeout: Some(_), .. } = self.load
            && !self.has_stale()
        {
            return Err(InvalidStrategy(
                "`soft_timeout` answers with something stale: give `sie` or `swr`, or leave it out",
            ));
        }
        self.refresh.check()?;
        self.breaker.as_ref().map_or(Ok(()), Breaker::check)?;
        self.limit.as_ref().map_or(Ok(()), Limit::check)
    }

    /// The age at which an answer is given to nobody any more, whatever fails; `None`: there is none.
    #[must_use]
    pub fn hard_limit(&self) -> Option<Duration> {
        Some(self.ttl?.saturating_add(self.stale_for()))
    }

    /// How long an answer may serve after its ttl.
    pub(crate) fn stale_for(&self) -> Duration {
        self.swr.saturating_add(self.sie)
    }

    /// Whether something may be stored that answers when a load does not.
    pub(crate) fn can_fall_back(&self) -> bool {
        self.has_stale() || self.refresh != Refresh::None
    }

    pub(crate) fn has_stale(&self) -> bool {
        !self.stale_for().is_zero()
    }
}

/// Why there can be no cache with a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidStrategy(pub(crate) &'static str);

/// Who loads a missing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// Everyone for themselves.
    Independent,
    /// The first caller leads, the others wait for its answer.
    Coalesce {
        /// How long a waiter waits before it is given an error.
        wait_timeout: Duration,
    },
}

/// What bounds a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// A load that takes longer is cancelled, and all who wait for it are told. The time that it queues
    /// is part of it.
    pub deadline: Duration,
    /// A load that takes longer goes on, but who has something stale is answered with that; `None`: it is
    /// waited for. Counted from the load's beginning, so that who comes late does not wait at all.
    pub soft_timeout: Option<Duration>,
    /// How many loads may be under way at once, over all keys; `None`: as many as are asked for. A load
    /// that asks the same cache for another key needs two of them.
    pub max_concurrent: Option<usize>,
    /// How many more may queue: for their turn, or for room under the [limit](Limit::bytes). One more,
    /// and its callers are told [`Overloaded`](crate::Error::Overloaded) at once.
    pub queue: usize,
}

/// Whether a fresh answer is loaded again before it expires. On a request, never by timer.
///
/// With [`Fetch::Coalesce`] the request that is chosen starts the one refresh in flight and is answered
/// at once; with [`Fetch::Independent`] it loads and waits, as in the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refresh {
    /// It is not.
    None,
    /// The first request after this share of the ttl, between 0 and 1.
    Early {
        /// The share; 0.8 is usual.
        at: f64,
    },
    /// Each request by chance, the likelier the nearer expiry is and the longer a load takes: when `now -
    /// delta * beta * ln(rand) >= expiry`, where delta is what the key's last load took (Vattani,
    /// Chierichetti, Lowenstein: Optimal Probabilistic Cache Stampede Prevention, VLDB 2015).
    XFetch {
        /// 1 is optimal; more refreshes earlier.
        beta: f64,
    },
}

impl Refresh {
    fn check(self) -> Result<(), InvalidStrategy> {
        match self {
            Self::Early { at } if !(at > 0.0 && at < 1.0) => {
                Err(InvalidStrategy("`at` is a share of the ttl, above 0 and below 1"))
            }
            Self::XFetch { beta } if !(beta > 0.0 && beta.is_finite()) => {
                Err(InvalidStrategy("`beta` has to be above 0"))
            }
            _ => Ok(()),
        }
    }
}

/// When the answer is stored, and whether the caller waits for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Stored, then answered.
    Sync,
    /// Answered, then stored.
    Async,
    /// Answered; then stored by the first load that claims the entry version which its lookup saw.
    /// The others skip theirs: one store a key, however many loads (Kazoo's `stampede_async`).
    LockedAsync,
}

/// Who writes into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The load's own task, under the shard's lock.
    Direct,
    /// One task owns all writes and takes them from a bounded mailbox, as Kazoo's cache process does.
    ///
    /// A sync store that is not executed within `call_timeout` fails everyone who awaits that load,
    /// and is executed all the same, as a timed-out `gen_server:call` is. When the mailbox is full, a
    /// sync store fails and an async one is dropped and counted.
    Mailbox {
        /// What one write costs the task.
        cost: Duration,
        /// How long a sync store is waited for.
        call_timeout: Duration,
        /// How many writes may wait; one at least.
        capacity: usize,
    },
}

impl Load {
    /// Ten seconds: infinity is no default. As many at once as are asked for; 65,536 may queue.
    pub const DEFAULT: Self =
        Self { deadline: Duration::from_secs(10), soft_timeout: None, max_concurrent: None, queue: 65_536 };
}

impl Writer {
    /// A mailbox. What is not given is as Erlang has it: free writes, calls that time out after 5 s
    /// (`gen_server:call/2`). Erlang's has no bound; here 65,536 writes may wait.
    #[must_use]
    pub fn mailbox(cost: Option<Duration>, call_timeout: Option<Duration>, capacity: Option<usize>) -> Self {
        Self::Mailbox {
            cost: cost.unwrap_or_default(),
            call_timeout: call_timeout.unwrap_or(Duration::from_secs(5)),
            capacity: capacity.unwrap_or(65_536),
        }
    }
}
