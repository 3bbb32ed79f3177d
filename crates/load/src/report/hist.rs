//! The text of `vegeta report -type='hist[...]'`, byte for byte: requests per bucket of response times.

use super::{ReportOptions, vegeta::VegetaMetrics};
use crate::summary::Summary;
use stockade_record::report::go_format;

/// The `#`s of a bucket that has all requests.
const BAR_LENGTH: f64 = 75.0;

/// One line per bucket; none if there were no requests.
#[must_use]
pub fn render(summary: &Summary, options: &ReportOptions) -> String {
    let buckets = options.buckets.clone().unwrap_or_default();
    let metrics = VegetaMetrics::of(summary);
    let mut rows = vec![["Bucket", "", "#", "%", "Histogram"].map(str::to_owned)];
    if metrics.requests > 0 {
        let bounds: Vec<String> = buckets.bounds().iter().copied().map(go_format::duration).collect();
        let ends = bounds.iter().skip(1).cloned().chain(["+Inf".to_owned()]);
        for ((low, high), count) in bounds.iter().zip(ends).zip(buckets.counts(&metrics.latencies)) {
            let ratio = count as f64 / metrics.requests as f64;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 75")]
            let bar = "#".repeat((ratio * BAR_LENGTH) as usize);
            rows.push([
                format!("[{low},"),
                format!("{high}]"),
                count.to_string(),
                format!("{:.2}%", ratio * 100.0),
                bar,
            ]);
        }
    }
    go_format::columns(&rows)
}
