//! What `vegeta report` prints, to the byte; our response times are its latencies.

use std::{fmt::Write, time::Duration};

use stockade_model::histogram::Histogram;

use super::{Options, go};
use crate::summary::Summary;

/// The figures that Vegeta computes, and how it computes them.
#[derive(Debug)]
pub(super) struct Metrics {
    pub latencies: Histogram,
    pub requests: u64,
    /// Requests a second, from the first to the last one due; all of them if that is no time.
    pub rate: f64,
    /// Successes a second until the last one was done; all of them if the first was due with the last.
    pub throughput: f64,
    pub attack: Duration,
    pub wait: Duration,
    /// All that it took, by request.
    pub mean: Duration,
    pub bytes_in_mean: f64,
    pub bytes_out_mean: f64,
    /// 0 to 1.
    pub success: f64,
}

impl Metrics {
    pub fn of(summary: &Summary) -> Self {
        let tally = &summary.measured;
        let (requests, attack, wait) = (tally.requests(), summary.attack(), summary.wait());
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

/// Seven lines and what went wrong.
#[must_use]
pub fn render(summary: &Summary, _: &Options) -> String {
    let (tally, metrics) = (&summary.measured, Metrics::of(summary));
    let times = |times: &[Duration]| times.iter().copied().map(go::rounded).collect::<Vec<_>>().join(", ");
    let quantiles = [0.5, 0.9, 0.95, 0.99].map(|quantile| metrics.quantile(quantile));
    let latencies = [&[metrics.min(), metrics.mean], &quantiles[..], &[metrics.max()]].concat();
    // Texts are sorted as texts: a status of three digits comes after no status, which is 0.
    let mut codes = String::new();
    for (code, count) in &tally.status_codes {
        let _ = write!(codes, "{code}:{count}  ");
    }
    let rows = [
        [
            "Requests",
            "[total, rate, throughput]",
            &format!("{}, {:.2}, {:.2}", metrics.requests, metrics.rate, metrics.throughput),
        ],
        [
            "Duration",
            "[total, attack, wait]",
            &times(&[metrics.attack + metrics.wait, metrics.attack, metrics.wait]),
        ],
        ["Latencies", "[min, mean, 50, 90, 95, 99, max]", &times(&latencies)],
        ["Bytes In", "[total, mean]", &format!("{}, {:.2}", tally.bytes_in, metrics.bytes_in_mean)],
        ["Bytes Out", "[total, mean]", &format!("{}, {:.2}", tally.bytes_out, metrics.bytes_out_mean)],
        ["Success", "[ratio]", &format!("{:.2}%", metrics.success * 100.0)],
        ["Status Codes", "[code:count]", &codes],
    ];
    let mut text = go::columns(&rows.map(|row| row.map(str::to_owned))) + "Error Set:\n";
    tally.errors.iter().for_each(|error| {
        let _ = writeln!(text, "{error}");
    });
    text
}
