//! One request: what it is given at once, what it waits for, what it falls back to.

use std::{hash::Hash, ops::ControlFlow, sync::Arc, time::Duration};

use stockade_model::{
    outcome::Outcome,
    time::{Runtime, Time, before},
};

use crate::{
    answer::{Answer, Error, Reason},
    cache::Inner,
    flight::{Boarding, Leader, Timekeeper, Waiter},
    invalidations::Moment,
    life::State,
    load::{Landing, Loaded, Loader},
    shard::{Aged, Found, Version},
    stats::Counter,
    strategy::{Fetch, Refresh},
};

/// When a request came.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) at: Time,
    moment: Moment,
}

/// What a request needs that is not given an answer at once.
pub(crate) struct Need {
    /// The entry version that its lookup saw.
    pub(crate) seen: Version,
    reason: Reason,
    /// Whether there is something to fall back to.
    has_stale: bool,
    /// Whether it is the soft timeout that ends its patience.
    is_soft: bool,
}

/// What a miss makes of its caller.
pub(crate) enum Place<K: Hash + Eq, V> {
    Leader(Leader<K, Landing<V>>, Version),
    Waiter(Waiter<K, Landing<V>>),
    /// Somebody was faster, or there is nothing to wait for.
    Answer(Result<Answer<V>, Error>),
}

impl Need {
    fn of(seen: Version, reason: Reason, has_stale: bool) -> Self {
        Self { seen, reason, has_stale, is_soft: false }
    }

    fn missing(seen: Version) -> Self {
        let reason = if seen == 0 { Reason::Absent } else { Reason::Expired };
        Self::of(seen, reason, false)
    }
}

