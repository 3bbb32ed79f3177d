//! Keys that are being loaded: which load may store, which loads are one episode, and which keys are not loaded
//! because a load failed.

use std::{
    borrow::Borrow,
    hash::{BuildHasher, Hash},
};

use foldhash::quality::FixedState;
use hashbrown::{HashMap, hash_map};
use stockade_model::time::Time;

/// Counts a shard's stores, so that successive entries of a key differ. 0: there is no entry.
pub(crate) type Version = u32;

#[derive(Debug)]
pub(crate) struct Refills<K> {
    claims: HashMap<K, Version, FixedState>,
    /// Open episodes, and when each closes by itself.
    episodes: KeyDeadlines,
    /// Keys whose loads are suppressed, and until when.
    throttled: KeyDeadlines,
}

/// Further keys are not recorded: some 600 KiB a shard, and a million keys in all 64.
const KEYS_MAX: usize = 1 << 14;

/// Keys that are recorded until a deadline, unless they are removed before. A key may be long, and one that is never
/// stored counts under no limit, so that only its hash is kept. Two keys with one hash count as one.
#[derive(Debug)]
struct KeyDeadlines {
    until: HashMap<u64, Time, FixedState>,
    swept_at: usize,
}

impl KeyDeadlines {
    fn new(hasher: &FixedState) -> Self {
        Self { until: HashMap::with_hasher(hasher.clone()), swept_at: 0 }
    }

    fn get<Q: Hash + ?Sized>(&self, key: &Q) -> Option<Time> {
        if self.until.is_empty() {
            return None;
        }
        self.until.get(&self.hash(key)).copied()
    }

    fn remove<Q: Hash + ?Sized>(&mut self, key: &Q) {
        if !self.until.is_empty() {
            self.until.remove(&self.hash(key));
        }
    }

    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.until.hasher().hash_one(key)
    }

    fn insert<Q: Hash + ?Sized>(&mut self, key: &Q, now: Time, until: Time) {
        // Keys that are never requested again are not removed otherwise: sweep when their number has doubled.
        if self.until.len() >= 64.max(2 * self.swept_at) {
            self.until.retain(|_, until| *until > now);
            self.swept_at = self.until.len();
        }
        if self.until.len() < KEYS_MAX {
            self.until.insert(self.hash(key), until);
        }
    }
}

impl<K: Hash + Eq + Clone> Refills<K> {
    pub(crate) fn new(hasher: &FixedState) -> Self {
        Self {
            claims: HashMap::with_hasher(hasher.clone()),
            episodes: KeyDeadlines::new(hasher),
            throttled: KeyDeadlines::new(hasher),
        }
    }

    /// Ends the key's claim and episode after a store. Returns true if others remain.
    pub(crate) fn end<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.claims.remove(key);
        self.episodes.remove(key);
        self.throttled.remove(key);
        !(self.claims.is_empty() && self.episodes.until.is_empty() && self.throttled.until.is_empty())
    }

    /// Claims the right to store the successor of version `seen`. Returns false if another load has it.
    pub(crate) fn claim(&mut self, key: &K, seen: Version) -> bool {
        match self.claims.entry(key.clone()) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(seen);
                true
            }
        }
    }

    /// Releases a claim, unless a store has ended it.
    pub(crate) fn unclaim(&mut self, key: &K, seen: Version) {
        if self.claims.get(key) == Some(&seen) {
            self.claims.remove(key);
        }
    }

    /// Registers a load that ends by `deadline`. Returns true if it opens an episode.
    pub(crate) fn open_episode(&mut self, key: &K, now: Time, deadline: Time) -> bool {
        let opens = self.episodes.get(key).is_none_or(|open_until| open_until <= now);
        if opens {
            self.episodes.insert(key, now, deadline);
        }
        opens
    }

    /// Suppresses loads of a key for a while after one failed.
    pub(crate) fn throttle(&mut self, key: &K, now: Time, until: Time) {
        self.throttled.insert(key, now, until);
    }

    pub(crate) fn lift_throttles(&mut self) {
        self.throttled.until.clear();
    }

    pub(crate) fn lift_throttle(&mut self, key: &K) {
        self.throttled.remove(key);
    }

    pub(crate) fn is_throttled<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Time) -> bool
    where
        K: Borrow<Q>,
    {
        self.throttled.get(key).is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn an_episode_lasts_until_publication_or_its_deadline() {
        let mut refills = Refills::new(&FixedState::with_seed(1));
        assert!(refills.open_episode(&"a", at(0), at(100)));
        assert!(!refills.open_episode(&"a", at(99), at(199)));
        assert!(refills.open_episode(&"a", at(100), at(200)), "the deadline has passed");
        refills.end(&"a");
        assert!(refills.open_episode(&"a", at(150), at(250)), "published, and expired since");
    }

    #[test]
    fn episodes_of_keys_that_never_load_are_swept() {
        let mut refills = Refills::new(&FixedState::with_seed(1));
        for key in 0..100_000_u64 {
            refills.open_episode(&key, at(key), at(key + 10));
        }
        let kept = refills.episodes.until.len();
        assert!(kept <= 128, "{kept} are kept");
    }

    #[test]
    fn keys_that_never_load_are_bounded_in_number() {
        let mut refills = Refills::new(&FixedState::with_seed(1));
        for key in 0..100_000_u64 {
            refills.open_episode(&key, at(0), at(10_000));
            refills.throttle(&key, at(0), at(10_000));
        }
        assert_eq!((refills.episodes.until.len(), refills.throttled.until.len()), (KEYS_MAX, KEYS_MAX));
        assert!(refills.is_throttled(&1_u64, at(9_999)) && !refills.is_throttled(&1_u64, at(10_000)));
    }
}
