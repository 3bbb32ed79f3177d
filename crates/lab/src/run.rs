//! Runs an experiment: every test with every arm, the arms interleaved, as often as asked.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::{Path, PathBuf},
};

use rand::seq::SliceRandom;
use stockade_model::{
    record::{Arm, Clock, Interval, Record, Run, SCHEMA, Verdict},
    seed::Seed,
    units::milliseconds,
};
use stockade_source::{SourceUrl, documents};

use crate::{
    engine::{DocsError, EngineError, Library, Measured, Second, Stop, World},
    host,
    http::{self, HttpError, Place},
    judge::{self, Case},
    metrics::{Fold, Results},
    report,
    spec::{Cell, Experiment, ScaleError, SpecError, Subject},
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
    /// The program of which parts of a run over HTTP are processes.
    pub program: PathBuf,
}

/// Hears of every measurement before it is made.
pub trait Progress {
    /// So many measurements are to be made in all.
    fn begin(&mut self, measurements: usize);
    /// This one is next.
    fn measuring(&mut self, test: &str, arm: &str, repeat: u32);
    /// So much of it is done, of 1.
    fn advanced(&mut self, share: f64);
}

/// A run failed. Hypotheses that fail are not errors.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A burst could not be run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A run over HTTP failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The record could not be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The file asks for more than there is.
    #[error(transparent)]
    Spec(Box<SpecError>),
    /// `--scale` asks for more than there can be.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The documents for a server could not be read.
    #[error(transparent)]
    Documents(#[from] documents::ReadError),
    /// What a cache is to hold does not fit.
    #[error("{}{error}", if test.is_empty() { String::new() } else { format!("test `{test}`: ") })]
    Memory {
        /// In which test.
        test: String,
        /// How much it is.
        error: http::TooMuch,
    },
    /// A test asks for more than there is.
    #[error("{}{error}", if test.is_empty() { String::new() } else { format!("test `{test}`: ") })]
    Cell {
        /// Which test.
        test: String,
        /// What it asks for.
        error: EngineError,
    },
    /// `--scale` has nothing to multiply.
    #[error(
        "the experiment lists nothing to scale: write scaled = [\"load.burst\"] into it, or leave --scale out"
    )]
    NothingToScale,
    /// The arms would live by different clocks.
    #[error(
        "some arms have a simulated source or a virtual clock, and some a real one: virtual and real time \
         cannot be compared"
    )]
    MixedClocks,
}

/// Runs an experiment and leaves its record in `directory`. When asked to stop, it stops at once and
/// keeps what it has measured; so it does when a burst fails, before it says so.
pub fn run(
    mut experiment: Experiment,
    options: &Options,
    directory: &Path,
    stop: &Stop,
    progress: &mut dyn Progress,
) -> Result<(Record, Results), RunError> {
    if (options.scale - 1.0).abs() > f64::EPSILON {
        if experiment.scaled.is_empty() {
            return Err(RunError::NothingToScale);
        }
        experiment.scale(options.scale)?;
    }
    let clock = clock(&experiment.cells)?;
    let record = head(&experiment, options, clock);
    let world = World::new(clock)?;
    let libraries = libraries(&experiment.cells, &world)?;
    for cell in &experiment.cells {
        match &cell.subject {
            Subject::Engine { source, load } => {
                let check = libraries[source].check(load, record.host.memory_mib);
                check.map_err(|error| too_much(&experiment, cell, error))?;
            }
            Subject::Http(http) => {
                http.check_files(experiment.folder())?;
                http.check_memory(experiment.folder(), record.host.memory_mib)
                    .map_err(|error| RunError::Memory { test: cell.test.clone(), error })?;
            }
        }
    }
    for (service, documents) in &experiment.services {
        let documents = documents.as_ref().map(|file| documents::read_jsonl(&experiment.folder().join(file)));
        world.provide(*service, documents.transpose()?.as_deref())?;
    }
    let recorder = Recorder::create(directory)?;
    let results = Results::watching(experiment.windows());
    let (directory, program) = (directory.to_owned(), options.program.clone());
    let mut campaign =
        Campaign { experiment, world, libraries, recorder, record, results, directory, program };
    progress.begin(campaign.record.planned);
    let measured = campaign.measure(stop, progress);
    let concluded = campaign.conclude(matches!(measured, Ok(true)));
    // What went wrong first explains what went wrong then.
    measured?;
    concluded?;
    Ok((campaign.record, campaign.results))
}

