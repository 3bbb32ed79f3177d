//! `stockade check`: what a run would take, after each of its setups was started once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use stockade_lab::{
    run::{self, CheckedExperiment},
    spec::{Cell, Experiment},
};
use stockade_model::{
    seed::Seed,
    units::{format_count, format_span},
};
use stockade_record::record::ClockKind;

use crate::{
    cli::ExperimentArgs,
    exit::{CommandError, Exit},
    progress::{LiveScreen, RunView, stop_on_signals},
    run::print,
};

/// Checks it without a load. The first fault ends the check, as it would end the run.
pub fn check(args: ExperimentArgs) -> Result<Exit, CommandError> {
    let (experiment, options) = args.open(Seed(0))?;
    let repeats = options.repeats.unwrap_or(experiment.repeats);
    let stop = stop_on_signals();
    let mut live = LiveScreen::open(RunView::new(&experiment, options.scale));
    let checked = run::check(experiment, &options, &stop, &mut live)?;
    drop(live);
    if stop.is_cancelled() {
        return Ok(Exit::Undecided);
    }
    let is_scaled = (options.scale - 1.0).abs() > f64::EPSILON;
    print(&text(&checked, repeats, is_scaled))?;
    Ok(Exit::Done)
}

/// Tests and arms, time, memory and hypotheses.
fn text(checked: &CheckedExperiment, repeats: u32, is_scaled: bool) -> String {
    let CheckedExperiment { experiment, clock, .. } = checked;
    let mut text = format!("{}\n\n", experiment.title);
    let tests = by_test(experiment);
    let width = tests.iter().map(|(test, _)| test.chars().count() + 2).max().unwrap_or_default();
    for (test, cells) in &tests {
        let arms: Vec<_> = cells.iter().map(|cell| cell.arm.as_str()).collect();
        let load = cells[0].target.facts().duration.map_or("burst".to_owned(), format_span);
        let _ = writeln!(text, "{test:width$}{load}  {}", arms.join(", "));
    }
    let measurements = experiment.cells.len() as u64 * u64::from(repeats);
    let load: Duration = experiment.cells.iter().filter_map(|cell| cell.target.facts().duration).sum();
    let time = format_span(load.saturating_mul(repeats));
    let time = match clock {
        _ if load.is_zero() => "bursts, each as long as its requests take".to_owned(),
        ClockKind::Virtual => format!("{time} of simulated time, which is computed faster"),
        ClockKind::Live => format!("{time} of load, and the starts of its servers"),
    };
    let _ = writeln!(text, "\nmeasurements  {}: {time}", format_count(measurements));
    let _ = writeln!(text, "memory        {}", memory(checked));
    let comparisons: usize = experiment.claims.iter().map(|claim| claim.expect.len()).sum();
    let judged = experiment.claims.iter().filter(|claim| claim.is_judged).count();
    let judged =
        if is_scaled { format!("; scaled, it judges {judged} of them (any_scale)") } else { String::new() };
    let _ =
        writeln!(text, "hypotheses    {}, with {comparisons} comparisons{judged}", experiment.claims.len());
    let _ = writeln!(text, "setups        {}, and each of them works", experiment.cells.len());
    text
}

/// The largest bound, and the arms without one.
fn memory(checked: &CheckedExperiment) -> String {
    let CheckedExperiment { experiment, environment, .. } = checked;
    let cells = || experiment.cells.iter().map(|cell| (cell, cell.target.memory_bytes_max(environment)));
    let largest = cells().filter_map(|(cell, bytes)| Some((bytes?, &cell.arm))).max();
    let unbounded: BTreeSet<&str> =
        cells().filter(|(_, bytes)| bytes.is_none()).map(|(cell, _)| cell.arm.as_str()).collect();
    let mut parts = Vec::new();
    if let Some((bytes, arm)) = largest {
        let machine = match environment.memory_mib {
            0 => String::new(),
            mib => format!(" of this machine's {} MiB", format_count(mib)),
        };
        parts.push(format!("{} MiB{machine} at most, for `{arm}`", format_count(bytes.div_ceil(1 << 20))));
    }
    if !unbounded.is_empty() {
        let arms: Vec<_> = unbounded.into_iter().collect();
        parts.push(format!("no known limit in bytes: {}", arms.join(", ")));
    }
    parts.join("; ")
}

/// In the order of the file.
fn by_test(experiment: &Experiment) -> Vec<(&str, Vec<&Cell>)> {
    let mut tests: BTreeMap<&str, Vec<&Cell>> = BTreeMap::new();
    for cell in &experiment.cells {
        tests.entry(&cell.test).or_default().push(cell);
    }
    experiment.tests.iter().filter_map(|test| tests.remove_entry(test.as_str())).collect()
}
