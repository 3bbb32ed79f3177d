//! The busiest second and the busiest minute.

use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;
const SECONDS_OF_MINUTE: u64 = 60;

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
    fn log_of_years_needs_a_minute_of_memory() {
        let mut peaks = Peaks::default();
        (0..1_000_000).for_each(|second| peaks.add(second * 7 * SECOND_NS));
        assert_eq!((peaks.in_second(), peaks.in_minute(), peaks.seconds.len()), (1, 9, 9));
    }
}
