//! Times that are far from those of the lines around them.

/// A year. A clock that is wrong is at 1970, 2000 or 2099; a log that has no request for a year is not one to plan for.
const FAR_NS: u64 = 366 * 86_400 * 1_000_000_000;

/// September 2001 in nanoseconds since 1970. The times of traces, which begin at an arbitrary start, are smaller, and not checked.
const CHECKED_FROM_NS: u64 = 1_000_000_000 * 1_000_000_000;

/// This number of times in a row that are far from the others are not errors: files of other years were concatenated.
const MOVED: u32 = 10;

/// Tells times that are far from those of the lines around them, in constant memory.
#[derive(Debug, Default)]
pub(crate) struct TimeNeighbors {
    /// The last time that was accepted, or the median of the first times of a file.
    near: Option<u64>,
    /// The last time that was not, and how many in a row are near it.
    far: u64,
    far_count: u32,
}

impl TimeNeighbors {
    /// The first times of a file: their median is near the others, even if the first time is wrong.
    pub fn start_file(&mut self, mut times: Vec<u64>) {
        times.sort_unstable();
        if let Some(median) = times.get(times.len() / 2) {
            *self = Self { near: Some(*median), ..Self::default() };
        }
    }

    /// False: the time is far from the others.
    pub fn accept(&mut self, at_ns: u64) -> bool {
        let is_near = self.near.is_none_or(|near| near < CHECKED_FROM_NS || near.abs_diff(at_ns) <= FAR_NS);
        if !is_near {
            let is_same = self.far_count > 0 && self.far.abs_diff(at_ns) <= FAR_NS;
            self.far_count = if is_same { self.far_count + 1 } else { 1 };
            self.far = at_ns;
        }
        if is_near || self.far_count >= MOVED {
            (self.near, self.far_count) = (Some(at_ns), 0);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: u64 = 365 * 86_400 * 1_000_000_000;

    fn accepted(first: &[u64], times: &[u64]) -> Vec<bool> {
        let mut neighbors = TimeNeighbors::default();
        neighbors.start_file(first.to_vec());
        times.iter().map(|at| neighbors.accept(*at)).collect()
    }

    #[test]
    fn times_far_from_the_others_are_not_accepted() {
        let now = 56 * YEAR;
        let times = [0, now, now + 9, now + 73 * YEAR, now + 10, 30 * YEAR, 30 * YEAR, now + 8];
        assert_eq!(accepted(&times, &times), [false, true, true, false, true, false, false, true]);
        // Without the first times, the first one is near.
        assert_eq!(accepted(&[], &[now, 0, now]), [true, false, true]);
        // Times of a trace are seconds since its start, or anything.
        assert_eq!(accepted(&[0, 7], &[0, 30 * YEAR, 5]), [true, true, true]);
    }

    #[test]
    fn files_of_other_years_are_accepted() {
        let (old, new) = (50 * YEAR, 56 * YEAR);
        let mut neighbors = TimeNeighbors::default();
        neighbors.start_file(vec![old; 20]);
        let times = [vec![old; 20], vec![new; 20]].concat();
        assert_eq!(times.iter().filter(|at| neighbors.accept(**at)).count(), 40 - 9);
        neighbors.start_file(vec![old; 20]);
        assert!(neighbors.accept(old));
    }
}
