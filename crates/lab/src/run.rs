//! Runs an experiment: every test with every arm, arms interleaved, in repeats.

mod recording;
mod repeats;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use rand::seq::SliceRandom;
#[cfg(feature = "http")]
use stockade_load::{AllowedTargets, generator::LoadRunner};
use stockade_model::seed::Seed;
use stockade_record::{
    clock,
    judge::{self, Case, Claim, EarlyJudge, Judgement, Latest, Refutation},
    metrics::{Results, RunningFigures},
    progress::{Measuring, RunObserver, RunProgress},
    record::{Arm, ClockKind, Expectation, Record, Run, Verdict},
    report,
    storage::{Recorder, StorageError},
};
use stockade_source::documents;

#[cfg(feature = "http")]
use crate::target::ServerMachines;
use crate::{
    engine::{CancellationToken, DocumentCountError, EngineError, EngineRuntime},
    host,
    spec::{Cell, Experiment, ScaleError, SpecError},
    target::{Environment, MeasureContext, Second, TargetError},
};
use recording::IntervalSink;
use recording::run_record;
pub use repeats::UntilDecided;
use repeats::{LookSchedule, NextAction};

#[derive(Clone, Debug)]
pub struct Options {
    /// The factor for the dimensions that the file lists under `scaled`.
    pub scale: f64,
    /// Replaces the file's `repeat`.
    pub repeats: Option<u32>,
    /// Goes on after these repeats while a comparison of times is open.
    pub until_decided: Option<UntilDecided>,
    /// The seed of every random choice.
    pub seed: Seed,
    /// The program that runs origin, proxy and app as child processes.
    pub program: PathBuf,
    /// Sends loads over HTTP; `None`: this process does.
    #[cfg(feature = "http")]
    pub loads: Option<std::sync::Arc<dyn LoadRunner>>,
    /// The servers that loads from this process may reach over HTTP; `None`: any.
    #[cfg(feature = "http")]
    pub allowed: Option<AllowedTargets>,
    /// The machines of servers, where they are not this one.
    #[cfg(feature = "http")]
    pub machines: ServerMachines,
}

impl Options {
    /// One run of the experiment as it is, with seed 1, on this machine.
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self {
            scale: 1.0,
            repeats: None,
            until_decided: None,
            seed: Seed(1),
            program,
            #[cfg(feature = "http")]
            loads: None,
            #[cfg(feature = "http")]
            allowed: None,
            #[cfg(feature = "http")]
            machines: ServerMachines::new(),
        }
    }
}

/// A run failed. Refuted hypotheses are not errors.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The source has fewer documents than the file requires.
    #[error(transparent)]
    Spec(Box<SpecError>),
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The documents for a server could not be read.
    #[error(transparent)]
    Documents(#[from] documents::ReadError),
    /// A test cannot be measured on this machine, or with these files.
    #[error("{place}: {error}")]
    Cell {
        /// ``test `a`, arm `b` ``.
        place: String,
        error: Box<TargetError>,
    },
    /// `scaled` is empty.
    #[error(
        "the experiment lists nothing to scale: write scaled = [\"load.burst\"] into it, or leave --scale out"
    )]
    NothingToScale,
    /// The arms have different clocks.
    #[error(
        "some arms have a simulated source or a virtual clock, and some a real one: virtual and real time \
         cannot be compared"
    )]
    MixedClocks,
}

impl RunError {
    /// True if the file or the command line is wrong, rather than the machine or a server.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Target(error) => error.is_usage(),
            Self::Cell { error, .. } => error.is_usage(),
            Self::Storage(error) => matches!(error, StorageError::Taken { .. }),
            Self::Spec(_)
            | Self::Scale(_)
            | Self::Documents(_)
            | Self::NothingToScale
            | Self::MixedClocks => true,
        }
    }
}

