//! The system clock, for dates in header fields, and the cache's runtime.

use std::{future::Future, time::SystemTime};

use stockade_model::time::{Live, Runtime, Time};

#[must_use]
#[expect(clippy::disallowed_methods, reason = "dates in header fields are about the system clock")]
pub fn system_now() -> SystemTime {
    SystemTime::now()
}

/// Real time. A spawned task stays on the spawning thread, which owns the connections that the task uses.
#[derive(Clone, Debug)]
pub struct LocalRuntime(Live);

impl LocalRuntime {
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self(Live::new().with_past())
    }
}

impl Default for LocalRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for LocalRuntime {
    fn now(&self) -> Time {
        self.0.now()
    }

    #[inline]
    fn coarse_now(&self) -> Time {
        self.0.coarse_now()
    }

    #[expect(clippy::disallowed_methods, reason = "the timer of the current thread")]
    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        tokio::time::sleep(deadline - self.0.now())
    }

    #[expect(clippy::disallowed_methods, reason = "on the current thread")]
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }
}
