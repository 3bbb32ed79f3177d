//! `stockade run`: an experiment, its record, its verdict.

use std::{
    env,
    ffi::OsStr,
    io::{self, IsTerminal, Write},
    iter,
    path::{Path, PathBuf},
};

#[cfg(feature = "http")]
use std::sync::Arc;

#[cfg(feature = "http")]
use stockade_lab::{engine::CancellationToken, target::ServerMachines};
use stockade_lab::{
    run::{self, Options},
    spec::Experiment,
};
#[cfg(feature = "http")]
use stockade_load::generator::LoadRunner;
use stockade_model::{message::printable_lines, seed::Seed};
#[cfg(feature = "http")]
use stockade_record::report::openmetrics;
use stockade_record::{
    clock,
    progress::RunObserver,
    report::{json, pull_request, screen, verdict},
};

use crate::{
    cli::{ExperimentArgs, RunArgs},
    exit::{CommandError, Exit},
    progress::{LiveScreen, RunView, is_terminal, size, stop_on_signals},
};
#[cfg(feature = "http")]
use crate::{
    cli::{OnArgs, PlaceArgs},
    telemetry::{FiguresOfRun, Telemetry},
    ui::LiveUi,
};

/// Runs it. The record's place goes to standard error, the report to standard output.
pub fn run(args: RunArgs) -> Result<Exit, CommandError> {
    let until_decided = args.until_decided();
    let RunArgs { experiment: chosen, seed, out, format, .. } = args;
    let directory = out.unwrap_or_else(|| default_directory(&chosen.file));
    let (experiment, options) = chosen.open(Seed(seed))?;
    let options = Options { until_decided, ..options };
    let stop = stop_on_signals();
    #[cfg(feature = "http")]
    let options = match agents(&args.on, &args.place, &experiment, options.allowed.is_some(), &stop)? {
        Some(Placement { loads, machines }) => Options { loads: Some(loads), machines, ..options },
        None => options,
    };
    let view = RunView::new(&experiment, options.scale);
    let mut observers: Vec<Box<dyn RunObserver>> = vec![Box::new(LiveScreen::open(view))];
    #[cfg(feature = "http")]
    let telemetry = Telemetry::start(&args.telemetry, Some(&experiment.title))?;
    #[cfg(feature = "http")]
    observers.extend(telemetry.figures().map(|figures| Box::new(FiguresOfRun(figures.clone())) as _));
    #[cfg(feature = "http")]
    let ui = args.ui.address.map(|address| LiveUi::start(address, &experiment.title)).transpose()?;
    #[cfg(feature = "http")]
    observers.extend(ui.as_ref().map(|ui| Box::new(ui.observer()) as _));
    let place = directory.display().to_string();
    let ran = run::run(experiment, &options, &directory, &stop, &mut observers);
    drop(observers);
    if ran.is_err() && directory.join("report.md").exists() {
        say!("finished measurements: record, report.md and report.html in {place}");
    }
    let (record, results) = ran?;
    let report = match format.name {
        "json" => json::report(&record, &results, Some(&place)),
        "summary" => pull_request::report(&record, &results, Some(&place)),
        _ => (format.render)(&record, &results),
    };
    print(&report)?;
    if is_terminal() && !is_on_screen(format.name, &report) {
        eprint!("\n{}", screen::render(&record, &results, size().0));
    }
    say!("\n{}; record, report.md and report.html in {place}", verdict(&record));
    #[cfg(feature = "http")]
    telemetry.finish(|| openmetrics::snapshot(&record, &results));
    Ok(Exit::of(&record))
}

/// The machines of the parts of an experiment.
#[cfg(feature = "http")]
pub struct Placement {
    /// Sends loads: agents.
    pub loads: Arc<dyn LoadRunner>,
    /// The agents of servers by role; a role that is absent is on this machine.
    pub machines: ServerMachines,
}

/// The agents of the parts of the experiment; `None`: all are on this machine.
#[cfg(feature = "http")]
fn agents(
    on: &OnArgs,
    place: &PlaceArgs,
    experiment: &Experiment,
    is_bounded: bool,
    stop: &CancellationToken,
) -> Result<Option<Placement>, CommandError> {
    if on.on.is_some() && is_bounded {
        let reason = "agents have bounds of their own: start them with --allow-target, and remove it here";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    let facts = || experiment.cells.iter().map(|cell| cell.target.facts());
    if on.on.is_some() && !facts().any(|facts| facts.is_over_http) {
        let reason =
            "no load of this experiment goes over HTTP, and agents send only such loads: remove --on";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    let labels = place.labels();
    if let Some(role) = labels.keys().find(|role| !facts().any(|facts| facts.servers.contains(role))) {
        let role = role.name();
        return Err(CommandError::Usage(format!("this experiment starts no {role}: remove --{role}-label")));
    }
    on.connect(labels, stop)
}

/// True if a report to read is on a terminal, and neither scrolled nor wrapped.
fn is_on_screen(format: &str, report: &str) -> bool {
    let (rows, columns) = size();
    let fits = |line: &str| line.chars().count() <= columns;
    format == "text"
        && io::stdout().is_terminal()
        && report.lines().count() + 2 < rows
        && report.lines().all(fits)
}

impl ExperimentArgs {
    /// The chosen part of the experiment.
    pub fn open(self, seed: Seed) -> Result<(Experiment, Options), CommandError> {
        let mut experiment = Experiment::load(&self.file)?;
        if !self.test.is_empty() {
            experiment = experiment.only(&self.test)?;
        }
        if !self.arms.is_empty() {
            experiment = experiment.only_arms(&self.arms)?;
        }
        let options = Options::new(own_program());
        #[cfg(feature = "http")]
        let allowed = Some(self.allow_target).filter(|patterns| !patterns.is_empty());
        #[cfg(feature = "http")]
        let options = Options { allowed: allowed.map(Into::into), ..options };
        Ok((experiment, Options { scale: self.scale, repeats: self.repeat, seed, ..options }))
    }
}

/// This program, which is also the servers of experiments. In a root without `/proc`, by the name that started it.
pub fn own_program() -> PathBuf {
    env::current_exe()
        .ok()
        .or_else(|| env::args_os().next().map(PathBuf::from))
        .unwrap_or_else(|| "stockade".into())
}

/// Standard output carries the report and nothing else. A file or a pipe has it as it is, for programs.
pub fn print(report: &str) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    let report = if stdout.is_terminal() { printable_lines(report) } else { report.into() };
    stdout.write_all(report.as_bytes()).and_then(|()| stdout.flush()).map_err(CommandError::Output)
}

/// `runs/stampede/2020-05-05T10-00-00Z` for `experiments/stampede.toml`; another one in the same
/// second is `...Z-2`.
pub fn default_directory(experiment: &Path) -> PathBuf {
    let name = experiment.file_stem().unwrap_or_default();
    default_directories(name).find(|directory| !directory.exists()).expect("numbers do not end")
}

/// The candidates for the record of a run that starts now, the first one first.
pub fn default_directories(name: &OsStr) -> impl Iterator<Item = PathBuf> {
    let time = clock::now().replace(':', "-");
    let suffixes = iter::once(String::new()).chain((2..).map(|n| format!("-{n}")));
    let runs = Path::new("runs").join(name);
    suffixes.map(move |suffix| runs.join(format!("{time}{suffix}")))
}
