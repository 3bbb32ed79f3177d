//! Least frequently used with dynamic aging, LFU-DA (Arlitt, Cherkasova, Dilley, Friedrich, Jin, "Evaluating content
//! management techniques for Web proxy caches", ACM SIGMETRICS Performance Evaluation Review 27(4), 2000).
//!
//! The priority of an entry is its number of requests plus the cache's age at the last one. The entry with the lowest
//! priority is evicted, and the age becomes that priority: entries that were popular once do not stay for ever.
//!
//! A hit raises the priority and moves nothing. As in [`lru`](super::lru), the heap orders entries by priorities that
//! may be too low, and an entry that surfaces with one is put back with its true priority.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use super::eviction::{EvictionPolicy, Listed, PolicyData, PolicyEntries, Slot};

/// Priority, ticket and slot. Of equal priorities the older ticket is evicted first.
type Candidate = (u64, u64, Slot);

/// The ticket of an unused slot.
const UNUSED: u64 = 0;

#[derive(Debug, Default)]
pub(crate) struct Lfu {
    usage: Vec<LfuUsage>,
    lowest: BinaryHeap<Reverse<Candidate>>,
    /// The priority of the entry that was evicted last.
    age: u64,
    tickets: u64,
    len: usize,
}

#[derive(Debug, Default)]
struct LfuUsage {
    requests: AtomicU32,
    priority: AtomicU64,
    /// The ticket of the slot's valid candidate, or [`UNUSED`].
    ticket: u64,
}

impl Lfu {
    fn new_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Rebuilds the heap when more than half of it belongs to removed entries.
    fn compact(&mut self) {
        if self.lowest.len() > 2 * self.len + 64 {
            let usage = &self.usage;
            self.lowest.retain(|Reverse((_, ticket, slot))| usage[*slot as usize].ticket == *ticket);
        }
    }
}

impl EvictionPolicy for Lfu {
    const NAME: &'static str = "lfu";
    const SUMMARY: &'static str = "the least frequently requested entry, with dynamic aging (LFU-DA, Arlitt et al., 2000)";
    /// The usage, and two candidates: the heap is rebuilt when half of it is unused.
    const ENTRY_BYTES: usize = size_of::<LfuUsage>() + 2 * size_of::<Candidate>();

    fn on_insert(&mut self, _entries: &mut impl PolicyEntries, slot: Slot) {
        let (ticket, priority) = (self.new_ticket(), self.age + 1);
        if slot as usize >= self.usage.len() {
            self.usage.resize_with(slot as usize + 1, LfuUsage::default);
        }
        self.usage[slot as usize] = LfuUsage { requests: 1.into(), priority: priority.into(), ticket };
        self.lowest.push(Reverse((priority, ticket, slot)));
        self.len += 1;
    }

    fn on_remove(&mut self, _entries: &mut impl PolicyEntries, slot: Slot) {
        self.usage[slot as usize].ticket = UNUSED;
        self.len -= 1;
        self.compact();
    }

    fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        let new_ticket = self.new_ticket();
        loop {
            let mut candidate = self.lowest.peek_mut()?;
            let Reverse((known, ticket, slot)) = *candidate;
            let usage = &mut self.usage[slot as usize];
            let priority = *usage.priority.get_mut();
            if usage.ticket != ticket {
                PeekMut::pop(candidate);
            } else if priority == known {
                PeekMut::pop(candidate);
                self.age = priority;
                self.on_remove(entries, slot);
                return Some(slot);
            } else {
                usage.ticket = new_ticket;
                *candidate = Reverse((priority, new_ticket, slot));
            }
        }
    }

    fn list(&self, _entries: &impl PolicyEntries, list: &mut Vec<Listed>) {
        let used = self.usage.iter().zip(0..).filter(|(usage, _)| usage.ticket != UNUSED);
        list.extend(used.map(|(usage, slot)| {
            let hits = usage.requests.load(Ordering::Relaxed).saturating_sub(1);
            let rank = (usage.priority.load(Ordering::Relaxed), usage.ticket);
            Listed { rank, slot, hits: u8::try_from(hits).unwrap_or(u8::MAX) }
        }));
    }

    fn take_next(&mut self, entries: &mut impl PolicyEntries) -> Option<(Slot, u32)> {
        let slot = self.evict(entries)?;
        Some((slot, self.usage[slot as usize].requests.get_mut().saturating_sub(1)))
    }

    fn on_hit(&self, slot: Slot, _data: &PolicyData) {
        let usage = &self.usage[slot as usize];
        let requests = usage.requests.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        usage.priority.fetch_max(self.age + u64::from(requests), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{
        Policy,
        tests::{Cache, Request},
    };

    #[test]
    fn evicts_an_entry_of_the_lowest_priority() {
        let mut cache = Cache::new(Policy::LFU, 16);
        // Requests and priority of each stored key.
        let mut model: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let (mut age, mut evictions) = (0, 0);
        for step in 0..20_000_u64 {
            // Squares are unevenly distributed, and the popular keys change over time.
            let key = (step * step + step / 7) % 53 % 31 + step / 5_000;
            if cache.request(Request::Get(key)) {
                let (requests, priority) = model.get_mut(&key).expect("a hit is of a stored key");
                *requests += 1;
                *priority = age + *requests;
                continue;
            }
            let stored = cache.contents();
            if let Some((&evicted, &(_, priority))) =
                model.iter().find(|(key, _)| stored.binary_search(key).is_err())
            {
                let lowest = model.values().map(|(_, priority)| *priority).min();
                assert_eq!(Some(priority), lowest, "step {step}: key {evicted} was evicted");
                model.remove(&evicted);
                age = priority;
                evictions += 1;
            }
            model.insert(key, (1, age + 1));
        }
        assert!(evictions > 1_000, "{evictions} evictions");
    }

    #[test]
    fn entry_that_is_no_longer_popular_leaves() {
        let mut cache = Cache::new(Policy::LFU, 2);
        for _ in 0..100 {
            cache.request(Request::Get(0));
        }
        // Keys that are requested once take turns in the other slot, and each raises the age by one.
        for key in 1..=100 {
            cache.request(Request::Get(key));
        }
        assert!(cache.contents().contains(&0), "99 evictions have not reached its priority");
        cache.request(Request::Get(101));
        cache.request(Request::Get(102));
        assert!(!cache.contents().contains(&0), "it has been evicted");
    }
}
