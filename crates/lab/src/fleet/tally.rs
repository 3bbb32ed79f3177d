//! The figures of a fleet: integers, so that sums do not depend on the order of the partitions.

use std::{ops::AddAssign, time::Duration};

use stockade_model::outcome::Outcome;

use super::life::{TickClock, Ticks};

/// The counts of a simulation, or of some of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FleetTally {
    clock: TickClock,
    /// The ticks of a second.
    second: Ticks,
    pub(super) seconds: Vec<SecondCounts>,
    pub(super) counts: FleetCounts,
    /// The sum of all response times in ticks.
    pub(super) waited: u128,
    /// The first answer's and the last answer's time after its request, and the last end of a request.
    pub(super) response: Option<(Ticks, Ticks)>,
    pub(super) finished: Ticks,
    in_flight: Concurrency,
    loads_in_flight: Concurrency,
}

/// The counts of one second: requests by the second in which they finish, loads by the one in which they start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SecondCounts {
    /// Answered without a wait.
    pub(super) at_once: [u64; OUTCOMES.len()],
    /// Answered after a wait.
    pub(super) waited: [u64; OUTCOMES.len()],
    pub(super) source_loads: u64,
    /// The number of waits of each [cell](cell_of).
    waits: Vec<u32>,
}

/// The outcomes of a fleet's requests.
pub(super) const OUTCOMES: [Outcome; 4] = [Outcome::Hit, Outcome::Stale, Outcome::Miss, Outcome::Coalesced];

/// Counts without a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FleetCounts {
    pub(super) loads: u64,
    pub(super) episodes: u64,
    pub(super) waiters: u64,
    pub(super) shared_hits: u64,
    pub(super) shared_misses: u64,
    pub(super) shared_waits: u64,
    pub(super) refreshes_early: u64,
    pub(super) refreshes_swr: u64,
    pub(super) evicted: u64,
    pub(super) invalidated: u64,
    pub(super) entries: u64,
    pub(super) distinct_keys: u64,
}

impl AddAssign for FleetCounts {
    fn add_assign(&mut self, other: Self) {
        self.loads += other.loads;
        self.episodes += other.episodes;
        self.waiters += other.waiters;
        self.shared_hits += other.shared_hits;
        self.shared_misses += other.shared_misses;
        self.shared_waits += other.shared_waits;
        self.refreshes_early += other.refreshes_early;
        self.refreshes_swr += other.refreshes_swr;
        self.evicted += other.evicted;
        self.invalidated += other.invalidated;
        self.entries += other.entries;
        self.distinct_keys += other.distinct_keys;
    }
}

impl FleetTally {
    /// For a load of this duration whose requests take `longest` at most.
    pub(super) fn new(clock: TickClock, duration: Duration, longest: Ticks) -> Self {
        let second = clock.second();
        let end = clock.ticks(duration).saturating_add(longest);
        let seconds = (end / second) as usize + 1;
        let empty = SecondCounts { waits: vec![0; cell_of(longest) + 1], ..SecondCounts::default() };
        let concurrency = Concurrency::new(end, second);
        Self {
            clock,
            second,
            seconds: vec![empty; seconds],
            counts: FleetCounts::default(),
            waited: 0,
            response: None,
            finished: 0,
            in_flight: concurrency.clone(),
            loads_in_flight: concurrency,
        }
    }

    /// A request that came at `from` was answered at `until`.
    #[inline]
    pub(super) fn request(&mut self, outcome: Outcome, from: Ticks, until: Ticks) {
        let counts = &mut self.seconds[(until / self.second) as usize];
        let at = match outcome {
            Outcome::Hit => 0,
            Outcome::Stale => 1,
            Outcome::Miss => 2,
            _ => 3,
        };
        self.finished = self.finished.max(until);
        let wait = until - from;
        let (min, max) = self.response.unwrap_or((wait, wait));
        self.response = Some((min.min(wait), max.max(wait)));
        if wait == 0 {
            counts.at_once[at] += 1;
            return;
        }
        counts.waited[at] += 1;
        counts.waits[cell_of(wait)] += 1;
        self.waited += u128::from(wait);
        self.in_flight.add(from, until);
    }

    /// A load reached the origin.
    #[inline]
    pub(super) fn source_load(&mut self, from: Ticks, until: Ticks) {
        self.counts.loads += 1;
        self.loads_in_flight.add(from, until);
        self.seconds[(from / self.second) as usize].source_loads += 1;
    }

    /// Adds the counts of other partitions.
    pub(super) fn merge(&mut self, other: &Self) {
        for (counts, more) in self.seconds.iter_mut().zip(&other.seconds) {
            counts.source_loads += more.source_loads;
            add_all(&mut counts.at_once, &more.at_once);
            add_all(&mut counts.waited, &more.waited);
            for (count, more) in counts.waits.iter_mut().zip(&more.waits) {
                *count += more;
            }
        }
        self.counts += other.counts;
        self.waited += other.waited;
        self.finished = self.finished.max(other.finished);
        self.response = self
            .response
            .into_iter()
            .chain(other.response)
            .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        self.in_flight.merge(&other.in_flight);
        self.loads_in_flight.merge(&other.loads_in_flight);
    }

