//! The percentile distribution (`.hgrm`) of the Java library `HdrHistogram`, in milliseconds.

use std::{fmt::Write, time::Duration};

use stockade_model::units::milliseconds;
use stockade_record::histogram::Histogram;

use super::ReportOptions;
use crate::summary::Summary;

/// Percentile ticks per half distance to 100 %.
const TICKS: f64 = 5.0;

/// Sub-buckets of a histogram with three digits.
const SUB_BUCKETS: u64 = 2048;

/// One line per percentile step, and a footer.
#[must_use]
pub fn render(summary: &Summary, _: &ReportOptions) -> String {
    distribution(&summary.measured.latencies())
}

fn distribution(times: &Histogram) -> String {
    let mut text =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    for PercentileStep { time, level, count } in steps(times) {
        let (value, quantile) = (half_up(milliseconds(time), 3), half_up(level, 12));
        let _ = write!(text, "{value:>12} {quantile} {count:10}");
        let _ = match level {
            ..1.0 => writeln!(text, " {:>14}", half_up(1.0 / (1.0 - level), 2)),
            _ => writeln!(text),
        };
    }
    let ms = |time: Option<Duration>| half_up(milliseconds(time.unwrap_or_default()), 3);
    let (mean, stdev, max) = (ms(times.mean()), ms(times.stdev()), ms(times.max()));
    let _ = writeln!(text, "#[Mean    = {mean:>12}, StdDeviation   = {stdev:>12}]");
    let _ = writeln!(text, "#[Max     = {max:>12}, Total count    = {:12}]", times.count());
    let _ = writeln!(text, "#[Buckets = {:12}, SubBuckets     = {SUB_BUCKETS:12}]", times.buckets());
    text
}

/// Formats with `places` decimals, rounded half up in decimal as in Java.
fn half_up(value: f64, places: usize) -> String {
    let exact = value.to_string();
    let (whole, fraction) = exact.split_once('.').unwrap_or((&exact, ""));
    let kept = &fraction[..fraction.len().min(places)];
    let count: u128 = format!("{whole}{kept:0<places$}").parse().unwrap_or(u128::MAX);
    let more = fraction.as_bytes().get(places).is_some_and(|digit| *digit >= b'5');
    let digits = format!("{:0>width$}", count.saturating_add(more.into()), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{whole}.{fraction}")
}

struct PercentileStep {
    time: Duration,
    /// The quantile, from 0 to 1.
    level: f64,
    /// Values at or below `time`.
    count: u64,
}

/// Equal steps from 0, whose size halves with every halving of the distance to 1. A cell has a line for each level that it
/// reaches; the last cell has one for the first level, and one for 1.
fn steps(times: &Histogram) -> Vec<PercentileStep> {
    let (all, mut count, mut percent) = (times.count(), 0, 0.0);
    let mut steps = Vec::new();
    for (time, here) in times.cells() {
        count += here;
        while 100.0 * count as f64 / all as f64 >= percent {
            steps.push(PercentileStep { time, level: percent / 100.0, count });
            if count == all {
                steps.push(PercentileStep { time, level: 1.0, count });
                break;
            }
            let halvings = ((100.0 / (100.0 - percent)).ln() / 2.0_f64.ln()).trunc();
            percent += 100.0 / (TICKS * 2.0_f64.powf(halvings + 1.0));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_equals_that_of_the_java_library() {
        let times = (0..10).map(|n| Duration::from_nanos(n * n % 1_000_003 * 977));
        insta::assert_snapshot!(distribution(&times.collect()), @"
               Value     Percentile TotalCount 1/(1-Percentile)

               0.000 0.000000000000          1           1.00
               0.000 0.100000000000          1           1.11
               0.001 0.200000000000          2           1.25
               0.004 0.300000000000          3           1.43
               0.009 0.400000000000          4           1.67
               0.016 0.500000000000          5           2.00
               0.024 0.550000000000          6           2.22
               0.024 0.600000000000          6           2.50
               0.035 0.650000000000          7           2.86
               0.035 0.700000000000          7           3.33
               0.048 0.750000000000          8           4.00
               0.048 0.775000000000          8           4.44
               0.048 0.800000000000          8           5.00
               0.063 0.825000000000          9           5.71
               0.063 0.850000000000          9           6.67
               0.063 0.875000000000          9           8.00
               0.063 0.887500000000          9           8.89
               0.063 0.900000000000          9          10.00
               0.079 0.912500000000         10          11.43
               0.079 1.000000000000         10
        #[Mean    =        0.028, StdDeviation   =        0.026]
        #[Max     =        0.079, Total count    =           10]
        #[Buckets =            7, SubBuckets     =         2048]
        ");
    }

    #[test]
    fn rounding_is_half_up_in_decimal() {
        for (value, places, text) in [
            (0.0, 3, "0.000"),
            (0.0005, 3, "0.001"),
            (0.000_499, 3, "0.000"),
            (2.675, 2, "2.68"),
            (9.996, 2, "10.00"),
            (0.999_780_273_437_5, 12, "0.999780273438"),
            (1e12, 2, "1000000000000.00"),
        ] {
            assert_eq!(half_up(value, places), text);
        }
    }
}
