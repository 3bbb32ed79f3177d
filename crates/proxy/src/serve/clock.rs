//! Time: that of day, which dates of HTTP are about, and that of the cache.

use std::{future::Future, time::SystemTime};

use stockade_model::time::{Live, Runtime, Time};

/// Now.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "here the dates of origins meet the real time")]
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// Real time; what is spawned stays on the thread of whoever spawns it, whose connections it concerns.
#[derive(Clone, Debug)]
pub struct PerCore(Live);

impl PerCore {
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self(Live::new())
    }
}

impl Default for PerCore {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for PerCore {
    fn now(&self) -> Time {
        self.0.now()
    }

    #[inline]
    fn coarse_now(&self) -> Time {
        self.0.coarse_now()
    }

    #[expect(clippy::disallowed_methods, reason = "the timer of the thread that waits")]
    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        tokio::time::sleep(deadline - self.0.now())
    }

    #[expect(clippy::disallowed_methods, reason = "the thread that asks")]
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }
}
