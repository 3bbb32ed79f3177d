//! The waiters of one load, in the order of arrival.

use std::{collections::VecDeque, task::Waker};

use stockade_model::time::Time;

/// Positions are never reused. Memory of removed waiters is freed when all before them are removed.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    waiters: VecDeque<Option<QueuedWaiter>>,
    first: u64,
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
}

impl WaitQueue {
    pub(crate) fn push(&mut self, position: QueuedWaiter) -> u64 {
        if let Some(deadline) = position.deadline {
            self.has_mixed_deadlines |= deadline < self.latest_deadline;
            self.latest_deadline = deadline;
        }
        self.waiters.push_back(Some(position));
        self.first + self.waiters.len() as u64 - 1
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut QueuedWaiter> {
        self.slot(number)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(slot) = self.slot(number) {
            *slot = None;
        }
        while let Some(None) = self.waiters.front() {
            self.waiters.pop_front();
            self.first += 1;
        }
    }

    /// The first waiter that satisfies `is`, with its position.
    pub(crate) fn find_first(
        &mut self,
        is: impl Fn(&QueuedWaiter) -> bool,
    ) -> Option<(u64, &mut QueuedWaiter)> {
        let numbered = (self.first..).zip(&mut self.waiters);
        numbered
            .filter_map(|(number, slot)| Some((number, slot.as_mut()?)))
            .find(|(_, position)| is(position))
    }

    /// Removes all waiters and returns their wakers.
    pub(crate) fn drain(&mut self) -> Vec<Waker> {
        self.first += self.waiters.len() as u64;
        std::mem::take(&mut self.waiters)
            .into_iter()
            .flatten()
            .filter_map(|position| position.waker)
            .collect()
    }

    /// Marks expired waiters, and returns their wakers and the next deadline.
    ///
    /// With one timeout, deadlines are ordered by arrival, and the first that has not passed ends the search.
    /// Requests with a soft timeout have earlier ones; if both kinds wait, all are examined.
    pub(crate) fn expire(&mut self, now: Time) -> (Vec<Waker>, Option<Time>) {
        let (mut wakers, mut next) = (Vec::new(), None);
        for position in self.waiters.iter_mut().flatten().filter(|position| !position.is_timed_out) {
            match position.deadline {
                None => {}
                Some(deadline) if deadline <= now => {
                    position.is_timed_out = true;
                    wakers.extend(position.waker.take());
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

    fn slot(&mut self, number: u64) -> Option<&mut Option<QueuedWaiter>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.waiters.get_mut(index)
    }
}