    pub(super) fn duration(&self, ticks: Ticks) -> Duration {
        Duration::from_nanos(self.clock.nanos(ticks))
    }

    /// The sum of all response times.
    pub(super) fn waited(&self) -> Duration {
        let nanos = self.waited * u128::from(self.clock.nanos(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The waits in a second and their counts, ascending.
    pub(super) fn waits<'a>(
        &'a self,
        second: &'a SecondCounts,
    ) -> impl Iterator<Item = (Duration, u64)> + 'a {
        let cells = second.waits.iter().enumerate().filter(|(_, count)| **count > 0);
        cells.map(|(cell, count)| (self.duration(middle_of(cell)), u64::from(*count)))
    }

    /// The most requests that waited within the same hundredth of a second.
    pub(super) fn in_flight_max(&self) -> u64 {
        self.in_flight.max()
    }

    /// The most loads in flight within the same hundredth of a second.
    pub(super) fn loads_in_flight_max(&self) -> u64 {
        self.loads_in_flight.max()
    }
}

fn add_all(counts: &mut [u64], more: &[u64]) {
    counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
}

/// Each doubling of a wait has 2^8 cells: waits of a cell differ by less than 0.4 %.
const CELL_BITS: u32 = 8;

/// The cell of a wait in a histogram.
#[inline]
fn cell_of(wait: Ticks) -> usize {
    let shift = (Ticks::BITS - wait.leading_zeros()).saturating_sub(CELL_BITS + 1);
    ((shift << CELL_BITS) + (wait >> shift)) as usize
}

/// The middle of a cell.
#[expect(clippy::cast_possible_truncation, reason = "cells are those of 32-bit waits")]
fn middle_of(cell: usize) -> Ticks {
    let shift = ((cell >> CELL_BITS) as u32).saturating_sub(1);
    let start = cell as u32 - (shift << CELL_BITS);
    (start << shift) + ((1 << shift) >> 1)
}

/// Numbers of what is in flight, in hundredths of a second.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Concurrency {
    step: Ticks,
    started: Vec<u32>,
    ended: Vec<u32>,
}

impl Concurrency {
    fn new(end: Ticks, second: Ticks) -> Self {
        let step = (second / 100).max(1);
        let steps = (end / step) as usize + 2;
        Self { step, started: vec![0; steps], ended: vec![0; steps] }
    }

    #[inline]
    fn add(&mut self, from: Ticks, until: Ticks) {
        let last = self.started.len() - 1;
        let at = |time: Ticks| ((time / self.step) as usize).min(last);
        let (from, until) = (at(from), at(until));
        self.started[from] += 1;
        self.ended[until] += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.started.iter_mut().zip(&other.started).for_each(|(count, more)| *count += more);
        self.ended.iter_mut().zip(&other.ended).for_each(|(count, more)| *count += more);
    }

    fn max(&self) -> u64 {
        let (mut now, mut most) = (0, 0);
        for (started, ended) in self.started.iter().zip(&self.ended) {
            now += u64::from(*started);
            most = most.max(now);
            now -= u64::from(*ended);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn middle_of_a_cell_is_within_four_thousandths(wait in 1..u32::MAX / 2) {
            let middle = f64::from(middle_of(cell_of(wait)));
            prop_assert!((middle / f64::from(wait) - 1.0).abs() < 0.004, "{wait} {middle}");
        }

        #[test]
        fn cells_ascend(wait in 1..u32::MAX) {
            prop_assert!(cell_of(wait) >= cell_of(wait - 1) && cell_of(wait) <= cell_of(wait - 1) + 1);
        }
    }

    #[test]
    fn short_waits_are_exact() {
        assert!((0..512).all(|wait| middle_of(cell_of(wait)) == wait));
    }

    #[test]
    fn merged_counts_are_those_of_one_tally() {
        let clock = TickClock::for_load(Duration::from_secs(10));
        let empty = || FleetTally::new(clock, Duration::from_secs(10), 50_000);
        let (mut one, mut other, mut both) = (empty(), empty(), empty());
        for n in 0..1_000_u32 {
            let (from, until) = (n * 9_000, n * 9_000 + n % 50);
            let part = if n % 3 == 0 { &mut one } else { &mut other };
            for tally in [part, &mut both] {
                tally.request(OUTCOMES[n as usize % 4], from, until);
                tally.source_load(from, until + 40_000);
            }
        }
        one.merge(&other);
        assert_eq!(one, both);
        assert_eq!((both.in_flight_max(), both.loads_in_flight_max(), both.counts.loads), (2, 6, 1_000));
    }
}
