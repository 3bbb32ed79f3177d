//! Counters and gauges of a cache. Each is declared once, below, with its name in metrics and its help.

use std::{
    ops::AddAssign,
    sync::atomic::{AtomicU64, Ordering},
};

use stockade_model::{
    outcome::{Outcome, Outcomes},
    snapshot,
};

use crate::freshness::Refresh;

/// The family of the counters of refreshes.
const REFRESHES: &str = "stockade_refreshes_total";

/// Declares the atomic [`Counters`], the snapshots [`RequestStats`] and [`StoreStats`], and [`Stats`] with the fields of both.
macro_rules! stats {
    (
        outcomes {
            $($(#[doc = $outcome_help:literal])+ $outcome:ident,)*
        }
        requests {
            $($(#[doc = $help:literal])+ $field:ident = $family:literal $({ $label:ident = $value:literal })?,)*
        }
        store {
            $(
                $(#[doc = $store_help:literal])+
                $store_field:ident: $type:ty = $kind:ident $store_family:literal
                $({ $store_label:ident = $store_value:literal })? $(in $unit:ident)?,
            )*
        }
    ) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $($(#[doc = $outcome_help])+ pub(crate) $outcome: Counter,)*
            $($(#[doc = $help])+ pub(crate) $field: Counter,)*
        }

        snapshot! {
            /// Counters of the requests of a cache, or of a [view](crate::Cache::view) of it.
            #[derive(Copy, Eq)]
            #[cfg_attr(feature = "spec", derive(serde::Serialize, serde::Deserialize), serde(default))]
            pub struct RequestStats {
                $($(#[doc = $help])+ $field: u64 = counter $family $({ $label = $value })?,)*
                /// Loads in flight now.
                loads_in_flight: u64 = gauge "stockade_loads_in_flight",
                +
                $($(#[doc = $outcome_help])+ $outcome: u64,)*
            }
        }

        snapshot! {
            /// The size of a cache, and counters of its stores and removals.
            #[derive(Copy, Eq)]
            #[cfg_attr(feature = "spec", derive(serde::Serialize, serde::Deserialize), serde(default))]
            pub struct StoreStats {
                $(
                    $(#[doc = $store_help])+
                    $store_field: $type = $kind $store_family $({ $store_label = $store_value })? $(in $unit)?,
                )*
            }
        }

        /// Counters since the cache was built, and gauges of now.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "spec", derive(serde::Serialize, serde::Deserialize), serde(default))]
        pub struct Stats {
            /// Lookups, if they are [counted](crate::Builder::count_lookups).
            pub lookups: Option<Lookups>,
            /// Loads in flight now.
            pub loads_in_flight: u64,
            $($(#[doc = $outcome_help])+ pub $outcome: u64,)*
            $($(#[doc = $help])+ pub $field: u64,)*
            $($(#[doc = $store_help])+ pub $store_field: $type,)*
        }

        impl Counters {
            pub(crate) fn with(&self, store: StoreStats, lookups: Option<(u64, u64)>) -> Stats {
                let lookups = lookups.map(|(hits, misses)| Lookups {
                    total: hits + misses,
                    hits: hits + self.late_hits.get(),
                });
                let ended = self.loads_answered.get() + self.loads_failed.get();
                Stats {
                    lookups,
                    loads_in_flight: self.loads.get().saturating_sub(ended),
                    $($outcome: self.$outcome.get(),)*
                    $($field: self.$field.get(),)*
                    $($store_field: store.$store_field,)*
                }
            }
        }

        impl Stats {
            /// The part that belongs to one [view](crate::Cache::view).
            #[must_use]
            pub fn requests(&self) -> RequestStats {
                RequestStats {
                    loads_in_flight: self.loads_in_flight,
                    $($outcome: self.$outcome,)*
                    $($field: self.$field,)*
                }
            }

            /// The part that all [views](crate::Cache::view) share.
            #[must_use]
            pub fn store(&self) -> StoreStats {
                StoreStats { $($store_field: self.$store_field,)* }
            }
        }

        impl RequestStats {
            /// The counters since an earlier snapshot; gauges stay.
            #[must_use]
            pub fn since(self, before: &Self) -> Self {
                Self {
                    loads_in_flight: self.loads_in_flight,
                    $($outcome: self.$outcome.saturating_sub(before.$outcome),)*
                    $($field: self.$field.saturating_sub(before.$field),)*
                }
            }

            /// Refreshes of all kinds: the counters of the family `stockade_refreshes_total`.
            #[must_use]
            pub fn refreshes(&self) -> u64 {
                let counters = [$(($family, self.$field),)*];
                counters.into_iter().filter(|(family, _)| *family == REFRESHES).map(|(_, count)| count).sum()
            }
        }

        impl StoreStats {
            /// The counters since an earlier snapshot; gauges stay.
            #[must_use]
            pub fn since(self, before: &Self) -> Self {
                Self { $($store_field: stats!(@since $kind self.$store_field, before.$store_field),)* }
            }
        }

        impl AddAssign for RequestStats {
            fn add_assign(&mut self, other: Self) {
                self.loads_in_flight += other.loads_in_flight;
                $(self.$outcome += other.$outcome;)*
                $(self.$field += other.$field;)*
            }
        }
    };
    (@since counter $now:expr, $before:expr) => { $now.saturating_sub($before) };
    (@since gauge $now:expr, $before:expr) => { $now };
}

stats! {
    outcomes {
        /// Hits after the first lookup: another load had just stored the value, or its age had to be examined.
        late_hits,
        /// Requests served a stale value while it was refreshed or could be.
        stale,
        /// Requests served a stale value because a load failed.
        fallbacks,
        /// Requests served a stored not-found.
        negatives,
        /// Requests answered by another caller's load.
        coalesced,
        /// Requests answered by their own load.
        misses,
        /// Requests that received an error.
        errors,
    }
    requests {
        /// Waits for another caller's load, successful or not.
        waiters = "stockade_waiters_total",
        /// Refreshes after a share of the ttl.
        refreshes_early = "stockade_refreshes_total" { refresh = "early" },
        /// Refreshes by xfetch.
        refreshes_xfetch = "stockade_refreshes_total" { refresh = "xfetch" },
        /// Refreshes of stale values that were served.
        refreshes_swr = "stockade_refreshes_total" { refresh = "swr" },
        /// Background loads while the breaker was not closed and a stale value was served.
        probes = "stockade_refreshes_total" { refresh = "probe" },
        /// Loads started.
        loads = "stockade_loads_total",
        /// Further loads of a key whose load is slow, one after each `hedge_after`.
        hedges = "stockade_hedges_total",
        /// Loads that returned a value. The others are in flight, failed, were cancelled at their deadline or lost.
        loads_answered = "stockade_loads_answered_total",
        /// Loads that failed, were cancelled at their deadline or lost.
        loads_failed = "stockade_loads_failed_total",
        /// Loads that did not start: the queue was full, or their deadline passed in it.
        loads_rejected = "stockade_loads_rejected_total",
        /// Loads that did not start because the breaker refused them.
        loads_refused = "stockade_loads_refused_total",
        /// Values from the shared tier that another node had loaded, before the lookup or while this node waited.
        shared_hits = "stockade_shared_total" { what = "hit" },
        /// Lookups in the shared tier that found no usable value.
        shared_misses = "stockade_shared_total" { what = "miss" },
        /// Lookups in the shared tier that failed. The node then loads without it.
        shared_failures = "stockade_shared_total" { what = "failure" },
        /// Waits for another node's load, successful or not.
        shared_waits = "stockade_shared_total" { what = "wait" },
        /// Loaded values that this node stored in the shared tier.
        shared_stores = "stockade_shared_total" { what = "store" },
        /// Refill episodes. An episode opens at a key's first load, and closes when a value is stored or the load's
        /// deadline passes. loads / episodes is the amplification.
        episodes = "stockade_episodes_total",
        /// Stores that the load waited for: executed, or accepted by the mailbox.
        stores_sync = "stockade_load_stores_total" { mode = "sync" },
        /// Stores that no load waited for: executed, or accepted by the mailbox.
        stores_async = "stockade_load_stores_total" { mode = "async" },
        /// Stores skipped because another load had claimed the entry version.
        stores_skipped = "stockade_load_stores_total" { mode = "skipped" },
        /// Async stores dropped because the mailbox was full.
        stores_dropped = "stockade_load_stores_total" { mode = "dropped" },
    }
    store {
        /// Values stored, by loads, inserts and updates.
        stores: u64 = counter "stockade_stores_total",
        /// Values answered and not stored: larger than `max_object`, or all bytes were reserved, or the limit is 0.
        stores_refused: u64 = counter "stockade_stores_refused_total",
        /// Values answered and not stored, because they were invalidated during the load.
        stores_outdated: u64 = counter "stockade_stores_outdated_total",
        /// Entries invalidated, or removed by an update.
        invalidated: u64 = counter "stockade_invalidated_total",
        /// Entries removed because they had expired or were idle.
        evicted_expired: u64 = counter "stockade_evicted_total" { reason = "expired" },
        /// Entries evicted to make room.
        evicted_size: u64 = counter "stockade_evicted_total" { reason = "size" },
        /// How often the limit was reached and a share of it cleared. With a limit in entries and without global
        /// order, each shard counts for itself.
        reclaims: u64 = counter "stockade_reclaims_total",
        /// Entries stored now, fresh or not.
        entries: u64 = gauge "stockade_entries",
        /// Bytes used now by entries and reservations, and set aside, where bytes are limited.
        bytes: Option<u64> = gauge "stockade_bytes" in Bytes,
        /// Bytes of the limit that are set aside for memory that entries do not use, such as what an allocator holds back.
        bytes_set_aside: Option<u64> = gauge "stockade_bytes_set_aside" in Bytes,
        /// Bytes of removed entries that are still in use, such as bodies that slow clients receive.
        bytes_held: Option<u64> = gauge "stockade_bytes_held" in Bytes,
    }
}

impl Stats {
    /// Requests by outcome. Hits are 0 unless [lookups are counted](crate::Builder::count_lookups).
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        Outcomes {
            hit: self.lookups.map_or(0, |lookups| lookups.hits),
            stale: self.stale,
            miss: self.misses,
            coalesced: self.coalesced,
            fallback: self.fallbacks,
            negative: self.negatives,
            error: self.errors,
            bypass: 0,
            unreported: 0,
        }
    }
}

/// Lookups, where they are [counted](crate::Builder::count_lookups).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "spec", derive(serde::Serialize, serde::Deserialize))]
pub struct Lookups {
    /// Requests that looked up a key.
    pub total: u64,
    /// Lookups that found a fresh value. Waiters are not hits.
    pub hits: u64,
}

impl Counters {
    /// The counter of refreshes of fresh values.
    pub(crate) fn refreshes(&self, how: Refresh) -> &Counter {
        match how {
            Refresh::Early { .. } => &self.refreshes_early,
            Refresh::None | Refresh::XFetch { .. } => &self.refreshes_xfetch,
        }
    }

    /// Counts a request by its outcome, unless it was a hit at the first lookup or had no key.
    pub(crate) fn answered(&self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Hit => &self.late_hits,
            Outcome::Stale => &self.stale,
            Outcome::Miss => &self.misses,
            Outcome::Coalesced => &self.coalesced,
            Outcome::Fallback => &self.fallbacks,
            Outcome::Negative => &self.negatives,
            Outcome::Error => &self.errors,
            Outcome::Bypass => return,
        };
        count.increment();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refreshes_are_the_counters_of_their_family() {
        let requests = RequestStats {
            refreshes_early: 1,
            refreshes_xfetch: 2,
            refreshes_swr: 4,
            probes: 8,
            loads: 16,
            hedges: 32,
            ..RequestStats::default()
        };
        assert_eq!(requests.refreshes(), 15);
    }
}
