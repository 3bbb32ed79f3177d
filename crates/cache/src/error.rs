//! The errors of this crate.

use std::{sync::Arc, time::Duration};

use stockade_model::units::format_duration;

/// Why a request received no value. All waiters of one load receive the same error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The loader returned this error. Text and source are the loader's. Errors are never stored.
    #[error(transparent)]
    Load(Arc<dyn std::error::Error + Send + Sync>),
    /// The load of another node that shares the tier failed.
    #[error("on another node: {reason}")]
    OtherNode {
        /// The message of that node's error.
        reason: Arc<str>,
    },
    /// The load was cancelled at its deadline; one of a [cache for threads](crate::sync) goes on.
    #[error("the load took longer than its deadline of {}", format_duration(*.after))]
    Deadline {
        /// The strategy's `load.deadline`.
        after: Duration,
    },
    /// The load goes on, but took longer than a request with a stale value waits.
    #[error("the load took longer than the soft timeout of {}", format_duration(*.after))]
    SoftTimeout {
        /// The strategy's `load.soft_timeout`.
        after: Duration,
    },
    /// The load did not start: the breaker is open.
    #[error("the load did not begin: the breaker is open")]
    BreakerOpen,
    /// The load did not start: the last one of this key failed recently.
    #[error("the load did not begin: the last one failed less than {} ago", format_duration(*.throttle))]
    Throttled {
        /// The strategy's `throttle`.
        throttle: Duration,
    },
    /// The load did not start: the queue was full.
    #[error("the load was rejected: {queue} loads are queued already")]
    Overloaded {
        /// The strategy's `load.queue`.
        queue: usize,
    },
    /// The load did not start: it was not admitted before its deadline.
    #[error("the load did not begin: it was queued for {}", format_duration(*.after))]
    QueueTimeout {
        /// The strategy's `load.deadline`.
        after: Duration,
    },
    /// The load goes on, but the waiter's timeout has passed.
    #[error("waited {} for another caller's load", format_duration(*.after))]
    WaitTimeout {
        /// The strategy's `wait_timeout`.
        after: Duration,
    },
    /// The value was loaded, but the writer did not store it in time. It will be stored later.
    #[error("the writer did not store the value within {}", format_duration(*.after))]
    StoreTimeout {
        /// The writer's `call_timeout`.
        after: Duration,
    },
    /// The value was loaded, but the writer's mailbox was full.
    #[error("the writer's mailbox was full ({capacity} writes)")]
    MailboxFull {
        /// The mailbox's `capacity`.
        capacity: usize,
    },
    /// The value was loaded, but the writer's runtime has shut down.
    #[error("the cache's writer is gone: its runtime has shut down")]
    WriterGone,
    /// The load of a [batch](crate::BatchLoader) returned neither a value nor an error for this key.
    #[error("the batch was loaded, and had nothing for this key")]
    NotInBatch,
    /// The load had hedges, and the value that came first was invalidated before the request started. Another request loads anew.
    #[error("the value was invalidated while it was loaded")]
    Invalidated,
    /// The load panicked, and there was no waiter left to replace its leader, or that one's load panicked, too.
    #[error("the load panicked: {message}")]
    Panicked {
        /// The message of the panic.
        message: Arc<str>,
    },
    /// The task of the load was aborted, as by a runtime that shuts down, or it panicked outside the load, as in a function of the builder;
    /// and there was no waiter left to replace its leader.
    #[error("the load was lost: its task was aborted, or panicked outside of the load")]
    LeaderLost,
}

impl Error {
    /// The error that the load returned, if it is an `E`.
    ///
    /// ```
    /// # use stockade_cache::{Cache, Strategy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let cache: Cache<u64, String> = Cache::new(Strategy::default()).expect("a valid strategy");
    /// let error = cache.get_with(7, async || Err("7".parse::<bool>().expect_err("a number"))).await.unwrap_err();
    /// assert!(error.of_load::<std::str::ParseBoolError>().is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn of_load<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Load(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

/// Why a strategy is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidStrategy(pub(crate) &'static str);

impl InvalidStrategy {
    /// For files and flags, where a limit of 0 is a mistake.
    pub const ZERO_LIMIT: Self = Self("a limit has to be above 0");
}
