//! When to give up: cheap to set for every request, precise when it rings.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use stockade_model::time::{Runtime, Time};

/// Rings at a deadline. Moving the deadline later costs nothing: what was set before rings first, and is set anew
/// then. So a connection sets a timer about once a timeout, however many requests it serves.
pub(crate) struct Alarm<R> {
    clock: R,
    deadline: Time,
    set: Option<Set>,
}

/// A sleep that will wake somebody.
struct Set {
    at: Time,
    sleep: Pin<Box<dyn Future<Output = ()>>>,
    /// Whom; nobody before the first look at it.
    wakes: Option<Waker>,
}

impl<R: Runtime> Alarm<R> {
    /// Does not ring yet.
    pub(crate) fn new(clock: R) -> Self {
        Self { clock, deadline: Time::NEVER, set: None }
    }

    /// Rings then, in place of when it was set to before.
    pub(crate) fn set(&mut self, deadline: Time) {
        self.deadline = deadline;
        if self.set.as_ref().is_some_and(|set| set.at > deadline) {
            self.set = None;
        }
    }

    /// Ready when the deadline has come.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(set) = &mut self.set else {
                let sleep = Box::pin(self.clock.sleep_until(self.deadline));
                self.set = Some(Set { at: self.deadline, sleep, wakes: None });
                continue;
            };
            // A sleep wakes nobody before its time: until then whoever it was to wake still is.
            let is_waiting = set.wakes.as_ref().is_some_and(|wakes| wakes.will_wake(cx.waker()));
            if is_waiting && self.clock.now() < set.at {
                return Poll::Pending;
            }
            if set.sleep.as_mut().poll(cx).is_pending() {
                set.wakes = Some(cx.waker().clone());
                return Poll::Pending;
            }
            if set.at >= self.deadline {
                return Poll::Ready(());
            }
            self.set = None;
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
    fn it_rings_when_it_was_last_set_to() {
        let clock = Virtual::new();
        let mut alarm = Alarm::new(clock.clone());
        let rang = clock.run({
            let clock = clock.clone();
            async move {
                let mut rang = Vec::new();
                // At once, later than it was, and earlier than it was.
                for (waits, deadline) in [(0, 10), (0, 50), (20, 90), (0, 95), (0, 1_000)] {
                    alarm.set(at(deadline));
                    if waits > 0 {
                        // Looked at, and then moved before it rings.
                        let _ = poll_fn(|cx| Poll::Ready(alarm.poll(cx))).await;
                        clock.sleep_until(clock.now() + Duration::from_millis(waits)).await;
                    }
                    poll_fn(|cx| alarm.poll(cx)).await;
                    rang.push(clock.now());
                }
                alarm.set(at(5_000));
                let _ = poll_fn(|cx| Poll::Ready(alarm.poll(cx))).await;
                alarm.set(at(1_500));
                poll_fn(|cx| alarm.poll(cx)).await;
                rang.push(clock.now());
                rang
            }
        });
        assert_eq!(rang, Ok([10, 50, 90, 95, 1_000, 1_500].map(at).to_vec()));
    }

    #[test]
    fn whoever_looks_at_it_last_is_woken() {
        let clock = Virtual::new();
        let mut alarm = Alarm::new(clock.clone());
        alarm.set(at(10));
        let mut nobody = Context::from_waker(Waker::noop());
        assert!(alarm.poll(&mut nobody).is_pending());
        let rang = clock.run({
            let clock = clock.clone();
            async move {
                poll_fn(|cx| alarm.poll(cx)).await;
                clock.now()
            }
        });
        assert_eq!(rang, Ok(at(10)));
    }
}
