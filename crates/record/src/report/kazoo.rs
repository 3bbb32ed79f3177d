//! The published layout of `kzs_loadtest`, line for line: whole truncated milliseconds, nearest-rank
//! percentiles, no calls with a count of zero.

use std::fmt::Write;

use crate::record::{BurstFigures, Record};

use crate::metrics::Results;

/// One series of bursts: the documents, then each strategy.
#[must_use]
pub fn burst_series<'a>(documents: usize, runs: impl Iterator<Item = (&'a BurstFigures, u64)>) -> String {
    let mut text = format!("using {documents} document IDs\n");
    for (burst, whole_ms_sum) in runs {
        let _ = strategy(&mut text, burst, whole_ms_sum);
    }
    text + "ok\n"
}

/// Every series of bursts of a record: by test, repeat, then arm. Open loads are left out.
#[must_use]
pub fn render(record: &Record, results: &Results) -> String {
    let mut text = String::new();
    for test in &record.tests {
        for repeat in 1..=record.repeats {
            let of_arm = |name: &str| {
                results
                    .runs()
                    .iter()
                    .find(|e| e.run.test == *test && e.run.repeat == repeat && e.run.arm == name)
            };
            let bursts = record
                .arms
                .iter()
                .filter_map(|arm| of_arm(&arm.name))
                .filter_map(|e| Some((e.run.load.burst()?, e.run.whole_ms_sum.unwrap_or_default())));
            let mut bursts = bursts.peekable();
            if let Some((first, _)) = bursts.peek() {
                text += &burst_series(first.documents, bursts);
            }
        }
    }
    text
}

fn strategy(text: &mut String, burst: &BurstFigures, whole_ms_sum: u64) -> std::fmt::Result {
    let answered = burst.workers - burst.failed;
    writeln!(text, "starting {}...", burst.strategy)?;
    writeln!(text, "  finished in {}ms", burst.finished_ms.trunc())?;
    let failed = if burst.failed > 0 { format!(" ({} failed)", burst.failed) } else { String::new() };
    match &burst.times {
        Some(times) => {
            let (min, max) = (times.min_ms.trunc(), times.max_ms.trunc());
            let mean = whole_ms_sum / answered as u64;
            writeln!(text, "  min/mean/max: {min} < {mean} < {max} ({whole_ms_sum}){failed}")?;
            let of = &times.percentiles;
            let [p50, p75, p90, p95, p99] = [of.p50, of.p75, of.p90, of.p95, of.p99].map(f64::trunc);
            writeln!(text, "  percentiles: {p50}(50) {p75}(75) {p90}(90) {p95}(95) {p99}(99)")?;
        }
        None => {
            writeln!(text, "  min/mean/max: - < - < - (-){failed}")?;
            writeln!(text, "  percentiles: -(50) -(75) -(90) -(95) -(99)")?;
        }
    }
    let calls = [
        ("fetch_doc", burst.calls.fetch_doc),
        ("store_local", burst.calls.store_local),
        ("store_local_async", burst.calls.store_local_async),
    ];
    let calls: Vec<_> =
        calls.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name}: {n}")).collect();
    writeln!(text, "  calls: {}", calls.join(" "))
}

#[cfg(test)]
mod tests {
    use crate::record::{BurstTimes, Calls, Percentiles};

    use super::*;

    fn burst(failed: usize, times: Option<BurstTimes>) -> BurstFigures {
        BurstFigures {
            strategy: "none".to_owned(),
            workers: 10,
            documents: 1,
            distinct_keys: 1,
            finished_ms: 9.87,
            times,
            calls: Calls { fetch_doc: 10, store_local: 10, store_local_async: 0 },
            failed,
            waiters: 0,
            start_skew_ms: 0.1,
        }
    }

    #[test]
    fn layout_is_the_published_one() {
        let percentiles = Percentiles { p50: 8.9, p75: 9.0, p90: 9.1, p95: 9.2, p99: 9.9 };
        let times = BurstTimes { min_ms: 6.2, mean_ms: 8.25, max_ms: 9.99, sum_ms: 82.5, percentiles };
        let whole = [(&burst(0, Some(times.clone())), 78)];
        // The first series of the published document.
        assert_eq!(
            burst_series(1, whole.into_iter()),
            "using 1 document IDs\n\
             starting none...\n\
             \x20 finished in 9ms\n\
             \x20 min/mean/max: 6 < 7 < 9 (78)\n\
             \x20 percentiles: 8(50) 9(75) 9(90) 9(95) 9(99)\n\
             \x20 calls: fetch_doc: 10 store_local: 10\n\
             ok\n"
        );
        assert!(
            burst_series(1, [(&burst(2, Some(times)), 62)].into_iter())
                .contains("6 < 7 < 9 (62) (2 failed)\n")
        );
        assert!(
            burst_series(1, [(&burst(10, None), 0)].into_iter())
                .contains("  min/mean/max: - < - < - (-) (10 failed)\n")
        );
    }
}
