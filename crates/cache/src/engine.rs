//! The state of a cache, and what its parts share.
//!
//! [`request`] serves one request, [`load`] runs one load, [`insertion`] stores one value without a load, [`update`] changes a
//! stored one, and [`shared_tier`] looks keys up in a tier that nodes share. Each of them adds methods to [`Engine`], and they
//! call each other in one direction: `request` calls `load`, `update` calls `insertion`, these call `shared_tier`, and all
//! call this file.

pub(crate) mod admission;
pub(crate) mod blocking_loads;
pub(crate) mod insertion;
pub(crate) mod load;
mod load_times;
pub(crate) mod loaded;
pub(crate) mod loader;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod pending_work;
pub(crate) mod request;
pub(crate) mod shared_tier;
pub(crate) mod update;
pub(crate) mod writer;

use std::{borrow::Borrow, hash::Hash, sync::Arc, time::Duration};

use stockade_model::{
    outcome::Outcome,
    seed::Seed,
    time::{Runtime, Time},
};

use self::{
    admission::Admission,
    blocking_loads::BlockingLoads,
    load_times::LoadTimes,
    loaded::{LoadResult, Loaded, LoadedFrom},
    pending_work::PendingWork,
    writer::StoreWriter,
};
use crate::{
    breaker::{BreakerState, Breakers, RouteFn},
    coalesce::Coalescer,
    error::{Error, InvalidStrategy},
    freshness::{Lifespan, Lifetime, LifetimeRules},
    invalidation::{Invalidation, InvalidationSeq},
    random::Random,
    stats::{Counters, Stats},
    store::{
        SlowLookup, Store, StoreConfig, budget::ByteUsage, invalidate::EXAMINED_AT_ONCE, shard::LookupResult,
    },
    strategy::{Fetch, HedgeAfter, Strategy},
    tier::SharedTier,
};

pub(crate) struct Engine<K: Hash + Eq + Clone, V: Clone, R: Runtime> {
    pub(crate) strategy: Strategy,
    pub(crate) lifetimes: LifetimeRules,
    pub(crate) runtime: R,
    pub(crate) store: Arc<Store<K, V>>,
    pub(crate) coalescer: Arc<Coalescer<K, LoadResult<V>>>,
    pub(crate) writer: StoreWriter<K, V, R>,
    pub(crate) admission: Admission,
    pub(crate) breakers: Option<Breakers<K>>,
    pub(crate) blocking_loads: BlockingLoads<R>,
    /// `None`: nothing is learned from them.
    load_times: Option<Box<LoadTimes>>,
    pub(crate) random: Random,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pending_work: Arc<PendingWork>,
    pub(crate) values: ValueFunctions<V>,
    pub(crate) shared: Option<Arc<SharedTier<K, V>>>,
    pub(crate) name: Option<String>,
    #[cfg(feature = "metrics")]
    pub(crate) meter: Option<metrics::CacheMetrics>,
}

/// The parts that the [views](crate::Cache::view) of one cache share.
struct SharedParts<K: Hash + Eq + Clone, V: Clone, R: Runtime> {
    runtime: R,
    store: Arc<Store<K, V>>,
    coalescer: Arc<Coalescer<K, LoadResult<V>>>,
    pending_work: Arc<PendingWork>,
    values: ValueFunctions<V>,
    shared: Option<Arc<SharedTier<K, V>>>,
}

/// A checked configuration, from which a cache is started.
pub(crate) struct EngineConfig<K, V> {
    pub(crate) strategy: Strategy,
    pub(crate) store_config: StoreConfig<K, V>,
    pub(crate) values: ValueFunctions<V>,
    pub(crate) route: Option<RouteFn<K>>,
    pub(crate) shared: Option<SharedTier<K, V>>,
    /// The label of the cache in spans and in metrics; `None`: it reports no metrics.
    pub(crate) name: Option<String>,
}

/// Functions that classify values.
pub(crate) struct ValueFunctions<V> {
    pub(crate) not_found: Option<NotFoundFn<V>>,
    pub(crate) lifespan: Option<LifespanFn<V>>,
}

/// Returns whether a value stands for a not-found.
pub(crate) type NotFoundFn<V> = Arc<dyn Fn(&V) -> bool + Send + Sync>;

/// Returns the lifespan of a value; `None`: that of the strategy.
pub(crate) type LifespanFn<V> = Arc<dyn Fn(&V) -> Option<Lifespan> + Send + Sync>;

