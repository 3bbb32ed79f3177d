//! What a route has done.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use stockade_model::outcome::{Outcome, Outcomes};

use crate::admin::Histogram;

/// Counts of one route, since the proxy was started.
#[derive(Debug, Default)]
pub struct Counts {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Answers by class of status: 1xx to 5xx.
    statuses: [AtomicU64; 5],
    bytes_out: AtomicU64,
    response: Times,
    wait: Times,
    load: Times,
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

    /// What has been noted.
    #[must_use]
    pub fn histogram(&self) -> Histogram {
        Histogram {
            bounds_seconds: BUCKETS_S.to_vec(),
            counts: self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect(),
            sum_seconds: Duration::from_nanos(self.sum_nanos.load(Relaxed)).as_secs_f64(),
        }
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

    /// How many answers had each outcome.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for outcome in Outcome::ALL {
            *outcomes.of_mut(outcome) = self.outcomes[outcome as usize].load(Relaxed);
        }
        outcomes
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

    /// From a request's head to the last byte of its answer.
    #[must_use]
    pub fn response(&self) -> &Times {
        &self.response
    }

    /// How long requests waited for another's load.
    #[must_use]
    pub fn wait(&self) -> &Times {
        &self.wait
    }

    /// From the origin being asked to the head of its answer, or to its failure.
    #[must_use]
    pub fn load(&self) -> &Times {
        &self.load
    }
}
