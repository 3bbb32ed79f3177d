//! Responses after known times: 4 ms, and 200 ms for one request in 200.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use crate::samples::quantile;

const USUAL: Duration = Duration::from_millis(4);
const STALL: Duration = Duration::from_millis(200);
/// One request in this number stalls; the first is in the middle.
const STALL_EVERY: u64 = 200;

/// A request whose response is not due yet. The order is that of due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    due: Instant,
    arrived: Instant,
    /// The place and the number of its connection.
    pub connection: (usize, u64),
}

/// The requests in progress and the times of all answered ones.
#[derive(Debug, Default)]
pub struct KnownTimes {
    held: BinaryHeap<Reverse<Held>>,
    arrived: u64,
    times_ns: Vec<u64>,
    first_arrival: Option<Instant>,
    last_response: Option<Instant>,
}

impl KnownTimes {
    /// Holds a request until its response is due.
    pub fn hold(&mut self, arrived: Instant, connection: (usize, u64)) {
        let stalls = self.arrived % STALL_EVERY == STALL_EVERY / 2;
        self.arrived += 1;
        self.first_arrival.get_or_insert(arrived);
        let due = arrived + if stalls { STALL } else { USUAL };
        self.held.push(Reverse(Held { due, arrived, connection }));
    }

    /// The next request whose response is due.
    pub fn next_due(&mut self, now: Instant) -> Option<Held> {
        self.held.peek().filter(|held| held.0.due <= now)?;
        self.held.pop().map(|held| held.0)
    }

    /// Counts a response that was written.
    pub fn note_response(&mut self, held: &Held, now: Instant) {
        self.times_ns.push(u64::try_from((now - held.arrived).as_nanos()).unwrap_or(u64::MAX));
        self.last_response = Some(now);
    }

    /// Seven numbers: requests, requests per second, then the mean, p50, p90, p99 and maximum in ms. Forgets all
    /// requests.
    pub fn take_record(&mut self) -> String {
        let mut times = std::mem::take(self);
        times.times_ns.sort_unstable();
        let (sorted, count) = (&times.times_ns, times.times_ns.len() as f64);
        if sorted.is_empty() {
            return "0 0 0 0 0 0 0".to_owned();
        }
        let span = times.first_arrival.zip(times.last_response).map(|(first, last)| last - first);
        let rate = count / span.unwrap_or_default().as_secs_f64();
        let mean = sorted.iter().sum::<u64>() as f64 / count / 1e6;
        let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|share| quantile(sorted, share) as f64 / 1e6);
        format!("{count} {rate} {mean} {p50} {p90} {p99} {max}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_two_hundred_is_due_later() {
        let (mut times, start) = (KnownTimes::default(), Instant::now());
        for n in 0..400 {
            times.hold(start, (n, 0));
        }
        assert_eq!(times.next_due(start), None);
        let mut answered = 0;
        while let Some(held) = times.next_due(start + USUAL) {
            times.note_response(&held, start + USUAL);
            answered += 1;
        }
        assert_eq!(answered, 398);
        let last = [times.next_due(start + STALL), times.next_due(start + STALL)].map(Option::unwrap);
        assert_eq!(last.map(|held| held.connection.0), [100, 300]);
        last.iter().for_each(|held| times.note_response(held, start + STALL));
        assert_eq!(times.take_record(), "400 2000 4.98 4 4 4 200");
        assert_eq!(times.take_record(), "0 0 0 0 0 0 0");
    }
}
