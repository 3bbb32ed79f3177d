//! Loads that no timer can end, because they run on the threads of [blocking callers](crate::sync).

use std::collections::BTreeMap;

use stockade_model::time::{Runtime, Time};

use crate::{
    breaker::{BreakerPermit, LoadOutcome},
    locks::{AtomicU64, Lock, Ordering},
};

/// The permits of such loads, until they end or pass their deadlines. They are [expired](Self::expire) before each question to a breaker,
/// so that a source that hangs opens it.
pub(crate) struct BlockingLoads<R: Runtime> {
    permits: Lock<BTreeMap<LoadNumber, BreakerPermit<R>>>,
    started: AtomicU64,
    in_progress: AtomicU64,
}

/// The deadline of a load, and its number.
pub(crate) type LoadNumber = (Time, u64);

impl<R: Runtime> BlockingLoads<R> {
    pub(crate) fn start(&self, deadline: Time, permit: BreakerPermit<R>) -> LoadNumber {
        let number = (deadline, self.started.fetch_add(1, Ordering::Relaxed));
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        self.permits.lock().insert(number, permit);
        number
    }

    /// The permit of a load that ends. `None`: its deadline has passed, and the breaker knows.
    pub(crate) fn end(&self, number: LoadNumber) -> Option<BreakerPermit<R>> {
        self.in_progress.fetch_sub(1, Ordering::Relaxed);
        self.permits.lock().remove(&number)
    }

    /// Tells the breakers of the loads whose deadlines have passed.
    pub(crate) fn expire(&self, now: Time) {
        if self.in_progress.load(Ordering::Relaxed) == 0 {
            return;
        }
        let overdue = {
            let mut permits = self.permits.lock();
            let later = permits.split_off(&(now, u64::MAX));
            std::mem::replace(&mut *permits, later)
        };
        overdue.into_values().for_each(|permit| permit.record_result(LoadOutcome::TimedOut));
    }
}

impl<R: Runtime> Default for BlockingLoads<R> {
    fn default() -> Self {
        Self { permits: Lock::default(), started: AtomicU64::new(0), in_progress: AtomicU64::new(0) }
    }
}
