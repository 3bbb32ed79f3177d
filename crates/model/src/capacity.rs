//! Capacity of an origin: workers and a bounded queue. No clock, no lock.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use crate::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// At least one. Each worker handles one fetch at a time.
    pub workers: usize,
    /// Limit of waiting fetches. Beyond it, a fetch is rejected at once.
    pub queue: usize,
}

/// A first-come, first-served queue in front of the workers.
///
/// An origin completes a fetch even if the client has cancelled it, so the start of a fetch is known on its arrival.
#[derive(Debug)]
pub struct QueueModel {
    capacity: Option<Capacity>,
    /// When each used worker will be free.
    free_at: BinaryHeap<Reverse<Time>>,
    /// When each waiting fetch starts, in ascending order.
    turns: VecDeque<Time>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct QueueFull;

impl QueueModel {
    #[must_use]
    pub fn new(capacity: Option<Capacity>) -> Self {
        Self { capacity, free_at: BinaryHeap::new(), turns: VecDeque::new() }
    }

    /// Admits a fetch and returns when it ends. `service_time` depends on when the fetch starts.
    pub fn admit(
        &mut self,
        now: Time,
        service_time: impl FnOnce(Time) -> Duration,
    ) -> Result<Time, QueueFull> {
        let Some(Capacity { workers, queue }) = self.capacity else { return Ok(now + service_time(now)) };
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
                return Err(QueueFull);
            }
            self.turns.push_back(free_at);
        }
        if self.free_at.len() >= workers {
            self.free_at.pop();
        }
        let begins = free_at.max(now);
        let ends = begins + service_time(begins);
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
    fn two_workers_and_a_queue_of_one_reject_the_fourth_fetch() {
        let mut model = QueueModel::new(Some(Capacity { workers: 2, queue: 1 }));
        let mut admit = |at| model.admit(millis(at), |_| Duration::from_millis(10));
        assert_eq!([admit(0), admit(1)], [Ok(millis(10)), Ok(millis(11))]);
        assert_eq!(admit(2), Ok(millis(20)), "when the first worker is free");
        assert_eq!(admit(9), Err(QueueFull));
        assert_eq!(admit(10), Ok(millis(21)), "the one that waited has begun, and left its place");
        assert_eq!(admit(50), Ok(millis(60)));
    }

    #[test]
    fn service_time_is_drawn_at_the_start_of_a_fetch() {
        let mut model = QueueModel::new(Some(Capacity { workers: 1, queue: 9 }));
        let service_time =
            |begins: Time| if begins < millis(10) { Duration::from_millis(10) } else { SECOND };
        assert_eq!(model.admit(millis(0), service_time), Ok(millis(10)));
        assert_eq!(model.admit(millis(0), service_time), Ok(millis(1_010)));
    }

    proptest! {
        /// Compares with a model that moves a queue through workers, fetch by fetch.
        #[test]
        fn admission_matches_a_fifo_queue_model(
            workers in 1..4_usize,
            queue in 0..4_usize,
            fetches in prop::collection::vec((0..20_u64, 1..30_u64), 1..60),
        ) {
            let mut model = QueueModel::new(Some(Capacity { workers, queue }));
            // Start and end of each admitted fetch.
            let mut taken: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (gap, service_time) in fetches {
                now += gap;
                let waiting = taken.iter().filter(|(begins, _)| *begins > now).count();
                let is_free = |at: u64| taken.iter().filter(|(_, ends)| *ends > at).count() < workers;
                let begins = (now..10_000).find(|at| is_free(*at)).unwrap();
                let expected = if begins > now && waiting >= queue { Err(QueueFull) } else { Ok(millis(begins + service_time)) };
                prop_assert_eq!(model.admit(millis(now), |_| Duration::from_millis(service_time)), expected.as_ref().copied().map_err(|_| QueueFull));
                if expected.is_ok() {
                    taken.push((begins, begins + service_time));
                }
            }
        }
    }
}
