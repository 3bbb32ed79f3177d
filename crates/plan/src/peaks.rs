//! The busiest second and the busiest minute.

use std::collections::VecDeque;

use crate::trace::SECOND_NS;

const SECONDS_OF_MINUTE: u64 = 60;

/// The most seconds that [`SecondCounts`] keeps: 97 days, of 4 bytes each.
const SECONDS_MAX: usize = 1 << 23;

/// Counts events in each second, in any order.
#[derive(Debug, Default)]
pub(crate) struct SecondCounts {
    first_second: u64,
    counts: VecDeque<u32>,
    is_too_long: bool,
}

impl SecondCounts {
    pub(crate) fn add(&mut self, at_ns: u64) {
        let second = at_ns / SECOND_NS;
        if self.counts.is_empty() {
            self.first_second = second;
        }
        let before = usize::try_from(self.first_second.saturating_sub(second)).unwrap_or(usize::MAX);
        let after = usize::try_from(second.saturating_sub(self.first_second)).unwrap_or(usize::MAX);
        if self.is_too_long || before > SECONDS_MAX - self.counts.len() || after >= SECONDS_MAX {
            *self = Self { is_too_long: true, ..Self::default() };
            return;
        }
        for _ in 0..before {
            self.counts.push_front(0);
        }
        self.first_second -= before as u64;
        if after >= self.counts.len() {
            self.counts.resize(after + 1, 0);
        }
        let count = &mut self.counts[after];
        *count = count.saturating_add(1);
    }

    /// The most events in a second; `None`: they are further apart than 97 days.
    pub(crate) fn max(&self) -> Option<u32> {
        if self.is_too_long { None } else { self.counts.iter().copied().max() }
    }
}

/// Counts events, which come in the order of time. Constant memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peaks {
    /// The seconds of the last minute that have events, and their counts.
    seconds: VecDeque<(u64, u64)>,
    last_minute: u64,
    second_max: u64,
    minute_max: u64,
}

impl Peaks {
    /// Counts an event at this time.
    pub(crate) fn add(&mut self, at_ns: u64) {
        let second = at_ns / SECOND_NS;
        let count = match self.seconds.back_mut() {
            Some((last, count)) if *last == second => {
                *count += 1;
                *count
            }
            _ => {
                self.seconds.push_back((second, 1));
                while let Some((first, count)) = self.seconds.front()
                    && first + SECONDS_OF_MINUTE <= second
                {
                    self.last_minute -= count;
                    self.seconds.pop_front();
                }
                1
            }
        };
        self.last_minute += 1;
        self.second_max = self.second_max.max(count);
        self.minute_max = self.minute_max.max(self.last_minute);
    }

    /// The most events in a second.
    #[must_use]
    pub fn in_second(&self) -> u64 {
        self.second_max
    }

    /// The most events in 60 seconds in a row.
    #[must_use]
    pub fn in_minute(&self) -> u64 {
        self.minute_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest_second_and_minute() {
        let mut peaks = Peaks::default();
        // Two in second 0, three in second 59, one in 60 and two in 118.
        for second in [0, 0, 59, 59, 59, 60, 118, 118] {
            peaks.add(second * SECOND_NS + 1);
        }
        assert_eq!((peaks.in_second(), peaks.in_minute()), (3, 6));
        assert_eq!((Peaks::default().in_second(), Peaks::default().in_minute()), (0, 0));
    }

    #[test]
    fn events_in_any_order_are_counted_by_second() {
        let max = |seconds: &[u64]| {
            let mut counts = SecondCounts::default();
            seconds.iter().for_each(|second| counts.add(second * SECOND_NS + 7));
            counts.max()
        };
        assert_eq!(max(&[]), None);
        assert_eq!(max(&[1_000, 1_001, 998, 1_000, 998, 998]), Some(3));
        let day = 86_400;
        assert_eq!(max(&[100 * day, 4 * day, 4 * day]), Some(2));
        assert_eq!(max(&[100 * day, 2 * day]), None);
        assert_eq!(max(&[0, 98 * day, 0]), None);
    }

    #[test]
    fn log_of_years_needs_a_minute_of_memory() {
        let mut peaks = Peaks::default();
        (0..1_000_000).for_each(|second| peaks.add(second * 7 * SECOND_NS));
        assert_eq!((peaks.in_second(), peaks.in_minute(), peaks.seconds.len()), (1, 9, 9));
    }
}
