//! The seats of a flight: who waits, in the order of arrival, and until when.

use std::{collections::VecDeque, task::Waker};

use stockade_model::time::Time;

/// Seats by number. Numbers are never used twice; the room of those who left is given back as soon as
/// everybody before them has left, too.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    taken: VecDeque<Option<Seat>>,
    first: u64,
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

    /// Marks those whose deadline has come and gives their wakers; and the deadline of the first whose
    /// has not. Deadlines come in the order of arrival, but for the moment between a caller's look at
    /// the clock and its boarding.
    pub(crate) fn expire(&mut self, now: Time) -> (Vec<Waker>, Option<Time>) {
        let mut wakers = Vec::new();
        for seat in self.taken.iter_mut().flatten().filter(|seat| !seat.is_timed_out) {
            match seat.deadline {
                None => {}
                Some(deadline) if deadline <= now => {
                    seat.is_timed_out = true;
                    wakers.extend(seat.waker.take());
                }
                Some(deadline) => return (wakers, Some(deadline)),
            }
        }
        (wakers, None)
    }

    fn slot(&mut self, number: u64) -> Option<&mut Option<Seat>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.taken.get_mut(index)
    }
}
