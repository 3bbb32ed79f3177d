//! Policies against naive references, and against published counts.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// A lookup, and a store if it misses.
    Get(u64),
    /// A store, whether or not the key is stored.
    Put(u64),
    /// A removal for another reason than eviction.
    Remove(u64),
}

/// The entries of a shard, as a policy sees them.
#[derive(Default)]
struct Entries(Vec<(PolicyData, u32)>);

impl PolicyEntries for Entries {
    fn data(&mut self, slot: Slot) -> &mut PolicyData {
        &mut self.0[slot as usize].0
    }

    fn see(&self, slot: Slot) -> &PolicyData {
        &self.0[slot as usize].0
    }

    fn hash(&self, slot: Slot) -> u32 {
        self.0[slot as usize].1
    }

    fn weight(&self, slot: Slot) -> u32 {
        weight(u64::from(self.hash(slot)))
    }
}

/// The weight of a key's entry.
pub(super) fn weight(key: u64) -> u32 {
    1 + u32::try_from(key % 7).expect("below 7")
}

/// A cache of `entries_max` entries under a policy.
pub(super) struct Cache {
    entries_max: usize,
    policy: PolicyInstance,
    entries: Entries,
    slots: BTreeMap<u64, Slot>,
    keys: BTreeMap<Slot, u64>,
}

impl Cache {
    pub(super) fn new(policy: &Policy, entries_max: usize) -> Self {
        Self {
            entries_max,
            policy: policy.start(),
            entries: Entries::default(),
            slots: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    /// Returns whether the key was stored.
    pub(super) fn request(&mut self, request: Request) -> bool {
        let (Request::Get(key) | Request::Put(key) | Request::Remove(key)) = request;
        let found = self.slots.get(&key).copied();
        match (request, found) {
            (Request::Get(_), Some(slot)) => self.policy.on_hit(slot, &self.entries.0[slot as usize].0),
            (Request::Put(_), Some(slot)) => self.policy.on_update(&mut self.entries, slot),
            (Request::Remove(_), Some(slot)) => {
                self.policy.on_remove(&mut self.entries, slot);
                self.forget(slot);
            }
            (Request::Remove(_), None) => {}
            (Request::Get(_) | Request::Put(_), None) => self.admit(key),
        }
        found.is_some()
    }

    fn admit(&mut self, key: u64) {
        if self.slots.len() == self.entries_max {
            let evicted = self.policy.evict(&mut self.entries).expect("there are entries");
            self.forget(evicted);
        }
        let free = |slot: &Slot| !self.keys.contains_key(slot);
        let slot = (0..Slot::MAX).find(free).expect("a free number");
        let hash = u32::try_from(key).expect("the keys of these tests are small");
        if slot as usize == self.entries.0.len() {
            self.entries.0.push((PolicyData::default(), hash));
        }
        self.entries.0[slot as usize] = (PolicyData::default(), hash);
        self.policy.on_insert(&mut self.entries, slot);
        self.slots.insert(key, slot);
        self.keys.insert(slot, key);
    }

    fn forget(&mut self, slot: Slot) {
        let key = self.keys.remove(&slot).expect("the policy names what is there");
        self.slots.remove(&key);
    }

    fn misses(policy: &str, entries_max: usize, requests: impl IntoIterator<Item = u64>) -> usize {
        let mut cache = Self::new(Policy::named(policy).unwrap(), entries_max);
        requests.into_iter().filter(|&key| !cache.request(Request::Get(key))).count()
    }

    pub(super) fn switch_to(&mut self, policy: &'static Policy) {
        self.policy.switch_to(policy, &mut self.entries);
    }

    /// The policy, unless it is about to change.
    pub(super) fn policy(&self) -> &'static Policy {
        assert!(!matches!(self.policy, PolicyInstance::Switching(_)));
        self.policy.policy().expect("there is a limit")
    }

    /// All keys, in the order in which they are evicted.
    pub(super) fn evict_all(&mut self) -> Vec<u64> {
        let mut evicted = Vec::new();
        while let Some(slot) = self.policy.evict(&mut self.entries) {
            evicted.push(self.keys[&slot]);
            self.forget(slot);
        }
        evicted
    }

    /// All keys by the rank that the policy lists them with.
    pub(super) fn listed(&self) -> Vec<u64> {
        let mut list = Vec::new();
        self.policy.list(&self.entries, &mut list);
        list.sort_unstable_by_key(|listed| listed.rank);
        list.iter().map(|listed| self.keys[&listed.slot]).collect()
    }

    /// The stored keys, in ascending order.
    pub(super) fn contents(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.slots.keys().copied().collect();
        keys.sort_unstable();
        keys
    }
}

/// A naive implementation: a list of keys that is searched.
trait Reference {
    fn get(&mut self, key: u64);
    fn put(&mut self, key: u64);
    fn remove(&mut self, key: u64);
    fn contents(&self) -> Vec<u64>;
}

/// Oldest first.
struct Ordered {
    entries_max: usize,
    keys: Vec<u64>,
    is_moved_by_hits: bool,
}

impl Reference for Ordered {
    fn get(&mut self, key: u64) {
        if self.is_moved_by_hits || !self.keys.contains(&key) {
            self.put(key);
        }
    }

