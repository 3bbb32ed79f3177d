//! Greedy dual size frequency (Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching
//! policy", HPL-98-69R1, 1998), with a cost of one for each load: the fewest misses, not the fewest bytes.
//!
//! The priority of an entry is its number of requests by its weight, plus the cache's age at the last one. The entry
//! with the lowest priority is evicted, and the age becomes that priority. Of equal priorities the entry that reached
//! its own first is evicted. Without a limit in bytes all weights are one.
//!
//! A hit raises the priority and moves nothing: see [`lfu`](super::lfu).

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use super::eviction::{EvictionPolicy, Listed, PolicyData, PolicyEntries, Slot};

/// Priority, the stamp of the request that led to it, and slot. A priority is the bits of a float: floats that are not
/// negative have the order of their bits.
type Candidate = (u64, u64, Slot);

/// The stamp of an unused slot.
const UNUSED: u64 = 0;

#[derive(Debug, Default)]
pub(crate) struct Gdsf {
    usage: Vec<GdsfUsage>,
    lowest: BinaryHeap<Reverse<Candidate>>,
    /// The priority of the entry that was evicted last.
    age: f64,
    stamps: AtomicU64,
    len: usize,
}

#[derive(Debug, Default)]
struct GdsfUsage {
    requests: AtomicU32,
    weight: u32,
    priority: AtomicU64,
    /// The stamp of the last request.
    used: AtomicU64,
    /// The stamp of the slot's valid candidate, or [`UNUSED`].
    listed: u64,
}

impl Gdsf {
    fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn priority(&self, requests: u32, weight: u32) -> u64 {
        (self.age + f64::from(requests) / f64::from(weight)).to_bits()
    }

    /// Lists a slot whose candidate, if there is one, is no longer valid.
    fn list(&mut self, slot: Slot, requests: u32, weight: u32) {
        let (stamp, priority) = (self.stamp(), self.priority(requests, weight));
        self.usage[slot as usize] = GdsfUsage {
            requests: requests.into(),
            weight,
            priority: priority.into(),
            used: stamp.into(),
            listed: stamp,
        };
        self.lowest.push(Reverse((priority, stamp, slot)));
        self.compact();
    }

    /// Rebuilds the heap when more than half of it is not valid.
    fn compact(&mut self) {
        if self.lowest.len() > 2 * self.len + 64 {
            let usage = &self.usage;
            self.lowest.retain(|Reverse((_, stamp, slot))| usage[*slot as usize].listed == *stamp);
        }
    }
}

impl EvictionPolicy for Gdsf {
    const NAME: &'static str = "gdsf";
    const SUMMARY: &'static str =
        "the entry with the fewest requests per byte, with aging (Cherkasova, HPL-98-69R1, 1998)";
    /// The usage, and two candidates: the heap is rebuilt when half of it is unused.
    const ENTRY_BYTES: usize = size_of::<GdsfUsage>() + 2 * size_of::<Candidate>();

    fn on_insert(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        if slot as usize >= self.usage.len() {
            self.usage.resize_with(slot as usize + 1, GdsfUsage::default);
        }
        self.len += 1;
        self.list(slot, 1, entries.weight(slot).max(1));
    }

    fn on_remove(&mut self, _entries: &mut impl PolicyEntries, slot: Slot) {
        self.usage[slot as usize].listed = UNUSED;
        self.len -= 1;
        self.compact();
    }

    fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        loop {
            let mut candidate = self.lowest.peek_mut()?;
            let Reverse((_, stamp, slot)) = *candidate;
            let usage = &mut self.usage[slot as usize];
            let (priority, used) = (*usage.priority.get_mut(), *usage.used.get_mut());
            if usage.listed != stamp {
                PeekMut::pop(candidate);
            } else if used == stamp {
                PeekMut::pop(candidate);
                self.age = f64::from_bits(priority);
                self.on_remove(entries, slot);
                return Some(slot);
            } else {
                usage.listed = used;
                *candidate = Reverse((priority, used, slot));
            }
        }
    }

    fn list(&self, _entries: &impl PolicyEntries, list: &mut Vec<Listed>) {
        let used = self.usage.iter().zip(0..).filter(|(usage, _)| usage.listed != UNUSED);
        list.extend(used.map(|(usage, slot)| {
            let hits = usage.requests.load(Ordering::Relaxed).saturating_sub(1);
            let rank = (usage.priority.load(Ordering::Relaxed), usage.used.load(Ordering::Relaxed));
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
        usage.priority.fetch_max(self.priority(requests, usage.weight), Ordering::Relaxed);
        usage.used.store(self.stamp(), Ordering::Relaxed);
    }

    /// A heavier value has a lower priority: the entry is listed anew.
    fn on_update(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        let requests = self.usage[slot as usize].requests.get_mut().saturating_add(1);
        self.list(slot, requests, entries.weight(slot).max(1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{
        Policy,
        tests::{Cache, Request, requests, weight},
    };

    /// Stored keys with their requests, priority, and the number of the request that led to it.
    struct Model {
        entries: Vec<(u64, u32, f64, usize)>,
        entries_max: usize,
        age: f64,
    }

    impl Model {
        fn request(&mut self, request: Request, number: usize) {
            let (Request::Get(key) | Request::Put(key) | Request::Remove(key)) = request;
            if let Request::Remove(_) = request {
                return self.entries.retain(|(stored, ..)| *stored != key);
            }
            let priority = |age: f64, requests: u32| age + f64::from(requests) / f64::from(weight(key));
            if let Some(entry) = self.entries.iter_mut().find(|(stored, ..)| *stored == key) {
                let requests = entry.1 + 1;
                *entry = (key, requests, priority(self.age, requests), number);
                return;
            }
            if self.entries.len() == self.entries_max {
                let order = |a: &&(u64, u32, f64, usize), b: &&(u64, u32, f64, usize)| {
                    a.2.total_cmp(&b.2).then(a.3.cmp(&b.3))
                };
                let (evicted, _, priority, _) = *self.entries.iter().min_by(order).expect("it is full");
                self.entries.retain(|(stored, ..)| *stored != evicted);
                self.age = priority;
            }
            self.entries.push((key, 1, priority(self.age, 1), number));
        }
    }

    proptest! {
        #[test]
        fn evicts_the_lowest_priority(requests in requests(), entries_max in 1..40_usize) {
            let mut cache = Cache::new(Policy::GDSF, entries_max);
            let mut model = Model { entries: Vec::new(), entries_max, age: 0.0 };
            for (number, request) in requests.into_iter().enumerate() {
                cache.request(request);
                model.request(request, number);
                let mut stored: Vec<u64> = model.entries.iter().map(|(key, ..)| *key).collect();
                stored.sort_unstable();
                prop_assert_eq!(cache.contents(), stored, "after request {}: {:?}", number, request);
            }
        }
    }

    #[test]
    fn one_large_entry_leaves_before_small_ones() {
        let mut cache = Cache::new(Policy::GDSF, 3);
        // Weights 7, 1 and 2.
        [6, 0, 1].into_iter().for_each(|key| _ = cache.request(Request::Get(key)));
        // Six requests for the large one are less per byte than one for the small ones.
        (0..5).for_each(|_| _ = cache.request(Request::Get(6)));
        cache.request(Request::Get(1));
        cache.request(Request::Get(7));
        assert_eq!(cache.contents(), [0, 1, 7]);
    }
}
