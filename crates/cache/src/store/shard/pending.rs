//! Invalidations of many entries: they are in force when they begin, and their entries are removed or changed later, a few at a time.
//! Pure.

use std::num::NonZeroU32;

use stockade_model::time::Time;

use crate::{freshness::Lifetime, invalidation::Invalidation, policy::Slot, store::refills::Version};

/// Pending invalidations of a shard. With more of them all are carried out at once: lookups of older entries read the whole list.
pub(crate) const INVALIDATIONS_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidationFilter {
    All,
    /// Entries with a tag of this hash.
    Tag(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingInvalidation {
    pub(super) filter: InvalidationFilter,
    pub(super) how: Invalidation,
    pub(super) at: Time,
    /// Concerns entries up to this version.
    pub(super) through: NonZeroU32,
    /// It has been carried out up to this slot.
    pub(super) done: Option<Slot>,
}

/// In the order in which they began.
#[derive(Debug, Default)]
pub(super) struct PendingInvalidations {
    list: Vec<PendingInvalidation>,
    /// A removal of all concerns entries up to this version. 0: no removal is pending.
    removed_through: Version,
    /// Entries that it has not removed yet.
    removed: usize,
}

/// The entries of one step.
pub(crate) struct CarriedOut {
    pub(crate) examined: usize,
    /// The kept bits of the hashes of their keys, if not all are invalidated.
    pub(crate) hashes: Vec<u32>,
    pub(crate) how: Invalidation,
    pub(crate) at: Time,
}

/// True once `stores` is so high that the numbers of versions may soon begin again: an old entry may have a higher one than a new entry.
pub(super) fn is_old(stores: u64) -> bool {
    stores > u64::from(u32::MAX / 2)
}

impl PendingInvalidations {
    /// `stores` is the shard's number of stores, `removed` the number of entries if all are removed.
    pub(super) fn begin(
        &mut self,
        filter: InvalidationFilter,
        how: Invalidation,
        at: Time,
        stores: u64,
        removed: Option<usize>,
    ) {
        let through = if is_old(stores) { NonZeroU32::MAX } else { super::version(stores) };
        if let Some(removed) = removed {
            // The earlier invalidations concern the same entries.
            self.list.clear();
            (self.removed_through, self.removed) = (through.get(), removed);
        }
        self.list.push(PendingInvalidation { filter, how, at, through, done: None });
    }

    pub(super) fn first(&self) -> Option<&PendingInvalidation> {
        self.list.first()
    }

    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// Entries above this version are not concerned.
    pub(super) fn through(&self) -> Version {
        self.list.iter().map(|pending| pending.through.get()).max().unwrap_or(0)
    }

    /// Records that the first has been carried out up to this slot; `None`: it has been carried out.
    pub(super) fn proceed(&mut self, done: Option<Slot>) {
        let Some(first) = self.list.first_mut() else { return };
        first.done = done;
        if done.is_none() {
            let ended = self.list.remove(0);
            if ended.through.get() == self.removed_through {
                (self.removed_through, self.removed) = (0, 0);
            }
        }
    }

    /// An entry leaves its slot.
    #[inline]
    pub(super) fn forget(&mut self, version: NonZeroU32) {
        self.removed = self.removed.saturating_sub(usize::from(version.get() <= self.removed_through));
    }

    /// Entries that a removal of all concerns.
    pub(super) fn removed(&self) -> usize {
        self.removed
    }

    fn concerning(
        &self,
        version: NonZeroU32,
        has_tag: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = &PendingInvalidation> {
        self.list.iter().filter(move |pending| {
            version <= pending.through
                && match pending.filter {
                    InvalidationFilter::All => true,
                    InvalidationFilter::Tag(tag) => has_tag(tag),
                }
        })
    }

    pub(super) fn concerns_by_tag(&self, version: NonZeroU32, has_tag: impl Fn(u64) -> bool) -> bool {
        self.concerning(version, has_tag).any(|pending| pending.filter != InvalidationFilter::All)
    }

    /// The lifetime of an entry of this version.
    pub(super) fn life(
        &self,
        version: NonZeroU32,
        life: Lifetime,
        has_tag: impl Fn(u64) -> bool,
    ) -> Lifetime {
        let mut concerning = self.concerning(version, has_tag);
        concerning
            .try_fold(life, |life, pending| life.after_invalidation(pending.how, pending.at))
            .unwrap_or(Lifetime::GONE)
    }
}
