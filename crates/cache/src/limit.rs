//! Limits of a cache's size.

#[cfg(feature = "spec")]
use crate::spec::shown;
use crate::{error::InvalidStrategy, policy::Policy};

/// The limit of a cache. It holds at every moment: room is made before a value is stored.
///
/// ```
/// use stockade_cache::{Limit, Policy};
///
/// let entries = Limit::entries(36_000);
/// let belfrage = Limit { policy: Policy::LRW, reclaim: 0.3, ..entries };
/// let bytes = Limit { max_object: Some(4 << 20), ..Limit::bytes(256 << 20) };
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize))]
pub struct Limit {
    /// Maximum number of entries. 0, here or in bytes: nothing is stored, and loads are coalesced all the same.
    pub entries: Option<usize>,
    /// Maximum number of bytes: of keys and values, as [`weigh`](crate::Builder::weigh) returns them, of entries'
    /// overhead, and of the reservations of loads in flight. Loads reserve half of the limit at most; further loads
    /// [queue](crate::LoadBounds::queue). A load that waits for another load of the same cache may wait for its own
    /// reservation.
    pub bytes: Option<usize>,
    /// The largest entry that is stored, in bytes. A larger value is answered and not stored. 4 GiB at most. `None`: 1 MiB, or a sixteenth
    /// of the limit if that is less. Only with a limit in bytes.
    pub max_object: Option<usize>,
    /// The policy that selects the entries to evict.
    #[cfg_attr(feature = "spec", serde(serialize_with = "shown::policy"))]
    pub policy: &'static Policy,
    /// The share of the limit that is cleared once it is reached, 0 to 1: expired entries first, then those that the
    /// policy chooses. Every store clears a few, so that none waits for all. 0: only what the new entry needs.
    pub reclaim: f64,
    /// The entries that the policy orders: all, or those of each shard.
    pub order: EvictionOrder,
}

/// The scope of an eviction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum EvictionOrder {
    /// Each shard has its own policy. A shard has 1,024 entries at least, and room for 16 objects of `max_object`:
    /// 256 MiB with 1 MiB objects make 16 shards. More shards, up to 64, reduce lock contention.
    PerShard,
    /// One order over all entries: one shard, and one lock for all stores.
    Global,
}

impl Limit {
    const NONE: Self = Self {
        entries: None,
        bytes: None,
        max_object: None,
        policy: Policy::SIEVE,
        reclaim: 0.0,
        order: EvictionOrder::PerShard,
    };

    /// A limit in entries, with [`Policy::SIEVE`].
    #[must_use]
    pub const fn entries(entries: usize) -> Self {
        Self { entries: Some(entries), ..Self::NONE }
    }

    /// A limit in bytes, with [`Policy::SIEVE`].
    #[must_use]
    pub const fn bytes(bytes: usize) -> Self {
        Self { bytes: Some(bytes), ..Self::NONE }
    }

    /// The largest entry that is stored under a limit of this many `bytes`: [`max_object`](Self::max_object), or its default.
    #[must_use]
    pub fn max_object_bytes(&self, bytes: usize) -> usize {
        const DEFAULT: usize = 1 << 20;
        self.max_object.unwrap_or(DEFAULT.min(bytes / 16)).min(bytes).min(u32::MAX as usize - 1)
    }

    /// This limit, multiplied; at least one entry and one byte.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        let times = |size: usize| scaled(size, factor);
        let (entries, bytes) = (self.entries.map(times), self.bytes.map(times));
        Self { entries, bytes, ..self.clone() }.with_fitting_object()
    }

    /// The same limit, with a [`max_object`](Self::max_object) that does not exceed it.
    pub(crate) fn with_fitting_object(mut self) -> Self {
        if let Some((max_object, bytes)) = self.max_object.as_mut().zip(self.bytes) {
            *max_object = bytes.min(*max_object);
        }
        self
    }

    /// True if no entry fits. `entry_bytes` is an entry's overhead without the policy's.
    pub(crate) fn is_too_small_for(&self, entry_bytes: usize) -> bool {
        let is_too_small = |bytes| self.max_object_bytes(bytes) <= entry_bytes + self.policy.entry_bytes;
        !self.is_zero() && self.bytes.is_some_and(is_too_small)
    }

    /// True if nothing is stored.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.entries == Some(0) || self.bytes == Some(0)
    }

    /// Checks the values.
    pub fn check(&self) -> Result<(), InvalidStrategy> {
        self.fault().map_or(Ok(()), |fault| Err(InvalidStrategy(fault)))
    }

    fn fault(&self) -> Option<&'static str> {
        if self.entries.is_none() && self.bytes.is_none() {
            return Some("a limit needs `entries` or `bytes`");
        }
        if !(0.0..=1.0).contains(&self.reclaim) {
            return Some("`reclaim` is the share of the limit to be cleared: between 0 and 1");
        }
        match (self.max_object, self.bytes) {
            (Some(_), None) => Some("`max_object` needs a limit in `bytes`"),
            (Some(max_object), Some(_)) if max_object >= u32::MAX as usize => {
                Some("`max_object` is 4 GiB at most")
            }
            (Some(max_object), Some(bytes)) if max_object > bytes => {
                Some("`max_object` is larger than the limit in `bytes`")
            }
            _ => None,
        }
    }
}

