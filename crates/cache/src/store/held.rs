//! Removed entries whose values are still in use elsewhere: their bytes stay reserved until they are not.

use std::collections::VecDeque;

use super::removal::{RemovedEntries, RemovedEntry};
use crate::{
    limit::Limit,
    locks::{AtomicUsize, Lock, Ordering},
};

/// Returns true while something outside of the cache uses the memory of a value.
pub(crate) type IsHeldFn<V> = Box<dyn Fn(&V) -> bool + Send + Sync>;

/// Held entries that one call examines.
const EXAMINED_AT_ONCE: usize = 4;

pub(crate) struct HeldEntries<K, V> {
    is_held: IsHeldFn<V>,
    entries: Lock<VecDeque<RemovedEntry<K, V>>>,
    bytes: AtomicUsize,
    /// From as many bytes on, no entry is evicted: that might free nothing.
    bytes_max: AtomicUsize,
}

impl<K, V> HeldEntries<K, V> {
    /// At most a quarter of the limit, in addition to the entries of one eviction.
    pub(crate) fn new(is_held: IsHeldFn<V>, limit: &Limit) -> Self {
        let bytes_max = AtomicUsize::new(limit.bytes.unwrap_or(usize::MAX) / 4);
        Self { is_held, entries: Lock::default(), bytes: AtomicUsize::new(0), bytes_max }
    }

    /// The limit has another size.
    pub(super) fn resize(&self, limit_bytes: usize) {
        self.bytes_max.store(limit_bytes / 4, Ordering::Relaxed);
    }

    fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes() >= self.bytes_max()
    }

    /// The share of its bound that is in use, from 0 to 1.
    pub(crate) fn fill(&self) -> f64 {
        (self.bytes() as f64 / self.bytes_max().max(1) as f64).min(1.0)
    }

    /// Keeps an entry that is in use; otherwise returns it.
    pub(crate) fn keep(&self, entry: RemovedEntry<K, V>) -> Option<RemovedEntry<K, V>> {
        if !(self.is_held)(&entry.value) {
            return Some(entry);
        }
        self.bytes.fetch_add(entry.weight as usize, Ordering::Relaxed);
        self.entries.lock().push_back(entry);
        None
    }

    /// Takes out those of the longest held entries that are not in use any more.
    pub(crate) fn take_released(&self) -> RemovedEntries<K, V> {
        if self.bytes() == 0 {
            return RemovedEntries::new();
        }
        // The caller's function runs without the lock.
        let examined: RemovedEntries<K, V> = {
            let mut entries = self.entries.lock();
            let count = EXAMINED_AT_ONCE.min(entries.len());
            entries.drain(..count).collect()
        };
        let (held, released): (RemovedEntries<K, V>, _) =
            examined.into_iter().partition(|entry| (self.is_held)(&entry.value));
        let released_bytes: usize = released.iter().map(|entry| entry.weight as usize).sum();
        self.bytes.fetch_sub(released_bytes, Ordering::Relaxed);
        self.entries.lock().extend(held);
        released
    }
}