/// Runs an experiment and leaves its record in `directory`. A stopped or failed run keeps its finished
/// measurements.
pub fn run(
    experiment: Experiment,
    options: &Options,
    directory: &Path,
    stop: &CancellationToken,
    observer: &mut dyn RunObserver,
) -> Result<(Record, Results), RunError> {
    let CheckedExperiment { experiment, environment, clock } = check(experiment, options, stop, observer)?;
    let record = head(&experiment, options, clock);
    let recorder = Recorder::create(directory)?;
    let results = Results::watching(experiment.windows());
    let directory = directory.to_owned();
    let may_abort = |claim: &Claim| claim.abort && claim.expect.iter().any(|(_, read)| read.is_timing());
    let looks = match options.until_decided {
        Some(until) => LookSchedule::sequential(record.repeats, until),
        None if experiment.claims.iter().any(may_abort) => {
            LookSchedule::sequential(1, UntilDecided { repeats_max: record.repeats, budget: None })
        }
        None => LookSchedule::fixed(record.repeats),
    };
    let cells = experiment.cells.iter().map(|cell| (cell.test.clone(), cell.arm.clone())).collect();
    let ends_when_decided = options.until_decided.is_some();
    let refutation = None;
    let mut run = ExperimentRun {
        experiment,
        environment,
        cells,
        recorder,
        record,
        results,
        looks,
        ends_when_decided,
        refutation,
        directory,
        saved_at: String::new(),
    };
    observer.on(&RunProgress::Begin { steps: run.record.planned });
    let measured = run.measure(stop, observer);
    let is_complete = matches!(measured, Ok(true));
    if run.is_aborted() {
        run.looks.abort(run.last_repeat());
    } else if !is_complete {
        run.looks.end(run.record.repeats);
    }
    let finished = run.judge_and_write(is_complete);
    // The first error explains the ones that follow.
    measured?;
    finished?;
    observer.on(&RunProgress::Finished { record: &run.record, results: &run.results });
    Ok((run.record, run.results))
}

/// An experiment in which every setup works. Its servers run until it is dropped.
pub struct CheckedExperiment {
    /// Scaled.
    pub experiment: Experiment,
    pub environment: Environment,
    pub clock: ClockKind,
}

/// Scales an experiment, starts each of its setups once and stops it again, and starts the servers of the run. No load
/// is sent.
pub fn check(
    mut experiment: Experiment,
    options: &Options,
    stop: &CancellationToken,
    observer: &mut dyn RunObserver,
) -> Result<CheckedExperiment, RunError> {
    if (options.scale - 1.0).abs() > f64::EPSILON {
        if experiment.scaled.is_empty() {
            return Err(RunError::NothingToScale);
        }
        experiment.scale(options.scale)?;
    }
    let clock = common_clock(&experiment.cells)?;
    let runtime = EngineRuntime::new(clock).map_err(TargetError::from)?;
    let folder = experiment.folder().to_owned();
    #[cfg_attr(not(feature = "http"), expect(unused_mut))]
    let mut environment = Environment::new(runtime, options.program.clone(), folder, host::host().memory_mib);
    #[cfg(feature = "http")]
    if let Some(loads) = &options.loads {
        environment.loads = loads.clone();
    }
    #[cfg(feature = "http")]
    environment.allowed.clone_from(&options.allowed);
    #[cfg(feature = "http")]
    environment.machines.clone_from(&options.machines);
    observer.on(&RunProgress::Begin { steps: experiment.cells.len() });
    for cell in experiment.cells.iter().take_while(|_| !stop.is_cancelled()) {
        observer.on(&RunProgress::Checking { test: &cell.test, arm: &cell.arm });
        cell.target.check(&environment).map_err(|error| refused(&experiment, cell, error))?;
    }
    for (service, documents) in &experiment.services {
        let documents = documents.as_ref().map(|file| documents::read_jsonl(&experiment.folder().join(file)));
        let documents = documents.transpose()?;
        environment.start_service(*service, documents.as_deref()).map_err(TargetError::from)?;
    }
    Ok(CheckedExperiment { experiment, environment, clock })
}

