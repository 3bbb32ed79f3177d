//! The memories of all nodes, for the keys of one partition.

use super::{
    life::{Life, States, Ticks},
    table::ExpiringTable,
};

/// The values that nodes store.
#[derive(Debug)]
pub(super) enum NodeMemories {
    Unlimited(UnlimitedMemories),
    Limited(LimitedMemories),
}

impl NodeMemories {
    /// `limit`: the entries of a node; `None`: no limit.
    pub(super) fn new(nodes: u32, limit: Option<usize>) -> Self {
        match limit {
            Some(_) => Self::Limited(LimitedMemories::new(nodes)),
            None => Self::Unlimited(UnlimitedMemories::new()),
        }
    }

    /// The place of a key on a node, valid until the next [`add`](Self::add), and its times. The eviction policy learns of a hit or an
    /// update, if the value is there.
    #[inline]
    pub(super) fn look_up(&mut self, node: u32, key: u32, now: Ticks) -> Option<(usize, Life)> {
        match self {
            Self::Unlimited(memories) => memories.look_up(node, key),
            Self::Limited(memories) => memories.look_up(node, key, now),
        }
    }

    /// Replaces a value.
    #[inline]
    pub(super) fn set(&mut self, place: usize, life: Life) {
        match self {
            Self::Unlimited(memories) => memories.0.set(place, life),
            Self::Limited(memories) => memories.lives[place] = life,
        }
    }

    /// Adds a key that the node does not store. Returns true if another value was evicted for it.
    #[inline]
    pub(super) fn add(&mut self, node: u32, key: u32, life: Life, now: Ticks, states: States) -> bool {
        match self {
            Self::Unlimited(memories) => memories.add(node, key, life, now, states),
            Self::Limited(memories) => memories.add(node, key, life, now, states),
        }
    }

    /// Empties all memories. In each of them is then room for this number of entries, if there is a limit.
    pub(super) fn reset(&mut self, room: usize) {
        match self {
            Self::Unlimited(memories) => memories.0.clear(),
            Self::Limited(memories) => memories.reset(room),
        }
    }

    /// Empties all memories.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Unlimited(memories) => memories.0.clear(),
            Self::Limited(memories) => memories.clear(),
        }
    }

    /// The values that are stored at `now`.
    pub(super) fn count(&self, now: Ticks, states: States) -> u64 {
        match self {
            Self::Unlimited(memories) => {
                memories.0.values().filter(|life| !states.is_gone(*life, now)).count() as u64
            }
            Self::Limited(memories) => memories.count(now, states),
        }
    }
}

/// Memories without a limit.
#[derive(Debug)]
pub(super) struct UnlimitedMemories(ExpiringTable<Life>);

impl UnlimitedMemories {
    pub(super) fn new() -> Self {
        Self(ExpiringTable::new())
    }

    fn id(node: u32, key: u32) -> u64 {
        u64::from(node) << 32 | u64::from(key)
    }

    fn look_up(&self, node: u32, key: u32) -> Option<(usize, Life)> {
        let place = self.0.find(Self::id(node, key))?;
        Some((place, self.0.get(place)))
    }

    fn add(&mut self, node: u32, key: u32, life: Life, now: Ticks, states: States) -> bool {
        self.0.add(Self::id(node, key), life, |life| states.is_gone(*life, now));
        false
    }
}

/// Memories with room for a number of entries each, under SIEVE, the default policy of the cache. A node's entries lie in one array
/// from the oldest to the newest: an eviction moves the newer ones, which for a few dozen is faster than a linked list.
#[derive(Debug)]
pub(super) struct LimitedMemories {
    /// Entries of a node.
    room: usize,
    keys: Vec<u32>,
    lives: Vec<Life>,
    /// True: requested since the hand passed.
    marks: Vec<bool>,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    len: u32,
    /// The next entry to inspect.
    hand: u32,
}

impl LimitedMemories {
    pub(super) fn new(nodes: u32) -> Self {
        let nodes = vec![Node::default(); nodes as usize];
        Self { room: 0, keys: Vec::new(), lives: Vec::new(), marks: Vec::new(), nodes }
    }

    /// The entry to remove from a full memory, as an offset: an expired one, or the first without a mark from the hand on, whose marks
    /// are removed on the way.
    fn choose(&mut self, node: usize, now: Ticks, states: States) -> (usize, bool) {
        let first = node * self.room;
        let lives = &self.lives[first..first + self.room];
        if let Some(expired) = lives.iter().position(|life| states.is_gone(*life, now)) {
            return (expired, false);
        }
        let mut at = self.nodes[node].hand as usize;
        while std::mem::take(&mut self.marks[first + at]) {
            at = if at + 1 == self.room { 0 } else { at + 1 };
        }
        (at, true)
    }

