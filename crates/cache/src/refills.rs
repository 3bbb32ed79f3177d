//! Keys that are being filled again: which load may store, and what counts as one episode.

use std::hash::Hash;

use foldhash::quality::FixedState;
use hashbrown::{HashMap, hash_map};
use stockade_model::time::Time;

use crate::shard::Version;

/// The refills of one shard.
#[derive(Debug)]
pub(crate) struct Refills<K> {
    claims: HashMap<K, Version, FixedState>,
    /// Open episodes, and when each closes by itself.
    episodes: HashMap<K, Time, FixedState>,
    episodes_swept_at: usize,
}

impl<K: Hash + Eq + Clone> Refills<K> {
    pub(crate) fn new(hasher: &FixedState) -> Self {
        Self {
            claims: HashMap::with_hasher(hasher.clone()),
            episodes: HashMap::with_hasher(hasher.clone()),
            episodes_swept_at: 0,
        }
    }

    /// A value has been published: the key's claim and its episode are over. True if others are not.
    pub(crate) fn end(&mut self, key: &K) -> bool {
        self.claims.remove(key);
        self.episodes.remove(key);
        !self.claims.is_empty() || !self.episodes.is_empty()
    }

    /// Claims the right to store the successor of `seen`; false if another has it.
    pub(crate) fn claim(&mut self, key: &K, seen: Version) -> bool {
        match self.claims.entry(key.clone()) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(seen);
                true
            }
        }
    }

    /// Gives a claim back, if publication has not ended it.
    pub(crate) fn unclaim(&mut self, key: &K, seen: Version) {
        if self.claims.get(key) == Some(&seen) {
            self.claims.remove(key);
        }
    }

    /// Notes a load that will be over by `closes`; true if it opens an episode.
    pub(crate) fn begin(&mut self, key: &K, now: Time, closes: Time) -> bool {
        if let Some(open_until) = self.episodes.get_mut(key) {
            let opens = *open_until <= now;
            if opens {
                *open_until = closes;
            }
            return opens;
        }
        // Keys whose loads fail leave their episodes behind; sweep when they have doubled.
        if self.episodes.len() >= 64.max(2 * self.episodes_swept_at) {
            self.episodes.retain(|_, open_until| *open_until > now);
            self.episodes_swept_at = self.episodes.len();
        }
        self.episodes.insert(key.clone(), closes);
        true
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
        assert!(refills.begin(&"a", at(0), at(100)));
        assert!(!refills.begin(&"a", at(99), at(199)));
        assert!(refills.begin(&"a", at(100), at(200)), "the deadline has passed");
        refills.end(&"a");
        assert!(refills.begin(&"a", at(150), at(250)), "published, and expired since");
    }

    #[test]
    fn episodes_of_keys_that_never_load_are_swept() {
        let mut refills = Refills::new(&FixedState::with_seed(1));
        for key in 0..100_000_u64 {
            refills.begin(&key, at(key), at(key + 10));
        }
        assert!(refills.episodes.len() <= 128, "{} are kept", refills.episodes.len());
    }
}