/// A load asks for more than there is: in the file, where that is written there.
fn too_much(experiment: &Experiment, cell: &Cell, error: EngineError) -> RunError {
    let place = match &error {
        EngineError::Docs(DocsError::TooManyKeys { .. }) => &cell.places.keys,
        EngineError::TooManyInFlight { .. } => &cell.places.max_in_flight,
        _ => &None,
    };
    match place {
        Some(at) => RunError::Spec(experiment.error(error.to_string(), at.clone())),
        None => RunError::Cell { test: cell.test.clone(), error },
    }
}

/// An experiment under way, and what has come of it so far.
struct Campaign {
    experiment: Experiment,
    world: World,
    libraries: HashMap<SourceUrl, Library>,
    recorder: Recorder,
    record: Record,
    results: Results,
    /// Where the record is.
    directory: PathBuf,
    program: PathBuf,
}

/// The name of a measurement's own folder.
fn slug(test: &str, arm: &str, repeat: u32) -> String {
    let parts = [test, arm].into_iter().filter(|part| !part.is_empty());
    let name = parts.collect::<Vec<_>>().join(".").replace('/', ".");
    format!("{name}.{repeat}")
}

impl Campaign {
    /// Makes every measurement; false if it was stopped before the last one.
    fn measure(&mut self, stop: &Stop, progress: &mut dyn Progress) -> Result<bool, RunError> {
        let mut saved_at = String::new();
        for repeat in 1..=self.record.repeats {
            let seed = self.record.seed.child(&format!("repeat {repeat}"));
            for test in &self.experiment.tests {
                for cell in block(&self.experiment, test, seed) {
                    // Once a second at most: a record grows with its runs, and is written whole.
                    let now = host::now();
                    if now != saved_at {
                        self.recorder.checkpoint(&self.record)?;
                        saved_at = now;
                    }
                    progress.measuring(test, &cell.arm, repeat);
                    // Who cannot write any more need not measure.
                    let stop = stop.below();
                    let fold = self.results.fold();
                    let mut intake = Intake::new(cell, repeat, &mut self.recorder, fold, stop.clone());
                    let mut sink = |second: Second| {
                        progress.advanced(cell.share(second.second + 1));
                        intake.take(second);
                    };
                    // The arms of a test draw the same documents: a difference is not one of luck.
                    let seed = seed.child(test);
                    let folder = self.directory.join("setup").join(slug(test, &cell.arm, repeat));
                    let place = Place {
                        program: &self.program,
                        files: self.experiment.folder(),
                        folder: &folder,
                        services: self.world.services(),
                        memory_mib: self.record.host.memory_mib,
                    };
                    let measured = match &cell.subject {
                        Subject::Engine { source, load } => {
                            self.world.run(load, &self.libraries[source], seed, &stop, &mut sink)?
                        }
                        Subject::Http(http) => http.run(place, seed, &stop, &mut sink)?,
                    };
                    let fold = intake.done()?;
                    let Some(measured) = measured else { return Ok(false) };
                    let run = note(cell, repeat, measured);
                    self.results.add(&run, fold);
                    self.record.runs.push(run);
                }
            }
        }
        Ok(true)
    }

    /// Judges what there is, and writes the record before anything is made of it.
    fn conclude(&mut self, is_complete: bool) -> Result<(), StorageError> {
        let (experiment, record) = (&self.experiment, &mut self.record);
        let cells = experiment.cells.iter().map(|cell| (cell.test.clone(), cell.arm.clone())).collect();
        let names = experiment.names();
        let case = Case { names, cells: &cells, repeats: record.repeats, clock: record.clock };
        record.hypotheses = judge::judge(&experiment.claims, case, &self.results);
        record.interrupted = !is_complete;
        record.verdict = match judge::worst(record.hypotheses.iter().map(|hypothesis| hypothesis.verdict)) {
            // It has not shown all that it was to show.
            _ if record.interrupted => Verdict::Inconclusive,
            _ if record.runs.iter().any(Run::is_invalid) => Verdict::Invalid,
            verdict => verdict,
        };
        self.recorder.checkpoint(record)?;
        self.recorder.report("report.md", &report::markdown::render(record, &self.results))?;
        self.recorder.report("report.html", &report::html::render(record, &self.results))
    }
}

