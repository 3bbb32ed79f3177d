//! Circuit breakers: stop loads from a source that fails, and probe whether it is back.
//!
//! ```text
//!   Closed --- errors_rate of the last min_calls failed ---------------> Open
//!     ^                                                                  | open_for
//!     '-- `probes` answered, then a ramp ----- HalfOpen <----------------'
//!                                              | one failed, of a key that had not
//!                                              '---------> Open
//! ```
//!
//! The breaker admits the loads of leaders, and calls of `Cache::admit_call`. A not-found is a success. The result of a load that
//! started before the last change of state is not counted.
//!
//! A load that the source does not answer in time is a failure only if the source has answered no other load since it started: a
//! report of a minute, or a value that never comes, says nothing about the others. For the same reason a key has one probe at a
//! time, and after a failed one the next only after `open_for`.
//!
//! On the ramp the source has as many loads in flight as probes at first, and one more after each answer. Loads beyond wait for
//! their turn. With [`Breaker::wait`] they also wait for the next probes.
//!
//! A few bad keys or clients do not close a route. While other loads are answered, failures count only if they are
//! independent (no two share a key or a client): five of them, or as many as all loads of the window have. If nothing
//! else was loaded, a few keys or clients do open the breaker. Then loads of other keys and clients are *trials*. Each that
//! fails is one more independent failure, so a dead source receives four at most. After as many answers as `probes` the
//! breaker closes without a ramp, and the failures of those few are not counted while others are answered.
//!
//! [`Circuit`] is the pure state machine, [`recovery`] has its probes and the ramp, [`evidence`] tells a few from all, and
//! [`Breakers`] holds a circuit behind a lock for each route.

mod circuit;
mod evidence;
mod recovery;

use std::{
    hash::{BuildHasher, Hash},
    num::NonZeroU64,
    sync::Arc,
};

pub(crate) use circuit::LoadOutcome;
use circuit::{Admission, AdmittedLoad, Circuit};
pub use circuit::{Breaker, BreakerState};
pub(crate) use evidence::LoadIdentity;
use foldhash::quality::FixedState;
use hashbrown::HashMap;
use stockade_model::{
    seed::Seed,
    time::{Runtime, Time, before},
};
use tokio::sync::Notify;

use crate::{
    locks::{AtomicU64, AtomicUsize, Lock, Ordering, SharedLock},
    store::budget::WaitCount,
};

/// Returns the route of a key.
pub(crate) type RouteFn<K> = Box<dyn for<'a> Fn(&'a K) -> &'a str + Send + Sync>;

/// The breakers of a cache: one, or one for each route.
pub(crate) struct Breakers<K> {
    config: Breaker,
    routes: Option<RouteBreakers<K>>,
    /// For keys without a route.
    default: Arc<RouteBreaker>,
    /// Hashes a key for its [`LoadIdentity`].
    hasher: FixedState,
}

struct RouteBreakers<K> {
    route_of: RouteFn<K>,
    known: SharedLock<HashMap<String, Arc<RouteBreaker>, FixedState>>,
}

/// Further routes share the default breaker: names that come with requests must not fill the memory.
const ROUTES_MAX: usize = 1_024;

/// One circuit behind its lock.
#[derive(Debug)]
pub(crate) struct RouteBreaker {
    circuit: Lock<Circuit>,
    /// The time from which all loads are admitted, in nanoseconds. Read without the lock.
    all_admitted_from: AtomicU64,
    /// Wakes the loads that wait for their turn, in their order.
    turns: Notify,
    waiting: AtomicUsize,
}

/// The breaker's answer to a load.
#[derive(Debug)]
pub(crate) enum BreakerVerdict<R: Runtime> {
    Admitted(BreakerPermit<R>),
    /// On the ramp, or shortly before the answers of probes: [`RouteBreaker::wait_for_turn`].
    Wait,
    Refused,
}

impl<K> Breakers<K> {
    pub(crate) fn new(config: Breaker, route_of: Option<RouteFn<K>>, seed: Seed) -> Self {
        let hasher = FixedState::with_seed(seed.0);
        let known = HashMap::with_hasher(hasher.clone());
        let routes = route_of.map(|route_of| RouteBreakers { route_of, known: SharedLock::new(known) });
        Self { config, routes, default: RouteBreaker::new(config), hasher }
    }

    pub(crate) fn identity(&self, key: &K, client: Option<NonZeroU64>) -> LoadIdentity
    where
        K: Hash,
    {
        LoadIdentity { key: self.hasher.hash_one(key), client }
    }

    /// True if a load might pass now. Changes no state.
    pub(crate) fn may_admit(&self, key: &K, client: Option<NonZeroU64>, now: Time) -> bool
    where
        K: Hash,
    {
        let breaker = self.for_key(key);
        breaker.is_closed(now) || breaker.circuit.lock().may_admit(now, self.identity(key, client))
    }

    pub(crate) fn for_key(&self, key: &K) -> Arc<RouteBreaker> {
        let Some(routes) = &self.routes else { return Arc::clone(&self.default) };
        let route = (routes.route_of)(key);
        if let Some(breaker) = routes.known.read().get(route) {
            return Arc::clone(breaker);
        }
        let mut known = routes.known.write();
        if known.len() >= ROUTES_MAX && !known.contains_key(route) {
            return Arc::clone(&self.default);
        }
        Arc::clone(known.entry_ref(route).or_insert_with(|| RouteBreaker::new(self.config)))
    }