    fn put(&mut self, key: u64) {
        self.remove(key);
        if self.keys.len() == self.entries_max {
            self.keys.remove(0);
        }
        self.keys.push(key);
    }

    fn remove(&mut self, key: u64) {
        self.keys.retain(|&known| known != key);
    }

    fn contents(&self) -> Vec<u64> {
        let mut keys = self.keys.clone();
        keys.sort_unstable();
        keys
    }
}

/// Figure 1 and Algorithm 1 of the paper: the queue from its tail, and the hand as an index.
struct Sieve {
    entries_max: usize,
    queue: VecDeque<(u64, bool)>,
    hand: usize,
}

impl Sieve {
    /// The hand then points at the next entry, or past the newest at the oldest.
    fn leave(&mut self, at: usize) {
        self.queue.remove(at);
        if at < self.hand {
            self.hand -= 1;
        }
        if self.hand >= self.queue.len() {
            self.hand = 0;
        }
    }
}

impl Reference for Sieve {
    fn get(&mut self, key: u64) {
        if let Some((_, visited)) = self.queue.iter_mut().find(|(known, _)| *known == key) {
            *visited = true;
            return;
        }
        if self.queue.len() == self.entries_max {
            loop {
                if self.hand >= self.queue.len() {
                    self.hand = 0;
                }
                if !self.queue[self.hand].1 {
                    break;
                }
                self.queue[self.hand].1 = false;
                self.hand += 1;
            }
            let hand = self.hand;
            self.leave(hand);
        }
        self.queue.push_back((key, false));
    }

    fn put(&mut self, key: u64) {
        self.get(key);
    }

    fn remove(&mut self, key: u64) {
        if let Some(at) = self.queue.iter().position(|(known, _)| *known == key) {
            self.leave(at);
        }
    }

    fn contents(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.queue.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }
}

/// Algorithm 1 of the paper, with queues of keys and their hits. The small queue's share is of the
/// entries that there are, and ghosts are as many as the main queue may have entries.
struct S3Fifo {
    entries_max: usize,
    small: VecDeque<(u64, u8)>,
    main: VecDeque<(u64, u8)>,
    /// Keys evicted from the small queue, and whether they are still remembered.
    ghosts: VecDeque<(u64, bool)>,
}

impl S3Fifo {
    fn evict(&mut self) {
        let share = (self.entries_max / 10).max(1);
        if self.small.len() >= share {
            while let Some((key, hits)) = self.small.pop_front() {
                if hits > 1 {
                    self.main.push_back((key, 0));
                    continue;
                }
                self.ghosts.iter_mut().filter(|(ghost, _)| *ghost == key).for_each(|(_, is)| *is = false);
                self.ghosts.push_back((key, true));
                while self.ghosts.len() > self.entries_max - share {
                    self.ghosts.pop_front();
                }
                return;
            }
        }
        while let Some((key, hits)) = self.main.pop_front() {
            if hits == 0 {
                return;
            }
            self.main.push_back((key, hits - 1));
        }
    }
}

impl Reference for S3Fifo {
    fn get(&mut self, key: u64) {
        let known = self.small.iter_mut().chain(&mut self.main).find(|(known, _)| *known == key);
        if let Some((_, hits)) = known {
            *hits = (*hits + 1).min(3);
            return;
        }
        if self.small.len() + self.main.len() == self.entries_max {
            self.evict();
        }
        let ghost = self.ghosts.iter_mut().find(|(ghost, is)| *ghost == key && *is);
        match ghost {
            Some((_, is)) => {
                *is = false;
                self.main.push_back((key, 0));
            }
            None => self.small.push_back((key, 0)),
        }
    }

    fn put(&mut self, key: u64) {
        self.get(key);
    }

    fn remove(&mut self, key: u64) {
        self.small.retain(|(known, _)| *known != key);
        self.main.retain(|(known, _)| *known != key);
    }

