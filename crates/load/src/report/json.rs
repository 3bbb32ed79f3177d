//! Vegeta's JSON report on one line, and all that Vegeta does not know under `stockade`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{Buckets, Options, arm::Stockade, clock::Clock, go, vegeta::Metrics};
use crate::summary::Summary;

/// Times in nanoseconds.
#[derive(Serialize)]
struct Report<'a> {
    latencies: Latencies,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<Counts<'a>>,
    bytes_in: Bytes,
    bytes_out: Bytes,
    earliest: String,
    latest: String,
    end: String,
    duration: u64,
    wait: u64,
    requests: u64,
    rate: f64,
    throughput: f64,
    success: f64,
    status_codes: &'a BTreeMap<u16, u64>,
    errors: &'a [String],
    stockade: Stockade<'a>,
}

#[derive(Serialize)]
struct Latencies {
    total: u64,
    mean: u64,
    #[serde(rename = "50th")]
    p50: u64,
    #[serde(rename = "90th")]
    p90: u64,
    #[serde(rename = "95th")]
    p95: u64,
    #[serde(rename = "99th")]
    p99: u64,
    max: u64,
    min: u64,
}

#[derive(Serialize)]
struct Bytes {
    total: u64,
    mean: f64,
}

/// By each bucket's lower bound, in its order.
struct Counts<'a> {
    buckets: &'a Buckets,
    counts: Vec<u64>,
}

impl Serialize for Counts<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.counts.len()))?;
        for (bound, count) in self.buckets.bounds().iter().zip(&self.counts) {
            map.serialize_entry(&go::nanos(*bound), count)?;
        }
        map.end()
    }
}

/// One object on one line.
#[must_use]
pub fn render(summary: &Summary, options: &Options) -> String {
    let (tally, metrics) = (&summary.measured, Metrics::of(summary));
    let mut clock = Clock::new(summary.clock_zero);
    let mut moment = |time: Option<_>| time.map_or_else(|| go::NO_TIME.to_owned(), |time| clock.text(time));
    let at = |quantile| go::nanos(metrics.quantile(quantile));
    let report = Report {
        latencies: Latencies {
            total: go::nanos(tally.response_sum),
            mean: go::nanos(metrics.mean),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: go::nanos(metrics.max()),
            min: go::nanos(metrics.min()),
        },
        buckets: options
            .buckets
            .as_ref()
            .map(|buckets| Counts { buckets, counts: buckets.counts(&metrics.latencies) }),
        bytes_in: Bytes { total: tally.bytes_in, mean: metrics.bytes_in_mean },
        bytes_out: Bytes { total: tally.bytes_out, mean: metrics.bytes_out_mean },
        earliest: moment(tally.earliest),
        latest: moment(tally.latest),
        end: moment(tally.end),
        duration: go::nanos(metrics.attack),
        wait: go::nanos(metrics.wait),
        requests: metrics.requests,
        rate: metrics.rate,
        throughput: metrics.throughput,
        success: metrics.success,
        status_codes: &tally.status_codes,
        errors: &tally.errors,
        stockade: Stockade::of(summary),
    };
    let mut out = Vec::new();
    go::push_json(&report, &mut out);
    out.push(b'\n');
    String::from_utf8(out).expect("JSON is UTF-8")
}
