//! Time and tasks on the current runtime.
#![expect(
    clippy::disallowed_methods,
    reason = "a connection is used from several runtimes: each sleeps on its own"
)]

use std::{future::Future, time::Duration};

use stockade_model::time::{Runtime, Time};
use tokio::{
    runtime::Handle,
    task::AbortHandle,
    time::{Instant, Sleep},
};

/// One clock for all runtimes of the process. Sleeps and tasks run on the current runtime.
///
/// Sleeps end up to 1 ms late, never early.
#[derive(Clone, Debug)]
pub(super) struct UpstreamClock {
    started: Instant,
}

impl UpstreamClock {
    pub(super) fn new() -> Self {
        Self { started: Instant::now() }
    }

    /// A sleep that can be reset. Only inside a runtime.
    pub(super) fn sleep(&self, until: Time) -> Sleep {
        tokio::time::sleep_until(self.instant(until))
    }

    /// Only inside a runtime.
    #[expect(clippy::unused_self, reason = "as `Runtime::spawn`")]
    pub(super) fn spawn_abortable(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        Handle::current().spawn(task).abort_handle()
    }

    /// As tokio's instant.
    pub(super) fn instant(&self, at: Time) -> Instant {
        // Further than thirty years tokio's clock may overflow.
        const SLEEP_MAX: Duration = Duration::from_hours(30 * 365 * 24);
        self.started + at.elapsed().min(SLEEP_MAX)
    }
}

impl Runtime for UpstreamClock {
    fn now(&self) -> Time {
        Time::ZERO + self.started.elapsed()
    }

    /// Only inside a runtime, from its first poll on.
    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        let deadline = self.instant(deadline);
        async move { tokio::time::sleep_until(deadline).await }
    }

    /// Only inside a runtime.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(Handle::current().spawn(task));
    }
}
