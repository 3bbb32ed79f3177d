//! Ghosts: other limits, policies and ttls, simulated alongside a cache while it serves.
//!
//! ```text
//! request ---- key in the sample? -- no ---------------------------------> nothing
//!                  `- yes: each ghost decides: hit, stale, coalesced or miss, and counts
//! stored value -- key in the sample? -- yes: ghosts that waited for it store its times and weight
//! ```
//!
//! The sample has the keys whose hash is below a bound, and a ghost has the same share of its limit (Waldspurger et al.: Efficient
//! MRC Construction with SHARDS, FAST 2015). The first ghost has the configuration of the cache itself. Another ghost differs
//! from that one about as much as the cache would differ from itself with the other configuration: a popular key that the
//! sample has or lacks is the same in both.

mod choice;
mod ghost;
mod sample;

use std::time::Duration;

use stockade_model::{seed::Seed, snapshot, time::Time};

use self::sample::Sample;
use crate::{
    error::InvalidStrategy,
    freshness::Lifetime,
    invalidation::Invalidation,
    limit::Limit,
    locks::{AtomicU32, Lock, Ordering},
    policy::{POLICIES, Policy},
    sharded::shorten as position,
};

/// Ghosts of one cache, at most.
pub const GHOSTS_MAX: usize = 30;

/// The ghosts of a cache: [`Builder::shadow`](crate::Builder::shadow).
#[derive(Clone, Debug, PartialEq)]
pub struct Shadow {
    /// The simulated caches. One with the configuration of the cache itself is added.
    pub ghosts: Vec<Ghost>,
    /// Keys in the sample, at most. With more, the ghosts need more memory and are more exact.
    pub keys_max: usize,
}

/// One simulated cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Ghost {
    /// Its name in figures.
    pub name: String,
    /// Its limit.
    pub limit: Limit,
    /// Its ttl.
    pub ttl: GhostTtl,
}

/// For how long the values of a ghost are fresh; not-founds keep their own time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GhostTtl {
    /// As in the cache.
    Same,
    /// For this time, whatever the value or the strategy says.
    Fixed(Duration),
    /// A multiple of the ttl in the cache.
    Times(f64),
}

impl Shadow {
    /// [`keys_max`](Self::keys_max), unless something else is chosen.
    pub const KEYS_MAX: usize = 16_384;

    /// Half and twice the limit, every other policy, and twice the ttl.
    #[must_use]
    pub fn around(limit: &Limit) -> Self {
        let sizes = [0.5, 2.0].map(|factor| Ghost::of_size(limit, factor));
        let policies = POLICIES.iter().filter(|policy| **policy != *limit.policy && !policy.is_auto());
        let policies = policies.map(|policy| Ghost::of_policy(limit, policy));
        let ttls = std::iter::once(Ghost::of_ttl(limit, GhostTtl::Times(2.0)));
        Self { ghosts: sizes.into_iter().chain(policies).chain(ttls).collect(), keys_max: Self::KEYS_MAX }
    }

    /// Checks the values, for a cache with this limit.
    pub(crate) fn check(&self, limit: Option<&Limit>) -> Result<(), InvalidStrategy> {
        if limit.is_none() {
            return Err(InvalidStrategy("ghosts differ in their limits: give the cache a `limit`"));
        }
        if self.ghosts.len() > GHOSTS_MAX {
            return Err(InvalidStrategy("a cache has 30 ghosts at most"));
        }
        if !(256..=1 << 17).contains(&self.keys_max) {
            return Err(InvalidStrategy("the sample of a shadow has 256 to 131,072 keys"));
        }
        if !limit.is_some_and(|limit| limit.policy.is_auto())
            && self.ghosts.iter().any(|ghost| ghost.limit.policy.is_auto())
        {
            return Err(InvalidStrategy("only ghosts of a cache with the policy `auto` can have it"));
        }
        let mut names: Vec<&str> = self.ghosts.iter().map(|ghost| ghost.name.as_str()).collect();
        names.push(AS_CONFIGURED);
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(InvalidStrategy("two ghosts have the same name"));
        }
        let is_invalid = |ttl| matches!(ttl, GhostTtl::Times(times) if !(times > 0.0 && times.is_finite()));
        if self.ghosts.iter().any(|ghost| is_invalid(ghost.ttl)) {
            return Err(InvalidStrategy("the ttl of a ghost is multiplied by a number above 0"));
        }
        self.ghosts.iter().try_for_each(|ghost| ghost.limit.check())
    }
}

impl Ghost {
    /// The limit times `factor`. The largest entry that is stored stays the same where it fits.
    #[must_use]
    pub fn of_size(limit: &Limit, factor: f64) -> Self {
        Self::of_limit(format!("{factor}x size"), limit.times(factor))
    }

    /// Another limit.
    #[must_use]
    pub fn of_limit(name: String, limit: Limit) -> Self {
        Self { name, limit: limit.with_fitting_object(), ttl: GhostTtl::Same }
    }

