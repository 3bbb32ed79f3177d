//! The runtime of services: tokio and the machine's monotonic clock.
#![expect(clippy::disallowed_methods, reason = "only this file uses the real clock and the real tasks")]

use std::{
    future::Future,
    time::{Duration, Instant},
};

use super::{Runtime, Time, coarse};

/// Real time on a tokio runtime.
///
/// Sleeps have tokio's resolution: they end up to 1 ms late, never early.
#[derive(Clone, Debug)]
pub struct Live {
    /// Where its time is zero.
    began: Instant,
    /// The same moment on the coarse clock, which may have begun later.
    began_nanos: i64,
    tokio: tokio::runtime::Handle,
}

impl Live {
    /// Uses the tokio runtime of the caller.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self::on(tokio::runtime::Handle::current())
    }

    /// Uses the tokio runtime of `handle`.
    #[must_use]
    pub fn on(handle: tokio::runtime::Handle) -> Self {
        Self { began: Instant::now(), began_nanos: nanos(coarse::precise()), tokio: handle }
    }

    /// The same clock, ten years ahead: moments before its start can be told, such as the load of a value that another
    /// process has stored.
    #[must_use]
    pub fn with_past(self) -> Self {
        const PAST: Duration = Duration::from_hours(10 * 365 * 24);
        let Some(began) = self.began.checked_sub(PAST) else { return self };
        Self { began, began_nanos: self.began_nanos - i64::try_from(PAST.as_nanos()).unwrap_or(0), ..self }
    }

    /// The same clock on the tokio runtime of the caller.
    #[cfg(feature = "precise")]
    pub(super) fn beside(&self) -> Self {
        Self { tokio: tokio::runtime::Handle::current(), ..self.clone() }
    }
}

/// As signed nanoseconds, of which 64 bits are 292 years.
#[inline]
fn nanos(nanos: u64) -> i64 {
    nanos.cast_signed()
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for Live {
    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// One to two milliseconds ago, or more if the machine is busy and the ticker thread waits for a processor.
    #[inline]
    fn coarse_now(&self) -> Time {
        Time::from_nanos((nanos(coarse::coarse()) - self.began_nanos).max(0).cast_unsigned())
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        // tokio's clock may overflow beyond thirty years from now.
        const LONGEST: Duration = Duration::from_hours(30 * 365 * 24);
        let deadline = self.began + deadline.elapsed().min(LONGEST);
        let tokio = self.tokio.clone();
        async move {
            let sleep = {
                let _inside = tokio.enter();
                tokio::time::sleep_until(deadline.into())
            };
            sleep.await;
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.tokio.spawn(task));
    }
}
