//! Progress on standard error: a bar at a terminal, silence in a pipe. And Ctrl-C.

use std::{process, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use stockade_lab::run::Progress;
use stockade_load::drive::Stop;

use crate::exit::Exit;

/// A bar with what is being measured.
pub struct Bar {
    bar: ProgressBar,
    what: String,
}

impl Bar {
    /// Over so many measurements.
    pub fn new(measurements: usize) -> Self {
        let bar = ProgressBar::new(measurements as u64);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}");
        bar.set_style(style.expect("the template is valid"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, what: String::new() }
    }

    /// Shows what is next, the one before being done.
    pub fn next(&mut self, what: String) {
        if !self.what.is_empty() {
            self.bar.inc(1);
        }
        self.bar.set_message(what.clone());
        self.what = what;
    }

    /// Shows how much of it is done, of 1.
    pub fn advance(&self, share: f64) {
        self.bar.set_message(format!("{}, {:.0} %", self.what, share * 100.0));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The bar of a run, once it is known how much there is to do.
#[derive(Default)]
pub struct RunBar(Option<Bar>);

impl Progress for RunBar {
    fn begin(&mut self, measurements: usize) {
        self.0 = Some(Bar::new(measurements));
    }

    fn measuring(&mut self, test: &str, arm: &str, repeat: u32) {
        if let Some(bar) = &mut self.0 {
            bar.next(format!("{test} {arm}, repeat {repeat}").trim_start().to_owned());
        }
    }

    fn advanced(&mut self, share: f64) {
        // A burst is done at once.
        if let Some(bar) = self.0.as_ref().filter(|_| share < 1.0) {
            bar.advance(share);
        }
    }
}

/// Stops on the first Ctrl-C (or SIGTERM), keeping what was measured; ends the program on the second.
pub fn stop_on_signals() -> Stop {
    let stop = Stop::default();
    let handle = stop.clone();
    let installed = ctrlc::set_handler(move || {
        if handle.is_requested() {
            process::exit(Exit::Undecided.code().into());
        }
        eprintln!("stopping: what was measured is kept (again to stop at once)");
        handle.request();
    });
    if let Err(error) = installed {
        eprintln!("warning: Ctrl-C will lose what was measured: {error}");
    }
    stop
}
