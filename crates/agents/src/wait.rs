//! Waits of this crate, all in real time.

use std::time::Duration;

use stockade_model::time::{Live, Runtime, Time, before};

/// Awaits a future for so long.
pub(crate) fn within<F: Future>(time: Duration, future: F) -> impl Future<Output = Option<F::Output>> {
    // Those of a NATS client are large.
    let future = Box::pin(future);
    async move {
        let live = Live::new();
        before(&live, live.now() + time, future).await
    }
}

pub(crate) async fn pause(time: Duration) {
    let live = Live::new();
    live.sleep_until(live.now() + time).await;
}

/// Ticks at once, and then in an interval. Ticks that were missed are left out.
pub(crate) struct Ticks {
    live: Live,
    interval: Duration,
    next: Time,
}

impl Ticks {
    pub(crate) fn every(interval: Duration) -> Self {
        let live = Live::new();
        Self { next: live.now(), live, interval }
    }

    /// Completes with the next tick. Dropped before, it loses nothing.
    pub(crate) async fn tick(&mut self) {
        self.live.sleep_until(self.next).await;
        self.next = self.next.max(self.live.now().back(self.interval)) + self.interval;
    }
}
