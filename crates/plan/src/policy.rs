//! Eviction policies: those that the cache ships, and those of the literature, for comparison.
//!
//! [`POLICIES`] is the registry. A policy is one file that implements `EvictionPolicy`, and one row there. The shipped
//! ones run the code of the cache, except `lru`, whose own code is faster here; a test compares the two.

mod arc;
mod belady;
mod clock;
mod clock2q_plus;
pub(crate) mod fifo;
mod heap;
mod lfu;
mod lirs;
pub(crate) mod lru;
mod queue;
mod shipped;
mod sketch;
mod two_q;
mod w_tinylfu;

use stockade_cache::Policy as CachePolicy;
use stockade_model::{
    named,
    registry::{Registry, UnknownName},
};

use crate::{
    replay::{CacheSetup, Capacity, Replay, replay},
    scale::scaled,
    trace::{Access, Key, Trace},
};

/// A policy by its name.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// The entry that is evicted first, with the source.
    pub summary: &'static str,
    /// The policy of the cache, where it ships; its name is the same.
    pub shipped: Option<&'static CachePolicy>,
    /// It knows the future: a bound for the others.
    pub is_bound: bool,
    run: fn(&Trace, &CacheSetup, Option<&'static CachePolicy>) -> Replay,
}

named!(Policy, "policy");

/// The facts that a policy may know before a replay starts.
pub(crate) struct PolicySetup {
    /// Keys are below this number.
    pub keys: usize,
    /// The sum of weights that fits.
    pub capacity: u64,
    /// The unit of the capacity.
    pub unit: Capacity,
    /// The mean weight of a request's object.
    pub mean_weight: f64,
    /// For how long a value is served after its ttl while a load is under way, in nanoseconds.
    pub swr_ns: u64,
    /// How long a load takes, in nanoseconds.
    pub latency_ns: u64,
    /// The policy of the cache to run.
    pub shipped: Option<&'static CachePolicy>,
}

/// An eviction policy over the entries of one cache. A key is present from `on_insert` to `on_remove` or `evict`.
pub(crate) trait EvictionPolicy {
    /// It reads [`Access::next`].
    const KNOWS_FUTURE: bool = false;

    fn new(setup: &PolicySetup) -> Self;

    /// A lookup found the key.
    fn on_hit(&mut self, access: &Access) {
        let _ = access;
    }

    /// A lookup found the key, and its value had expired: it is replaced next.
    fn on_expired(&mut self, access: &Access) {
        self.on_hit(access);
    }

    /// A lookup did not find the key. Room is made and the key is inserted next, unless it is too large.
    fn on_miss(&mut self, access: &Access) {
        let _ = access;
    }

    /// Chooses a key and forgets it; `None`: the cache is empty.
    fn evict(&mut self, access: &Access) -> Option<Key>;

    /// The key was inserted.
    fn on_insert(&mut self, access: &Access);

    /// The value of a present key was replaced by one of another weight. The request for it has been counted.
    fn on_update(&mut self, access: &Access) {
        let _ = access;
    }

    /// The key leaves for another reason than eviction.
    fn on_remove(&mut self, key: Key);
}

/// A share of the room, at least 1 and at most all of it.
fn share(capacity: u64, share: f64) -> u64 {
    scaled(capacity, share).clamp(1, capacity.max(1))
}

/// A line of the registry: a policy of the literature.
const fn of<P: EvictionPolicy>(name: &'static str, summary: &'static str) -> Policy {
    Policy {
        name,
        summary,
        shipped: None,
        is_bound: P::KNOWS_FUTURE,
        run: |trace, setup, shipped| replay::<P>(trace, setup, shipped),
    }
}

/// A policy that the cache ships.
const fn shipped(policy: &'static CachePolicy) -> Policy {
    Policy { shipped: Some(policy), ..of::<shipped::Shipped>(policy.name, policy.summary) }
}

const LRU: Policy =
    Policy { shipped: Some(CachePolicy::LRU), ..of::<lru::Lru>("lru", CachePolicy::LRU.summary) };

/// Every policy: those that ship first.
pub static POLICIES: Registry<Policy> = Registry::new(ALL);

const ALL: &[Policy] = &[
    shipped(CachePolicy::SIEVE),
    shipped(CachePolicy::S3_FIFO),
    LRU,
    shipped(CachePolicy::LFU),
    shipped(CachePolicy::GDSF),
    shipped(CachePolicy::LRW),
    Policy {
        shipped: Some(CachePolicy::AUTO),
        ..of::<shipped::ShippedAuto>(CachePolicy::AUTO.name, CachePolicy::AUTO.summary)
    },
    of::<fifo::Fifo>("fifo", "the oldest entry"),
    of::<clock::Clock>(
        "clock",
        "the oldest entry that was not requested since it was last passed (Corbató, 1968)",
    ),
    of::<lfu::Lfu>(
        "lfu-no-aging",
        "the least frequently requested entry, without aging; of equal ones the older",
    ),
    of::<two_q::TwoQ>(
        "2q",
        "new entries that were not requested again after they left a queue (Johnson, Shasha, VLDB 1994)",
    ),
    of::<arc::Arc>("arc", "recent or frequent entries, in a ratio that adapts (Megiddo, Modha, FAST 2003)"),
    of::<lirs::Lirs>(
        "lirs",
        "the entry whose last two requests were furthest apart (Jiang, Zhang, SIGMETRICS 2002)",
    ),
    of::<w_tinylfu::WTinyLfu>(
        "w-tinylfu",
        "the less frequent of a new and an old entry (Einziger, Friedman, Manes, TOS 2017)",
    ),
    of::<clock2q_plus::Clock2QPlus>(
        "clock2q+",
        "as s3-fifo, and requests soon after the first count nothing (Clock2Q+, 2025)",
    ),
    of::<belady::Belady>(
        "belady",
        "the entry that is requested again last (Belady, 1966): a bound for entries of one size",
    ),
    of::<belady::BeladySize>(
        "belady-size",
        "the entry with the most bytes times time until its next request: a bound in practice for sizes that differ",
    ),
];

impl Policy {
    /// Least recently used.
    pub const LRU: &'static Self = &LRU;

    /// The policy with this name.
    pub fn named(name: &str) -> Result<&'static Self, UnknownName> {
        POLICIES.named(name)
    }

    /// Runs a cache with this policy over a trace.
    #[must_use]
    pub fn replay(&self, trace: &Trace, setup: &CacheSetup) -> Replay {
        (self.run)(trace, &self.setup(setup), self.shipped)
    }

    /// The same cache with the bytes that this policy stores for each entry.
    pub(crate) fn setup(&self, setup: &CacheSetup) -> CacheSetup {
        let bytes = self.shipped.map_or(0, |policy| u32::try_from(policy.entry_bytes).unwrap_or(u32::MAX));
        match setup.overhead_bytes {
            0 => *setup,
            overhead => CacheSetup { overhead_bytes: overhead.saturating_add(bytes), ..*setup },
        }
    }
}

#[cfg(test)]
mod auto_tests;
#[cfg(test)]
mod tests;
