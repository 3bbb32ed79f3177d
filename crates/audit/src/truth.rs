//! The rules that a cache broke, with the first example of each. Pure.

use stockade_record::record::Audit;
pub use stockade_record::record::{Example, Violation};

/// The requests of an audit, and the false answers to them.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub requests: usize,
    found: Audit,
}

impl Truth {
    /// Counts a false answer. The first of its kind is kept.
    pub(crate) fn add(&mut self, violation: Violation, example: impl FnOnce() -> Example) {
        *self.found.counts.entry(violation).or_default() += 1;
        self.found.examples.entry(violation).or_insert_with(example);
    }

    #[must_use]
    pub fn count(&self, violation: Violation) -> u64 {
        self.found.count(violation).unwrap_or_default()
    }

    #[must_use]
    pub fn example(&self, violation: Violation) -> Option<&Example> {
        self.found.examples.get(&violation)
    }

    /// False answers of all kinds.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.found.counts.values().sum()
    }
}
