//! `stockade stampede`: the published load test, strategy after strategy.

use serde::Serialize;
use stockade_model::{record, seed::Seed};

use crate::{
    engine::{Burst, EngineError, Library, Stop, World},
    report::{grid, kazoo},
};

/// One start: a number of workers, and what became of each strategy under them.
#[derive(Clone, Debug)]
pub struct Start {
    /// How many documents the workers chose from.
    pub documents: usize,
    /// The strategies' figures, and the sums of their whole milliseconds.
    pub runs: Vec<(record::Burst, u64)>,
    /// What failed workers were told, by strategy, and how many were.
    pub errors: Vec<(String, String, u64)>,
}

/// The JSON contract's shape.
#[derive(Serialize)]
struct Report<'a> {
    runs: Vec<&'a record::Burst>,
}

/// Runs one start: the bursts one after the other, all on the same draw of documents. `None` if it
/// was stopped before its end.
pub fn start(
    bursts: &[Burst],
    world: &World,
    library: &Library,
    seed: Seed,
    stop: &Stop,
    mut measuring: impl FnMut(&Burst),
) -> Result<Option<Start>, EngineError> {
    let mut start = Start { documents: 0, runs: Vec::new(), errors: Vec::new() };
    for burst in bursts {
        measuring(burst);
        let Some(measured) = world.run(burst, library, seed, stop)? else { return Ok(None) };
        start.documents = measured.burst.documents;
        let told = |(message, count)| (burst.name.clone(), message, count);
        start.errors.extend(measured.errors.into_iter().map(told));
        start.runs.push((measured.burst, measured.whole_ms_sum));
    }
    Ok(Some(start))
}

/// The starts in the published layout, and what they come to. What crashes is told only under a
/// mailbox: nothing else can.
#[must_use]
pub fn text(starts: &[Start], has_mailbox: bool) -> String {
    let runs =
        |start: &Start| kazoo::start(start.documents, start.runs.iter().map(|(burst, sum)| (burst, *sum)));
    let mut text: String = starts.iter().map(runs).collect();
    let headings = ["workers", "strategy", "DB operations", "store messages", "crashed"].map(str::to_owned);
    let row = |burst: &record::Burst| {
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