impl<V> ValueFunctions<V> {
    /// Checks a strategy, and that these functions cover what it needs.
    pub(crate) fn check(&self, strategy: &Strategy) -> Result<(), InvalidStrategy> {
        strategy.check()?;
        if strategy.negative_ttl.is_some() && self.not_found.is_none() {
            return Err(InvalidStrategy(
                "`negative_ttl` needs a function that recognises not-founds: call Builder::not_found",
            ));
        }
        Ok(())
    }
}

impl<V> Clone for ValueFunctions<V> {
    fn clone(&self) -> Self {
        Self { not_found: self.not_found.clone(), lifespan: self.lifespan.clone() }
    }
}

impl<K, V, R> Engine<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// `plan` has been checked.
    pub(crate) fn start(runtime: R, seed: Seed, plan: EngineConfig<K, V>) -> Arc<Self> {
        let EngineConfig { strategy, store_config, values, route, shared, name } = plan;
        let store = Arc::new(Store::new(seed.child("store"), strategy.limit.as_ref(), store_config));
        let coalescer = Coalescer::new(seed.child("flights"), || Err(Error::LeaderLost));
        let common = SharedParts {
            runtime,
            store,
            coalescer,
            pending_work: Arc::default(),
            values,
            shared: shared.map(Arc::new),
        };
        Self::from_parts(common, seed, strategy, route, name)
    }

    /// An engine over the same entries and loads, with another strategy.
    pub(crate) fn view(
        &self,
        strategy: &Strategy,
        name: Option<String>,
    ) -> Result<Arc<Self>, InvalidStrategy> {
        let strategy = Strategy { limit: self.strategy.limit.clone(), ..strategy.clone() };
        self.values.check(&strategy)?;
        let common = SharedParts {
            runtime: self.runtime.clone(),
            store: Arc::clone(&self.store),
            coalescer: Arc::clone(&self.coalescer),
            pending_work: Arc::clone(&self.pending_work),
            values: self.values.clone(),
            shared: self.shared.clone(),
        };
        Ok(Self::from_parts(common, self.random.seed(), strategy, None, name))
    }

    fn from_parts(
        common: SharedParts<K, V, R>,
        seed: Seed,
        strategy: Strategy,
        route: Option<RouteFn<K>>,
        name: Option<String>,
    ) -> Arc<Self> {
        let SharedParts { runtime, store, coalescer, pending_work, values, shared } = common;
        let counters = Arc::<Counters>::default();
        let engine = Arc::new(Self {
            lifetimes: LifetimeRules::of(strategy.times()),
            writer: StoreWriter::new(
                strategy.writer,
                Arc::clone(&store),
                Arc::clone(&counters),
                runtime.clone(),
            ),
            breakers: strategy.breaker.map(|config| Breakers::new(config, route, seed.child("routes"))),
            blocking_loads: BlockingLoads::default(),
            load_times: (strategy.load.hedge_after == Some(HedgeAfter::Learned)).then(Box::default),
            admission: Admission::new(&strategy.load),
            random: Random::new(seed.child("chance")),
            #[cfg(feature = "metrics")]
            meter: name.as_deref().map(metrics::CacheMetrics::new),
            strategy,
            runtime,
            store,
            coalescer,
            pending_work,
            values,
            shared,
            counters,
            name,
        });
        #[cfg(feature = "metrics")]
        engine.start_recording();
        engine
    }

    /// The time, if it matters.
    #[inline]
    pub(crate) fn now_for_lookups(&self) -> Time {
        if self.store.has_end() { self.runtime.coarse_now() } else { Time::ZERO }
    }

    /// Finishes a lookup of an entry that is not simply fresh.
    #[inline]
    pub(crate) fn look_closer<Q: Hash + Eq + ?Sized>(
        &self,
        lookup: SlowLookup<'_, K, V>,
        key: &Q,
        now: Time,
    ) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match lookup.finish(key, now) {
            LookupResult::Aged(aged) if now < aged.life.expires => {
                let is_negative = aged.life.is_negative();
                self.counters.answered(if is_negative { Outcome::Negative } else { Outcome::Hit });
                Some(aged.value)
            }
            _ => None,
        }
    }

    pub(crate) fn invalidate<Q: Hash + Eq + ?Sized>(&self, key: &Q, how: Invalidation) -> bool
    where
        K: Borrow<Q>,
    {
        let was_stored = self.store.invalidate(key, how, self.runtime.coarse_now());
        // Later requests must not wait for a load whose value is outdated.
        self.coalescer.detach(key);
        was_stored
    }

    pub(crate) fn restrict_to_fallback(&self, key: &K) -> bool {
        self.store.restrict_to_fallback(key, self.runtime.coarse_now())
    }

    pub(crate) fn invalidate_tag(&self, tag: &str, how: Invalidation) -> usize {
        let count = self.store.invalidate_tag(tag, how, self.runtime.coarse_now());
        self.carry_out_invalidations();
        count
    }

    /// Carries out some of what is invalidated, and leaves the rest to a task.
    fn carry_out_invalidations(&self) {
        if self.store.carry_out(EXAMINED_AT_ONCE)
            && let Some(carrying_out) = self.store.begin_carrying_out()
        {
            self.runtime.spawn(carrying_out.run());
        }
    }

    pub(crate) fn invalidate_if(&self, matches: impl Fn(&K, &V) -> bool, how: Invalidation) -> usize {
        let count = self.store.invalidate_if(matches, how, self.runtime.coarse_now());
        self.coalescer.detach_all();
        count
    }

    pub(crate) fn invalidate_all(&self, how: Invalidation) -> usize {
        let now = self.runtime.coarse_now();
        let count = self.store.invalidate_all(how, now);
        self.coalescer.detach_all();
        self.store.invalidate_ghosts(how, now);
        self.carry_out_invalidations();
        count
    }

    /// The result of a load that ended at `at`. `own` is the lifespan that the load returned.
    pub(crate) fn new_loaded(
        &self,
        value: V,
        own: Option<Lifespan>,
        at: Time,
        took: Duration,
        since: InvalidationSeq,
    ) -> Loaded<V> {
        let life = self.lifetime_of(&value, own, at, took);
        Loaded { value, life, at, took, since, via: LoadedFrom::Load }
    }

    /// The lifetime of a value; `None`: it is not stored. `own` is its lifespan, if it came with one.
    #[inline]
    pub(crate) fn lifetime_of(
        &self,
        value: &V,
        own: Option<Lifespan>,
        at: Time,
        took: Duration,
    ) -> Option<Lifetime> {
        // Lookups read the coarse clock, which may be behind. Counted from a later time the value would be fresh
        // for longer than its ttl, and a value with a ttl of 0 would be fresh at all.
        let loaded = at.min(self.runtime.coarse_now());
        let own = own.or_else(|| self.own_lifespan(value));
        if own == Some(Lifespan::NONE) {
            return None;
        }
        if self.is_not_found(value) {
            return self.lifetimes.negative_life(own, loaded);
        }
        Some(self.lifetimes.life(own, loaded, took, || self.random.uniform()))
    }

    /// True for a value that stands for a not-found.
    pub(crate) fn is_not_found(&self, value: &V) -> bool {
        self.values.not_found.as_ref().is_some_and(|is_not_found| is_not_found(value))
    }

    /// The lifespan that the value itself defines.
    pub(crate) fn own_lifespan(&self, value: &V) -> Option<Lifespan> {
        self.values.lifespan.as_ref().and_then(|lifespan| lifespan(value))
    }

    pub(crate) fn coalesces(&self) -> bool {
        self.strategy.fetch != Fetch::Independent
    }

    /// How long a load takes before a waiter loads, too.
    pub(crate) fn hedge_after(&self) -> Option<Duration> {
        let hedge_after = self.strategy.load.hedge_after?;
        let p99 = self.load_times.as_ref().and_then(|times| times.p99());
        Some(hedge_after.time(p99, self.strategy.load.deadline))
    }

    /// The error of a load that missed its deadline.
    pub(crate) fn deadline_error(&self) -> Error {
        Error::Deadline { after: self.strategy.load.deadline }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.with(self.store.stats(), self.store.lookups())
    }

    pub(crate) fn byte_usage(&self) -> Option<ByteUsage> {
        let budget = self.store.budget()?;
        Some(ByteUsage { used: budget.used(), set_aside: budget.set_aside(), peak: budget.peak() })
    }

    pub(crate) fn breaker_states(&self) -> Vec<(String, BreakerState)> {
        self.breakers.as_ref().map(|breakers| breakers.states(self.runtime.now())).unwrap_or_default()
    }
}

#[cfg(all(test, shuttle))]
mod explored;