/// The error of a test, with its place in the file if one setting is too large.
fn refused(experiment: &Experiment, cell: &Cell, error: TargetError) -> RunError {
    let span = match &error {
        TargetError::Engine(EngineError::DocumentCount(DocumentCountError::TooManyKeys { .. })) => {
            &cell.spans.keys
        }
        TargetError::Engine(EngineError::TooManyInFlight { .. }) => &cell.spans.max_in_flight,
        TargetError::Engine(_) => &None,
        #[cfg(feature = "http")]
        TargetError::Http(_) => &None,
    };
    match span {
        Some(at) => RunError::Spec(experiment.error(error.to_string(), at.clone())),
        None => cell_error(cell, error),
    }
}

fn cell_error(cell: &Cell, error: TargetError) -> RunError {
    RunError::Cell { place: place(&cell.test, &cell.arm), error: Box::new(error) }
}

fn place(test: &str, arm: &str) -> String {
    let arm = format!("arm `{arm}`");
    if test.is_empty() { arm } else { format!("test `{test}`, {arm}") }
}

/// An experiment in progress and its results so far.
struct ExperimentRun {
    experiment: Experiment,
    environment: Environment,
    /// Every pair of test and arm.
    cells: BTreeSet<(String, String)>,
    recorder: Recorder,
    record: Record,
    results: Results,
    looks: LookSchedule,
    /// True: it ends when no comparison of times is open.
    ends_when_decided: bool,
    /// The comparison that ended it within a repeat, and the moment.
    refutation: Option<(Refutation, String)>,
    directory: PathBuf,
    /// The time of the last checkpoint, in seconds.
    saved_at: String,
}

/// The folder of a measurement.
fn slug(test: &str, arm: &str, repeat: u32) -> String {
    let parts = [test, arm].into_iter().filter(|part| !part.is_empty());
    let name = parts.collect::<Vec<_>>().join(".").replace('/', ".");
    format!("{name}.{repeat}")
}

impl ExperimentRun {
    /// Makes every measurement; false: stopped before the last one.
    fn measure(
        &mut self,
        stop: &CancellationToken,
        observer: &mut dyn RunObserver,
    ) -> Result<bool, RunError> {
        let started = clock::instant();
        for repeat in 1.. {
            if !self.measure_repeat(repeat, stop, observer)? {
                return Ok(false);
            }
            match self.looks.after(repeat, started.elapsed()) {
                NextAction::End => break,
                NextAction::Repeat => {}
                NextAction::Look => {
                    let open = self.judge();
                    if let Some(expr) = self.refuted_abort_claim() {
                        self.record.aborted = Some(format!("`{expr}` refuted after {repeat} repeats"));
                        return Ok(false);
                    }
                    if self.ends_when_decided && open == 0 {
                        break;
                    }
                    if self.ends_when_decided {
                        let steps = self.experiment.cells.len();
                        observer.on(&RunProgress::Continuing { steps, open_comparisons: open });
                    }
                }
            }
        }
        Ok(true)
    }