    /// The same limit with another policy.
    #[must_use]
    pub fn of_policy(limit: &Limit, policy: &'static Policy) -> Self {
        Self::of_limit(policy.name.to_owned(), Limit { policy, ..limit.clone() })
    }

    /// A candidate of the policy `auto`.
    fn of_candidate(limit: &Limit, policy: &'static Policy) -> Self {
        Self { name: format!("auto: {}", policy.name), ..Self::of_policy(limit, policy) }
    }

    /// The same limit with another ttl.
    #[must_use]
    pub fn of_ttl(limit: &Limit, ttl: GhostTtl) -> Self {
        let name = match ttl {
            GhostTtl::Same => AS_CONFIGURED.to_owned(),
            GhostTtl::Fixed(ttl) => format!("ttl {ttl:?}"),
            GhostTtl::Times(times) => format!("{times}x ttl"),
        };
        Self { ttl, ..Self::of_limit(name, limit.clone()) }
    }
}

impl GhostTtl {
    /// The ttl in place of the cache's own; `None`: for ever.
    fn of(self, own: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Same => own,
            Self::Fixed(ttl) => Some(ttl),
            Self::Times(times) => {
                own.map(|own| Duration::try_from_secs_f64(own.as_secs_f64() * times).unwrap_or(own))
            }
        }
    }
}

/// The policy that a cache with this limit starts with.
pub(crate) fn first_policy(limit: &Limit) -> &'static Policy {
    if limit.policy.is_auto() { choice::candidates(limit)[0] } else { limit.policy }
}

/// The name of the ghost that the others are compared with.
const AS_CONFIGURED: &str = "as configured";

snapshot! {
    /// The ghosts of a cache and their sample.
    #[cfg_attr(feature = "spec", derive(serde::Serialize, serde::Deserialize), serde(default))]
    pub struct ShadowStats {
        /// Share of the keys in the sample.
        sampled_share: f64 = gauge "stockade_shadow_sampled_share",
        /// Keys that ghosts hold.
        keys: u64 = gauge "stockade_shadow_keys",
        /// Hits of the cache itself as a share of requests, over the keys of the sample, since the start.
        measured_hit_ratio: Option<f64> = gauge "stockade_shadow_measured_hit_ratio",
        /// Requests for keys of the sample.
        sampled_requests: u64 = counter "stockade_shadow_requests_total",
        /// Bound of the memory of all ghosts.
        bytes_max: u64 = gauge "stockade_shadow_bytes_max" in Bytes,
        /// How often the policy `auto` chose another one.
        policy_changes: u64 = counter "stockade_policy_changes_total",
        +
        /// The cache itself, simulated, and then the ghosts.
        ghosts: Vec<GhostStats>,
        /// The policy that evicts now: the one that `auto` chose, or that of the limit.
        policy: String,
    }
}

snapshot! {
    /// One ghost.
    #[cfg_attr(feature = "spec", derive(serde::Serialize, serde::Deserialize), serde(default))]
    pub struct GhostStats {
        /// Hits of the last hour as a share of requests, minus that of the ghost `as configured`.
        hit_ratio_change: Option<f64> = gauge "stockade_ghost_hit_ratio_change",
        /// Loads of the last hour, divided by those of the ghost `as configured`.
        loads_ratio: Option<f64> = gauge "stockade_ghost_loads_ratio",
        +
        /// Its name.
        name: String,
        /// The policy of its limit.
        policy: String,
        /// Entries of its limit.
        entries_limit: Option<u64>,
        /// Bytes of its limit.
        bytes_limit: Option<u64>,
        /// Since the start.
        total: GhostCounts,
        /// Of the last hour.
        hour: GhostCounts,
    }
}

snapshot! {
    /// Requests by the way in which a ghost answers them. A request for a sampled key counts for all requests that it stands for, so
    /// these are estimates of all requests.
    #[derive(Copy, Eq)]
    #[cfg_attr(feature = "spec", derive(serde::Serialize, serde::Deserialize), serde(default))]
    pub struct GhostCounts {
        /// Requests, estimated from those for sampled keys.
        requests: u64 = counter "stockade_ghost_requests_total",
        /// Requests that a ghost answers from a fresh entry.
        hits: u64 = counter "stockade_ghost_hits_total",
        /// Requests that a ghost answers from a stale entry.
        stale: u64 = counter "stockade_ghost_stale_total",
        /// Requests that wait for the load of another one in a ghost.
        coalesced: u64 = counter "stockade_ghost_coalesced_total",
        /// Loads of a ghost, refreshes included.
        loads: u64 = counter "stockade_ghost_loads_total",
    }
}

impl GhostCounts {
    /// Hits as a share of requests; `None`: no request was counted.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.hits as f64 / self.requests as f64)
    }

    /// The counts since an earlier time.
    fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            hits: self.hits - before.hits,
            stale: self.stale - before.stale,
            coalesced: self.coalesced - before.coalesced,
            loads: self.loads - before.loads,
        }
    }
}

