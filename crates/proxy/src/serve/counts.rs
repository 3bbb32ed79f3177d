//! Counters of one route.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use stockade_model::outcome::{Outcome, Outcomes};
use stockade_record::telemetry::TimeHistogram;

#[derive(Debug, Default)]
pub struct RouteMetrics {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    response: DurationHistogram,
    wait: DurationHistogram,
    load: DurationHistogram,
}

/// Upper bounds of histogram buckets in seconds, about three per decade.
pub const BUCKETS_S: [f64; 15] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

#[derive(Debug, Default)]
pub struct DurationHistogram {
    /// The last one counts longer times.
    buckets: [AtomicU64; BUCKETS_S.len() + 1],
    sum_nanos: AtomicU64,
}

impl DurationHistogram {
    pub fn note(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = BUCKETS_S.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS_S.len());
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    #[must_use]
    pub fn histogram(&self) -> TimeHistogram {
        TimeHistogram {
            bounds_seconds: BUCKETS_S.to_vec(),
            counts: self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect(),
            sum_seconds: Duration::from_nanos(self.sum_nanos.load(Relaxed)).as_secs_f64(),
        }
    }
}

impl RouteMetrics {
    pub fn note(&self, outcome: Outcome, took: Duration) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
        self.response.note(took);
    }

    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for outcome in Outcome::ALL {
            *outcomes.of_mut(outcome) = self.outcomes[outcome as usize].load(Relaxed);
        }
        outcomes
    }

    /// Time from a request's head to the last byte of its reply.
    #[must_use]
    pub fn response(&self) -> &DurationHistogram {
        &self.response
    }

    /// Time that requests waited for the load of another request.
    #[must_use]
    pub fn wait(&self) -> &DurationHistogram {
        &self.wait
    }

    /// From the time at which the origin is asked to the head of its answer, or to its failure.
    #[must_use]
    pub fn load(&self) -> &DurationHistogram {
        &self.load
    }
}
