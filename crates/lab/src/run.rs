//! Runs an experiment: every test with every arm, the arms interleaved, as often as asked.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::Path,
};

use rand::seq::SliceRandom;
use stockade_model::{
    record::{Arm, Clock, Interval, Record, Run, SCHEMA, Verdict},
    seed::Seed,
};
use stockade_source::OpenError;

use crate::{
    engine::{EngineError, Library, Measured, Second, Stop, World},
    host,
    judge::{self, Case},
    metrics::Evidence,
    report,
    spec::{Cell, Experiment},
    storage::{Recorder, StorageError},
};

/// How to run an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to multiply by, and what the file lets be multiplied.
    pub scale: f64,
    /// In place of the file's `repeat`.
    pub repeats: Option<u32>,
    /// Where every random choice comes from.
    pub seed: Seed,
}

/// Hears of every measurement before it is made.
pub trait Progress {
    /// So many measurements are to be made in all.
    fn begin(&mut self, measurements: usize);
    /// This one is next.
    fn measuring(&mut self, test: &str, arm: &str, repeat: u32);
}

/// A run failed. Hypotheses that fail are not errors.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A source could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A burst could not be run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The record could not be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The arms would live by different clocks.
    #[error(
        "some arms have a simulated source and some a real one: virtual and real time cannot be compared"
    )]
    MixedClocks,
}

/// Runs an experiment and leaves its record in `directory`. When asked to stop, it stops at once and
/// keeps what it has measured.
pub fn run(
    mut experiment: Experiment,
    options: &Options,
    directory: &Path,
    stop: &Stop,
    progress: &mut dyn Progress,
) -> Result<(Record, Vec<Evidence>), RunError> {
    if (options.scale - 1.0).abs() > f64::EPSILON {
        experiment.scale(options.scale);
    }
    let repeats = options.repeats.unwrap_or(experiment.repeats);
    let clock = clock(&experiment.cells)?;
    let host = host::host();
    for cell in &experiment.cells {
        World::check_room(cell.burst.workers, host.memory_mib)?;
    }
    let world = World::new(clock)?;
    let libraries = libraries(&experiment.cells, &world)?;
    let mut record = Record {
        schema: SCHEMA.to_owned(),
        experiment: experiment.title.clone(),
        context: experiment.context.clone(),
        spec: experiment.text.clone(),
        seed: options.seed,
        scale: options.scale,
        repeats,
        clock,
        started_at: host::now(),
        stockade: host::stockade(),
        host,
        interrupted: false,
        tests: experiment.tests.clone(),
        arms: experiment.arms.iter().map(|name| Arm { name: name.clone() }).collect(),
        runs: Vec::new(),
        reference: experiment.reference.clone(),
        hypotheses: Vec::new(),
        verdict: Verdict::Inconclusive,
    };
    let mut recorder = Recorder::create(directory)?;
    let mut intervals = Vec::new();
    progress.begin(experiment.cells.len() * repeats as usize);
    'measuring: for repeat in 1..=repeats {
        let seed = options.seed.child(&format!("repeat {repeat}"));
        for test in &experiment.tests {
            for cell in block(&experiment, test, seed) {
                progress.measuring(test, &cell.arm, repeat);
                // The arms of a test draw the same documents: a difference is not one of luck.
                let library = &libraries[&cell.source.to_string()];
                let Some(measured) = world.run(&cell.burst, library, seed.child(test), stop)? else {
                    record.interrupted = true;
                    break 'measuring;
                };
                let (run, seconds) = note(cell, repeat, measured);
                for interval in seconds {
                    recorder.interval(&interval)?;
                    intervals.push(interval);
                }
                record.runs.push(run);
            }
        }
    }
    let evidence = Evidence::of(&record, &intervals);
    let case = Case { names: experiment.names(), repeats, clock };
    record.hypotheses = judge::judge(&experiment.claims, case, &evidence);
    record.verdict = match judge::worst(record.hypotheses.iter().map(|hypothesis| hypothesis.verdict)) {
        Verdict::Supported if record.interrupted => Verdict::Inconclusive,
        verdict => verdict,
    };
    let reports = [
        ("report.md", report::markdown::render(&record, &evidence)),
        ("report.html", report::html::render(&record, &evidence)),
    ];
    recorder.finish(&record, &reports)?;
    Ok((record, evidence))
}

/// Whose time all arms live by.
fn clock(cells: &[Cell]) -> Result<Clock, RunError> {
    let simulated = cells.iter().filter(|cell| cell.source.kind().is_simulated).count();
    match simulated {
        0 => Ok(Clock::Live),
        all if all == cells.len() => Ok(Clock::Virtual),
        _ => Err(RunError::MixedClocks),
    }
}

/// Every source that a cell names, by its URL, opened once.
fn libraries(cells: &[Cell], world: &World) -> Result<BTreeMap<String, Library>, RunError> {
    let mut libraries = BTreeMap::new();
    for cell in cells {
        if let Entry::Vacant(vacant) = libraries.entry(cell.source.to_string()) {
            vacant.insert(world.library(cell.source.open()?)?);
        }
    }
    Ok(libraries)
}

/// The arms of one test in a random order, drawn anew for every repeat: what drifts while they are
/// measured (a clock's speed, a neighbour's load) hits none of them more than the others.
fn block<'a>(experiment: &'a Experiment, test: &str, seed: Seed) -> Vec<&'a Cell> {
    let mut block: Vec<_> = experiment.cells.iter().filter(|cell| cell.test == test).collect();
    block.shuffle(&mut seed.child(test).stream("order of arms"));
    block
}

/// A measurement as the record keeps it.
fn note(cell: &Cell, repeat: u32, measured: Measured) -> (Run, Vec<Interval>) {
    let interval = |second: Second| Interval {
        test: cell.test.clone(),
        arm: cell.arm.clone(),
        repeat,
        second: second.second,
        outcomes: second.outcomes,
        response: second.response,
        service: second.service,
        send_lag: second.send_lag,
    };
    let intervals = measured.seconds.into_iter().map(interval).collect();
    let run = Run {
        test: cell.test.clone(),
        arm: cell.arm.clone(),
        repeat,
        burst: measured.burst,
        whole_ms_sum: measured.whole_ms_sum,
        outcomes: measured.outcomes,
        bytes_in: measured.bytes_in,
        episodes: measured.episodes,
        errors: measured.errors,
    };
    (run, intervals)
}