    /// The state of each breaker by the name of its route; `""` is the default one.
    pub(crate) fn states(&self, now: Time) -> Vec<(String, BreakerState)> {
        let mut states: Vec<(String, _)> = vec![(String::new(), self.default.state(now))];
        if let Some(routes) = &self.routes {
            states.extend(
                routes.known.read().iter().map(|(route, breaker)| (route.clone(), breaker.state(now))),
            );
        }
        states.sort_by(|(a, _), (b, _)| a.cmp(b));
        states
    }
}

impl RouteBreaker {
    fn new(config: Breaker) -> Arc<Self> {
        Arc::new(Self {
            circuit: Lock::new(Circuit::new(config)),
            all_admitted_from: AtomicU64::new(0),
            turns: Notify::new(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// True if all loads pass. Only then a request waits for a load.
    pub(crate) fn is_closed(&self, now: Time) -> bool {
        now.as_nanos() >= self.all_admitted_from.load(Ordering::Relaxed)
    }

    pub(crate) fn admit<R: Runtime>(
        self: &Arc<Self>,
        identity: LoadIdentity,
        runtime: &R,
    ) -> BreakerVerdict<R> {
        // Those that wait come first.
        if self.waiting.load(Ordering::SeqCst) > 0 && self.state(runtime.now()) == BreakerState::Ramp {
            return BreakerVerdict::Wait;
        }
        match self.try_admit(identity, runtime) {
            Ok(permit) => BreakerVerdict::Admitted(permit),
            Err(Admission::Wait { .. }) => BreakerVerdict::Wait,
            Err(_) => BreakerVerdict::Refused,
        }
    }

    /// Waits until the load is admitted. `None`: its turn has not come until `patience`, `waiting_max` loads wait already,
    /// or the circuit has opened again.
    pub(crate) async fn wait_for_turn<R: Runtime>(
        self: &Arc<Self>,
        identity: LoadIdentity,
        runtime: &R,
        patience: Time,
        waiting_max: usize,
    ) -> Option<BreakerPermit<R>> {
        let _waiting = WaitCount::try_start(&self.waiting, waiting_max)?;
        let started = runtime.now();
        loop {
            let turn = self.turns.notified();
            match self.try_admit(identity, runtime) {
                Ok(permit) => {
                    // An answer may have made room for two.
                    self.turns.notify_one();
                    return Some(permit);
                }
                Err(Admission::Wait { until, at_most }) => {
                    let patience = at_most.map_or(patience, |at_most| patience.min(started + at_most));
                    if runtime.now() >= patience {
                        return None;
                    }
                    before(runtime, until.min(patience), turn).await;
                }
                Err(_) => return None,
            }
        }
    }

    fn try_admit<R: Runtime>(
        self: &Arc<Self>,
        identity: LoadIdentity,
        runtime: &R,
    ) -> Result<BreakerPermit<R>, Admission> {
        match self.change(|circuit| circuit.admit(runtime.now(), identity)) {
            Admission::Admitted(admitted) => Ok(BreakerPermit {
                breaker: Arc::clone(self),
                admitted: Some(admitted),
                runtime: runtime.clone(),
            }),
            refused => Err(refused),
        }
    }

    pub(crate) fn state(&self, now: Time) -> BreakerState {
        self.circuit.lock().state(now)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuit = self.circuit.lock();
        let changed = change(&mut circuit);
        self.all_admitted_from.store(circuit.all_admitted_from().as_nanos(), Ordering::Relaxed);
        changed
    }
}

/// The right to run one load. If it is dropped without a result, the load never started.
#[derive(Debug)]
pub(crate) struct BreakerPermit<R: Runtime> {
    breaker: Arc<RouteBreaker>,
    /// `None` after the result.
    admitted: Option<AdmittedLoad>,
    runtime: R,
}

impl<R: Runtime> BreakerPermit<R> {
    /// Records the result of the load.
    pub(crate) fn record_result(mut self, outcome: LoadOutcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: LoadOutcome) {
        let Some(admitted) = self.admitted.take() else { return };
        let now = self.runtime.now();
        self.breaker.change(|circuit| circuit.record_result(admitted, now, outcome));
        if self.breaker.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        match self.breaker.state(now) {
            BreakerState::Ramp => self.breaker.turns.notify_one(),
            // All pass, or all are refused.
            _ => self.breaker.turns.notify_waiters(),
        }
    }
}

impl<R: Runtime> Drop for BreakerPermit<R> {
    fn drop(&mut self) {
        self.end(LoadOutcome::NotRun);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn states_name_each_route_that_was_requested_and_the_default() {
        let route_of: RouteFn<&'static str> = Box::new(|key| key.split('/').next().unwrap_or_default());
        let breakers = Breakers::new(Breaker::DEFAULT, Some(route_of), Seed(1));
        let names = |breakers: &Breakers<&'static str>| {
            breakers.states(Time::ZERO).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&breakers), [""]);
        for key in ["b/1", "a/1", "b/2"] {
            breakers.for_key(&key);
        }
        assert_eq!(names(&breakers), ["", "a", "b"]);
        assert!(breakers.states(Time::ZERO).iter().all(|(_, state)| *state == BreakerState::Closed));
    }
}
