//! A strategy is a composition of values.

pub(crate) mod preset;

use std::time::Duration;

#[cfg(feature = "spec")]
use crate::spec::shown;
use crate::{
    breaker::Breaker,
    error::InvalidStrategy,
    freshness::{FreshnessAxes, Lifespan, Refresh},
    limit::Limit,
};

/// How a cache handles a missing value. The fields are independent of each other.
///
/// ```
/// use std::time::Duration;
/// use stockade_cache::{StoreMode, Strategy};
///
/// let mine = Strategy {
///     ttl: Some(Duration::from_secs(30)),
///     store: StoreMode::Async,
///     ..Strategy::default()
/// };
/// # Ok::<(), stockade_cache::UnknownName>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize))]
pub struct Strategy {
    /// The caller that loads a missing key.
    pub fetch: Fetch,
    /// Bounds of a load.
    pub load: LoadBounds,
    /// The time at which a value is stored, before or after the response.
    pub store: StoreMode,
    /// The refresh of fresh values before they expire.
    pub refresh: Refresh,
    /// How long a value is fresh, from the end of its load; `None`: for ever.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time_or_none"))]
    pub ttl: Option<Duration>,
    /// The share of its ttl that a value may lose at random, 0 to 1, so that values loaded together do not expire
    /// together. It never lengthens a ttl.
    pub jitter: f64,
    /// Stale while revalidate, after the ttl: a request receives the stale value and starts a refresh, unless one is
    /// in flight (RFC 5861; Varnish calls it grace).
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
    pub swr: Duration,
    /// Stale if error, after `ttl` and `swr`: a request waits for a load, and receives the stale value if that fails
    /// (Varnish calls it keep, others fail-safe). Then the value is gone. The `stale-if-error` of RFC 5861 counts from the ttl.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
    pub sie: Duration,
    /// How long a [not-found](crate::Builder::not_found) is stored; `None`: it is answered and not stored.
    #[cfg_attr(feature = "spec", serde(skip))]
    pub negative_ttl: Option<Duration>,
    /// How long loads of a key are suppressed after one failed, if there is a value to serve. Without jitter.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
    pub throttle: Duration,
    /// Stops loads from a source that fails; `None`: there is no breaker.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::or_none"))]
    pub breaker: Option<Breaker>,
    /// The task that writes into the store.
    pub writer: Writer,
    /// The limit of the store; `None`: all values are stored until they expire.
    #[cfg_attr(feature = "spec", serde(skip_serializing_if = "Option::is_none"))]
    pub limit: Option<Limit>,
}

impl Strategy {
    /// The times of a value that is fresh for `ttl`, and then served stale as this strategy says.
    #[must_use]
    pub const fn lifespan(&self, ttl: Duration) -> Lifespan {
        Lifespan { ttl, swr: self.swr, sie: self.sie, keep: Duration::ZERO }
    }

    /// Checks the values.
    pub fn check(&self) -> Result<(), InvalidStrategy> {
        if self.load.deadline.is_zero() {
            return Err(InvalidStrategy("`load.deadline` has to be above 0: every load would fail"));
        }
        if self.load.max_concurrent == Some(0) {
            return Err(InvalidStrategy("`max_concurrent` has to be above 0: no load could ever begin"));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(InvalidStrategy("`jitter` is a share of the ttl, from 0 to 1"));
        }
        // Values may be stale all the same: an invalidation makes them so.
        if self.ttl.is_none() && (self.refresh != Refresh::None || self.jitter > 0.0) {
            return Err(InvalidStrategy(
                "without a ttl nothing expires: give one, or leave out `refresh` and `jitter`",
            ));
        }
        if let LoadBounds { soft_timeout: Some(_), .. } = self.load
            && !self.has_stale()
        {
            return Err(InvalidStrategy(
                "`soft_timeout` answers with something stale: give `sie` or `swr`, or leave it out",
            ));
        }
        if self.load.hedge_after == Some(HedgeAfter::Time(Duration::ZERO)) {
            return Err(InvalidStrategy("`hedge_after` has to be above 0: every waiter would load"));
        }
        self.refresh.check()?;
        self.breaker.as_ref().map_or(Ok(()), Breaker::check)?;
        self.limit.as_ref().map_or(Ok(()), Limit::check)
    }

    /// The age from which a value is not served any more; `None`: unlimited.
    #[must_use]
    pub fn max_served_age(&self) -> Option<Duration> {
        Some(self.ttl?.saturating_add(self.stale_for()))
    }

    /// The axes that define freshness.
    pub(crate) fn times(&self) -> FreshnessAxes {
        let Self { ttl, jitter, swr, sie, negative_ttl, refresh, .. } = *self;
        FreshnessAxes { ttl, jitter, swr, sie, negative_ttl, refresh }
    }

    /// How long a value is served after its ttl.
    pub(crate) fn stale_for(&self) -> Duration {
        self.swr.saturating_add(self.sie)
    }

    /// True if a stored value may be served when a load fails.
    pub(crate) fn can_fall_back(&self) -> bool {
        self.has_stale() || self.refresh != Refresh::None
    }

    pub(crate) fn has_stale(&self) -> bool {
        !self.stale_for().is_zero()
    }
}

/// The caller that loads a missing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Fetch {
    /// Every caller loads for itself.
    Independent,
    /// The first caller leads, the others wait for its result: [`Fetch::coalesce`].
    #[non_exhaustive]
    Coalesce {
        /// How long a waiter waits.
        #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
        wait_timeout: Duration,
        /// A waiter without a stale value receives an error after that time, or loads.
        then: AfterWait,
    },
}

