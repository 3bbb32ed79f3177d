//! What nodes told each other that is outdated, as one of them knows it. Pure.

use std::collections::VecDeque;

use bytes::Bytes;
use foldhash::quality::FixedState;
use hashbrown::HashMap;

use super::{clock::Micros, envelope::tag};
use crate::{
    shard::Invalidation,
    tier::{Note, What},
};

/// How many notes the log in Redis keeps, and a node remembers.
pub(super) const REMEMBERED: usize = 1 << 16;

/// When what was outdated last. A value is of no use if its load began before.
#[derive(Debug)]
pub(super) struct Log {
    outdated: HashMap<Of, Micros, FixedState>,
    recent: VecDeque<(Of, Micros)>,
    /// Everything that began before is taken for outdated.
    everything: Micros,
}

/// What a note is of. A tag is known by its hash: two of one hash are taken for the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Of {
    Key(Bytes),
    /// Of a key, softly.
    Softly(Bytes),
    Tag(u32),
}

/// What a value is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// What it says itself.
    Sound,
    /// It is stale.
    Expired,
    /// Nothing.
    Outdated,
}

impl Log {
    pub(super) fn new(seed: u64) -> Self {
        let outdated = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { outdated, recent: VecDeque::new(), everything: 0 }
    }

    /// A note of that time; it may have been added before. A key that is invalidated softly may still serve.
    pub(super) fn add(&mut self, note: &Note, at: Micros) {
        let of = match note {
            Note::Invalidated(What::Key(key), Invalidation::Hard) | Note::Written(key, _) => {
                Of::Key(key.clone())
            }
            Note::Invalidated(What::Tag(name), _) => Of::Tag(tag(name)),
            Note::Invalidated(What::Everything, _) => return self.forget_before(at),
            Note::Invalidated(What::Key(key), Invalidation::Soft) => Of::Softly(key.clone()),
        };
        let latest = self.outdated.entry(of.clone()).or_default();
        if *latest >= at {
            return;
        }
        *latest = at;
        self.recent.push_back((of, at));
        if self.recent.len() > REMEMBERED
            && let Some((of, at)) = self.recent.pop_front()
        {
            if self.outdated.get(&of) == Some(&at) {
                self.outdated.remove(&of);
            }
            self.forget_before(at);
        }
    }

    /// Nobody knows what was outdated before.
    pub(super) fn forget_before(&mut self, at: Micros) {
        self.everything = self.everything.max(at);
    }

    /// As new, with the seed that it was made with.
    pub(super) fn clear(&mut self) {
        self.outdated.clear();
        self.recent.clear();
        self.everything = 0;
    }

    /// What a value is good for whose load began then.
    pub(super) fn standing(&self, key: &Bytes, tags: &[u32], began: Micros) -> Standing {
        let is_later = |of: &Of| self.outdated.get(of).is_some_and(|at| began < *at);
        if began < self.everything
            || is_later(&Of::Key(key.clone()))
            || tags.iter().any(|tag| is_later(&Of::Tag(*tag)))
        {
            Standing::Outdated
        } else if is_later(&Of::Softly(key.clone())) {
            Standing::Expired
        } else {
            Standing::Sound
        }
    }

    #[cfg(test)]
    fn outdates(&self, key: &Bytes, tags: &[u32], began: Micros) -> bool {
        self.standing(key, tags, began) == Standing::Outdated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Bytes {
        Bytes::from(number.to_string())
    }

    fn hard(what: What) -> Note {
        Note::Invalidated(what, Invalidation::Hard)
    }

    #[test]
    fn a_value_is_outdated_by_what_came_after_its_load_began() {
        let mut log = Log::new(1);
        log.add(&hard(What::Key(key(1))), 100);
        log.add(&hard(What::Tag("sport".to_owned())), 200);
        assert!(log.outdates(&key(1), &[], 99) && !log.outdates(&key(1), &[], 100));
        assert!(log.outdates(&key(2), &[tag("sport")], 199) && !log.outdates(&key(2), &[tag("wales")], 199));
        log.add(&Note::Invalidated(What::Key(key(4)), Invalidation::Soft), 250);
        assert_eq!(log.standing(&key(4), &[], 249), Standing::Expired);
        assert_eq!(log.standing(&key(4), &[], 250), Standing::Sound);
        log.add(&hard(What::Everything), 300);
        assert!(log.outdates(&key(3), &[], 299) && !log.outdates(&key(3), &[], 300));
    }

    #[test]
    fn what_is_forgotten_outdates_everything_before_and_takes_no_room() {
        let mut log = Log::new(1);
        for number in 0..=REMEMBERED {
            log.add(&hard(What::Key(key(number))), 1_000 + number as u64);
        }
        log.add(&hard(What::Key(key(REMEMBERED))), 1_000 + REMEMBERED as u64);
        assert_eq!((log.outdated.len(), log.recent.len()), (REMEMBERED, REMEMBERED), "each counts once");
        assert!(log.outdates(&key(REMEMBERED + 1), &[], 999) && !log.outdates(&key(0), &[], 1_000));
        log.add(&hard(What::Key(key(1))), 999_999);
        assert!(log.outdates(&key(1), &[], 999_998), "a newer note is not forgotten with an older one");
    }

    #[test]
    fn a_cleared_log_knows_nothing_any_more_and_hears_what_is_older() {
        let mut log = Log::new(1);
        let notes = [
            hard(What::Key(key(1))),
            hard(What::Tag("sport".to_owned())),
            Note::Invalidated(What::Key(key(2)), Invalidation::Soft),
            hard(What::Everything),
        ];
        notes.iter().for_each(|note| log.add(note, 100));
        log.clear();
        for number in 1..=3 {
            assert_eq!(log.standing(&key(number), &[tag("sport")], 0), Standing::Sound, "key {number}");
        }
        log.add(&notes[0], 50);
        assert!(log.outdates(&key(1), &[], 49) && !log.outdates(&key(1), &[], 50));
        assert_eq!((log.outdated.len(), log.recent.len()), (1, 1));
    }
}
