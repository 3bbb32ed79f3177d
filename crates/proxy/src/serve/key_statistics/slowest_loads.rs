//! The slowest loads of the last minutes.

use std::{
    cmp::Reverse,
    collections::VecDeque,
    time::{Duration, SystemTime},
};

/// Minutes that are kept, the current one included.
const MINUTES: u64 = 10;

/// The loads that are kept of each minute, and that are shown.
pub const LOADS: usize = 20;

#[derive(Clone, Debug, PartialEq)]
pub struct EndedLoad {
    pub key: Box<str>,
    pub took: Duration,
    pub ended_at: SystemTime,
    pub status: Option<u16>,
}

/// Exact: each minute keeps its own slowest loads, so that none is missing when an earlier minute is forgotten.
#[derive(Debug, Default)]
pub struct SlowestLoads {
    /// The number of a minute, and its loads in no order.
    minutes: VecDeque<(u64, Vec<EndedLoad>)>,
}

impl SlowestLoads {
    /// `load` is called if it is one of the slowest.
    pub fn note(&mut self, took: Duration, ended_at: SystemTime, load: impl FnOnce() -> EndedLoad) {
        let number = minute(ended_at);
        self.forget(number);
        // A clock that was set back continues the last minute.
        if self.minutes.back().is_none_or(|(last, _)| *last < number) {
            self.minutes.push_back((number, Vec::new()));
        }
        let Some((_, loads)) = self.minutes.back_mut() else { return };
        if loads.len() < LOADS {
            loads.push(load());
        } else if let Some(fastest) = loads.iter_mut().min_by_key(|load| load.took)
            && fastest.took < took
        {
            *fastest = load();
        }
    }

    /// The slowest first.
    pub fn slowest(&mut self, now: SystemTime) -> Vec<EndedLoad> {
        self.forget(minute(now));
        let mut loads: Vec<_> = self.minutes.iter().flat_map(|(_, loads)| loads).cloned().collect();
        loads.sort_by_key(|load| Reverse(load.took));
        loads.truncate(LOADS);
        loads
    }

    fn forget(&mut self, number: u64) {
        while self.minutes.front().is_some_and(|(first, _)| *first + MINUTES <= number) {
            self.minutes.pop_front();
        }
    }

    #[cfg(test)]
    pub fn key_bytes(&self) -> usize {
        self.minutes.iter().flat_map(|(_, loads)| loads).map(|load| load.key.len()).sum()
    }
}

fn minute(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 60
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slowest_of_the_last_minutes_are_complete(loads in prop::collection::vec((0..5_000_u64, 0..20_u64), 1..500)) {
            let (mut slowest, mut all) = (SlowestLoads::default(), Vec::new());
            let mut second = 0;
            for (millis, pause) in loads {
                second += pause;
                let load = EndedLoad {
                    key: "a".into(),
                    took: Duration::from_millis(millis),
                    ended_at: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
                    status: None,
                };
                slowest.note(load.took, load.ended_at, || load.clone());
                all.push(load);
            }
            let first = (second / 60).saturating_sub(MINUTES - 1);
            let mut expected: Vec<_> =
                all.iter().filter(|load| minute(load.ended_at) >= first).map(|load| load.took).collect();
            expected.sort_by_key(|took| Reverse(*took));
            expected.truncate(LOADS);
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            let found: Vec<_> = slowest.slowest(now).iter().map(|load| load.took).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn clock_that_is_set_back_keeps_the_bound() {
        let mut slowest = SlowestLoads::default();
        for number in (0..10_000_u64).rev() {
            let ended_at = SystemTime::UNIX_EPOCH + Duration::from_mins(number);
            let took = Duration::from_secs(number);
            slowest.note(took, ended_at, || EndedLoad { key: "a".into(), took, ended_at, status: None });
        }
        assert_eq!(slowest.key_bytes(), LOADS);
    }
}
