//! When keys and tags were last invalidated, as this node knows it. Pure.

use std::collections::VecDeque;

use bytes::Bytes;
use foldhash::quality::FixedState;
use hashbrown::HashMap;

use super::{clock::Micros, envelope::tag_hash};
use crate::{
    invalidation::Invalidation,
    tier::{InvalidationTarget, TierEvent},
};

/// Maximum number of events in the log in Redis, and of those that a node remembers.
pub(super) const EVENTS_MAX: usize = 1 << 16;

/// The time of each target's last invalidation. Values whose load began before it are outdated.
#[derive(Debug)]
pub(super) struct InvalidationTimes {
    outdated: HashMap<OutdatedTarget, Micros, FixedState>,
    recent: VecDeque<(OutdatedTarget, Micros)>,
    /// Values whose load began before this are outdated.
    everything: Micros,
}

/// The target of an event. Tags are known by their hash; a collision outdates more values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OutdatedTarget {
    Key(Bytes),
    /// A key that was invalidated softly.
    KeySoftly(Bytes),
    Tag(u32),
}

/// The validity of a stored value, by the invalidations that this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    /// Not invalidated: its own times decide.
    Valid,
    /// Softly invalidated: it may be served stale.
    Expired,
    /// Invalidated: it must not be served.
    Outdated,
}

impl InvalidationTimes {
    pub(super) fn new(seed: u64) -> Self {
        let outdated = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { outdated, recent: VecDeque::new(), everything: 0 }
    }

    /// Adds an event, unless it was added before. A softly invalidated key may still be served stale.
    pub(super) fn add(&mut self, event: &TierEvent, at: Micros) {
        let of = match event {
            TierEvent::Invalidated(
                InvalidationTarget::Key(key),
                Invalidation::Hard | Invalidation::Fallback,
            )
            | TierEvent::Written(key, _) => OutdatedTarget::Key(key.clone()),
            TierEvent::Invalidated(InvalidationTarget::Tag(name), _) => OutdatedTarget::Tag(tag_hash(name)),
            TierEvent::Invalidated(InvalidationTarget::All, _) => return self.forget_before(at),
            TierEvent::Invalidated(InvalidationTarget::Key(key), Invalidation::Soft) => {
                OutdatedTarget::KeySoftly(key.clone())
            }
        };
        let latest = self.outdated.entry(of.clone()).or_default();
        if *latest >= at {
            return;
        }
        *latest = at;
        self.recent.push_back((of, at));
        if self.recent.len() > EVENTS_MAX
            && let Some((of, at)) = self.recent.pop_front()
        {
            if self.outdated.get(&of) == Some(&at) {
                self.outdated.remove(&of);
            }
            self.forget_before(at);
        }
    }

    /// Outdates all values whose load began before.
    pub(super) fn forget_before(&mut self, at: Micros) {
        self.everything = self.everything.max(at);
    }

    /// Clears everything except the seed.
    pub(super) fn clear(&mut self) {
        self.outdated.clear();
        self.recent.clear();
        self.everything = 0;
    }

    /// The validity of a value whose load began at `began`.
    pub(super) fn validity(&self, key: &Bytes, tags: &[u32], began: Micros) -> Validity {
        let is_later = |of: &OutdatedTarget| self.outdated.get(of).is_some_and(|at| began < *at);
        if began < self.everything
            || is_later(&OutdatedTarget::Key(key.clone()))
            || tags.iter().any(|tag| is_later(&OutdatedTarget::Tag(*tag)))
        {
            Validity::Outdated
        } else if is_later(&OutdatedTarget::KeySoftly(key.clone())) {
            Validity::Expired
        } else {
            Validity::Valid
        }
    }

    #[cfg(test)]
    fn outdates(&self, key: &Bytes, tags: &[u32], began: Micros) -> bool {
        self.validity(key, tags, began) == Validity::Outdated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Bytes {
        Bytes::from(number.to_string())
    }

    fn hard(what: InvalidationTarget) -> TierEvent {
        TierEvent::Invalidated(what, Invalidation::Hard)
    }

    #[test]
    fn event_after_load_start_outdates_the_value() {
        let mut log = InvalidationTimes::new(1);
        log.add(&hard(InvalidationTarget::Key(key(1))), 100);
        log.add(&hard(InvalidationTarget::Tag("sport".to_owned())), 200);
        assert!(log.outdates(&key(1), &[], 99) && !log.outdates(&key(1), &[], 100));
        assert!(
            log.outdates(&key(2), &[tag_hash("sport")], 199)
                && !log.outdates(&key(2), &[tag_hash("wales")], 199)
        );
        log.add(&TierEvent::Invalidated(InvalidationTarget::Key(key(4)), Invalidation::Soft), 250);
        assert_eq!(log.validity(&key(4), &[], 249), Validity::Expired);
        assert_eq!(log.validity(&key(4), &[], 250), Validity::Valid);
        log.add(&hard(InvalidationTarget::All), 300);
        assert!(log.outdates(&key(3), &[], 299) && !log.outdates(&key(3), &[], 300));
    }

    #[test]
    fn forgotten_events_outdate_all_older_values() {
        let mut log = InvalidationTimes::new(1);
        for number in 0..=EVENTS_MAX {
            log.add(&hard(InvalidationTarget::Key(key(number))), 1_000 + number as u64);
        }
        log.add(&hard(InvalidationTarget::Key(key(EVENTS_MAX))), 1_000 + EVENTS_MAX as u64);
        assert_eq!((log.outdated.len(), log.recent.len()), (EVENTS_MAX, EVENTS_MAX), "each counts once");
        assert!(log.outdates(&key(EVENTS_MAX + 1), &[], 999) && !log.outdates(&key(0), &[], 1_000));
        log.add(&hard(InvalidationTarget::Key(key(1))), 999_999);
        assert!(log.outdates(&key(1), &[], 999_998), "a newer event is not forgotten with an older one");
    }

    #[test]
    fn cleared_log_accepts_older_events() {
        let mut log = InvalidationTimes::new(1);
        let events = [
            hard(InvalidationTarget::Key(key(1))),
            hard(InvalidationTarget::Tag("sport".to_owned())),
            TierEvent::Invalidated(InvalidationTarget::Key(key(2)), Invalidation::Soft),
            hard(InvalidationTarget::All),
        ];
        events.iter().for_each(|event| log.add(event, 100));
        log.clear();
        for number in 1..=3 {
            assert_eq!(log.validity(&key(number), &[tag_hash("sport")], 0), Validity::Valid, "key {number}");
        }
        log.add(&events[0], 50);
        assert!(log.outdates(&key(1), &[], 49) && !log.outdates(&key(1), &[], 50));
        assert_eq!((log.outdated.len(), log.recent.len()), (1, 1));
    }
}
