//! `stockade plan --verify`: measures what a plan predicts.

use std::{collections::BTreeMap, path::Path, time::Duration};

use stockade_lab::{
    run::{self, Options},
    spec::Experiment as LabExperiment,
};
use stockade_plan::{
    experiment::Experiment,
    verify::{MeasuredArm, Verification},
};
use stockade_record::{
    histogram::Distribution,
    metrics::{ArmFigures, Results},
    progress::RunObserver,
    record::{HttpFigures, Record, Run},
};

use crate::{
    exit::CommandError,
    progress::{LiveScreen, RunView, stop_on_signals},
    run::own_program,
};

/// Runs the experiment, and judges each of its caches.
pub fn verify(
    planned: &Experiment,
    file: &Path,
    record_directory: &Path,
) -> Result<Verification, CommandError> {
    let experiment = LabExperiment::load(file)?;
    let options = Options::new(own_program());
    let mut observers: Vec<Box<dyn RunObserver>> =
        vec![Box::new(LiveScreen::open(RunView::new(&experiment, options.scale)))];
    let (record, results) =
        run::run(experiment, &options, record_directory, &stop_on_signals(), &mut observers)?;
    drop(observers);
    let verification = Verification::of(planned, |arm| measured(&record, &results, arm));
    say!("\n{}; record, report.md and report.html in {}", verification.verdict(), record_directory.display());
    Ok(verification)
}

/// The figures of an arm; `None`: it was not measured to its end.
fn measured(record: &Record, results: &Results, arm: &str) -> Option<MeasuredArm> {
    let run = record.runs.iter().find(|run| run.arm == arm)?;
    let figures = ArmFigures::of(results, &run.test, arm)?;
    let HttpFigures { status_codes, invalid, disturbed, .. } = run.http.clone()?;
    let p99 = |times: &Option<Distribution>| {
        times.as_ref().map_or(Duration::ZERO, |times| Duration::from_secs_f64(times.p99_ms / 1e3))
    };
    Some(MeasuredArm {
        requests: figures.requests,
        hit_ratio: figures.hit_ratio,
        loads: figures.source_loads,
        send_lag_p99: p99(&figures.send_lag),
        service_p99: p99(&figures.service),
        statuses: status_codes,
        failures: failures(run),
        loads_refused: run.cache.loads_refused + run.cache.loads_rejected,
        invalid,
        disturbed,
    })
}

/// Requests without a response, by class: the other errors are statuses.
fn failures(run: &Run) -> BTreeMap<String, u64> {
    let is_status = |error: &str| error.starts_with("status ");
    run.errors
        .iter()
        .filter(|(error, _)| !is_status(error))
        .map(|(error, count)| (error.clone(), *count))
        .collect()
}
