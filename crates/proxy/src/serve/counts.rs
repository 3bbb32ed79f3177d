//! What a route has done.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use stockade_model::outcome::Outcome;

/// Counts of one route, since the proxy was started.
#[derive(Debug, Default)]
pub struct Counts {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Answers by class of status: 1xx to 5xx.
    statuses: [AtomicU64; 5],
    bytes_out: AtomicU64,
    response: Times,
}

/// Upper bounds of the buckets of a histogram, in seconds: about three a decade.
pub const BUCKETS_S: [f64; 15] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// A histogram of times.
#[derive(Debug, Default)]
pub struct Times {
    /// One a bucket, and one for what is longer.
    buckets: [AtomicU64; BUCKETS_S.len() + 1],
    sum_nanos: AtomicU64,
}

impl Times {
    /// Notes a time.
    pub fn note(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = BUCKETS_S.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS_S.len());
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How many in each bucket, and the sum.
    #[must_use]
    pub fn read(&self) -> (Vec<u64>, Duration) {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        (buckets, Duration::from_nanos(self.sum_nanos.load(Relaxed)))
    }
}

impl Counts {
    /// Notes an answer.
    pub fn note(&self, outcome: Outcome, status: u16, bytes: u64, took: Duration) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
        if let Some(class) = self.statuses.get((status / 100).saturating_sub(1) as usize) {
            class.fetch_add(1, Relaxed);
        }
        self.bytes_out.fetch_add(bytes, Relaxed);
        self.response.note(took);
    }

    /// How many answers had this outcome.
    #[must_use]
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Relaxed)
    }

    /// Answers by class of status: 1xx to 5xx.
    #[must_use]
    pub fn statuses(&self) -> [u64; 5] {
        self.statuses.each_ref().map(|count| count.load(Relaxed))
    }

    /// Bytes of bodies that were to be sent.
    #[must_use]
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Relaxed)
    }

    /// From a request's head to its answer's.
    #[must_use]
    pub fn response(&self) -> &Times {
        &self.response
    }
}
