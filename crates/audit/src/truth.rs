//! The rules that a cache broke, with the first example of each. Pure.

use std::collections::BTreeMap;

pub use stockade_record::record::{Example, Violation};

/// The requests of an audit, and the false answers to them.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub requests: usize,
    violations: BTreeMap<Violation, (usize, Example)>,
}

impl Truth {
    /// Counts a false answer. The first of its kind is kept.
    pub(crate) fn add(&mut self, violation: Violation, example: impl FnOnce() -> Example) {
        self.violations.entry(violation).or_insert_with(|| (0, example())).0 += 1;
    }

    #[must_use]
    pub fn count(&self, violation: Violation) -> usize {
        self.violations.get(&violation).map_or(0, |(count, _)| *count)
    }

    #[must_use]
    pub fn example(&self, violation: Violation) -> Option<&Example> {
        self.violations.get(&violation).map(|(_, example)| example)
    }

    /// False answers of all kinds.
    #[must_use]
    pub fn violations(&self) -> usize {
        self.violations.values().map(|(count, _)| count).sum()
    }
}