impl<K, V, R> Inner<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    pub(crate) fn ask(&self) -> Asked {
        Asked { at: self.runtime.now(), moment: self.store.moment() }
    }

    /// A wait for another's load is over.
    pub(crate) fn note_wait(&self, asked: Asked) {
        if let Some(meter) = &self.meter {
            meter.waited(self.runtime.now() - asked.at);
        }
    }

    /// Decides about what is not simply fresh. A refresh that it begins takes the loader.
    pub(crate) fn weigh_up<L: Loader<V>>(
        self: &Arc<Self>,
        key: &K,
        found: Found<V>,
        now: Time,
        load: &mut Option<L>,
    ) -> ControlFlow<Answer<V>, Need> {
        let Aged { value, life, version: seen, is_throttled } = match found {
            Found::Aged(aged) => aged,
            Found::Fresh { value, loaded } => return ControlFlow::Break(Answer::hit(value, now - loaded)),
            Found::Missing { version } => return ControlFlow::Continue(Need::missing(version)),
        };
        let given =
            |outcome, reason| ControlFlow::Break(Answer { value, outcome, age: now - life.loaded, reason });
        let is_closed = || {
            let breaker = self.breakers.as_ref().map(|breakers| breakers.of(key));
            breaker.is_none_or(|breaker| breaker.is_closed(self.runtime.now()))
        };
        // A breaker that is not closed says itself what may be tried.
        let is_throttled = is_throttled && is_closed();
        let refreshes = match self.strategy.refresh {
            Refresh::Early { .. } => &self.counters.refreshes_early,
            Refresh::None | Refresh::XFetch { .. } => &self.counters.refreshes_xfetch,
        };
        let mut refresh = |count: &Counter| {
            if !is_throttled {
                self.refresh(key, seen, now, load, count);
            }
        };
        let is_independent = self.strategy.fetch == Fetch::Independent;
        match self.lifetimes.state(&life, now, || (self.runtime.now(), self.chance.nats())) {
            State::Fresh if life.is_negative => {
                self.counters.negatives.increment();
                given(Outcome::Negative, Reason::Fresh)
            }
            State::Refresh if is_independent && !is_throttled && is_closed() => {
                refreshes.increment();
                ControlFlow::Continue(Need::of(seen, Reason::Early, true))
            }
            state @ (State::Fresh | State::Refresh) => {
                if state == State::Refresh {
                    refresh(refreshes);
                }
                self.counters.late_hits.increment();
                given(Outcome::Hit, Reason::Fresh)
            }
            State::Stale => {
                refresh(&self.counters.refreshes_swr);
                self.counters.stale.increment();
                given(Outcome::Stale, Reason::Revalidating)
            }
            State::LastResort if is_throttled => {
                self.counters.fallbacks.increment();
                let throttle = self.strategy.throttle;
                given(Outcome::Fallback, Reason::Failed(Error::Throttled { throttle }))
            }
            // While the breaker is not closed nobody waits: a probe is a refresh.
            State::LastResort if !is_closed() => {
                refresh(&self.counters.probes);
                self.counters.fallbacks.increment();
                given(Outcome::Fallback, Reason::Failed(Error::BreakerOpen))
            }
            State::LastResort => ControlFlow::Continue(Need::of(seen, Reason::Expired, true)),
            State::Gone => ControlFlow::Continue(Need::of(seen, Reason::Expired, false)),
        }
    }

    /// Begins a load that nobody waits for, unless there is one already or the breaker is against it.
    fn refresh<L: Loader<V>>(
        self: &Arc<Self>,
        key: &K,
        seen: Version,
        now: Time,
        load: &mut Option<L>,
        count: &Counter,
    ) {
        let breaker = self.breakers.as_ref().map(|breakers| breakers.of(key));
        if breaker.is_some_and(|breaker| !breaker.may_admit(self.runtime.now())) {
            return;
        }
        let leader = match self.strategy.fetch {
            Fetch::Coalesce { .. } => {
                // Somebody may have refreshed it since this request looked.
                let is_done = || self.store.version(key) != seen;
                self.flights.take_off(key, now, is_done)
            }
            Fetch::Independent => Some(self.flights.depart_alone(key, now)),
        };
        if let (Some(leader), Some(load)) = (leader, load.take())
            && self.launch(leader, seen, load)
        {
            count.increment();
        }
    }

    /// What becomes of a caller who has to wait or to load.
    pub(crate) fn board(self: &Arc<Self>, key: &K, asked: Asked, need: &mut Need) -> Place<K, V> {
        if self.strategy.fetch == Fetch::Independent {
            return Place::Leader(self.flights.depart_alone(key, asked.at), need.seen);
        }
        let stored = || match self.store.look_again(key, asked.at) {
            Found::Fresh { value, loaded } => {
                Some(Answer { value, outcome: Outcome::Hit, age: asked.at - loaded, reason: Reason::Fresh })
            }
            Found::Aged(aged) => {
                need.seen = aged.version;
                aged.fresh_at(asked.at)
            }
            Found::Missing { version } => {
                need.seen = version;
                None
            }
        };
        let serves =
            |landing: &Landing<V>| landing.as_ref().is_ok_and(|loaded| self.serves(key, loaded, asked));
        let (has_stale, mut is_soft) = (need.has_stale, false);
        let deadline = |began: Time| {
            let patience = asked.at + self.wait_timeout();
            let soft = self.strategy.load.soft_timeout.filter(|_| has_stale).map(|soft| began + soft);
            is_soft = soft.is_some_and(|soft| soft < patience);
            soft.map_or(patience, |soft| soft.min(patience))
        };
        let boarding = self.flights.board(key, asked.at, deadline, stored, serves);
        need.is_soft = is_soft;
        match boarding {
            Boarding::Lead(leader) => Place::Leader(leader, need.seen),
            Boarding::Answered(answer) => {
                let count = match answer.outcome {
                    Outcome::Negative => &self.counters.negatives,
                    _ => &self.counters.late_hits,
                };
                count.increment();
                Place::Answer(Ok(answer))
            }
            Boarding::Landed(landing) => {
                self.counters.waiters.increment();
                Place::Answer(self.coalesced(landing, need))
            }
            Boarding::Late => Place::Answer(Err(self.timed_out(need))),
            Boarding::Wait(waiter, timekeeper) => {
                self.counters.waiters.increment();
                self.keep_time(timekeeper);
                Place::Waiter(waiter)
            }
        }
    }

    /// The wait for a load that this caller leads.
    pub(crate) fn watch(
        self: &Arc<Self>,
        leader: &Leader<K, Landing<V>>,
        need: &mut Need,
    ) -> Waiter<K, Landing<V>> {
        let soft = self.strategy.load.soft_timeout.filter(|_| need.has_stale);
        need.is_soft = soft.is_some();
        let (watch, timekeeper) = leader.watch(soft.map(|soft| leader.began() + soft));
        self.keep_time(timekeeper);
        watch
    }

    fn keep_time(&self, timekeeper: Option<Timekeeper<K, Landing<V>>>) {
        if let Some(timekeeper) = timekeeper {
            self.runtime.spawn(keep_time(timekeeper, self.runtime.clone()));
        }
    }

    /// Whether a value may answer a caller: its load ended after the caller came, or it was still fresh
    /// then; and it has not been invalidated between the load's beginning and the caller's coming. A waiter
    /// can come too late while the value waits for the writer.
    pub(crate) fn serves(&self, key: &K, loaded: &Loaded<V>, asked: Asked) -> bool {
        (loaded.at >= asked.at || loaded.life.is_some_and(|life| asked.at < life.expires))
            && !self.store.outdates(loaded.since, asked.moment, key, &loaded.value)
    }

    pub(crate) fn wait_timeout(&self) -> Duration {
        match self.strategy.fetch {
            Fetch::Coalesce { wait_timeout } => wait_timeout,
            Fetch::Independent => Duration::ZERO,
        }
    }

    pub(crate) fn timed_out(&self, need: &Need) -> Error {
        match self.strategy.load.soft_timeout {
            Some(after) if need.is_soft => Error::SoftTimeout { after },
            _ => Error::WaitTimeout { after: self.wait_timeout() },
        }
    }

    pub(crate) fn coalesced(&self, landing: Landing<V>, need: &Need) -> Result<Answer<V>, Error> {
        self.answered(landing, Outcome::Coalesced, need)
    }

    pub(crate) fn missed(&self, landing: Landing<V>, need: &Need) -> Result<Answer<V>, Error> {
        self.answered(landing, Outcome::Miss, need)
    }

    fn answered(&self, landing: Landing<V>, outcome: Outcome, need: &Need) -> Result<Answer<V>, Error> {
        landing.map(|loaded| {
            let count = match outcome {
                Outcome::Miss => &self.counters.misses,
                _ => &self.counters.coalesced,
            };
            count.increment();
            let age = self.runtime.coarse_now() - loaded.at;
            Answer { value: loaded.value, outcome, age, reason: need.reason.clone() }
        })
    }

    /// No load answered: what is stored does, as long as it may.
    pub(crate) fn fall_back(&self, key: &K, error: Error) -> Result<Answer<V>, Error> {
        if !self.strategy.can_fall_back() {
            self.counters.errors.increment();
            return Err(error);
        }
        let now = self.runtime.coarse_now();
        let stored = match self.store.look_again(key, now) {
            Found::Fresh { value, loaded } => {
                Some(Answer { value, outcome: Outcome::Hit, age: now - loaded, reason: Reason::Fresh })
            }
            Found::Aged(aged) => Some(aged.fresh_at(now).unwrap_or_else(|| Answer {
                age: now - aged.life.loaded,
                value: aged.value,
                outcome: Outcome::Fallback,
                reason: Reason::Failed(error.clone()),
            })),
            Found::Missing { .. } => None,
        };
        let count = match stored.as_ref().map(|answer| answer.outcome) {
            Some(Outcome::Fallback) => &self.counters.fallbacks,
            Some(Outcome::Negative) => &self.counters.negatives,
            Some(_) => &self.counters.late_hits,
            None => &self.counters.errors,
        };
        count.increment();
        stored.ok_or(error)
    }
}

impl<V: Clone> Aged<V> {
    /// The answer that it is, if it is fresh.
    fn fresh_at(&self, now: Time) -> Option<Answer<V>> {
        let Self { value, life, .. } = self;
        let outcome = if life.is_negative { Outcome::Negative } else { Outcome::Hit };
        (now < life.expires).then(|| Answer {
            value: value.clone(),
            outcome,
            age: now - life.loaded,
            reason: Reason::Fresh,
        })
    }
}

/// Wakes the waiters of one flight when their time is up, until it lands.
async fn keep_time<K, V, R>(mut timekeeper: Timekeeper<K, Landing<V>>, runtime: R)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    while let Some(next) = timekeeper.expire(runtime.now()) {
        if before(&runtime, next, timekeeper.landed()).await.is_some() {
            return;
        }
    }
}
