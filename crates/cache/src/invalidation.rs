//! Recent invalidations by tag and of everything: a load that started before one must not store what it invalidated. Those of single keys
//! are known to the marks of loads (`store/load_mark.rs`).

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use foldhash::quality::FixedState;
use hashbrown::{HashMap, hash_map::Entry};
use smallvec::SmallVec;
use stockade_model::seed::Seed;

use crate::locks::Lock;

/// The effect on an invalidated entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// It is stale from now on, if the strategy serves stale; else it is removed.
    Soft,
    /// From now on it is served only if a load fails, within the strategy's `sie`: never while a load runs, be it slow. Without
    /// `sie` it is removed. The other nodes of a shared tier remove it.
    Fallback,
    /// It is removed. No later request receives it, not even as a fallback.
    Hard,
}

/// Numbers invalidations; 0 is before the first.
pub(crate) type InvalidationSeq = u64;

/// The target of an invalidation, hashed. A hash collision costs one more load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TargetHash {
    Key(u64),
    Tag(u64),
    All,
}

pub(crate) type TagHashes = SmallVec<[u64; 2]>;

/// Receives each invalidation after its entries were removed.
pub(crate) type JournalFn = Box<dyn Fn(TargetHash) + Send + Sync>;

/// How many invalidations are remembered, at most 120 bytes each. Loads that started before all of them count as
/// outdated.
const RECENT_MAX: usize = 1 << 16;

/// Keys that are kept for readers of snapshots. With more of them, what is still unread counts as outdated.
const KEPT_KEYS_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct InvalidationLog {
    /// The number of the last invalidation. Before the first invalidation nothing else is read.
    newest: AtomicU64,
    /// Snapshots that are being read: their values have no [marks](super::load_mark).
    key_readers: AtomicUsize,
    /// The keys that were written or invalidated meanwhile, hashed.
    kept_keys: Lock<HashMap<u64, (), FixedState>>,
    log: Lock<RecentInvalidations>,
}

/// While it lives, the keys that are written and invalidated are kept.
pub(crate) struct KeptKeys<'a>(&'a InvalidationLog);

impl Drop for KeptKeys<'_> {
    fn drop(&mut self) {
        let mut kept = self.0.kept_keys.lock();
        if self.0.key_readers.fetch_sub(1, Ordering::SeqCst) == 1 {
            *kept = HashMap::with_hasher(kept.hasher().clone());
        }
    }
}

#[derive(Debug)]
struct RecentInvalidations {
    /// In order; the first has the number after `forgotten`.
    recent: VecDeque<TargetHash>,
    forgotten: InvalidationSeq,
    /// The numbers of each target's invalidations, ascending.
    moments: HashMap<TargetHash, VecDeque<InvalidationSeq>, FixedState>,
}

impl InvalidationLog {
    pub(crate) fn new(seed: Seed) -> Self {
        let hasher = FixedState::with_seed(seed.0);
        let moments = HashMap::with_hasher(hasher.clone());
        let log = RecentInvalidations { recent: VecDeque::new(), forgotten: 0, moments };
        Self {
            newest: AtomicU64::new(0),
            key_readers: AtomicUsize::new(0),
            kept_keys: Lock::new(HashMap::with_hasher(hasher)),
            log: Lock::new(log),
        }
    }

    pub(crate) fn keep_keys(&self) -> KeptKeys<'_> {
        self.key_readers.fetch_add(1, Ordering::SeqCst);
        KeptKeys(self)
    }

    /// A key is written or invalidated.
    #[inline]
    pub(crate) fn note_key(&self, hash: u64) {
        if self.key_readers.load(Ordering::SeqCst) > 0 {
            let mut kept = self.kept_keys.lock();
            if kept.len() < KEPT_KEYS_MAX {
                kept.insert(hash, ());
            }
        }
    }

    /// True if a key was noted, or may have been.
    pub(crate) fn has_key(&self, hash: u64) -> bool {
        let kept = self.kept_keys.lock();
        kept.len() >= KEPT_KEYS_MAX || kept.contains_key(&hash)
    }

    pub(crate) fn newest(&self) -> InvalidationSeq {
        self.newest.load(Ordering::SeqCst)
    }

    /// Records an invalidation before entries are removed. A load that stores too late for the removal finds it
    /// here, and what was stored before is removed. Returns its number.
    pub(crate) fn record(&self, what: TargetHash) -> InvalidationSeq {
        let mut log = self.log.lock();
        if log.recent.len() == RECENT_MAX {
            log.forget();
        }
        log.recent.push_back(what);
        let moment = log.forgotten + log.recent.len() as u64;
        log.moments.entry(what).or_default().push_back(moment);
        self.newest.store(moment, Ordering::SeqCst);
        moment
    }

    /// True if an invalidation lies between the start of a load and the start of a request.
    pub(crate) fn is_outdated(
        &self,
        started: InvalidationSeq,
        requested: InvalidationSeq,
        tags: &[u64],
    ) -> bool {
        if requested <= started {
            return false;
        }
        let log = self.log.lock();
        let is_between = |what: TargetHash| {
            let moments = log.moments.get(&what);
            let first_after_start =
                moments.and_then(|moments| moments.get(moments.partition_point(|moment| *moment <= started)));
            first_after_start.is_some_and(|moment| *moment <= requested)
        };
        started < log.forgotten
            || is_between(TargetHash::All)
            || tags.iter().any(|tag| is_between(TargetHash::Tag(*tag)))
    }
}

impl RecentInvalidations {
    /// Forgets the oldest invalidation.
    fn forget(&mut self) {
        let Some(what) = self.recent.pop_front() else { return };
        self.forgotten += 1;
        if let Entry::Occupied(mut moments) = self.moments.entry(what) {
            moments.get_mut().pop_front();
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
    fn invalidation_after_load_start_outdates_it_for_later_requests() {
        let log = InvalidationLog::new(Seed(1));
        let started = log.newest();
        let other = log.record(TargetHash::Tag(2));
        assert!(!log.is_outdated(started, other, &[1]));
        let its_own = log.record(TargetHash::Tag(1));
        assert!(!log.is_outdated(started, other, &[1]), "an earlier request is answered with it");
        assert!(log.is_outdated(started, its_own, &[1]));
        assert!(log.is_outdated(started, its_own, &[6, 1]));
        assert!(!log.is_outdated(its_own, its_own, &[1]), "a load that started since");
        let all = log.record(TargetHash::All);
        assert!(log.is_outdated(its_own, all, &[]));
    }

    #[test]
    fn forgotten_events_outdate_all_older_values() {
        let log = InvalidationLog::new(Seed(1));
        let first = log.record(TargetHash::Tag(0));
        for tag in 1..=RECENT_MAX as u64 {
            log.record(TargetHash::Tag(tag % 1_000));
        }
        assert!(!log.is_outdated(first, log.newest(), &[]));
        assert!(log.is_outdated(0, log.newest(), &[]));
        for _ in 0..RECENT_MAX {
            log.record(TargetHash::All);
        }
        assert_eq!(log.log.lock().moments.len(), 1);
    }

    #[test]
    fn keys_are_kept_while_somebody_reads() {
        let log = InvalidationLog::new(Seed(1));
        log.note_key(1);
        let readers = [(); 2].map(|()| log.keep_keys());
        log.note_key(2);
        assert_eq!([1, 2].map(|key| log.has_key(key)), [false, true]);
        drop(readers);
        assert!(!log.has_key(2));
    }
}
