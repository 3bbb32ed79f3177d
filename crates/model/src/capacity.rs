//! How much an origin can do at once, and who waits for it. No clock, no lock.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use crate::time::Time;

/// How many fetches an origin works on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Each works on one fetch at a time; one at least.
    pub workers: usize,
    /// How many fetches may wait for a worker. One more fails at once.
    pub queue: usize,
}

/// Who works on what until when, and who waits: first come, first served.
///
/// An origin does not notice that somebody has given up: what was taken in is worked on to its end.
/// So the moment at which a fetch's turn comes is known when it arrives.
#[derive(Debug)]
pub struct Desk {
    capacity: Option<Capacity>,
    /// When each worker that has had something to do will be free.
    free_at: BinaryHeap<Reverse<Time>>,
    /// When the turn of each that waits comes, in ascending order.
    turns: VecDeque<Time>,
}

/// The queue was full.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl Desk {
    /// Nobody has come yet.
    #[must_use]
    pub fn new(capacity: Option<Capacity>) -> Self {
        Self { capacity, free_at: BinaryHeap::new(), turns: VecDeque::new() }
    }

    /// Takes in a fetch, which lasts as long as `lasts` tells of the moment at which its turn comes;
    /// when it will be done.
    pub fn admit(&mut self, now: Time, lasts: impl FnOnce(Time) -> Duration) -> Result<Time, Full> {
        let Some(Capacity { workers, queue }) = self.capacity else { return Ok(now + lasts(now)) };
        while self.turns.front().is_some_and(|turn| *turn <= now) {
            self.turns.pop_front();
        }
        let free_at = if self.free_at.len() < workers {
            now
        } else {
            self.free_at.peek().map_or(now, |free_at| free_at.0)
        };
        if free_at > now {
            if self.turns.len() >= queue {
                return Err(Full);
            }
            self.turns.push_back(free_at);
        }
        if self.free_at.len() >= workers {
            self.free_at.pop();
        }
        let begins = free_at.max(now);
        let ends = begins + lasts(begins);
        self.free_at.push(Reverse(ends));
        Ok(ends)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn millis(at: u64) -> Time {
        Time::from_nanos(at * 1_000_000)
    }

    #[test]
    fn two_workers_and_a_queue_of_one() {
        let mut desk = Desk::new(Some(Capacity { workers: 2, queue: 1 }));
        let mut admit = |at| desk.admit(millis(at), |_| Duration::from_millis(10));
        assert_eq!([admit(0), admit(1)], [Ok(millis(10)), Ok(millis(11))]);
        assert_eq!(admit(2), Ok(millis(20)), "when the first worker is free");
        assert_eq!(admit(9), Err(Full));
        assert_eq!(admit(10), Ok(millis(21)), "the one that waited has begun, and left its place");
        assert_eq!(admit(50), Ok(millis(60)));
    }

    #[test]
    fn what_a_fetch_takes_is_known_when_its_turn_comes() {
        let mut desk = Desk::new(Some(Capacity { workers: 1, queue: 9 }));
        let lasts = |begins: Time| if begins < millis(10) { Duration::from_millis(10) } else { SECOND };
        assert_eq!(desk.admit(millis(0), lasts), Ok(millis(10)));
        assert_eq!(desk.admit(millis(0), lasts), Ok(millis(1_010)));
    }

    proptest! {
        /// Against a model that moves a queue through workers, fetch by fetch.
        #[test]
        fn first_come_first_served(
            workers in 1..4_usize,
            queue in 0..4_usize,
            fetches in prop::collection::vec((0..20_u64, 1..30_u64), 1..60),
        ) {
            let mut desk = Desk::new(Some(Capacity { workers, queue }));
            // Begin and end of everything that was taken in.
            let mut taken: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (gap, lasts) in fetches {
                now += gap;
                let waiting = taken.iter().filter(|(begins, _)| *begins > now).count();
                let is_free = |at: u64| taken.iter().filter(|(_, ends)| *ends > at).count() < workers;
                let begins = (now..10_000).find(|at| is_free(*at)).unwrap();
                let expected = if begins > now && waiting >= queue { Err(Full) } else { Ok(millis(begins + lasts)) };
                prop_assert_eq!(desk.admit(millis(now), |_| Duration::from_millis(lasts)), expected.as_ref().copied().map_err(|_| Full));
                if expected.is_ok() {
                    taken.push((begins, begins + lasts));
                }
            }
        }
    }
}
