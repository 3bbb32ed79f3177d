//! A strategy is a composition of values.

use std::time::Duration;

use crate::limit::Limit;

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
    /// How long a stored answer is fresh, counted from the end of its load; `None`: for ever.
    pub ttl: Option<Duration>,
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
        self.limit.as_ref().map_or(Ok(()), Limit::check)
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
    /// How many loads may be under way at once, over all keys; `None`: as many as are asked for. A load
    /// that asks the same cache for another key needs two of them.
    pub max_concurrent: Option<usize>,
    /// How many more may queue: for their turn, or for room under the [limit](Limit::bytes). One more,
    /// and its callers are told [`Overloaded`](crate::Error::Overloaded) at once.
    pub queue: usize,
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
    pub const DEFAULT: Self = Self { deadline: Duration::from_secs(10), max_concurrent: None, queue: 65_536 };
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
