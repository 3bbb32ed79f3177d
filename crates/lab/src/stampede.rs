//! `stockade stampede`: the published load test, strategy by strategy.

use serde::Serialize;
use stockade_model::seed::Seed;
use stockade_record::{
    record,
    report::{grid, kazoo},
};

use crate::engine::{Burst, CancellationToken, DocumentSet, EngineError, EngineRuntime};

/// One series: the results of each strategy under a number of workers.
#[derive(Clone, Debug, Default)]
pub struct BurstSeries {
    /// Documents to choose from.
    pub documents: usize,
    /// The figures of each strategy, and the sum of whole milliseconds.
    pub runs: Vec<(record::BurstFigures, u64)>,
    /// Failures and dropped stores.
    pub complaints: Vec<String>,
    /// Stopped before the last strategy.
    pub interrupted: bool,
}

/// The shape of the JSON contract.
#[derive(Serialize)]
struct StampedeReport<'a> {
    runs: Vec<&'a record::BurstFigures>,
}

/// Runs one series: the bursts in turn, all on the same draw of documents.
pub fn run_bursts(
    bursts: &[Burst],
    runtime: &EngineRuntime,
    documents: &DocumentSet,
    seed: Seed,
    stop: &CancellationToken,
    mut measuring: impl FnMut(&Burst),
) -> Result<BurstSeries, EngineError> {
    let mut series = BurstSeries::default();
    for burst in bursts {
        measuring(burst);
        let Some(measured) = runtime.burst(burst, documents, seed, stop, &mut |_| {})? else {
            series.interrupted = true;
            break;
        };
        let record::LoadFigures::Burst(figures) = measured.load else { continue };
        series.documents = figures.documents;
        let label = format!("{}, {} workers", burst.name, burst.workers);
        let failed =
            measured.errors.iter().map(|(message, count)| format!("{label}: {count} failed: {message}"));
        series.complaints.extend(failed);
        if measured.counters.requests.stores_dropped > 0 {
            let dropped = measured.counters.requests.stores_dropped;
            series.complaints.push(format!("{label}: {dropped} stores dropped: the mailbox was full"));
        }
        series.runs.push((figures, measured.whole_ms_sum.unwrap_or_default()));
    }
    Ok(series)
}

/// All series in the published layout, and a summary. Only a full mailbox makes a worker crash: without a mailbox
/// the column `crashed` shows `n/a`, unless workers failed for another reason.
#[must_use]
pub fn text(all: &[BurstSeries], has_mailbox: bool) -> String {
    let runs = |series: &BurstSeries| {
        kazoo::burst_series(series.documents, series.runs.iter().map(|(burst, sum)| (burst, *sum)))
    };
    let mut text: String = all.iter().filter(|series| !series.runs.is_empty()).map(runs).collect();
    let headings = ["workers", "strategy", "DB operations", "store messages", "crashed"].map(str::to_owned);
    let row = |burst: &record::BurstFigures| {
        vec![
            burst.workers.to_string(),
            burst.strategy.clone(),
            burst.calls.fetch_doc.to_string(),
            (burst.calls.store_local + burst.calls.store_local_async).to_string(),
            if has_mailbox || burst.failed > 0 { burst.failed.to_string() } else { "n/a".to_owned() },
        ]
    };
    let rows: Vec<_> = all.iter().flat_map(|series| &series.runs).map(|(burst, _)| row(burst)).collect();
    if !rows.is_empty() {
        text = [text, grid(&headings, &rows), String::new()].join("\n");
    }
    text
}

/// All series in the shape of the JSON contract.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "figures are always JSON")]
pub fn json(all: &[BurstSeries]) -> String {
    let runs = all.iter().flat_map(|series| &series.runs).map(|(burst, _)| burst).collect();
    serde_json::to_string(&StampedeReport { runs }).expect("figures are JSON") + "\n"
}