/// What a waiter does after its [`wait_timeout`](Fetch::Coalesce).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum AfterWait {
    /// It receives [`Error::WaitTimeout`](crate::Error::WaitTimeout).
    Error,
    /// It loads for itself, in addition to the load that it waited for, as a request of nginx does after `proxy_cache_lock_timeout`. One that has
    /// [hedged](LoadBounds::hedge_after) the load receives the error. `max_concurrent` and `queue` bound such loads, too.
    Load,
}

impl Fetch {
    /// One caller loads for all. The others receive an error after `wait_timeout`.
    #[must_use]
    pub const fn coalesce(wait_timeout: Duration) -> Self {
        Self::Coalesce { wait_timeout, then: AfterWait::Error }
    }

    /// One caller loads for all. After `wait_timeout` the others load for themselves.
    #[must_use]
    pub const fn coalesce_or_load(wait_timeout: Duration) -> Self {
        Self::Coalesce { wait_timeout, then: AfterWait::Load }
    }
}

/// Bounds of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize))]
pub struct LoadBounds {
    /// A load that takes longer is cancelled, and its waiters receive an error. The waits before it, in the queue for admission and
    /// in that of a batch, have the same bound each.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
    pub deadline: Duration,
    /// When a load takes longer, requests that have a stale value receive that, and the load goes on; `None`: they
    /// wait for it. Counted from the start of the load, so that a late request does not wait at all.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time_or_none"))]
    pub soft_timeout: Option<Duration>,
    /// When a load takes longer, one of its waiters loads, too, and another one after each further such time. The first
    /// value answers all of them; `None`: they wait for the one load. A source that does not answer one request then
    /// delays the others of its key by this time. Hedges are one load in a hundred at most, and three at first: a source that is
    /// slow altogether does not get more loads by it.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::hedge_after"))]
    pub hedge_after: Option<HedgeAfter>,
    /// The number of concurrent loads over all keys; `None`: no bound. A load that requests another key of the same
    /// cache needs two of them.
    pub max_concurrent: Option<usize>,
    /// The number of loads that may queue for admission or for bytes under the [limit](Limit::bytes). The callers of
    /// further ones receive [`Overloaded`](crate::Error::Overloaded) at once.
    pub queue: usize,
}

/// How long a load takes before it is [hedged](LoadBounds::hedge_after).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HedgeAfter {
    /// This time, above 0.
    Time(Duration),
    /// Twice the 99th percentile of the cache's, or the [view](crate::Cache::view)'s, own load times. Of the deadline it is half
    /// at most, which also holds until 20 loads have been answered.
    Learned,
}

impl HedgeAfter {
    /// The shortest time that is learned: timers have a resolution of 1 ms.
    const LEARNED_MIN: Duration = Duration::from_millis(5);

    /// `p99` of the load times, if it is known.
    pub(crate) fn time(self, p99: Option<Duration>, deadline: Duration) -> Duration {
        match self {
            Self::Time(time) => time,
            Self::Learned => {
                let most = deadline / 2;
                p99.map_or(most, |p99| (2 * p99).max(Self::LEARNED_MIN).min(most))
            }
        }
    }
}

/// The time at which a value is stored, before or after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum StoreMode {
    /// The value is stored, then answered.
    Sync,
    /// The value is answered, then stored.
    Async,
    /// The value is answered, then stored by the first load that claims the entry version of its lookup. The others
    /// skip their stores: one store per key, however many loads (Kazoo's `stampede_async`).
    LockedAsync,
}

/// The task that writes into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Writer {
    /// The load's own task, under the shard's lock.
    Direct,
    /// One task owns all writes and takes them from a bounded mailbox, as Kazoo's cache process does.
    ///
    /// A sync store that is not executed within `call_timeout` fails all waiters of its load, and is executed later,
    /// as with a timed-out `gen_server:call`. When the mailbox is full, a sync store fails and an async one is
    /// dropped and counted.
    Mailbox {
        /// The duration of one write.
        #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
        cost: Duration,
        /// How long a sync store is waited for.
        #[cfg_attr(feature = "spec", serde(serialize_with = "shown::time"))]
        call_timeout: Duration,
        /// Maximum number of waiting writes; at least one.
        capacity: usize,
    },
}

impl LoadBounds {
    /// 10 s, no hedges, unlimited concurrency, and 65,536 queued loads. [`Strategy::DEFAULT`] has others: `..Strategy::DEFAULT.load`.
    pub const DEFAULT: Self = Self {
        deadline: Duration::from_secs(10),
        soft_timeout: None,
        hedge_after: None,
        max_concurrent: None,
        queue: 65_536,
    };
}

impl Writer {
    /// A mailbox. Defaults are Erlang's: writes that cost nothing, and calls that time out after 5 s
    /// (`gen_server:call/2`). Erlang's mailbox is unbounded; here 65,536 writes may wait.
    #[must_use]
    pub fn mailbox(cost: Option<Duration>, call_timeout: Option<Duration>, capacity: Option<usize>) -> Self {
        Self::Mailbox {
            cost: cost.unwrap_or_default(),
            call_timeout: call_timeout.unwrap_or(Duration::from_secs(5)),
            capacity: capacity.unwrap_or(65_536),
        }
    }
}
