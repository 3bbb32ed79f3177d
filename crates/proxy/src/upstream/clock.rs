//! Time, and tasks beside it, on whichever runtime asks.
#![expect(
    clippy::disallowed_methods,
    reason = "a connection is used from several runtimes: each waits on its own"
)]

use std::{future::Future, time::Duration};

use stockade_model::time::{Runtime, Time};
use tokio::{
    runtime::Handle,
    task::AbortHandle,
    time::{Instant, Sleep},
};

/// One clock for all runtimes of a program. Sleeps and tasks are the runtime's that asks for them.
///
/// Sleeps end up to 1 ms late, never early.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    began: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// A sleep that can be set again. Only inside a runtime.
    pub(super) fn sleep(&self, until: Time) -> Sleep {
        tokio::time::sleep_until(self.instant(until))
    }

    /// Runs a task until it ends or is ended. Only inside a runtime.
    #[expect(clippy::unused_self, reason = "whoever has a clock may have tasks: `Runtime::spawn`")]
    pub(super) fn start(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        Handle::current().spawn(task).abort_handle()
    }

    /// The moment as tokio has it.
    pub(super) fn instant(&self, at: Time) -> Instant {
        // Beyond thirty years tokio's clock may overflow; nobody waits that long.
        const LONGEST: Duration = Duration::from_hours(30 * 365 * 24);
        self.began + at.elapsed().min(LONGEST)
    }
}

impl Runtime for Clock {
    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
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
