//! The text of `vegeta report`, byte for byte. Response times are Vegeta's latencies.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    time::Duration,
};

use stockade_record::histogram::Histogram;

use super::{ReportOptions, go_format};
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

/// The figures in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct VegetaReport {
    /// The number of requests.
    pub requests: u64,
    /// Requests a second, and successes a second.
    pub rates: [f64; 2],
    /// From the first to the last due time.
    pub attack: Duration,
    /// From the last due time to the end of the last request.
    pub wait: Duration,
    /// Minimum, mean, p50, p90, p95, p99, maximum.
    pub latencies: [Duration; 7],
    /// Received bytes: total, and mean per request.
    pub bytes_in: (u64, f64),
    /// Sent bytes: total, and mean per request.
    pub bytes_out: (u64, f64),
    /// 0 to 1.
    pub success: f64,
    /// Requests by status; 0 stands for no response.
    pub status_codes: BTreeMap<u16, u64>,
    /// Different errors, in order of occurrence.
    pub errors: Vec<String>,
}

/// Seven lines, then the errors.
impl fmt::Display for VegetaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times =
            |times: &[Duration]| times.iter().copied().map(go_format::rounded).collect::<Vec<_>>().join(", ");
        // Vegeta sorts the codes as text. All have three digits, except 0, which is first in both orders.
        let mut codes = String::new();
        for (code, count) in &self.status_codes {
            write!(codes, "{code}:{count}  ")?;
        }
        let [rate, throughput] = self.rates;
        let bytes = |(total, mean): (u64, f64)| format!("{total}, {mean:.2}");
        let rows = [
            [
                "Requests",
                "[total, rate, throughput]",
                &format!("{}, {rate:.2}, {throughput:.2}", self.requests),
            ],
            ["Duration", "[total, attack, wait]", &times(&[self.attack + self.wait, self.attack, self.wait])],
            ["Latencies", "[min, mean, 50, 90, 95, 99, max]", &times(&self.latencies)],
            ["Bytes In", "[total, mean]", &bytes(self.bytes_in)],
            ["Bytes Out", "[total, mean]", &bytes(self.bytes_out)],
            ["Success", "[ratio]", &format!("{:.2}%", self.success * 100.0)],
            ["Status Codes", "[code:count]", &codes],
        ];
        f.write_str(&go_format::columns(&rows.map(|row| row.map(str::to_owned))))?;
        f.write_str("Error Set:\n")?;
        self.errors.iter().try_for_each(|error| writeln!(f, "{error}"))
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
