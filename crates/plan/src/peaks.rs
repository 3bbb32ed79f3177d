//! The busiest second and the busiest minute.

use std::collections::{BTreeMap, VecDeque};

use crate::trace::SECOND_NS;

const SECONDS_OF_MINUTE: u64 = 60;

const HOUR_S: usize = 3_600;

/// The most hours with events that [`SecondCounts`] keeps: 100 days, of 7.2 kB an hour.
const HOURS_MAX: usize = 2_400;

/// Counts events in each second, in any order.
#[derive(Debug, Default)]
pub(crate) struct SecondCounts {
    /// Hours with events, ascending.
    hours: Vec<Hour>,
    /// That of the last event.
    last: usize,
    /// How often the count of a second has begun again at 0.
    wraps: BTreeMap<u64, u32>,
    is_too_long: bool,
}

#[derive(Debug)]
struct Hour {
    number: u64,
    counts: Box<[u16; HOUR_S]>,
}

impl SecondCounts {
    pub(crate) fn add(&mut self, at_ns: u64) {
        let second = at_ns / SECOND_NS;
        let number = second / HOUR_S as u64;
        if self.hours.get(self.last).is_none_or(|hour| hour.number != number) {
            match self.hours.binary_search_by_key(&number, |hour| hour.number) {
                Ok(known) => self.last = known,
                Err(_) if self.is_too_long => return,
                Err(_) if self.hours.len() == HOURS_MAX => {
                    *self = Self { is_too_long: true, ..Self::default() };
                    return;
                }
                Err(place) => {
                    self.hours.insert(place, Hour { number, counts: Box::new([0; HOUR_S]) });
                    self.last = place;
                }
            }
        }
        let count = &mut self.hours[self.last].counts[(second % HOUR_S as u64) as usize];
        *count = count.wrapping_add(1);
        if *count == 0 {
            *self.wraps.entry(second).or_default() += 1;
        }
    }

    /// The most events in a second; `None`: they are in too many hours.
    pub(crate) fn max(&self) -> Option<u32> {
        let before =
            |second: u64| self.wraps.get(&second).map_or(0, |wraps| wraps.saturating_mul(1 << u16::BITS));
        let of_hour = |hour: &Hour| {
            let seconds = (hour.number * HOUR_S as u64..).zip(hour.counts.iter());
            seconds.map(|(second, count)| before(second).saturating_add(u32::from(*count))).max()
        };
        self.hours.iter().filter_map(of_hour).max()
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
        assert_eq!(max(&[100 * day, 4 * day, 100 * day, 4 * day, 4 * day]), Some(3));
        assert_eq!(max(&vec![7; 140_000]), Some(140_000));
        let hours = |hours: u64| (0..hours).map(|hour| hour * 3_600).chain([0]).collect::<Vec<_>>();
        assert_eq!((max(&hours(2_400)), max(&hours(2_401))), (Some(2), None));
    }

    #[test]
    fn log_of_years_needs_a_minute_of_memory() {
        let mut peaks = Peaks::default();
        (0..1_000_000).for_each(|second| peaks.add(second * 7 * SECOND_NS));
        assert_eq!((peaks.in_second(), peaks.in_minute(), peaks.seconds.len()), (1, 9, 9));
    }
}
