//! A part of the store: entries, claims and episodes of the keys that hash to it. It decides, holds
//! no lock and never awaits.

use std::{borrow::Borrow, hash::Hash};

use foldhash::quality::FixedState;
use hashbrown::{HashMap, hash_map};
use stockade_model::time::Time;

/// Counts a key's stores; 0: there is no entry.
pub(crate) type Version = u64;

#[derive(Debug)]
pub(crate) struct Shard<K, V> {
    entries: HashMap<K, Entry<V>, FixedState>,
    claims: HashMap<K, Version, FixedState>,
    episodes: HashMap<K, Time, FixedState>,
    episodes_swept_at: usize,
    stores: Version,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    version: Version,
    expires: Option<Time>,
}

/// What a lookup saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found<V> {
    Fresh(V),
    Missing { version: Version },
}

impl<K: Hash + Eq + Clone, V: Clone> Shard<K, V> {
    pub(crate) fn new(hasher: FixedState) -> Self {
        Self {
            entries: HashMap::with_hasher(hasher.clone()),
            claims: HashMap::with_hasher(hasher.clone()),
            episodes: HashMap::with_hasher(hasher),
            episodes_swept_at: 0,
            stores: 0,
        }
    }

    pub(crate) fn look_up<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Time) -> Found<V>
    where
        K: Borrow<Q>,
    {
        match self.entries.get(key) {
            Some(entry) if entry.expires.is_none_or(|expires| now < expires) => {
                Found::Fresh(entry.value.clone())
            }
            Some(entry) => Found::Missing { version: entry.version },
            None => Found::Missing { version: 0 },
        }
    }

    pub(crate) fn version(&self, key: &K) -> Version {
        self.entries.get(key).map_or(0, |entry| entry.version)
    }

    /// Stores a value, ends the key's claim and its episode, and returns what was stored before.
    pub(crate) fn publish(&mut self, key: K, value: V, expires: Option<Time>) -> Option<V> {
        self.claims.remove(&key);
        self.episodes.remove(&key);
        self.stores += 1;
        let entry = Entry { value, version: self.stores, expires };
        self.entries.insert(key, entry).map(|old| old.value)
    }

    /// Claims the right to store the successor of `seen`; false if it has one or is to get one.
    pub(crate) fn claim(&mut self, key: &K, seen: Version) -> bool {
        if self.version(key) != seen {
            return false;
        }
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
    pub(crate) fn begin_load(&mut self, key: &K, now: Time, closes: Time) -> bool {
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

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shard() -> Shard<&'static str, u32> {
        Shard::new(FixedState::with_seed(1))
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_value_is_fresh_until_it_expires() {
        let mut shard = shard();
        assert_eq!(shard.look_up(&"a", at(0)), Found::Missing { version: 0 });
        assert_eq!(shard.publish("a", 1, Some(at(10))), None);
        assert_eq!(shard.look_up(&"a", at(9)), Found::Fresh(1));
        assert_eq!(shard.look_up(&"a", at(10)), Found::Missing { version: 1 });
        assert_eq!(shard.publish("a", 2, None), Some(1));
        assert_eq!(shard.look_up(&"a", at(1_000_000)), Found::Fresh(2));
    }

    #[test]
    fn a_version_is_claimed_once() {
        let mut shard = shard();
        assert!(shard.claim(&"a", 0));
        assert!(!shard.claim(&"a", 0), "claimed already");
        shard.publish("a", 1, Some(at(10)));
        assert!(!shard.claim(&"a", 0), "published meanwhile");
        assert!(shard.claim(&"a", 1));
        shard.unclaim(&"a", 0);
        assert!(!shard.claim(&"a", 1), "an ended claim takes no later one along");
        shard.unclaim(&"a", 1);
        assert!(shard.claim(&"a", 1));
    }

    #[test]
    fn an_episode_lasts_until_publication_or_its_deadline() {
        let mut shard = shard();
        assert!(shard.begin_load(&"a", at(0), at(100)));
        assert!(!shard.begin_load(&"a", at(99), at(199)));
        assert!(shard.begin_load(&"a", at(100), at(200)), "the deadline has passed");
        shard.publish("a", 1, Some(at(150)));
        assert!(shard.begin_load(&"a", at(150), at(250)), "published, and expired since");
    }

    #[test]
    fn episodes_of_keys_that_never_load_are_swept() {
        let mut shard: Shard<u64, u32> = Shard::new(FixedState::with_seed(1));
        for key in 0..100_000 {
            shard.begin_load(&key, at(key), at(key + 10));
        }
        assert!(shard.episodes.len() <= 128, "{} are kept", shard.episodes.len());
    }
}
