//! Steps of a command, such as the bursts of `stockade stampede`. Pure.

use std::time::Duration;

use super::{
    layout::{Paint, cut, progress_bar},
    screen::{LiveScreen, View},
};

/// The present step.
pub struct Steps {
    planned: usize,
    begun: usize,
    name: String,
}

impl LiveScreen<Steps> {
    /// A view of this number of steps.
    pub fn steps(steps: usize) -> Self {
        Self::open(Steps { planned: steps, begun: 0, name: String::new() })
    }

    /// Begins step number `step` of the `planned` steps that are known by now.
    pub fn reach(&self, step: usize, planned: usize, name: &str) {
        self.update(|view, _| (view.begun, view.planned, view.name) = (step, planned, name.to_owned()));
    }

    /// Begins the next step.
    pub fn next(&self, name: String) {
        self.update(|view, _| (view.name, view.begun) = (name, view.begun + 1));
    }
}

impl View for Steps {
    fn lines(&self, width: usize, _: Duration, _: Paint) -> Vec<String> {
        let done = self.begun.saturating_sub(1);
        let bar = progress_bar(done as f64 / self.planned.max(1) as f64, 20);
        vec![cut(&format!("{bar} {} of {}  {}", self.begun, self.planned, self.name), width)]
    }
}
