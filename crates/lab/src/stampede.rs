//! `stockade stampede`: the published load test, strategy after strategy.

use serde::Serialize;
use stockade_model::{record, seed::Seed};

use crate::{
    engine::{Burst, EngineError, Library, Stop, World},
    report::{grid, kazoo},
};

/// One start: a number of workers, and what became of each strategy under them.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// How many documents the workers chose from.
    pub documents: usize,
    /// The strategies' figures, and the sums of their whole milliseconds.
    pub runs: Vec<(record::BurstFigures, u64)>,
    /// What went wrong, in words: who failed why, and what was dropped.
    pub complaints: Vec<String>,
    /// Whether it was stopped before its last strategy.
    pub interrupted: bool,
}

/// The JSON contract's shape.
#[derive(Serialize)]
struct Report<'a> {
    runs: Vec<&'a record::BurstFigures>,
}

/// Runs one start: the bursts one after the other, all on the same draw of documents.
pub fn start(
    bursts: &[Burst],
    world: &World,
    library: &Library,
    seed: Seed,
    stop: &Stop,
    mut measuring: impl FnMut(&Burst),
) -> Result<Start, EngineError> {
    let mut start = Start::default();
    for burst in bursts {
        measuring(burst);
        let Some(measured) = world.burst(burst, library, seed, stop, &mut |_| {})? else {
            start.interrupted = true;
            break;
        };
        let record::Load::Burst(figures) = measured.load else { continue };
        start.documents = figures.documents;
        let who = format!("{}, {} workers", burst.name, burst.workers);
        let failed =
            measured.errors.iter().map(|(message, count)| format!("{who}: {count} failed: {message}"));
        start.complaints.extend(failed);
        if measured.did.stores_dropped > 0 {
            let dropped = measured.did.stores_dropped;
            start.complaints.push(format!("{who}: {dropped} stores dropped: the mailbox was full"));
        }
        start.runs.push((figures, measured.whole_ms_sum.unwrap_or_default()));
    }
    Ok(start)
}

/// The starts in the published layout, and what they come to. What crashes is told only under a
/// mailbox: nothing else can.
#[must_use]
pub fn text(starts: &[Start], has_mailbox: bool) -> String {
    let runs =
        |start: &Start| kazoo::start(start.documents, start.runs.iter().map(|(burst, sum)| (burst, *sum)));
    let mut text: String = starts.iter().filter(|start| !start.runs.is_empty()).map(runs).collect();
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
    let rows: Vec<_> = starts.iter().flat_map(|start| &start.runs).map(|(burst, _)| row(burst)).collect();
    if !rows.is_empty() {
        text = [text, grid(&headings, &rows), String::new()].join("\n");
    }
    text
}

/// The starts as the JSON contract has them.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "figures are always JSON")]
pub fn json(starts: &[Start]) -> String {
    let runs = starts.iter().flat_map(|start| &start.runs).map(|(burst, _)| burst).collect();
    serde_json::to_string(&Report { runs }).expect("figures are JSON") + "\n"
}
