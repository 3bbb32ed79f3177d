//! A clock that starts with a load.

use std::{future::Future, time::Duration};

use stockade_model::time::{Runtime, Time};

/// Another clock, counted from a start time. Its coarse time is exact, too, since audits compare ages in
/// milliseconds.
#[derive(Clone)]
pub(super) struct StartedClock<R> {
    clock: R,
    zero: Duration,
}

impl<R: Runtime> StartedClock<R> {
    pub(super) fn now(clock: R) -> Self {
        Self { zero: clock.now().elapsed(), clock }
    }
}

impl<R: Runtime> Runtime for StartedClock<R> {
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