/// The record before the first measurement.
fn head(experiment: &Experiment, options: &Options, clock: Clock) -> Record {
    let repeats = options.repeats.unwrap_or(experiment.repeats);
    Record {
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
        host: host::host(),
        planned: experiment.cells.len() * repeats as usize,
        interrupted: true,
        tests: experiment.tests.clone(),
        arms: experiment.arms.iter().map(|name| Arm { name: name.clone() }).collect(),
        runs: Vec::new(),
        reference: experiment.reference.clone(),
        hypotheses: Vec::new(),
        verdict: Verdict::Inconclusive,
    }
}

/// Whose time all arms live by.
fn clock(cells: &[Cell]) -> Result<Clock, RunError> {
    let is_virtual = |cell: &&Cell| cell.clock == Clock::Virtual;
    match cells.iter().filter(is_virtual).count() {
        0 => Ok(Clock::Live),
        all if all == cells.len() => Ok(Clock::Virtual),
        _ => Err(RunError::MixedClocks),
    }
}

/// Every source that a cell names, by its URL, opened once.
fn libraries(cells: &[Cell], world: &World) -> Result<HashMap<SourceUrl, Library>, RunError> {
    let mut libraries = HashMap::new();
    for cell in cells {
        if let Subject::Engine { source, .. } = &cell.subject
            && let Entry::Vacant(vacant) = libraries.entry(source.clone())
        {
            vacant.insert(world.library(source.open())?);
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

/// Where the seconds of a measurement go as they come: to disk, and into the fold.
struct Intake<'a> {
    cell: &'a Cell,
    repeat: u32,
    recorder: &'a mut Recorder,
    fold: Fold,
    /// Why the disk took no more of them.
    failed: Result<(), StorageError>,
    /// Asked then.
    stop: Stop,
}

impl<'a> Intake<'a> {
    fn new(cell: &'a Cell, repeat: u32, recorder: &'a mut Recorder, fold: Fold, stop: Stop) -> Self {
        Self { cell, repeat, recorder, fold, failed: Ok(()), stop }
    }

    fn take(&mut self, second: Second) {
        let open = second.open;
        let interval = Interval {
            test: self.cell.test.clone(),
            arm: self.cell.arm.clone(),
            repeat: self.repeat,
            second: second.second,
            outcomes: second.outcomes,
            source_loads: open.map(|open| open.source_loads),
            retries: open.map(|open| open.retries),
            dropped: open.map(|open| open.dropped),
            age_max_ms: open.and_then(|open| open.age_max).map(milliseconds),
            usage: second.usage,
            holds: second.holds,
            times: second.times,
        };
        if self.failed.is_ok() {
            self.failed = self.recorder.second(&interval);
            if self.failed.is_err() {
                self.stop.request();
            }
        }
        self.fold.add(&interval);
    }

    fn done(self) -> Result<Fold, StorageError> {
        self.failed?;
        self.recorder.flush()?;
        Ok(self.fold)
    }
}

/// A measurement as the record keeps it.
fn note(cell: &Cell, repeat: u32, measured: Measured) -> Run {
    Run {
        test: cell.test.clone(),
        arm: cell.arm.clone(),
        repeat,
        load: measured.load,
        whole_ms_sum: measured.whole_ms_sum,
        outcomes: measured.outcomes,
        bytes_in: measured.bytes_in,
        service_ms_sum: milliseconds(measured.service_sum),
        stores_skipped: measured.did.stores_skipped,
        stores_dropped: measured.did.stores_dropped,
        episodes: measured.did.episodes,
        cache: measured.cache,
        errors: measured.errors,
        http: measured.http,
    }
}
