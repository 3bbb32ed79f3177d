//! The breaker: a source that fails is left alone, and asked again by a few.
//!
//! ```text
//!   Closed --- errors_rate of the last min_calls failed ---------------> Open
//!     ^                                                                  | open_for
//!     '-- all probes answered, then a ramp --- HalfOpen <----------------'
//!                                              | one failed
//!                                              '---------> Open
//! ```
//!
//! Only who leads a load asks it. A not-found is an answer. Results of loads that began before the last
//! change of state say nothing about the present one and are not counted. [`Circuit`] is pure; [`Breakers`]
//! holds one behind a lock for every route.

mod circuit;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use circuit::{Circuit, Turn};
use foldhash::quality::FixedState;
use hashbrown::HashMap;
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time},
};

use crate::{
    strategy::InvalidStrategy,
    sync::{Lock, SharedLock},
};

/// When a breaker opens, and how it closes again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breaker {
    /// It opens when this share of the last `min_calls` loads has failed, above 0 and up to 1.
    pub errors_rate: f64,
    /// What ended longer ago than this says nothing.
    pub period: Duration,
    /// How many loads it looks at, from 1 to 10,000: fewer say nothing. A source that dies is asked no more
    /// often than that, and by those who ask at the same time.
    pub min_calls: u32,
    /// How long it stays open before it lets probes through.
    pub open_for: Duration,
    /// How many loads are let through then. If all of them bring an answer it closes, if one fails it is
    /// open again.
    pub probes: u32,
    /// How long after that the share of loads that are let through grows from none to all, so that a source
    /// that has just come back is not met by the herd.
    pub ramp: Duration,
}

impl Breaker {
    /// Opens for 5 s when half of the last 20 loads in 10 s have failed; then 3 probes, and a ramp of 10 s.
    pub const DEFAULT: Self = Self {
        errors_rate: 0.5,
        period: Duration::from_secs(10),
        min_calls: 20,
        open_for: Duration::from_secs(5),
        probes: 3,
        ramp: Duration::from_secs(10),
    };

    pub(crate) fn check(&self) -> Result<(), InvalidStrategy> {
        if !(self.errors_rate > 0.0 && self.errors_rate <= 1.0) {
            return Err(InvalidStrategy("`errors_rate` is a share of the loads, above 0 and up to 1"));
        }
        if !(1..=10_000).contains(&self.min_calls) {
            return Err(InvalidStrategy("the breaker's `min_calls` is from 1 to 10,000"));
        }
        if self.period.is_zero() || self.probes == 0 {
            return Err(InvalidStrategy("the breaker's `period` and `probes` have to be above 0"));
        }
        Ok(())
    }
}

/// What a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// All loads.
    Closed,
    /// A growing share of them.
    Ramp,
    /// Probes.
    HalfOpen,
    /// None.
    Open,
}

/// Tells the route of a key.
pub(crate) type RouteOf<K> = Box<dyn for<'a> Fn(&'a K) -> &'a str + Send + Sync>;

/// The breakers of a cache: one, or one for each route.
pub(crate) struct Breakers<K> {
    config: Breaker,
    routes: Option<Routes<K>>,
    /// Of who has no route of its own.
    common: Arc<Guarded>,
}

struct Routes<K> {
    of: RouteOf<K>,
    known: SharedLock<HashMap<String, Arc<Guarded>, FixedState>>,
}

/// More routes share one breaker: a name that comes with a request must not fill the memory.
const ROUTES_MOST: usize = 1_024;

/// One circuit behind its lock.
#[derive(Debug)]
pub(crate) struct Guarded {
    circuit: Lock<Circuit>,
    /// What everybody may know without the lock: from when on all goes through, in nanoseconds.
    closed_from: AtomicU64,
}

impl<K> Breakers<K> {
    pub(crate) fn new(config: Breaker, route_of: Option<RouteOf<K>>, seed: Seed) -> Self {
        let known = HashMap::with_hasher(FixedState::with_seed(seed.0));
        let routes = route_of.map(|of| Routes { of, known: SharedLock::new(known) });
        Self { config, routes, common: Guarded::new(config) }
    }

    /// The breaker that the loads of a key ask.
    pub(crate) fn of(&self, key: &K) -> Arc<Guarded> {
        let Some(routes) = &self.routes else { return Arc::clone(&self.common) };
        let route = (routes.of)(key);
        if let Some(guarded) = routes.known.read().get(route) {
            return Arc::clone(guarded);
        }
        let mut known = routes.known.write();
        if known.len() >= ROUTES_MOST && !known.contains_key(route) {
            return Arc::clone(&self.common);
        }
        Arc::clone(known.entry_ref(route).or_insert_with(|| Guarded::new(self.config)))
    }

    /// Every breaker by the name of its route; `""` is the common one.
    pub(crate) fn states(&self, now: Time) -> Vec<(String, BreakerState)> {
        let mut states: Vec<(String, _)> = vec![(String::new(), self.common.state(now))];
        if let Some(routes) = &self.routes {
            states.extend(routes.known.read().iter().map(|(route, of)| (route.clone(), of.state(now))));
        }
        states.sort_by(|(a, _), (b, _)| a.cmp(b));
        states
    }
}

impl Guarded {
    fn new(config: Breaker) -> Arc<Self> {
        Arc::new(Self { circuit: Lock::new(Circuit::new(config)), closed_from: AtomicU64::new(0) })
    }

    /// Whether it lets everything through: then, and only then, it pays to wait for a load.
    pub(crate) fn is_closed(&self, now: Time) -> bool {
        now.as_nanos() >= self.closed_from.load(Ordering::Relaxed)
    }

    /// Whether it might let a load through now; asking costs nothing.
    pub(crate) fn may_admit(&self, now: Time) -> bool {
        self.is_closed(now) || self.circuit.lock().may_admit(now)
    }

    /// Leave to load; `None`: the source is left alone.
    pub(crate) fn admit<R: Runtime>(self: &Arc<Self>, runtime: &R) -> Option<Permit<R>> {
        let turn = self.change(|circuit| circuit.admit(runtime.now()))?;
        Some(Permit { guarded: Arc::clone(self), turn: Some(turn), runtime: runtime.clone() })
    }

    pub(crate) fn state(&self, now: Time) -> BreakerState {
        self.circuit.lock().state(now)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuit = self.circuit.lock();
        let changed = change(&mut circuit);
        self.closed_from.store(circuit.closed_from().as_nanos(), Ordering::Relaxed);
        changed
    }
}

/// Leave for one load. Dropped without having been settled, it was of no use: the load never began.
#[derive(Debug)]
pub(crate) struct Permit<R: Runtime> {
    guarded: Arc<Guarded>,
    /// There until it is settled.
    turn: Option<Turn>,
    runtime: R,
}

impl<R: Runtime> Permit<R> {
    /// The source has answered, or it has not.
    pub(crate) fn settle(mut self, is_answered: bool) {
        self.end(Some(is_answered));
    }

    fn end(&mut self, is_answered: Option<bool>) {
        if let Some(turn) = self.turn.take() {
            let now = self.runtime.now();
            self.guarded.change(|circuit| circuit.settle(turn, now, is_answered));
        }
    }
}

impl<R: Runtime> Drop for Permit<R> {
    fn drop(&mut self) {
        self.end(None);
    }
}
