//! Time is an argument: code that waits or measures receives a [`Runtime`].

mod blocking;
mod coarse;
mod live;
#[cfg(feature = "precise")]
mod precise;
mod simulated;

use std::{
    future::{Future, poll_fn},
    ops::{Add, Sub},
    pin::pin,
    task::Poll,
    time::Duration,
};

pub use blocking::{block_on, is_own_load};
pub use live::{Live, background};
#[cfg(feature = "precise")]
pub use precise::Precise;
pub use simulated::{Stalled, Virtual};

/// A moment on a runtime's clock: nanoseconds since the runtime started.
///
/// Moments of different runtimes are not comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Time(u64);

impl Time {
    /// The start of the runtime.
    pub const ZERO: Self = Self(0);

    /// The latest moment, for deadlines that never pass.
    pub const NEVER: Self = Self(u64::MAX);

    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start of the runtime.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since the start of the runtime.
    #[must_use]
    pub const fn elapsed(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Saturates at the start of the runtime.
    #[must_use]
    pub fn back(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at the latest moment (584 years).
    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// Zero if `self` is before `earlier`.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The clock, the timers and the tasks of an engine.
pub trait Runtime: Clone + Send + Sync + 'static {
    fn now(&self) -> Time;

    /// The time of about a millisecond ago, if that is cheaper to read: for decisions in every
    /// lookup.
    fn coarse_now(&self) -> Time {
        self.now()
    }

    /// Completes at `deadline`, or at once if `deadline` has passed.
    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static;

    /// Runs `task` to its end, independent of the caller's lifetime.
    ///
    /// A panic ends only its own task. A runtime that shuts down drops its tasks.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// As [`spawn`](Self::spawn), for a task that outlives the runtime of the caller if there may be others.
    fn spawn_lasting(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn(task);
    }

    /// As [`spawn`](Self::spawn), for a load that a caller waits for. A caller that [blocks](block_on) runs it itself. Otherwise it may be
    /// polled once before this returns, so that no lock may be held.
    fn spawn_awaited(&self, load: impl Future<Output = ()> + Send + 'static) {
        self.spawn(load);
    }

    /// The runtime on which the caller's sleeps end and its tasks run.
    fn id(&self) -> RuntimeId {
        RuntimeId::default()
    }
}

/// Tells runtimes apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeId(Option<tokio::runtime::Id>);

/// Lets other ready tasks run first. A loop that never waits needs it, because it would block them.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Awaits `future` until `deadline`. `None`: the deadline passed first, and `future` is dropped.
///
/// A future that becomes ready at the deadline counts as completed.
pub async fn before<R: Runtime, F: Future>(runtime: &R, deadline: Time, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut deadline = pin!(runtime.sleep_until(deadline));
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        deadline.as_mut().poll(cx).map(|()| None)
    })
    .await
}
