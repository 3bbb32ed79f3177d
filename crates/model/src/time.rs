//! Time is an argument: whoever waits or measures is handed a [`Runtime`].

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

pub use live::Live;
#[cfg(feature = "precise")]
pub use precise::Precise;
pub use simulated::{Stalled, Virtual};

/// A moment on a runtime's own clock: nanoseconds since that runtime began.
///
/// Moments of different runtimes have nothing to do with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The moment at which the runtime began.
    pub const ZERO: Self = Self(0);

    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the runtime began.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the runtime began.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago the runtime began.
    #[must_use]
    pub const fn elapsed(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Earlier by `duration`; not before the runtime began.
    #[must_use]
    pub fn back(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Later by `duration`; stays at the end of time (584 years) rather than wrap.
    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// How much later `self` is than `earlier`; zero if it is not.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// What an engine needs of the world: the time, a way to wait, a way to run something beside it.
pub trait Runtime: Clone + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Time;

    /// The time a moment ago, a millisecond or so, where that is cheaper to know: for decisions that
    /// are taken with every lookup.
    fn coarse_now(&self) -> Time {
        self.now()
    }

    /// Completes at `deadline`, at once if that has passed.
    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static;

    /// Runs `task` beside the caller, to its end, whether or not the caller still lives.
    ///
    /// A task that panics ends alone. A runtime that shuts down drops what it was running.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);
}

/// Lets whatever else is ready run first: what never has to wait would keep it waiting for ever.
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

/// Awaits `future` until `deadline`; `None` if the deadline came first, and then `future` is dropped.
///
/// A future that is ready at its deadline has made it.
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