    /// Measures every arm of every test once; false: stopped before the last one.
    fn measure_repeat(
        &mut self,
        repeat: u32,
        stop: &CancellationToken,
        observer: &mut dyn RunObserver,
    ) -> Result<bool, RunError> {
        let seed = self.record.seed.child(&format!("repeat {repeat}"));
        self.record.repeats = self.record.repeats.max(repeat);
        self.record.planned = self.experiment.cells.len() * self.record.repeats as usize;
        for test in self.experiment.tests.clone() {
            for cell in block(&self.experiment, &test, seed) {
                // At most once a second: each checkpoint writes the whole record.
                let now = clock::now();
                if now != self.saved_at {
                    self.judge();
                    self.recorder.checkpoint(&self.record)?;
                    observer.on(&RunProgress::Record { record: &self.record, results: &self.results });
                    self.saved_at = now;
                }
                // The arms of a test draw the same documents, so that chance does not favour an arm.
                let is_complete = self.measure_cell(cell, repeat, seed.child(&test), stop, observer)?;
                if !is_complete {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Measures the cell with this index; false: stopped before its end.
    fn measure_cell(
        &mut self,
        cell: usize,
        repeat: u32,
        seed: Seed,
        stop: &CancellationToken,
        observer: &mut dyn RunObserver,
    ) -> Result<bool, RunError> {
        let cell = &self.experiment.cells[cell];
        let Cell { test, arm, .. } = cell;
        let facts = cell.target.facts();
        // As the origin reads them.
        let stages = cell.target.stages(&self.environment);
        let measuring =
            Measuring { test, arm, repeat, lasts: facts.duration, requests: None, stages: &stages };
        observer.on(&RunProgress::Measuring { measuring, record: &self.record, results: &self.results });
        let judge = EarlyJudge {
            claims: &self.experiment.claims,
            case: Case {
                names: self.experiment.names(),
                cells: &self.cells,
                repeats: repeat,
                looks: &[],
                noise: self.experiment.noise.as_ref(),
                clock: self.record.clock,
            },
            look: self.looks.due_after(repeat),
        };
        // A storage error cancels the measurement, and so does a claim that cannot hold any more.
        let stop = stop.child_token();
        let fold = self.results.fold(facts.duration);
        let mut intake = IntervalSink::new(cell, repeat, &mut self.recorder, fold, stop.clone());
        let results = &self.results;
        let mut refuted: Option<(Refutation, String)> = None;
        let mut sink = |second: Second| {
            let end = second.second + 1;
            let interval = intake.take(second);
            observer.on(&RunProgress::Second { interval: &interval, share: cell.share(end), asked: None });
            if refuted.is_some() {
                return;
            }
            let running = Some(RunningFigures { fold: &intake.fold, requests_max: facts.requests_max });
            refuted = judge.refutation(results, Latest { test, arm, repeat, running }).map(|refutation| {
                (refutation, format!("after {end}s of {}, repeat {repeat}", place(test, arm)))
            });
            if refuted.is_some() {
                stop.cancel();
            }
        };
        let folder = self.directory.join("setup").join(slug(test, arm, repeat));
        let context = MeasureContext { seed, folder: &folder, cancel: &stop, sink: &mut sink };
        let measured = cell.target.measure(&self.environment, context);
        let measured = measured.map_err(|error| cell_error(cell, error))?;
        let fold = intake.done()?;
        let is_measured = measured.is_some();
        if let Some(measured) = measured {
            let run = run_record((test, arm), repeat, stages, measured);
            self.results.add(&run, fold);
            self.record.runs.push(run);
            let moment = || format!("after {}, repeat {repeat}", place(test, arm));
            refuted = refuted.or_else(|| {
                let refutation = judge.refutation(&self.results, Latest { test, arm, repeat, running: None });
                refutation.map(|refutation| (refutation, moment()))
            });
        }
        self.refutation = refuted;
        Ok(is_measured && self.refutation.is_none())
    }

    /// True if a claim with `abort = true` ended it.
    fn is_aborted(&self) -> bool {
        self.refutation.is_some() || self.record.aborted.is_some()
    }

    /// The last repeat with a complete measurement; 1 without a complete measurement.
    fn last_repeat(&self) -> u32 {
        self.record.runs.last().map_or(1, |run| run.repeat)
    }

    /// The first comparison of a claim with `abort = true` that the last look refuted.
    fn refuted_abort_claim(&self) -> Option<&str> {
        let claims = self.experiment.claims.iter().zip(&self.record.hypotheses);
        let mut comparisons =
            claims.filter(|(claim, _)| claim.abort).flat_map(|(_, hypothesis)| &hypothesis.expect);
        let refuted = comparisons.find(|expectation| expectation.verdict == Verdict::Refuted)?;
        Some(&refuted.expr)
    }

    /// Judges the evidence so far, and returns the number of comparisons that more repeats may decide.
    fn judge(&mut self) -> usize {
        let (experiment, record) = (&self.experiment, &mut self.record);
        let (names, cells, looks) = (experiment.names(), &self.cells, self.looks.looks());
        let (repeats, noise) = (record.repeats, experiment.noise.as_ref());
        let case = Case { names, cells, repeats, looks, noise, clock: record.clock };
        let Judgement { hypotheses, open_count } = judge::judge(&experiment.claims, case, &self.results);
        record.hypotheses = hypotheses;
        open_count
    }

    /// Judges the evidence and writes the record.
    fn judge_and_write(&mut self, is_complete: bool) -> Result<(), StorageError> {
        self.judge();
        let record = &mut self.record;
        if let Some((Refutation { claim, comparison, left, right }, moment)) = &self.refutation {
            let hypothesis = &mut record.hypotheses[*claim];
            let expectation = &mut hypothesis.expect[*comparison];
            let reason = format!("cannot hold any more {moment}");
            record.aborted = Some(format!("`{}` {reason}", expectation.expr));
            let (expr, verdict) = (expectation.expr.clone(), Verdict::Refuted);
            let (left, right) = (Some(*left), Some(*right));
            *expectation = Expectation { expr, left, right, verdict, effect: None, reason };
            hypothesis.verdict = verdict;
        }
        if self.looks.looks().len() > 1 {
            record.looks = self.looks.looks().to_vec();
        }
        record.interrupted = !is_complete && record.aborted.is_none();
        record.in_progress = false;
        record.verdict = match Verdict::worst(record.hypotheses.iter().map(|hypothesis| hypothesis.verdict)) {
            // Missing measurements leave the verdict open.
            _ if record.interrupted => Verdict::Inconclusive,
            _ if record.hypotheses.is_empty() && record.runs.iter().any(Run::is_invalid) => Verdict::Invalid,
            // A run that decides nothing must not pass for one that supports its claims.
            Verdict::NotJudged => Verdict::Inconclusive,
            verdict => verdict,
        };
        report::write(&self.recorder, record, &self.results)
    }
}

/// The record before the first measurement.
fn head(experiment: &Experiment, options: &Options, clock: ClockKind) -> Record {
    let repeats = options.repeats.unwrap_or(experiment.repeats);
    let arms = experiment.arms.iter().zip(&experiment.caches);
    Record {
        context: experiment.context.clone(),
        spec: experiment.text.clone(),
        scale: options.scale,
        repeats,
        clock,
        commit: host::commit(experiment.folder()),
        planned: experiment.cells.len() * repeats as usize,
        tests: experiment.tests.clone(),
        arms: arms.map(|(name, cache)| Arm { name: name.clone(), cache: cache.clone() }).collect(),
        noise: experiment.noise.clone(),
        reference: experiment.reference.clone(),
        ..host::new_record(&experiment.title, options.seed)
    }
}

/// The common clock of all arms.
fn common_clock(cells: &[Cell]) -> Result<ClockKind, RunError> {
    let is_virtual = |cell: &&Cell| cell.clock == ClockKind::Virtual;
    match cells.iter().filter(is_virtual).count() {
        0 => Ok(ClockKind::Live),
        all if all == cells.len() => Ok(ClockKind::Virtual),
        _ => Err(RunError::MixedClocks),
    }
}

/// The indices of the cells of one test in random order, drawn anew for every repeat: drift during the measurements (a clock's speed, a
/// neighbour's load) affects all arms alike.
fn block(experiment: &Experiment, test: &str, seed: Seed) -> Vec<usize> {
    let cells = experiment.cells.iter().enumerate();
    let mut block: Vec<_> = cells.filter(|(_, cell)| cell.test == test).map(|(at, _)| at).collect();
    block.shuffle(&mut seed.child(test).stream("order of arms"));
    block
}