    fn contents(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.small.iter().chain(&self.main).map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }
}

/// The policies that have a reference.
const REFERENCES: [&str; 4] = ["sieve", "lrw", "lru", "s3-fifo"];

fn reference(policy: &str, entries_max: usize) -> Box<dyn Reference> {
    match policy {
        "s3-fifo" => {
            let (small, main, ghosts) = Default::default();
            Box::new(S3Fifo { entries_max, small, main, ghosts })
        }
        "sieve" => Box::new(Sieve { entries_max, queue: VecDeque::new(), hand: 0 }),
        "lrw" | "lru" => {
            Box::new(Ordered { entries_max, keys: Vec::new(), is_moved_by_hits: policy == "lru" })
        }
        _ => panic!("`{policy}` has no reference"),
    }
}

pub(super) fn requests() -> impl Strategy<Value = Vec<Request>> {
    let request = (0..48_u64, 0..20_u8).prop_map(|(key, kind)| match kind {
        0 => Request::Remove(key),
        1..4 => Request::Put(key),
        _ => Request::Get(key),
    });
    prop::collection::vec(request, 0..600)
}

proptest! {
    #[test]
    fn policies_store_the_same_entries_as_their_references(
        requests in requests(),
        entries_max in 1..40_usize,
        policy in prop::sample::select(&REFERENCES[..]),
    ) {
        let mut cache = Cache::new(Policy::named(policy).unwrap(), entries_max);
        let mut reference = reference(policy, entries_max);
        for (at, request) in requests.into_iter().enumerate() {
            cache.request(request);
            match request {
                Request::Get(key) => reference.get(key),
                Request::Put(key) => reference.put(key),
                Request::Remove(key) => reference.remove(key),
            }
            prop_assert_eq!(cache.contents(), reference.contents(), "after request {}: {:?}", at, request);
        }
    }

    #[test]
    fn every_policy_evicts_each_entry_once(
        requests in requests(),
        entries_max in 1..40_usize,
        policy in (0..POLICIES.len()).prop_map(|number| &POLICIES[number]),
    ) {
        let mut cache = Cache::new(policy, entries_max);
        for request in requests {
            cache.request(request);
            prop_assert!(cache.slots.len() <= entries_max);
        }
        while let Some(slot) = cache.policy.evict(&mut cache.entries) {
            cache.forget(slot);
        }
        prop_assert!(cache.slots.is_empty(), "{:?} are never evicted", cache.contents());
    }
}

/// Belady, Nelson, Shedler, "An anomaly in space-time characteristics of certain programs running in a
/// paging machine", CACM 12 (1969): first in, first out, has 9 faults with three frames and 10 with
/// four. Under lrw a cache whose keys are never rewritten
/// is first in, first out.
#[test]
fn lrw_shows_beladys_anomaly_and_lru_does_not() {
    let requests = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
    let misses = |policy, entries_max| Cache::misses(policy, entries_max, requests);
    assert_eq!((misses("lrw", 3), misses("lrw", 4)), (9, 10));
    assert_eq!((misses("lru", 3), misses("lru", 4)), (10, 8));
}

/// Silberschatz, Galvin, Gagne, "Operating System Concepts", page replacement: 15 faults first in,
/// first out, and 12 least recently used, with three frames.
#[test]
fn lrw_and_lru_miss_as_often_as_in_the_textbook() {
    let requests = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
    assert_eq!(Cache::misses("lrw", 3, requests), 15);
    assert_eq!(Cache::misses("lru", 3, requests), 12);
}

/// The worked example of the SIEVE website (cacheMon/SIEVE-website): seven places, the hand at `a`.
#[test]
fn sieve_evicts_as_in_the_published_example() {
    let mut cache = Cache::new(Policy::SIEVE, 7);
    let mut hits = |keys: &str| -> Vec<bool> {
        keys.bytes().map(|key| cache.request(Request::Get(u64::from(key)))).collect()
    };
    assert_eq!(hits("abcdefg"), [false; 7]);
    assert_eq!(hits("abg"), [true; 3]);
    assert_eq!(hits("hadibj"), [false, true, true, false, true, false]);
    let mut left: Vec<u64> = "jihgdba".bytes().map(u64::from).collect();
    left.sort_unstable();
    assert_eq!(cache.contents(), left, "c, e and f have left");
}

#[cfg(feature = "spec")]
#[test]
fn unknown_name_suggests_the_nearest() {
    assert_eq!(Policy::named("lrw").unwrap(), Policy::LRW);
    assert_eq!(Policy::SIEVE.name, "sieve");
    let error = Policy::named("lruu").unwrap_err();
    assert_eq!(error.to_string(), "unknown policy `lruu`: did you mean `lru`?");
}

#[test]
fn list_has_each_entry_once_and_queues_in_the_order_of_eviction() {
    for policy in POLICIES.iter().filter(|policy| !policy.is_auto()) {
        let mut cache = Cache::new(policy, 50);
        (0..80).for_each(|key| _ = cache.request(Request::Get(key)));
        cache.request(Request::Remove(60));
        let (mut listed, stored) = (cache.listed(), cache.contents());
        if [Policy::LRU, Policy::LRW].contains(&policy) {
            assert_eq!(listed, (30..60).chain(61..80).collect::<Vec<_>>(), "{}", policy.name);
        }
        listed.sort_unstable();
        assert_eq!(listed, stored, "{}", policy.name);
    }
}
