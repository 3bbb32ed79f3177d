//! What a cache has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

use stockade_model::outcome::{Outcome, Outcomes};

use crate::{store::Tally, strategy::Refresh};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        /// What a cache has done since it was made. All are counts.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            /// Lookups, if they are [counted](crate::Builder::count_lookups).
            pub lookups: Option<Lookups>,
            $($(#[$doc])* pub $name: u64,)*
            /// Values written into the store, by loads and by inserts.
            pub stores: u64,
            /// Values that were answered and not stored: larger than `max_object`, or while loads and other
            /// stores had all the room that there was.
            pub stores_refused: u64,
            /// Values that were answered and not stored, because they were invalidated while they were loaded.
            pub stores_outdated: u64,
            /// Entries that were invalidated.
            pub invalidated: u64,
            /// Entries that left because they had expired.
            pub evicted_expired: u64,
            /// Entries that left because others needed their room.
            pub evicted_size: u64,
            /// How often the limit was met and its share cleared: by each shard for itself, where entries are limited
            /// and the order is not global.
            pub reclaims: u64,
        }

        impl Counters {
            pub(crate) fn with(&self, tally: &Tally) -> Stats {
                let lookups = tally.lookups.map(|(hits, misses)| Lookups {
                    all: hits + misses,
                    hits: hits + self.late_hits.get(),
                });
                Stats {
                    lookups,
                    $($name: self.$name.get(),)*
                    stores: tally.stores,
                    stores_refused: tally.refused,
                    stores_outdated: tally.outdated,
                    invalidated: tally.invalidated,
                    evicted_expired: tally.evictions.expired,
                    evicted_size: tally.evictions.size,
                    reclaims: tally.evictions.reclaims,
                }
            }
        }
    };
}

counters! {
    /// Hits that were none at the first look: another's load was just stored, or the entry's age had to be
    /// looked at.
    late_hits,
    /// Requests that were given something stale while it was or might have been refreshed.
    stale,
    /// Requests that were given something stale because no load answered.
    fallbacks,
    /// Requests that were given a stored not-found.
    negatives,
    /// Requests that another caller's load answered.
    coalesced,
    /// Requests that their own load answered.
    misses,
    /// Requests that nothing could be served to.
    errors,
    /// Waits for another caller's load, in vain or not.
    waiters,
    /// Refreshes after a share of the ttl.
    refreshes_early,
    /// Refreshes by chance.
    refreshes_xfetch,
    /// Refreshes of what was stale, while that was served.
    refreshes_swr,
    /// Loads that asked a source whose breaker was not closed, while something stale was served.
    probes,
    /// Loads begun.
    loads,
    /// Loads that brought a value. The others are under way, failed, were cancelled at their deadline
    /// or lost.
    loads_answered,
    /// Loads that failed, were cancelled at their deadline or lost.
    loads_failed,
    /// Loads that did not begin: the queue was full, or their deadline came while they were in it.
    loads_rejected,
    /// Loads that did not begin because the breaker left the source alone.
    loads_refused,
    /// Answers from the shared tier that another node had loaded: before it was asked for, or while this one
    /// waited for it.
    shared_hits,
    /// Times that the shared tier was asked and had nothing that would do.
    shared_misses,
    /// Times that the shared tier was not there, or broke its word: it was done without.
    shared_failures,
    /// Waits for another node's load, in vain or not.
    shared_waits,
    /// Refill episodes. One opens at a key's first load and closes when an answer is stored or the
    /// load's deadline passes; loads / episodes is the amplification.
    episodes,
    /// Stores that the load waited for: executed, or taken into the mailbox.
    stores_sync,
    /// Stores that nobody waited for: executed, or taken into the mailbox.
    stores_async,
    /// Stores skipped because another load had claimed the same entry version.
    stores_skipped,
    /// Async stores dropped because the mailbox was full.
    stores_dropped,
}

impl Stats {
    /// How requests were answered. Hits are 0 unless [lookups are counted](crate::Builder::count_lookups).
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
        }
    }
}

/// Lookups, and what they found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Requests that looked for a key.
    pub all: u64,
    /// Those that found a fresh value. Waiters are not hits.
    pub hits: u64,
}

impl Counters {
    /// The count of refreshes of something fresh.
    pub(crate) fn refreshes(&self, how: Refresh) -> &Counter {
        match how {
            Refresh::Early { .. } => &self.refreshes_early,
            Refresh::None | Refresh::XFetch { .. } => &self.refreshes_xfetch,
        }
    }

    /// Counts a request by what became of it, unless it was a hit at the first look or had no key.
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
