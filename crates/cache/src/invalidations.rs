//! What was invalidated lately: a load that began before must not store what it brings.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::sync::Lock;

/// Counts invalidations: 0 is before the first.
pub(crate) type Moment = u64;

/// What an invalidation was of.
#[derive(Debug)]
pub(crate) enum What<K> {
    Key(K),
    /// The hash of a tag.
    Tag(u64),
    Everything,
}

/// How many are remembered. A load that began before all of these is taken for outdated.
const REMEMBERED: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Invalidations<K> {
    /// The moment of the last one: all that is read while there is none.
    newest: AtomicU64,
    log: Lock<Log<K>>,
}

#[derive(Debug)]
struct Log<K> {
    /// The first is of the moment after `forgotten`.
    recent: VecDeque<What<K>>,
    forgotten: Moment,
}

impl<K: Eq> Invalidations<K> {
    pub(crate) fn new() -> Self {
        let log = Log { recent: VecDeque::new(), forgotten: 0 };
        Self { newest: AtomicU64::new(0), log: Lock::new(log) }
    }

    pub(crate) fn newest(&self) -> Moment {
        self.newest.load(Ordering::SeqCst)
    }

    /// Notes one, before anything is removed: a load that stores too late for that finds it here, and one
    /// that does not is removed. Gives its moment.
    pub(crate) fn note(&self, what: What<K>) -> Moment {
        // Dropped after the lock.
        let _forgotten;
        let mut log = self.log.lock();
        if log.recent.len() == REMEMBERED {
            _forgotten = log.recent.pop_front();
            log.forgotten += 1;
        }
        log.recent.push_back(what);
        let moment = log.forgotten + log.recent.len() as u64;
        self.newest.store(moment, Ordering::SeqCst);
        moment
    }

    /// Whether what a load brought that began at one moment may not be given to who asked at another.
    pub(crate) fn outdate(
        &self,
        began: Moment,
        asked: Moment,
        key: &K,
        mut has_tag: impl FnMut(u64) -> bool,
    ) -> bool {
        if asked <= began {
            return false;
        }
        let log = self.log.lock();
        if began < log.forgotten {
            return true;
        }
        let place = |moment: Moment| usize::try_from(moment - log.forgotten).unwrap_or(usize::MAX);
        let mut between = log.recent.range(place(began)..place(asked).min(log.recent.len()));
        between.any(|what| match what {
            What::Key(of) => of == key,
            What::Tag(hash) => has_tag(*hash),
            What::Everything => true,
        })
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_outdated_by_what_came_after_its_beginning_for_who_asked_after_that() {
        let log = Invalidations::new();
        let no_tags = |_| false;
        let began = log.newest();
        let other = log.note(What::Key("b"));
        assert!(!log.outdate(began, other, &"a", no_tags));
        let its_own = log.note(What::Key("a"));
        assert!(!log.outdate(began, other, &"a", no_tags), "who asked before is given it");
        assert!(log.outdate(began, its_own, &"a", no_tags));
        assert!(!log.outdate(its_own, its_own, &"a", no_tags), "a load that began since");
        let tag = log.note(What::Tag(7));
        assert!(log.outdate(its_own, tag, &"a", |hash| hash == 7));
        assert!(!log.outdate(its_own, tag, &"a", |hash| hash == 8));
        let all = log.note(What::Everything);
        assert!(log.outdate(tag, all, &"c", no_tags));
    }

    #[test]
    fn what_is_forgotten_outdates_everything_before() {
        let log = Invalidations::new();
        let first = log.note(What::Key(0));
        for key in 1..=REMEMBERED as u64 {
            log.note(What::Key(key));
        }
        assert!(!log.outdate(first, log.newest(), &u64::MAX, |_| false));
        assert!(log.outdate(0, log.newest(), &u64::MAX, |_| false));
    }
}
