//! Progress on standard error: a bar at a terminal, nothing in a pipe; cancellation by Ctrl-C.

use std::{process, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use stockade_lab::{
    engine::CancellationToken,
    run::{Measuring, RunEvent, RunObserver},
};

use crate::exit::Exit;

/// A bar with the name of the current measurement.
pub struct Bar {
    bar: ProgressBar,
    label: String,
}

impl Bar {
    /// A bar over so many steps.
    pub fn new(steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}");
        bar.set_style(style.expect("the template is valid"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, label: String::new() }
    }

    /// Completes a step and shows the next.
    pub fn next(&mut self, label: String) {
        if !self.label.is_empty() {
            self.bar.inc(1);
        }
        self.bar.set_message(label.clone());
        self.label = label;
    }

    /// Adds steps.
    pub fn extend(&self, steps: usize) {
        self.bar.inc_length(steps as u64);
    }

    /// Shows the done share of the current step, of 1.
    pub fn advance(&self, share: f64) {
        self.bar.set_message(format!("{}, {:.0} %", self.label, share * 100.0));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The bar of a run.
#[derive(Default)]
pub struct RunBar {
    /// `None`: the number of its steps is not known yet.
    bar: Option<Bar>,
    open_comparisons: Option<usize>,
}

impl RunObserver for RunBar {
    fn on(&mut self, event: &RunEvent<'_>) {
        if let RunEvent::Begin { steps } = event {
            self.bar = Some(Bar::new(*steps));
        }
        let Some(bar) = &mut self.bar else { return };
        match event {
            RunEvent::Checking { test, arm } => bar.next(format!("check of {test} {arm}")),
            RunEvent::Measuring { measuring: Measuring { test, arm, repeat, .. }, .. } => {
                let open = self.open_comparisons.map(|open| format!("; {open} open")).unwrap_or_default();
                bar.next(format!("{test} {arm}, repeat {repeat}{open}").trim_start().to_owned());
            }
            // A burst has no progress.
            RunEvent::Second { share, .. } if *share < 1.0 => bar.advance(*share),
            RunEvent::Begin { .. }
            | RunEvent::Record { .. }
            | RunEvent::Second { .. }
            | RunEvent::Finished { .. } => {}
            RunEvent::Continuing { steps, open_comparisons } => {
                bar.extend(*steps);
                self.open_comparisons = Some(*open_comparisons);
            }
        }
    }
}

/// Cancels on the first Ctrl-C (or SIGTERM), keeping the measurements; ends the program on the second.
pub fn stop_on_signals() -> CancellationToken {
    let stop = CancellationToken::new();
    let handle = stop.clone();
    let installed = ctrlc::set_handler(move || {
        if handle.is_cancelled() {
            process::exit(Exit::Undecided.code().into());
        }
        eprintln!("stopping; finished measurements are kept (again to stop at once)");
        handle.cancel();
    });
    if let Err(error) = installed {
        eprintln!("warning: Ctrl-C will lose the measurements: {error}");
    }
    stop
}
