//! A clock that begins with a load.

use std::{future::Future, time::Duration};

use stockade_model::time::{Runtime, Time};

/// Another clock, counted from a moment on. Its coarse time is exact, too: an audit tells a millisecond
/// too old from one that is not.
#[derive(Clone)]
pub(super) struct Since<R> {
    clock: R,
    zero: Duration,
}

impl<R: Runtime> Since<R> {
    /// From now on.
    pub(super) fn now(clock: R) -> Self {
        Self { zero: clock.now().elapsed(), clock }
    }
}

impl<R: Runtime> Runtime for Since<R> {
    fn now(&self) -> Time {
        self.clock.now().back(self.zero)
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send + 'static {
        self.clock.sleep_until(deadline + self.zero)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.clock.spawn(task);
    }
}
