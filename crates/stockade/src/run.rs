//! `stockade run`: an experiment, its record, its verdict.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use stockade_lab::{
    host,
    report::{json, markdown, text},
    run::{self, Options},
    spec::Experiment,
};
use stockade_model::seed::Seed;

use crate::{
    cli::{RunArgs, RunFormat},
    exit::{Exit, Failure},
    progress::{RunBar, stop_on_signals},
};

/// Runs it. The record's place goes to standard error, the report to standard output.
pub fn run(args: RunArgs) -> Result<Exit, Failure> {
    let experiment = Experiment::load(&args.experiment)?;
    let directory = args.out.unwrap_or_else(|| default_directory(&args.experiment));
    let options = Options { scale: args.scale, repeats: args.repeat, seed: Seed(args.seed) };
    let stop = stop_on_signals();
    let mut bar = RunBar::default();
    let (record, evidence) = run::run(experiment, &options, &directory, &stop, &mut bar)?;
    drop(bar);
    let place = directory.display().to_string();
    let report = match args.format {
        RunFormat::Text => text::render(&record, &evidence),
        RunFormat::Md => markdown::render(&record, &evidence),
        RunFormat::Json => json::report(&record, &evidence, Some(&place)),
    };
    print(&report)?;
    eprintln!("\n{}; record, report.md and report.html in {place}", record.verdict);
    Ok(Exit::of(&record))
}

/// Standard output carries the report and nothing else.
pub fn print(report: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(report.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// `runs/stampede/2020-05-05T10-00-00Z` for `experiments/stampede.toml`.
fn default_directory(experiment: &std::path::Path) -> PathBuf {
    let name = experiment.file_stem().unwrap_or_default();
    let time = host::now().replace(':', "-");
    PathBuf::from("runs").join(name).join(time)
}
