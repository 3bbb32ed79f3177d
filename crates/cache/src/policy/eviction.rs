//! The interface between a shard and its eviction policy.

use std::{fmt::Debug, sync::atomic::AtomicU8};

/// The index of an entry within its shard. Indices of removed entries are used again.
pub(crate) type Slot = u32;

/// No slot.
pub(super) const NONE: Slot = Slot::MAX;

/// The data that a policy stores in each entry.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct PolicyData {
    /// Set by hits. 0 for a new entry.
    pub(super) mark: AtomicU8,
    pub(super) links: QueueLinks,
}

/// The neighbours of an entry in its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLinks {
    pub(super) older: Slot,
    pub(super) newer: Slot,
}

impl Default for QueueLinks {
    fn default() -> Self {
        Self { older: NONE, newer: NONE }
    }
}

/// The entries of a shard, as a policy sees them.
pub(crate) trait PolicyEntries {
    /// The policy's data of a stored entry.
    fn data(&mut self, slot: Slot) -> &mut PolicyData;

    /// The policy's data of a stored entry.
    fn see(&self, slot: Slot) -> &PolicyData;

    /// 32 bits of the hash of the entry's key.
    fn hash(&self, slot: Slot) -> u32;

    /// The weight of a stored entry in bytes, with a limit in bytes; without one 0 or 1.
    fn weight(&self, slot: Slot) -> u32;
}

/// An eviction policy over the entries of one shard.
///
/// It is pure: it has no lock, no clock and no values. `on_hit` takes `&self`, because lookups share the shard's lock:
/// it may leave a mark, and `evict` decides what the mark means.
pub(super) trait EvictionPolicy: Debug + Default {
    /// The name in configuration files.
    const NAME: &'static str;
    /// The entry that is evicted first, with the source.
    const SUMMARY: &'static str;
    /// Bytes that the policy stores for each entry, without [`PolicyData`].
    const ENTRY_BYTES: usize = 0;

    fn on_insert(&mut self, entries: &mut impl PolicyEntries, slot: Slot);

    /// The entry leaves for another reason than eviction.
    fn on_remove(&mut self, entries: &mut impl PolicyEntries, slot: Slot);

    /// Chooses an entry and forgets it; `None` without entries.
    fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot>;

    /// Forgets the entry that is next in the policy's order, the one of least use first, for a [switch](super::switch)
    /// to another policy. Returns it with its hits as far as they are known. Later calls are not evictions either: the
    /// order is all that they have to keep.
    fn take_next(&mut self, entries: &mut impl PolicyEntries) -> Option<(Slot, u32)> {
        Some((self.evict(entries)?, 0))
    }

    /// A lookup found the entry. Other lookups may call this at the same time.
    fn on_hit(&self, slot: Slot, data: &PolicyData) {
        _ = (slot, data);
    }

    /// The value of the entry was replaced.
    fn on_update(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        self.on_hit(slot, entries.data(slot));
    }

    /// Adds all entries to `list`: a policy that receives them in the order of their ranks, with their hits, evicts in about the same
    /// order.
    fn list(&self, entries: &impl PolicyEntries, list: &mut Vec<Listed>);
}

/// An entry in the order of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Listed {
    /// The lowest is evicted first.
    pub(crate) rank: (u64, u64),
    pub(crate) slot: Slot,
    /// Hits that the policy remembers.
    pub(crate) hits: u8,
}

/// Large policies are boxed, so that a shard stays within its cache lines.
impl<P: EvictionPolicy> EvictionPolicy for Box<P> {
    const NAME: &'static str = P::NAME;
    const SUMMARY: &'static str = P::SUMMARY;
    const ENTRY_BYTES: usize = P::ENTRY_BYTES;

    fn on_insert(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        (**self).on_insert(entries, slot);
    }

    fn on_remove(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        (**self).on_remove(entries, slot);
    }

    fn evict(&mut self, entries: &mut impl PolicyEntries) -> Option<Slot> {
        (**self).evict(entries)
    }

    fn take_next(&mut self, entries: &mut impl PolicyEntries) -> Option<(Slot, u32)> {
        (**self).take_next(entries)
    }

    #[inline]
    fn on_hit(&self, slot: Slot, data: &PolicyData) {
        (**self).on_hit(slot, data);
    }

    fn on_update(&mut self, entries: &mut impl PolicyEntries, slot: Slot) {
        (**self).on_update(entries, slot);
    }

    fn list(&self, entries: &impl PolicyEntries, list: &mut Vec<Listed>) {
        (**self).list(entries, list);
    }
}
