//! The limit in bytes of one store: its budget, the weights of entries, and what happens to the bytes of removed ones.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use super::{
    WeighFn,
    budget::{ByteBudget, ReservedBytes},
    held::{HeldEntries, IsHeldFn},
    removal::{RemovedEntries, RemovedEntry},
};
use crate::{limit::Limit, locks::Lock};

/// The mean size of loaded entries, in which the last ones weigh most. A value that is larger than its reservation evicts when it
/// arrives.
#[derive(Debug, Default)]
struct LoadedSize(AtomicUsize);

impl LoadedSize {
    /// Loads that the mean remembers.
    const REMEMBERED: usize = 16;

    fn mean(&self) -> usize {
        self.0.load(Relaxed) / Self::REMEMBERED
    }

    /// Of two observations at the same time one may be lost.
    fn observe(&self, bytes: usize) {
        let sum = self.0.load(Relaxed);
        let next = if sum == 0 {
            bytes.saturating_mul(Self::REMEMBERED)
        } else {
            sum - sum / Self::REMEMBERED + bytes
        };
        self.0.store(next, Relaxed);
    }
}

/// The account of a limit in bytes.
pub(super) struct ByteAccount<K, V> {
    pub(super) budget: Arc<ByteBudget>,
    pub(super) weigh: WeighFn<K, V>,
    loaded_size: LoadedSize,
    pub(super) held: Option<HeldEntries<K, V>>,
    /// Bytes for memory that entries do not use.
    pub(super) aside: Lock<ReservedBytes>,
    /// How often the limit was reached and a share of it cleared.
    pub(super) reclaims: AtomicU64,
    /// The shard that reclaims next, or is evicted from for bytes set aside.
    pub(super) next_shard: AtomicUsize,
}

impl<K, V> ByteAccount<K, V> {
    /// `None`: the limit is not in bytes.
    pub(super) fn new(limit: &Limit, weigh: WeighFn<K, V>, is_held: Option<IsHeldFn<V>>) -> Option<Self> {
        let budget = Arc::new(ByteBudget::new(limit)?);
        Some(Self {
            aside: Lock::new(ReservedBytes::none(&budget)),
            budget,
            weigh,
            loaded_size: LoadedSize::default(),
            held: is_held.map(|is_held| HeldEntries::new(is_held, limit)),
            reclaims: AtomicU64::new(0),
            next_shard: AtomicUsize::new(0),
        })
    }

    /// Bytes that a load reserves whose key has no entry.
    pub(super) fn expected_bytes(&self, entry_bytes: usize) -> usize {
        self.loaded_size.mean().max(entry_bytes).min(self.budget.max_object)
    }

    /// Learns the size of a loaded entry.
    pub(super) fn observe_load(&self, bytes: usize) {
        self.loaded_size.observe(bytes.min(self.budget.max_object));
    }

    /// Drops entries that nothing holds, and releases their bytes afterwards.
    pub(super) fn discard(&self, gone: RemovedEntries<K, V>) {
        self.release(gone.into_iter().filter_map(|entry| self.unless_held(entry)).collect());
        self.drop_released();
    }

    /// True if another eviction might free nothing.
    pub(super) fn is_held_full(&self) -> bool {
        self.held.as_ref().is_some_and(HeldEntries::is_full)
    }

    /// Keeps an entry that is held; otherwise returns it.
    pub(super) fn unless_held(&self, entry: RemovedEntry<K, V>) -> Option<RemovedEntry<K, V>> {
        match &self.held {
            Some(held) => held.keep(entry),
            None => Some(entry),
        }
    }

    /// Drops entries that are held no more.
    pub(super) fn drop_released(&self) {
        if let Some(held) = &self.held {
            self.release(held.take_released());
        }
    }

    pub(super) fn release(&self, gone: RemovedEntries<K, V>) {
        let bytes = gone.iter().map(|entry| entry.weight as usize).sum();
        self.budget.drop_and_release(gone, bytes);
    }
}