    fn remove(&mut self, node: usize, at: usize, is_evicted: bool) {
        let first = node * self.room;
        let (from, end) = (first + at, first + self.room);
        self.keys.copy_within(from + 1..end, from);
        self.lives.copy_within(from + 1..end, from);
        self.marks.copy_within(from + 1..end, from);
        let state = &mut self.nodes[node];
        state.len -= 1;
        let hand = if is_evicted { at } else { state.hand as usize - usize::from(state.hand as usize > at) };
        // Behind the newest entry the hand returns to the oldest.
        state.hand = if hand + 1 >= self.room { 0 } else { u32::try_from(hand).unwrap_or_default() };
    }

    fn look_up(&mut self, node: u32, key: u32, now: Ticks) -> Option<(usize, Life)> {
        let node = node as usize;
        let first = node * self.room;
        let keys = &self.keys[first..first + self.nodes[node].len as usize];
        let place = first + keys.iter().position(|known| *known == key)?;
        let life = self.lives[place];
        if now >= life.ready() {
            self.marks[place] = true;
        }
        Some((place, life))
    }

    fn add(&mut self, node: u32, key: u32, life: Life, now: Ticks, states: States) -> bool {
        let node = node as usize;
        let mut was_evicted = false;
        if self.nodes[node].len as usize == self.room {
            let (at, is_evicted) = self.choose(node, now, states);
            self.remove(node, at, is_evicted);
            was_evicted = is_evicted;
        }
        let state = &mut self.nodes[node];
        let place = node * self.room + state.len as usize;
        state.len += 1;
        (self.keys[place], self.lives[place], self.marks[place]) = (key, life, false);
        was_evicted
    }

    fn reset(&mut self, room: usize) {
        let entries = self.nodes.len() * room;
        self.room = room;
        self.keys.resize(entries, 0);
        self.lives.resize(entries, Life::default());
        self.marks.resize(entries, false);
        self.clear();
    }

    fn clear(&mut self) {
        self.nodes.fill(Node::default());
    }

    fn count(&self, now: Ticks, states: States) -> u64 {
        let of = |(node, state): (usize, &Node)| {
            let first = node * self.room;
            let lives = &self.lives[first..first + state.len as usize];
            lives.iter().filter(|life| !states.is_gone(**life, now)).count() as u64
        };
        self.nodes.iter().enumerate().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale_for(swr: Ticks) -> States {
        States::new(0, swr)
    }

    fn fresh(expires: Ticks) -> Life {
        Life::loaded(0, expires)
    }

    fn keys(memories: &LimitedMemories) -> Vec<u32> {
        memories.keys[..memories.nodes[0].len as usize].to_vec()
    }

    #[test]
    fn sieve_evicts_the_oldest_entry_that_was_not_requested() {
        let mut memories = LimitedMemories::new(2);
        memories.reset(3);
        for key in [10, 11, 12] {
            assert!(!memories.add(0, key, fresh(1_000), 0, stale_for(0)));
        }
        assert!(memories.look_up(0, 10, 0).is_some());
        assert!(memories.add(0, 13, fresh(1_000), 0, stale_for(0)));
        assert_eq!(keys(&memories), [10, 12, 13]);
        // The hand stands at 12, and comes to 10, whose mark is removed, last.
        assert!(memories.add(0, 14, fresh(1_000), 0, stale_for(0)));
        assert_eq!(keys(&memories), [10, 13, 14]);
        assert_eq!((memories.look_up(1, 10, 0), memories.count(0, stale_for(0))), (None, 3));
    }

    #[test]
    fn expired_entries_make_room_first() {
        let mut memories = LimitedMemories::new(1);
        memories.reset(3);
        for (key, expires) in [(10, 1_000), (11, 50), (12, 1_000)] {
            memories.add(0, key, fresh(expires), 0, stale_for(0));
        }
        assert!(!memories.add(0, 13, fresh(1_000), 60, stale_for(0)));
        assert_eq!(keys(&memories), [10, 12, 13]);
        // A value that may still be served stale stays.
        assert_eq!((memories.count(1_000, stale_for(0)), memories.count(1_000, stale_for(100))), (0, 3));
        memories.clear();
        assert_eq!(memories.count(0, stale_for(0)), 0);
    }
}
