//! The load times of a cache, or of a view of it: how long a good load takes, which a [hedge](crate::HedgeAfter::Learned) waits for.

use std::{
    array,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Buckets of an octave: the 99th percentile is at most a quarter too high.
const PER_OCTAVE: usize = 4;
/// From 1 us to 70 minutes.
const BUCKETS: usize = 32 * PER_OCTAVE;
/// Loads after which older ones count half.
const HALF_LIFE: u32 = 1_024;
/// Loads without which a percentile says nothing.
const LOADS_MIN: u32 = 20;
/// Loads between two readings of the percentile.
const READ_EVERY: u32 = 16;

/// A histogram in which the last thousand loads weigh most. Loads that are recorded at the same time may be lost.
#[derive(Debug)]
pub(crate) struct LoadTimes {
    counts: [AtomicU32; BUCKETS],
    total: AtomicU32,
    /// In nanoseconds; 0: too few loads.
    p99: AtomicU64,
}

impl LoadTimes {
    /// A load that was answered.
    pub(crate) fn record(&self, took: Duration) {
        self.counts[bucket(took)].fetch_add(1, Relaxed);
        let total = self.total.fetch_add(1, Relaxed) + 1;
        if total >= LOADS_MIN && total.is_multiple_of(READ_EVERY) || total == LOADS_MIN {
            self.p99.store(self.read_p99(), Relaxed);
        }
        if total >= HALF_LIFE {
            self.halve();
        }
    }

    /// `None`: there were too few loads.
    pub(crate) fn p99(&self) -> Option<Duration> {
        let nanos = self.p99.load(Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    fn read_p99(&self) -> u64 {
        let counts = self.counts.each_ref().map(|count| u64::from(count.load(Relaxed)));
        let beyond = counts.iter().sum::<u64>() / 100;
        let slowest_first = counts.iter().rev().scan(0, |above, count| {
            *above += count;
            Some(*above)
        });
        let skipped = slowest_first.take_while(|above| *above <= beyond).count();
        end_nanos(BUCKETS.saturating_sub(skipped + 1))
    }

    fn halve(&self) {
        let halves = self.counts.iter().map(|count| {
            let half = count.load(Relaxed) / 2;
            count.store(half, Relaxed);
            half
        });
        self.total.store(halves.sum(), Relaxed);
    }
}

impl Default for LoadTimes {
    fn default() -> Self {
        Self {
            counts: array::from_fn(|_| AtomicU32::new(0)),
            total: AtomicU32::new(0),
            p99: AtomicU64::new(0),
        }
    }
}

/// The octave of the microseconds, and its quarter.
fn bucket(took: Duration) -> usize {
    let quarters =
        u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1).saturating_mul(PER_OCTAVE as u64);
    let octave = quarters.ilog2() - PER_OCTAVE.ilog2();
    // From 4 to 7, which is one octave more.
    let quarter = usize::try_from(quarters >> octave).unwrap_or(PER_OCTAVE);
    (octave as usize * PER_OCTAVE + quarter - PER_OCTAVE).min(BUCKETS - 1)
}

/// The end of a bucket.
fn end_nanos(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / PER_OCTAVE, bucket % PER_OCTAVE);
    ((PER_OCTAVE + quarter + 1) as u64 * 1_000 / PER_OCTAVE as u64) << octave
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn percentile_is_that_of_the_last_loads() {
        let times = LoadTimes::default();
        (0..19).for_each(|_| times.record(MS));
        assert_eq!(times.p99(), None);
        (0..1_000).for_each(|nth| times.record(if nth % 50 == 0 { 80 * MS } else { 20 * MS }));
        let p99 = times.p99().unwrap();
        assert!((80 * MS..=101 * MS).contains(&p99), "two of a hundred: {p99:?}");
        (0..10_000).for_each(|nth| times.record(if nth % 200 == 0 { 80 * MS } else { 20 * MS }));
        let p99 = times.p99().unwrap();
        assert!((20 * MS..=26 * MS).contains(&p99), "one of two hundred: {p99:?}");
    }

    #[test]
    fn buckets_hold_their_times() {
        for micros in [1_u64, 2, 3, 4, 5, 7, 8, 100, 999, 1_000, 123_456, 60_000_000, 1 << 31] {
            let end = end_nanos(bucket(Duration::from_micros(micros)));
            assert!((micros * 1_000..=micros * 1_260 + 1_000).contains(&end), "{micros} us: {end} ns");
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }
}
