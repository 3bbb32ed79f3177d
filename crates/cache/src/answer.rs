//! What a lookup returns.

use std::{sync::Arc, time::Duration};

use stockade_model::{outcome::Outcome, units::format_duration};

/// A value, and how it was come by.
#[derive(Clone, Debug)]
pub struct Answer<V> {
    /// The value.
    pub value: V,
    /// What the cache did for this request.
    pub outcome: Outcome,
    /// How long ago the value's load ended, to a millisecond or two.
    pub age: Duration,
    /// Why it was not something else.
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
    /// It was fresh: a hit, or a stored not-found.
    Fresh,
    /// Nothing was stored under the key, so it was loaded.
    Absent,
    /// What was stored had expired, so it was loaded.
    Expired,
    /// It was fresh, and this caller was chosen to load it again.
    Early,
    /// The caller [did not want](crate::Wish::Anew) what was stored.
    Refused,
    /// It was stale, and may be served until it has been refreshed.
    Revalidating,
    /// It was not stored here, and fresh in the shared tier.
    Shared,
    /// The request has no key, so no lookup was made.
    NoKey,
    /// It was stale, and no load answered: this is what the caller would have been told without it.
    Failed(Error),
}

/// Nothing could be served. The reason; everyone who waited for one load is told the same.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The loader returned this error. It is shared with the waiters of the moment, never stored.
    #[error("the load failed: {0}")]
    Load(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// Another node that shares the tier was to load it, and this is what became of that.
    #[error("on another node: {reason}")]
    Elsewhere {
        /// What the callers there were told.
        reason: Arc<str>,
    },
    /// The load was cancelled at its deadline.
    #[error("the load took longer than its deadline of {}", format_duration(*.after))]
    Deadline {
        /// The strategy's `load.deadline`.
        after: Duration,
    },
    /// The load goes on, but took longer than who has something stale waits for.
    #[error("the load took longer than the soft timeout of {}", format_duration(*.after))]
    SoftTimeout {
        /// The strategy's `load.soft_timeout`.
        after: Duration,
    },
    /// The load did not begin: too many have failed, and the breaker leaves the source alone for now.
    #[error("the load did not begin: the breaker is open")]
    BreakerOpen,
    /// The load did not begin: the last one of this key failed not long ago.
    #[error("the load did not begin: the last one failed less than {} ago", format_duration(*.throttle))]
    Throttled {
        /// The strategy's `throttle`.
        throttle: Duration,
    },
    /// As many loads as may were under way or queued already; this one did not begin.
    #[error("the load was rejected: {queue} loads wait for their turn already")]
    Overloaded {
        /// The strategy's `load.queue`.
        queue: usize,
    },
    /// The load did not begin: its turn, or room for it, did not come before its deadline.
    #[error("the load did not begin: it waited for its turn for {}", format_duration(*.after))]
    QueueTimeout {
        /// The strategy's `load.deadline`.
        after: Duration,
    },
    /// The load goes on, but this waiter's time was up.
    #[error("waited {} for another caller's load", format_duration(*.after))]
    WaitTimeout {
        /// The strategy's `wait_timeout`.
        after: Duration,
    },
    /// The value was loaded, but the writer did not store it in time. It will still.
    #[error("the writer did not store the value within {}", format_duration(*.after))]
    StoreTimeout {
        /// The writer's `call_timeout`.
        after: Duration,
    },
    /// The value was loaded, but the writer's mailbox had no room for it.
    #[error("the writer's mailbox was full ({capacity} writes)")]
    MailboxFull {
        /// The mailbox's `capacity`.
        capacity: usize,
    },
    /// The value was loaded, but the writer's task is gone: its runtime has shut down.
    #[error("the cache's writer is gone: its runtime has shut down")]
    WriterGone,
    /// The load's task panicked or was aborted, and so did the one of the leader elected after it, or
    /// nobody was there to be elected.
    #[error("the load was lost: its task panicked or was aborted")]
    LeaderLost,
}