/// The stored value of a key, as far as a ghost needs it.
#[derive(Clone, Copy, Debug)]
pub struct StoredFacts {
    /// From its store to its end.
    pub life: Lifetime,
    /// In bytes, with a limit in bytes.
    pub weight: u32,
    /// True if a request for it is loaded all the same.
    pub is_marker: bool,
}

/// The ghosts of one cache, which all threads share.
#[derive(Debug)]
pub(crate) struct SampledGhosts {
    /// Keys up to this position are sampled: a copy of the sample's own bound. 0 without ghosts.
    sampled_to: AtomicU32,
    /// The number of the policy that the ghosts have chosen.
    chosen: AtomicU32,
    /// `None`: there are no ghosts.
    sample: Option<Box<Lock<Sample>>>,
}

impl SampledGhosts {
    pub(crate) fn none() -> Self {
        Self { sampled_to: AtomicU32::new(0), chosen: AtomicU32::new(0), sample: None }
    }

    /// The ghosts of a shadow, and those that the policy `auto` needs.
    pub(crate) fn new(shadow: Option<&Shadow>, limit: Option<&Limit>, seed: Seed) -> Self {
        let Some(limit) = limit.filter(|limit| shadow.is_some() || limit.policy.is_auto()) else {
            return Self::none();
        };
        let sample = Sample::new(shadow, limit, seed);
        Self {
            sampled_to: AtomicU32::new(sample.last_position()),
            chosen: AtomicU32::new(0),
            sample: Some(Box::new(Lock::new(sample))),
        }
    }

    /// False for keys outside of the sample. On the path of each hit.
    #[inline]
    pub(crate) fn may_sample(&self, hash: u64) -> bool {
        position(hash) <= self.sampled_to.load(Ordering::Relaxed)
    }

    pub(crate) fn is_none(&self) -> bool {
        self.sample.is_none()
    }

    /// A request for a key. `stored` is what the cache has, fresh or not. Returns true if another policy was chosen.
    #[cold]
    pub(crate) fn request(&self, hash: u64, now: Time, stored: Option<StoredFacts>) -> bool {
        let chosen = self.note(hash, |sample| sample.request(hash, now, stored)).flatten();
        if let Some(policy) = chosen {
            let number =
                POLICIES.iter().zip(0..).find(|(known, _)| *known == policy).map_or(0, |(_, number)| number);
            self.chosen.store(number, Ordering::Relaxed);
        }
        chosen.is_some()
    }

    /// The policy that was chosen last.
    pub(crate) fn chosen(&self) -> &'static Policy {
        &POLICIES[self.chosen.load(Ordering::Relaxed) as usize]
    }

    /// A value was loaded and stored.
    #[cold]
    pub(crate) fn stored(&self, hash: u64, now: Time, stored: StoredFacts, took: Duration) {
        self.note(hash, |sample| sample.stored(hash, now, stored, took));
    }

    /// A load ended, and its value was not stored.
    #[cold]
    pub(crate) fn not_stored(&self, hash: u64) {
        self.note(hash, |sample| sample.not_stored(hash));
    }

    /// Entries were invalidated, given by the [positions](position) of their keys.
    pub(crate) fn invalidate(&self, positions: &[u32], how: Invalidation, now: Time) {
        let mut sampled =
            positions.iter().filter(|position| self.may_sample(u64::from(**position))).peekable();
        if sampled.peek().is_some()
            && let Some(sample) = &self.sample
        {
            let mut sample = sample.lock();
            sampled.for_each(|position| sample.invalidate(*position, how, now));
        }
    }

    /// All entries were invalidated.
    pub(crate) fn invalidate_all(&self, how: Invalidation, now: Time) {
        if let Some(sample) = &self.sample {
            sample.lock().invalidate_all(how, now);
        }
    }

    /// The figures. The sample may grow: where it has no requested key, nothing else makes it grow.
    pub(crate) fn stats(&self, now: Time) -> Option<ShadowStats> {
        let mut sample = self.sample.as_ref()?.lock();
        let stats = sample.stats(now);
        self.publish_bound(&sample);
        Some(stats)
    }

    fn publish_bound(&self, sample: &Sample) {
        // Every hit reads it.
        if self.sampled_to.load(Ordering::Relaxed) != sample.last_position() {
            self.sampled_to.store(sample.last_position(), Ordering::Relaxed);
        }
    }

    fn note<T>(&self, hash: u64, note: impl FnOnce(&mut Sample) -> T) -> Option<T> {
        if !self.may_sample(hash) {
            return None;
        }
        let mut sample = self.sample.as_ref()?.lock();
        // Another thread may have made the sample smaller.
        let noted = (position(hash) <= sample.last_position()).then(|| note(&mut sample));
        self.publish_bound(&sample);
        noted
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
