//! A timer for request deadlines that costs little to move.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use stockade_model::time::{Runtime, Time};

/// Completes at a deadline. Moving the deadline later is free: the earlier sleep runs out first, and is then replaced.
/// So a connection starts about one sleep per timeout, however many requests it serves.
pub(crate) struct DeadlineTimer<R> {
    clock: R,
    deadline: Time,
    pending: Option<PendingSleep>,
}

struct PendingSleep {
    until: Time,
    sleep: Pin<Box<dyn Future<Output = ()>>>,
    /// The waker that the sleep holds; none before its first poll.
    waker: Option<Waker>,
}

impl<R: Runtime> DeadlineTimer<R> {
    pub(crate) fn new(clock: R) -> Self {
        Self { clock, deadline: Time::NEVER, pending: None }
    }

    /// Replaces the deadline.
    pub(crate) fn set(&mut self, deadline: Time) {
        self.deadline = deadline;
        if self.pending.as_ref().is_some_and(|pending| pending.until > deadline) {
            self.pending = None;
        }
    }

    /// Ready at the deadline.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(pending) = &mut self.pending else {
                let sleep = Box::pin(self.clock.sleep_until(self.deadline));
                self.pending = Some(PendingSleep { until: self.deadline, sleep, waker: None });
                continue;
            };
            // A sleep does not wake before its time, so its waker is still registered.
            let is_registered = pending.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
            if is_registered && self.clock.now() < pending.until {
                return Poll::Pending;
            }
            if pending.sleep.as_mut().poll(cx).is_pending() {
                pending.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            if pending.until >= self.deadline {
                return Poll::Ready(());
            }
            self.pending = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use stockade_model::time::Virtual;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn timer_completes_at_its_latest_deadline() {
        let clock = Virtual::new();
        let mut timer = DeadlineTimer::new(clock.clone());
        let completed = clock.run({
            let clock = clock.clone();
            async move {
                let mut completed = Vec::new();
                // At once, later than before, and earlier than before.
                for (wait_ms, deadline) in [(0, 10), (0, 50), (20, 90), (0, 95), (0, 1_000)] {
                    timer.set(at(deadline));
                    if wait_ms > 0 {
                        // Polled, and then moved before it completes.
                        let _ = poll_fn(|cx| Poll::Ready(timer.poll(cx))).await;
                        clock.sleep_until(clock.now() + Duration::from_millis(wait_ms)).await;
                    }
                    poll_fn(|cx| timer.poll(cx)).await;
                    completed.push(clock.now());
                }
                timer.set(at(5_000));
                let _ = poll_fn(|cx| Poll::Ready(timer.poll(cx))).await;
                timer.set(at(1_500));
                poll_fn(|cx| timer.poll(cx)).await;
                completed.push(clock.now());
                completed
            }
        });
        assert_eq!(completed, Ok([10, 50, 90, 95, 1_000, 1_500].map(at).to_vec()));
    }

    #[test]
    fn timer_wakes_the_task_that_polled_last() {
        let clock = Virtual::new();
        let mut timer = DeadlineTimer::new(clock.clone());
        timer.set(at(10));
        let mut noop = Context::from_waker(Waker::noop());
        assert!(timer.poll(&mut noop).is_pending());
        let completed = clock.run({
            let clock = clock.clone();
            async move {
                poll_fn(|cx| timer.poll(cx)).await;
                clock.now()
            }
        });
        assert_eq!(completed, Ok(at(10)));
    }
}
