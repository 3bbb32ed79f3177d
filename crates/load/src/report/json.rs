//! Vegeta's JSON report on one line, with the figures that it lacks under `stockade`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    Buckets, ReportOptions, figures::StockadeFigures, timestamp::TimestampFormatter, vegeta::VegetaMetrics,
};
use crate::summary::Summary;
use stockade_record::report::go_format;

/// Times in nanoseconds.
#[derive(Serialize)]
struct VegetaJson<'a> {
    latencies: Latencies,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<BucketCounts<'a>>,
    bytes_in: ByteTotals,
    bytes_out: ByteTotals,
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
    stockade: StockadeFigures<'a>,
}

#[derive(Serialize)]
struct Latencies {
    #[serde(rename = "total")]
    sum: u64,
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
struct ByteTotals {
    total: u64,
    mean: f64,
}

/// Counts by the lower bound of each bucket, in order.
struct BucketCounts<'a> {
    buckets: &'a Buckets,
    counts: Vec<u64>,
}

impl Serialize for BucketCounts<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.counts.len()))?;
        for (bound, count) in self.buckets.bounds().iter().zip(&self.counts) {
            map.serialize_entry(&go_format::nanos(*bound), count)?;
        }
        map.end()
    }
}

/// One object on one line.
#[must_use]
pub fn render(summary: &Summary, options: &ReportOptions) -> String {
    let (tally, metrics) = (&summary.measured, VegetaMetrics::of(summary));
    let mut clock = TimestampFormatter::new(summary.clock_zero);
    let mut moment =
        |time: Option<_>| time.map_or_else(|| go_format::NO_TIME.to_owned(), |time| clock.text(time));
    let at = |quantile| go_format::nanos(metrics.quantile(quantile));
    let report = VegetaJson {
        latencies: Latencies {
            sum: go_format::nanos(tally.response_sum),
            mean: go_format::nanos(metrics.mean),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: go_format::nanos(metrics.max()),
            min: go_format::nanos(metrics.min()),
        },
        buckets: options
            .buckets
            .as_ref()
            .map(|buckets| BucketCounts { buckets, counts: buckets.counts(&metrics.latencies) }),
        bytes_in: ByteTotals { total: tally.bytes_in, mean: metrics.bytes_in_mean },
        bytes_out: ByteTotals { total: tally.bytes_out, mean: metrics.bytes_out_mean },
        earliest: moment(tally.earliest),
        latest: moment(tally.latest),
        end: moment(tally.end),
        duration: go_format::nanos(metrics.attack),
        wait: go_format::nanos(metrics.wait),
        requests: metrics.requests,
        rate: metrics.rate,
        throughput: metrics.throughput,
        success: metrics.success,
        status_codes: &tally.status_codes,
        errors: &tally.errors,
        stockade: StockadeFigures::of(summary, &options.expectations),
    };
    let mut out = Vec::new();
    go_format::push_json(&report, &mut out);
    out.push(b'\n');
    String::from_utf8(out).expect("JSON is UTF-8")
}