/// A share or a multiple of a size; at least 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size, and saturating")]
pub(crate) fn scaled(size: usize, factor: f64) -> usize {
    ((size as f64 * factor).round() as usize).max(1)
}

/// The number of shards: few enough that a policy has entries to choose from.
pub(crate) fn shards(limit: Option<&Limit>) -> usize {
    const MOST: usize = 64;
    const ENTRIES_LEAST: usize = 1_024;
    const OBJECTS_LEAST: usize = 16;
    let Some(limit) = limit else { return MOST };
    if limit.order == EvictionOrder::Global {
        return 1;
    }
    let by_entries = limit.entries.map_or(MOST, |entries| entries / ENTRIES_LEAST);
    let by_bytes =
        limit.bytes.map_or(MOST, |bytes| bytes / limit.max_object_bytes(bytes).max(1) / OBJECTS_LEAST);
    1 << by_entries.min(by_bytes).clamp(1, MOST).ilog2()
}

/// The entries of a shard. The first shards have the remainder of the division.
pub(crate) fn share(entries: usize, shards: usize, number: usize) -> usize {
    entries / shards + usize::from(number < entries % shards)
}

/// A limit and the size that reclaiming ends at, in entries or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitBounds {
    pub(crate) max: usize,
    /// The size that reclaiming ends at.
    pub(crate) reclaim_to: usize,
}

impl LimitBounds {
    pub(crate) fn new(max: usize, reclaim: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and `max`, rounded"
        )]
        let cleared = (max as f64 * reclaim).round() as usize;
        Self { max, reclaim_to: max - cleared.min(max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_limit_or_a_global_order_has_one_shard() {
        let shards = |limit| shards(Some(&limit));
        assert_eq!(shards(Limit::entries(1)), 1);
        assert_eq!(shards(Limit::entries(1_023)), 1);
        assert_eq!(shards(Limit::entries(2_047)), 1);
        assert_eq!(shards(Limit::entries(2_048)), 2);
        assert_eq!(shards(Limit::entries(36_000)), 32);
        assert_eq!(shards(Limit::entries(100_000)), 64);
        assert_eq!(shards(Limit { order: EvictionOrder::Global, ..Limit::entries(100_000) }), 1);
        assert_eq!(shards(Limit::bytes(1)), 1);
        assert_eq!(shards(Limit::bytes(256 << 20)), 16);
        assert_eq!(shards(Limit { max_object: Some(256 << 20), ..Limit::bytes(256 << 20) }), 1);
        assert_eq!(super::shards(None), 64);
    }

    #[test]
    fn a_limit_that_cannot_be_held_is_refused() {
        assert!(Limit::entries(1).check().is_ok() && Limit::entries(0).check().is_ok());
        assert!(Limit { reclaim: 1.0, ..Limit::bytes(1) }.check().is_ok());
        for wrong in [
            Limit::NONE,
            Limit { reclaim: 1.1, ..Limit::entries(1) },
            Limit { reclaim: f64::NAN, ..Limit::entries(1) },
            Limit { max_object: Some(1), ..Limit::entries(1) },
            Limit { max_object: Some(2), ..Limit::bytes(1) },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn reclaiming_clears_its_share() {
        assert_eq!(LimitBounds::new(36_000, 0.3), LimitBounds { max: 36_000, reclaim_to: 25_200 });
        assert_eq!(LimitBounds::new(10, 0.0).reclaim_to, 10);
        assert_eq!(LimitBounds::new(10, 1.0).reclaim_to, 0);
    }
}
