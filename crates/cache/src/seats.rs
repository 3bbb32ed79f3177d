//! The seats of a flight: who waits, in the order of arrival, and until when.

use std::{collections::VecDeque, task::Waker};

use stockade_model::time::Time;

/// Seats by number. Numbers are never used twice; the room of those who left is given back as soon as
/// everybody before them has left, too.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    taken: VecDeque<Option<Seat>>,
    first: u64,
    /// The last deadline that was taken.
    latest: Time,
    /// Whether one came that is earlier than the one before it.
    is_mixed: bool,
}

#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) waker: Option<Waker>,
    pub(crate) can_lead: bool,
    pub(crate) deadline: Option<Time>,
    pub(crate) is_timed_out: bool,
}

impl Seats {
    pub(crate) fn take(&mut self, seat: Seat) -> u64 {
        if let Some(deadline) = seat.deadline {
            self.is_mixed |= deadline < self.latest;
            self.latest = deadline;
        }
        self.taken.push_back(Some(seat));
        self.first + self.taken.len() as u64 - 1
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Seat> {
        self.slot(number)?.as_mut()
    }

    pub(crate) fn leave(&mut self, number: u64) {
        if let Some(slot) = self.slot(number) {
            *slot = None;
        }
        while let Some(None) = self.taken.front() {
            self.taken.pop_front();
            self.first += 1;
        }
    }

    /// The longest waiting seat that `is` so, and its number.
    pub(crate) fn first_that(&mut self, is: impl Fn(&Seat) -> bool) -> Option<(u64, &mut Seat)> {
        let numbered = (self.first..).zip(&mut self.taken);
        numbered.filter_map(|(number, slot)| Some((number, slot.as_mut()?))).find(|(_, seat)| is(seat))
    }

    /// Empties all of them, and gives the wakers.
    pub(crate) fn drain(&mut self) -> Vec<Waker> {
        self.first += self.taken.len() as u64;
        std::mem::take(&mut self.taken).into_iter().flatten().filter_map(|seat| seat.waker).collect()
    }

    /// Marks those whose deadline has come and gives their wakers; and the earliest deadline that has not.
    ///
    /// Deadlines come in the order of arrival, as long as all have the same patience: then the first that has
    /// not come ends the search. Who has something stale has another one; with both kinds aboard everybody is
    /// looked at.
    pub(crate) fn expire(&mut self, now: Time) -> (Vec<Waker>, Option<Time>) {
        let (mut wakers, mut next) = (Vec::new(), None);
        for seat in self.taken.iter_mut().flatten().filter(|seat| !seat.is_timed_out) {
            match seat.deadline {
                None => {}
                Some(deadline) if deadline <= now => {
                    seat.is_timed_out = true;
                    wakers.extend(seat.waker.take());
                }
                Some(deadline) => {
                    next = Some(next.map_or(deadline, |next: Time| next.min(deadline)));
                    if !self.is_mixed {
                        break;
                    }
                }
            }
        }
        (wakers, next)
    }

    fn slot(&mut self, number: u64) -> Option<&mut Option<Seat>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.taken.get_mut(index)
    }
}
