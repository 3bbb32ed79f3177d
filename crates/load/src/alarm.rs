//! When to give up: cheap to set for every request, precise when it rings.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use stockade_model::time::{Precise, Runtime, Time};

/// Rings at a deadline. Moving the deadline later costs nothing: what was set before rings first, and is set anew
/// then. So a connection sets a timer about once a timeout, however many requests it serves.
pub(crate) struct Alarm {
    clock: Precise,
    deadline: Time,
    set: Option<Set>,
}

/// A sleep that will wake somebody.
struct Set {
    at: Time,
    sleep: Pin<Box<dyn Future<Output = ()>>>,
    wakes: Waker,
}

impl Alarm {
    /// Does not ring yet.
    pub(crate) fn new(clock: Precise) -> Self {
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
            match &mut self.set {
                // Whoever was to be woken still is, and nothing has to be asked of the timer.
                Some(set)
                    if set.wakes.will_wake(cx.waker()) && self.clock.coarse_now() < set.at.back(COARSE) =>
                {
                    return Poll::Pending;
                }
                Some(set) => {
                    if set.sleep.as_mut().poll(cx).is_pending() {
                        set.wakes.clone_from(cx.waker());
                        return Poll::Pending;
                    }
                    if set.at >= self.deadline {
                        return Poll::Ready(());
                    }
                    self.set = None;
                }
                None => {
                    self.set = Some(Set {
                        at: self.deadline,
                        sleep: Box::pin(self.clock.sleep_until(self.deadline)),
                        // Nobody yet: the first look at it sets that.
                        wakes: Waker::noop().clone(),
                    });
                }
            }
        }
    }
}

/// The coarse clock may be so much behind.
const COARSE: std::time::Duration = std::time::Duration::from_millis(5);
