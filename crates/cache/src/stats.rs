//! What a cache has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a cache has done since it was made. All are counts.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Requests that looked for a key.
    lookups,
    /// Lookups that found a fresh value. Waiters are not hits.
    hits,
    /// Waits for another caller's load, in vain or not.
    waiters,
    /// Loads begun.
    loads,
    /// Loads that brought a value. The others are under way, failed, were cancelled at their deadline
    /// or lost.
    loads_answered,
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

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
