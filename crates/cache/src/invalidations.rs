//! What was invalidated lately: a load that began before must not store what it brings.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

use foldhash::quality::FixedState;
use hashbrown::{HashMap, hash_map::Entry};
use smallvec::SmallVec;
use stockade_model::seed::Seed;

use crate::sync::Lock;

/// Counts invalidations: 0 is before the first.
pub(crate) type Moment = u64;

/// What an invalidation was of. Two keys or tags of one hash are taken for the same: a load more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    Key(u64),
    Tag(u64),
    Everything,
}

/// The hashes of a value's tags.
pub(crate) type TagHashes = SmallVec<[u64; 2]>;

/// How many are remembered, at some 60 bytes each. A load that began before all of these is taken for
/// outdated.
const REMEMBERED: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Invalidations {
    /// The moment of the last one: all that is read while there is none.
    newest: AtomicU64,
    log: Lock<Log>,
}

#[derive(Debug)]
struct Log {
    /// The first is of the moment after `forgotten`.
    recent: VecDeque<What>,
    forgotten: Moment,
    /// The same by what it was of, in ascending order.
    moments: HashMap<What, SmallVec<[Moment; 1]>, FixedState>,
}

impl Invalidations {
    pub(crate) fn new(seed: Seed) -> Self {
        let moments = HashMap::with_hasher(FixedState::with_seed(seed.0));
        let log = Log { recent: VecDeque::new(), forgotten: 0, moments };
        Self { newest: AtomicU64::new(0), log: Lock::new(log) }
    }

    pub(crate) fn newest(&self) -> Moment {
        self.newest.load(Ordering::SeqCst)
    }

    /// Notes one, before anything is removed: a load that stores too late for that finds it here, and one
    /// that does not is removed. Gives its moment.
    pub(crate) fn note(&self, what: What) -> Moment {
        let mut log = self.log.lock();
        if log.recent.len() == REMEMBERED {
            log.forget();
        }
        log.recent.push_back(what);
        let moment = log.forgotten + log.recent.len() as u64;
        log.moments.entry(what).or_default().push(moment);
        self.newest.store(moment, Ordering::SeqCst);
        moment
    }

    /// Whether what a load brought that began at one moment may not be given to who asked at another.
    pub(crate) fn outdate(&self, began: Moment, asked: Moment, key: u64, tags: &[u64]) -> bool {
        if asked <= began {
            return false;
        }
        let log = self.log.lock();
        let is_between = |what: What| {
            let moments = log.moments.get(&what);
            moments.is_some_and(|moments| moments.iter().any(|moment| began < *moment && *moment <= asked))
        };
        began < log.forgotten
            || is_between(What::Everything)
            || is_between(What::Key(key))
            || tags.iter().any(|tag| is_between(What::Tag(*tag)))
    }
}

impl Log {
    /// Forgets the oldest.
    fn forget(&mut self) {
        let Some(what) = self.recent.pop_front() else { return };
        self.forgotten += 1;
        if let Entry::Occupied(mut moments) = self.moments.entry(what) {
            moments.get_mut().remove(0);
            if moments.get().is_empty() {
                moments.remove();
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_outdated_by_what_came_after_its_beginning_for_who_asked_after_that() {
        let log = Invalidations::new(Seed(1));
        let began = log.newest();
        let other = log.note(What::Key(2));
        assert!(!log.outdate(began, other, 1, &[]));
        let its_own = log.note(What::Key(1));
        assert!(!log.outdate(began, other, 1, &[]), "who asked before is given it");
        assert!(log.outdate(began, its_own, 1, &[]));
        assert!(!log.outdate(its_own, its_own, 1, &[]), "a load that began since");
        let tag = log.note(What::Tag(7));
        assert!(log.outdate(its_own, tag, 1, &[6, 7]));
        assert!(!log.outdate(its_own, tag, 7, &[8]), "a key of the same hash is something else");
        let all = log.note(What::Everything);
        assert!(log.outdate(tag, all, 3, &[]));
    }

    #[test]
    fn what_is_forgotten_outdates_everything_before_and_takes_no_room() {
        let log = Invalidations::new(Seed(1));
        let first = log.note(What::Key(0));
        for key in 1..=REMEMBERED as u64 {
            log.note(What::Key(key % 1_000));
        }
        assert!(!log.outdate(first, log.newest(), u64::MAX, &[]));
        assert!(log.outdate(0, log.newest(), u64::MAX, &[]));
        for _ in 0..REMEMBERED {
            log.note(What::Everything);
        }
        assert_eq!(log.log.lock().moments.len(), 1);
    }
}
