//! The text of `vegeta report`.

use std::time::Duration;

use stockade_record::{histogram::Histogram, report::vegeta::VegetaReport};

use super::ReportOptions;
use crate::summary::Summary;

/// Figures, computed as in Vegeta.
#[derive(Debug)]
pub(super) struct VegetaMetrics {
    pub latencies: Histogram,
    pub requests: u64,
    /// Requests a second from the first to the last due time; the number of requests if these are equal.
    pub rate: f64,
    /// Successes a second until the end of the last request; their number if all were due at once.
    pub throughput: f64,
    pub attack: Duration,
    pub wait: Duration,
    /// The mean response time, failures included.
    pub mean: Duration,
    pub bytes_in_mean: f64,
    pub bytes_out_mean: f64,
    /// From 0 to 1.
    pub success: f64,
}

impl VegetaMetrics {
    pub fn of(summary: &Summary) -> Self {
        let tally = &summary.measured;
        let (requests, attack, wait) = (tally.requests(), summary.attack_duration(), summary.wait_duration());
        let per = |time: Duration, count: u64| {
            if attack.is_zero() { count as f64 } else { count as f64 / time.as_secs_f64() }
        };
        let mean = |total: u64| if requests == 0 { 0.0 } else { total as f64 / requests as f64 };
        let response_mean = tally.response_sum.as_nanos() / u128::from(requests.max(1));
        Self {
            latencies: tally.latencies(),
            requests,
            rate: per(attack, requests),
            throughput: per(attack + wait, tally.successes),
            attack,
            wait,
            mean: Duration::from_nanos(u64::try_from(response_mean).unwrap_or(u64::MAX)),
            bytes_in_mean: mean(tally.bytes_in),
            bytes_out_mean: mean(tally.bytes_out),
            success: mean(tally.successes),
        }
    }

    /// Zero if there were no requests.
    pub fn quantile(&self, quantile: f64) -> Duration {
        self.latencies.quantile(quantile).unwrap_or_default()
    }

    pub fn min(&self) -> Duration {
        self.latencies.min().unwrap_or_default()
    }

    pub fn max(&self) -> Duration {
        self.latencies.max().unwrap_or_default()
    }
}

/// Renders the report.
#[must_use]
pub fn render(summary: &Summary, _: &ReportOptions) -> String {
    let (tally, metrics) = (&summary.measured, VegetaMetrics::of(summary));
    let [p50, p90, p95, p99] = [0.5, 0.9, 0.95, 0.99].map(|quantile| metrics.quantile(quantile));
    let text = VegetaReport {
        requests: metrics.requests,
        rates: [metrics.rate, metrics.throughput],
        attack: metrics.attack,
        wait: metrics.wait,
        latencies: [metrics.min(), metrics.mean, p50, p90, p95, p99, metrics.max()],
        bytes_in: (tally.bytes_in, metrics.bytes_in_mean),
        bytes_out: (tally.bytes_out, metrics.bytes_out_mean),
        success: metrics.success,
        status_codes: tally.status_codes.clone(),
        errors: tally.errors.clone(),
    };
    text.to_string()
}
