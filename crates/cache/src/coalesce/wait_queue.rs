//! The waiters of one load, in the order of arrival.

use std::{collections::VecDeque, task::Waker};

use stockade_model::time::Time;

/// Positions are never reused. Memory of removed waiters is freed when all before them are removed.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    waiters: VecDeque<Option<QueuedWaiter>>,
    first_position: u64,
    /// The deadline that was queued last.
    latest_deadline: Time,
    /// True if a deadline was earlier than the one before it.
    has_mixed_deadlines: bool,
}

#[derive(Debug)]
pub(crate) struct QueuedWaiter {
    pub(crate) waker: Option<Waker>,
    pub(crate) can_lead: bool,
    pub(crate) deadline: Option<Time>,
    pub(crate) is_timed_out: bool,
    /// False for a timer, which waits only for the other waiters.
    pub(crate) is_caller: bool,
}

impl QueuedWaiter {
    /// True if it may lead while another leader is at work: it has a loader, and its deadline has not passed.
    pub(crate) fn may_hedge(&self) -> bool {
        self.can_lead && !self.is_timed_out
    }
}

impl WaitQueue {
    /// Returns the position of the waiter.
    pub(crate) fn push(&mut self, waiter: QueuedWaiter) -> u64 {
        if let Some(deadline) = waiter.deadline {
            self.has_mixed_deadlines |= deadline < self.latest_deadline;
            self.latest_deadline = deadline;
        }
        self.waiters.push_back(Some(waiter));
        self.first_position + self.waiters.len() as u64 - 1
    }

    pub(crate) fn get_mut(&mut self, position: u64) -> Option<&mut QueuedWaiter> {
        self.slot(position)?.as_mut()
    }

    pub(crate) fn remove(&mut self, position: u64) {
        if let Some(slot) = self.slot(position) {
            *slot = None;
        }
        while let Some(None) = self.waiters.front() {
            self.waiters.pop_front();
            self.first_position += 1;
        }
    }

    /// The first waiter that satisfies `is`, with its position.
    pub(crate) fn find_first(
        &mut self,
        is: impl Fn(&QueuedWaiter) -> bool,
    ) -> Option<(u64, &mut QueuedWaiter)> {
        let by_position = (self.first_position..).zip(&mut self.waiters);
        by_position
            .filter_map(|(position, slot)| Some((position, slot.as_mut()?)))
            .find(|(_, waiter)| is(waiter))
    }

    /// True if a caller waits.
    pub(crate) fn has_callers(&self) -> bool {
        self.waiters.iter().flatten().any(|waiter| waiter.is_caller && !waiter.is_timed_out)
    }

    /// Removes all waiters and returns their wakers.
    pub(crate) fn drain(&mut self) -> Vec<Waker> {
        self.first_position += self.waiters.len() as u64;
        std::mem::take(&mut self.waiters).into_iter().flatten().filter_map(|waiter| waiter.waker).collect()
    }

    /// Marks expired waiters, and returns their wakers and the next deadline.
    ///
    /// With one timeout, deadlines are ordered by arrival, and the first that has not passed ends the search.
    /// Requests with a soft timeout have earlier ones; if both kinds wait, all are examined.
    pub(crate) fn expire(&mut self, now: Time) -> (Vec<Waker>, Option<Time>) {
        let (mut wakers, mut next) = (Vec::new(), None);
        for waiter in self.waiters.iter_mut().flatten().filter(|waiter| !waiter.is_timed_out) {
            match waiter.deadline {
                None => {}
                Some(deadline) if deadline <= now => {
                    waiter.is_timed_out = true;
                    wakers.extend(waiter.waker.take());
                }
                Some(deadline) => {
                    next = Some(next.map_or(deadline, |next: Time| next.min(deadline)));
                    if !self.has_mixed_deadlines {
                        break;
                    }
                }
            }
        }
        (wakers, next)
    }

    fn slot(&mut self, position: u64) -> Option<&mut Option<QueuedWaiter>> {
        let index = usize::try_from(position.checked_sub(self.first_position)?).ok()?;
        self.waiters.get_mut(index)
    }
}
