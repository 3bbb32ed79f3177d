//! Seconds of a load, merged over those that send it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use stockade_model::time::Time;

use crate::{
    schedule::REQUESTS_MAX,
    summary::{GeneratorHealth, SecondCounts},
    tally::Tally,
};

/// One second of a load, of one generator or of several. A request belongs to the second in which it ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorSecond {
    /// The second since the start of the load, warm-up included.
    pub second: u64,
    /// Requests of the measured part.
    pub measured: Tally,
    /// Requests of the warm-up.
    pub warmup: Tally,
    /// Counts by the second of the measured part in which a request was sent, or ended.
    pub seconds: BTreeMap<u64, SecondCounts>,
    /// The processor time of the sending threads, while they send.
    pub cpu: Duration,
    /// Requests that were due and never sent.
    pub dropped: u64,
    /// Requests that were due while the limit of requests in flight was reached, and waited.
    pub held_back: u64,
    /// Those of them that were sent after the end of the plan.
    pub sent_after_end: u64,
    /// Connections opened.
    pub connections: u64,
}

impl GeneratorSecond {
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.measured.merge(&other.measured);
        self.warmup.merge(&other.warmup);
        for (second, counts) in &other.seconds {
            *self.seconds.entry(*second).or_default() += *counts;
        }
        self.cpu += other.cpu;
        self.dropped += other.dropped;
        self.held_back += other.held_back;
        self.sent_after_end += other.sent_after_end;
        self.connections += other.connections;
    }

    /// The same second with times that count from `start`, so that those of several clocks are comparable.
    #[must_use]
    pub fn since(mut self, start: Time) -> Self {
        for Tally { earliest, latest, end, .. } in [&mut self.measured, &mut self.warmup] {
            for time in [earliest, latest, end].into_iter().flatten() {
                *time = Time::ZERO + (*time - start);
            }
        }
        self
    }

    /// True if its figures can be those of a load: then sums of many seconds do not overflow. For seconds that others have sent.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        const COUNT_MAX: u64 = REQUESTS_MAX;
        let durations =
            [&self.measured, &self.warmup].map(|tally| tally.response_sum.max(tally.send_lag_sum));
        let counts = [self.dropped, self.held_back, self.sent_after_end, self.connections];
        let has_sane_seconds =
            self.seconds.iter().all(|(second, SecondCounts { sent, finished, failed })| {
                *second <= SECONDS_MAX && [sent, finished, failed].iter().all(|count| **count <= COUNT_MAX)
            });
        self.second <= SECONDS_MAX
            && has_sane_seconds
            && durations.iter().chain([&self.cpu]).all(|duration| duration.as_secs() <= 1 << 40)
            && counts.iter().all(|count| *count <= COUNT_MAX)
            && self.measured.is_plausible(COUNT_MAX)
            && self.warmup.is_plausible(COUNT_MAX)
    }
}

/// More than the longest load, 30 days.
pub(super) const SECONDS_MAX: u64 = 31 * 86_400;

/// The end of a generator's part of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeneratorEnd {
    /// Counts after the last whole second.
    pub rest: GeneratorSecond,
    /// The end of the plan.
    pub schedule_end: Time,
    /// Requests in flight at that time.
    pub in_flight_at_end: u64,
    /// The most requests in flight at once.
    pub in_flight_max: u64,
    /// The generator's own processor time, memory and lateness.
    pub health: GeneratorHealth,
    /// True if it was cancelled before its end.
    pub was_cancelled: bool,
}

impl GeneratorEnd {
    /// The same end with times that count from `start`.
    #[must_use]
    pub fn since(self, start: Time) -> Self {
        Self { rest: self.rest.since(start), schedule_end: Time::ZERO + (self.schedule_end - start), ..self }
    }
}

/// Merges the seconds of several senders; each sends its seconds in order.
#[derive(Debug)]
pub struct SecondMerger {
    /// By sender: the next second that it will send; `None`: it has ended.
    next: Vec<Option<u64>>,
    /// The seconds that some sender has not sent yet, in order.
    open: VecDeque<GeneratorSecond>,
    /// The number of the first open second.
    first_open: u64,
}

impl SecondMerger {
    /// The senders are numbered from 0.
    #[must_use]
    pub fn new(senders: usize) -> Self {
        Self { next: vec![Some(0); senders], open: VecDeque::new(), first_open: 0 }
    }

    /// Adds a second of a sender.
    pub fn add(&mut self, sender: usize, added: &GeneratorSecond) {
        let at = usize::try_from(added.second.saturating_sub(self.first_open)).unwrap_or_default();
        while self.open.len() <= at {
            let second = self.first_open + self.open.len() as u64;
            self.open.push_back(GeneratorSecond { second, ..GeneratorSecond::default() });
        }
        self.open[at].merge(added);
        self.next[sender] = Some(added.second + 1);
    }

    /// A sender has sent its last second.
    pub fn end(&mut self, sender: usize) {
        self.next[sender] = None;
    }

    /// The next second that all senders have sent.
    pub fn next_complete(&mut self) -> Option<GeneratorSecond> {
        if self.next.iter().flatten().any(|next| *next <= self.first_open) {
            return None;
        }
        self.next_open()
    }

    /// The next second, also if some sender has not sent it.
    pub fn next_open(&mut self) -> Option<GeneratorSecond> {
        let open = self.open.pop_front()?;
        self.first_open += 1;
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u64, dropped: u64) -> GeneratorSecond {
        GeneratorSecond { second, dropped, ..GeneratorSecond::default() }
    }

    #[test]
    fn seconds_are_merged_once_all_senders_have_sent_them() {
        let mut merger = SecondMerger::new(2);
        merger.add(0, &second(0, 1));
        merger.add(0, &second(1, 2));
        assert_eq!(merger.next_complete(), None);
        merger.add(1, &second(0, 4));
        assert_eq!(merger.next_complete(), Some(second(0, 5)));
        assert_eq!(merger.next_complete(), None);
        merger.end(1);
        assert_eq!(merger.next_complete(), Some(second(1, 2)));
        merger.add(0, &second(3, 8));
        assert_eq!(merger.next_complete(), Some(second(2, 0)), "a gap is an empty second");
        assert_eq!([merger.next_open(), merger.next_open()], [Some(second(3, 8)), None]);
    }
}
