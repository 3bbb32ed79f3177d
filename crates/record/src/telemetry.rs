//! The figures of a run or of a server in the formats of other systems: OpenMetrics, Prometheus, OTLP.

pub mod family;
pub mod measurement;
pub mod openmetrics;
pub mod prometheus;

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Times in buckets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeHistogram {
    /// Upper bound of each bucket, inclusive, ascending.
    pub bounds_seconds: Vec<f64>,
    /// Times in each bucket; the last one, without a bound, has the longer times.
    pub counts: Vec<u64>,
    /// Sum of all times.
    pub sum_seconds: f64,
}

/// The declaration of a histogram of a snapshot `S`.
#[derive(Debug)]
pub struct HistogramDeclaration<S: 'static> {
    /// Name of the field.
    pub field: &'static str,
    /// Name of the family in Prometheus.
    pub family: &'static str,
    /// The meaning of the metric, in one line.
    pub help: &'static str,
    /// Its value; `None`: it is not measured.
    pub read: fn(&S) -> Option<&TimeHistogram>,
}

impl TimeHistogram {
    /// The number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The mean; `None` of none.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        let count = self.count();
        (count > 0).then(|| Duration::from_secs_f64(self.sum_seconds / count as f64))
    }
}
