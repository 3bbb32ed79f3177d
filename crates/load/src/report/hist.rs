//! `vegeta report -type='hist[...]'`, to the byte: how many requests took how long, bucket by bucket.

use super::{Options, go, vegeta::Metrics};
use crate::summary::Summary;

/// So many `#` are all requests.
const BAR: f64 = 75.0;

/// A line a bucket; none if there were no requests.
#[must_use]
pub fn render(summary: &Summary, options: &Options) -> String {
    let buckets = options.buckets.clone().unwrap_or_default();
    let metrics = Metrics::of(summary);
    let mut rows = vec![["Bucket", "", "#", "%", "Histogram"].map(str::to_owned)];
    if metrics.requests > 0 {
        let bounds: Vec<String> = buckets.bounds().iter().copied().map(go::duration).collect();
        let ends = bounds.iter().skip(1).cloned().chain(["+Inf".to_owned()]);
        for ((low, high), count) in bounds.iter().zip(ends).zip(buckets.counts(&metrics.latencies)) {
            let ratio = count as f64 / metrics.requests as f64;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 75")]
            let bar = "#".repeat((ratio * BAR) as usize);
            rows.push([
                format!("[{low},"),
                format!("{high}]"),
                count.to_string(),
                format!("{:.2}%", ratio * 100.0),
                bar,
            ]);
        }
    }
    go::columns(&rows)
}
