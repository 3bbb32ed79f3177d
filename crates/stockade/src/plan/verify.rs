//! `stockade plan --verify`: predicted beside measured figures.

use std::{fmt::Write as _, path::Path};

use stockade_lab::{
    report::{json, verdict},
    run::{self, Options, RunObserver},
    spec::Experiment as LabExperiment,
};
use stockade_model::units::format_count;
use stockade_plan::experiment::{Experiment, TOLERANCE};

use crate::{
    exit::{CommandError, Exit},
    progress::{LiveScreen, RunView, stop_on_signals},
    run::{own_program, print},
};

/// Runs the experiment, and prints a line for each of its caches.
pub fn verify(planned: &Experiment, file: &Path, record_directory: &Path) -> Result<Exit, CommandError> {
    let experiment = LabExperiment::load(file)?;
    let options = Options::new(own_program()?);
    let mut observers: Vec<Box<dyn RunObserver>> =
        vec![Box::new(LiveScreen::open(RunView::new(&experiment, options.scale)))];
    let (record, results) =
        run::run(experiment, &options, record_directory, &stop_on_signals(), &mut observers)?;
    drop(observers);
    let report: serde_json::Value =
        serde_json::from_str(&json::report(&record, &results, None)).unwrap_or_default();

    let mut text = format!(
        "\nPredicted and measured with {} requests through the real proxy\n\n",
        format_count(planned.requests_count)
    );
    for arm in &planned.arms {
        let measured = &report["arms"][arm.name];
        let _ = writeln!(text, "{}: {}", arm.name, arm.cache);
        if let Some(predicted) = arm.hit_ratio {
            text += &line("hit ratio", predicted, measured["hit_ratio"].as_f64());
        }
        let per_request = |loads: f64| loads / planned.requests_count as f64;
        let loads = measured["source_loads"].as_f64().map(per_request);
        text += &line("loads per request", per_request(arm.loads as f64), loads);
    }
    print(&text)?;
    say!("\n{}; record, report.md and report.html in {}", verdict(&record), record_directory.display());
    Ok(Exit::of(&record))
}

fn line(name: &str, predicted: f64, measured: Option<f64>) -> String {
    let Some(measured) = measured else {
        return format!("  {name:<18} predicted {:.2} %, not measured\n", 100.0 * predicted);
    };
    let difference = measured - predicted;
    let note = if difference.abs() > TOLERANCE { "  more than a point off" } else { "" };
    format!(
        "  {name:<18} predicted {:.2} %, measured {:.2} %, {:+.2} points{note}\n",
        100.0 * predicted,
        100.0 * measured,
        100.0 * difference
    )
}
