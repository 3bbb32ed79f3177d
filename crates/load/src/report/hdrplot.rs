//! The text of `vegeta report -type=hdrplot`, byte for byte, for the plotter of `HdrHistogram`.

use stockade_model::units::milliseconds;

use super::{ReportOptions, vegeta::VegetaMetrics};
use crate::summary::Summary;
use stockade_record::report::go_format;

/// Vegeta's quantiles.
const QUANTILES: [f64; 94] = [
    0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.775, 0.8, 0.825, 0.85, 0.875, 0.8875, 0.9,
    0.9125, 0.925, 0.9375, 0.94375, 0.95, 0.95625, 0.9625, 0.96875, 0.971_875, 0.975, 0.978_125, 0.98125,
    0.984_375, 0.985_938, 0.9875, 0.989_062, 0.990_625, 0.992_188, 0.992_969, 0.99375, 0.994_531, 0.995_313,
    0.996_094, 0.996_484, 0.996_875, 0.997_266, 0.997_656, 0.998_047, 0.998_242, 0.998_437, 0.998_633,
    0.998_828, 0.999_023, 0.999_121, 0.999_219, 0.999_316, 0.999_414, 0.999_512, 0.999_561, 0.999_609,
    0.999_658, 0.999_707, 0.999_756, 0.99978, 0.999_805, 0.999_829, 0.999_854, 0.999_878, 0.99989, 0.999_902,
    0.999_915, 0.999_927, 0.999_939, 0.999_945, 0.999_951, 0.999_957, 0.999_963, 0.999_969, 0.999_973,
    0.999_976, 0.999_979, 0.999_982, 0.999_985, 0.999_986, 0.999_988, 0.999_989, 0.999_991, 0.999_992,
    0.999_993, 0.999_994, 0.999_995, 0.999_996, 0.999_997, 0.999_998, 0.999_999, 1.0,
];

/// Vegeta's `1/(1-Percentile)` for 1.
const LAST_INVERSE: f64 = 10_000_000.0;

/// One line per quantile.
#[must_use]
pub fn render(summary: &Summary, _: &ReportOptions) -> String {
    let metrics = VegetaMetrics::of(summary);
    let mut rows = vec![["Value(ms)", "Percentile", "TotalCount", "1/(1-Percentile)"].map(str::to_owned)];
    rows.extend(QUANTILES.map(|quantile| {
        let inverse = if quantile < 1.0 { 1.0 / (1.0 - quantile) } else { LAST_INVERSE };
        let count = (quantile * metrics.requests as f64 + 0.5).floor();
        let value = milliseconds(metrics.quantile(quantile));
        [format!("{value:.6}"), format!("{quantile:.6}"), format!("{count:.0}"), format!("{inverse:.6}")]
    }));
    go_format::columns(&rows)
}
