//! The budget of hedges: a token bucket that loads fill.

use crate::locks::{AtomicU64, Ordering};

/// Loads for one hedge.
const LOADS_A_HEDGE: u64 = 100;
/// Hedges that may follow each other without a load between them.
const HEDGES_MAX: u64 = 10;
/// Hedges before the first load.
const HEDGES_AT_FIRST: u64 = 3;

/// Counts loads that no hedge has used yet.
#[derive(Debug)]
pub(super) struct HedgeBudget(AtomicU64);

impl HedgeBudget {
    pub(super) fn count_load(&self) {
        let more = |loads: u64| (loads < HEDGES_MAX * LOADS_A_HEDGE).then_some(loads + 1);
        // At its maximum it stays.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Takes one hedge from the budget. Returns false if none is left.
    pub(super) fn try_take(&self) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |loads| loads.checked_sub(LOADS_A_HEDGE))
            .is_ok()
    }
}

impl Default for HedgeBudget {
    fn default() -> Self {
        Self(AtomicU64::new(HEDGES_AT_FIRST * LOADS_A_HEDGE))
    }
}
