//! One request: what it is given at once, what it waits for, what it falls back to.

use std::{hash::Hash, ops::ControlFlow, sync::Arc, time::Duration};

use stockade_model::{
    outcome::Outcome,
    time::{Runtime, Time, before},
};

use crate::{
    answer::{Answer, Error, Reason},
    cache::{Inner, Wish},
    flight::{Boarding, Leader, Timekeeper, Turn, Waiter},
    invalidations::Moment,
    life::{Life, State},
    load::{Landing, Loaded, Loader, Via},
    shard::{Aged, Found, Version},
    stats::Counter,
    strategy::Fetch,
};

/// A request that was not given an answer at once. A million may wait, so it is small.
pub(crate) struct Request {
    /// When it came, by the clock and in invalidations.
    at: Time,
    moment: Moment,
    /// The entry version that its lookup saw.
    seen: Version,
    /// Which leader of its flight it was, if it was one.
    led: Option<u32>,
    why: Why,
    wish: Wish,
    /// Whether there is something to fall back to.
    has_stale: bool,
    /// Whether it is the soft timeout that ends its patience.
    is_soft: bool,
    has_waited: bool,
}

/// Why it was not answered at once.
#[derive(Clone, Copy)]
enum Why {
    Absent,
    Expired,
    /// It was chosen to refresh something fresh.
    Early,
    /// It did not want what was stored.
    Refused,
}

/// A wait, or what it came to.
pub(crate) type Step<K, V> = ControlFlow<Result<Answer<V>, Error>, Waiter<K, Landing<V>>>;

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        match why {
            Why::Absent => Self::Absent,
            Why::Expired => Self::Expired,
            Why::Early => Self::Early,
            Why::Refused => Self::Refused,
        }
    }
}

impl<K, V, R> Inner<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn request(&self, seen: Version, why: Why, has_stale: bool) -> Request {
        let (at, moment) = (self.runtime.now(), self.store.moment());
        let (wish, is_soft, has_waited) = (Wish::Stored, false, false);
        Request { at, moment, seen, led: None, why, wish, has_stale, is_soft, has_waited }
    }

    /// A request that is not content with what is stored.
    pub(crate) fn request_anew(&self, key: &K, now: Time) -> Request {
        let (seen, why) = match self.store.version(key) {
            0 => (0, Why::Absent),
            seen => (seen, Why::Refused),
        };
        let has_stale = self.store.peek(key, now).is_some_and(|held| !held.servable_for.is_zero());
        Request { wish: Wish::Anew, ..self.request(seen, why, has_stale) }
    }

    /// Decides about what is not simply fresh. A refresh that it begins takes the loader.
    pub(crate) fn weigh_up<L: Loader<K, V>>(
        self: &Arc<Self>,
        key: &K,
        found: Found<V>,
        now: Time,
        load: &mut Option<L>,
    ) -> ControlFlow<Answer<V>, Request> {
        let Aged { value, life, version: seen, is_throttled } = match found {
            Found::Aged(aged) => aged,
            Found::Fresh { value, loaded } => return ControlFlow::Break(Answer::hit(value, now - loaded)),
            Found::Missing { version } => {
                let why = if version == 0 { Why::Absent } else { Why::Expired };
                return ControlFlow::Continue(self.request(version, why, false));
            }
        };
        let given = |outcome, reason| {
            self.counters.answered(outcome);
            ControlFlow::Break(Answer { value, outcome, age: now - life.loaded, reason })
        };
        let is_closed = || {
            let breaker = self.breakers.as_ref().map(|breakers| breakers.of(key));
            breaker.is_none_or(|breaker| breaker.is_closed(self.runtime.now()))
        };
        // A breaker that is not closed says itself what may be tried.
        let is_throttled = is_throttled && is_closed();
        let mut refresh = |count: &Counter| {
            if !is_throttled {
                self.refresh(key, seen, now, load, count);
            }
        };
        let is_independent = self.strategy.fetch == Fetch::Independent;
        match self.lifetimes.state(&life, now, || (self.runtime.now(), self.chance.nats())) {
            State::Fresh if life.is_negative() => given(Outcome::Negative, Reason::Fresh),
            State::Refresh if is_independent && !is_throttled && is_closed() => {
                self.counters.refreshes(self.strategy.refresh).increment();
                ControlFlow::Continue(self.request(seen, Why::Early, true))
            }
            state @ (State::Fresh | State::Refresh) => {
                if state == State::Refresh {
                    refresh(self.counters.refreshes(self.strategy.refresh));
                }
                given(Outcome::Hit, Reason::Fresh)
            }
            State::Stale => {
                refresh(&self.counters.refreshes_swr);
                given(Outcome::Stale, Reason::Revalidating)
            }
            State::LastResort if is_throttled => {
                let throttle = self.strategy.throttle;
                given(Outcome::Fallback, Reason::Failed(Error::Throttled { throttle }))
            }
            // While the breaker is not closed nobody waits: a probe is a refresh.
            State::LastResort if !is_closed() => {
                refresh(&self.counters.probes);
                given(Outcome::Fallback, Reason::Failed(Error::BreakerOpen))
            }
            State::LastResort => ControlFlow::Continue(self.request(seen, Why::Expired, true)),
            State::Gone => ControlFlow::Continue(self.request(seen, Why::Expired, false)),
        }
    }

    /// Begins a load that nobody waits for, unless there is one already or the breaker is against it.
    fn refresh<L: Loader<K, V>>(
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
            && self.launch(leader, seen, Wish::Stored, load)
        {
            count.increment();
        }
    }

    /// What becomes of a request that has to wait or to load.
    pub(crate) fn board<L: Loader<K, V>>(
        self: &Arc<Self>,
        key: &K,
        request: &mut Request,
        load: &mut Option<L>,
    ) -> Step<K, V> {
        let Request { at, has_stale, .. } = *request;
        let is_anew = request.wish == Wish::Anew;
        if self.strategy.fetch == Fetch::Independent {
            return self.lead(self.flights.depart_alone(key, at), request, load);
        }
        let (mut seen, mut is_soft) = (request.seen, false);
        let stored = || match self.store.look_again(key, at) {
            Found::Fresh { value, loaded } if !is_anew || loaded >= at => {
                Some(Answer::hit(value, at - loaded))
            }
            Found::Fresh { .. } => None,
            Found::Aged(aged) => {
                seen = aged.version;
                aged.fresh_at(at).filter(|_| !is_anew || aged.life.loaded >= at)
            }
            Found::Missing { version } => {
                seen = version;
                None
            }
        };
        let serves =
            |landing: &Landing<V>| landing.as_ref().is_ok_and(|loaded| self.serves(key, loaded, request));
        let deadline = |began: Time| {
            let patience = at + self.wait_timeout();
            let soft = self.soft_deadline(has_stale, began);
            is_soft = soft.is_some_and(|soft| soft < patience);
            soft.map_or(patience, |soft| soft.min(patience))
        };
        let boarding = self.flights.board(key, at, deadline, stored, serves);
        (request.seen, request.is_soft) = (seen, is_soft);
        match boarding {
            Boarding::Lead(leader) => self.lead(leader, request, load),
            Boarding::Answered(answer) => {
                self.counters.answered(answer.outcome);
                ControlFlow::Break(Ok(answer))
            }
            Boarding::Landed(landing) => {
                self.counters.waiters.increment();
                self.conclude(key, request, Outcome::Coalesced, landing)
            }
            Boarding::Late => self.give_up(key, request),
            Boarding::Wait(waiter, timekeeper) => {
                self.counters.waiters.increment();
                self.keep_time(timekeeper);
                request.has_waited = true;
                ControlFlow::Continue(waiter)
            }
        }
    }

    /// Has the key loaded; the wait for that.
    fn lead<L: Loader<K, V>>(
        self: &Arc<Self>,
        leader: Leader<K, Landing<V>>,
        request: &mut Request,
        load: &mut Option<L>,
    ) -> Step<K, V> {
        let soft = self.soft_deadline(request.has_stale, leader.began());
        (request.led, request.is_soft) = (Some(leader.ordinal()), soft.is_some());
        let (watch, timekeeper) = leader.watch(soft);
        self.keep_time(timekeeper);
        // Who has led and boards again has asked before its successor's load began, and that serves it.
        let load = load.take().expect("a caller leads once");
        self.launch(leader, request.seen, request.wish, load);
        ControlFlow::Continue(watch)
    }

    /// What becomes of a request whose wait is over.
    pub(crate) fn after<L: Loader<K, V>>(
        self: &Arc<Self>,
        key: &K,
        request: &mut Request,
        load: &mut Option<L>,
        turn: Turn<K, Landing<V>>,
    ) -> Step<K, V> {
        match turn {
            Turn::Landed(landing, by) if request.led == Some(by) => {
                self.conclude(key, request, Outcome::Miss, landing)
            }
            // It came while the value waited for the writer, and expired before this request came, or it
            // was invalidated before that.
            Turn::Landed(Ok(loaded), _) if !self.serves(key, &loaded, request) => {
                self.board(key, request, load)
            }
            Turn::Landed(landing, _) => self.conclude(key, request, Outcome::Coalesced, landing),
            Turn::Lead(leader) => {
                request.seen = self.store.version(leader.key());
                self.lead(leader, request, load)
            }
            Turn::TimedOut => self.give_up(key, request),
        }
    }

    fn keep_time(&self, timekeeper: Option<Timekeeper<K, Landing<V>>>) {
        if let Some(timekeeper) = timekeeper {
            self.runtime.spawn(keep_time(timekeeper, self.runtime.clone()));
        }
    }

    /// Whether a value may answer a caller: its load ended after the caller came, or it was still fresh
    /// then; and it has not been invalidated between the load's beginning and the caller's coming. A waiter
    /// can come too late while the value waits for the writer.
    fn serves(&self, key: &K, loaded: &Loaded<V>, request: &Request) -> bool {
        let Request { at, moment, .. } = *request;
        let until = |life: Life| match loaded.via {
            // Nothing better is to be had.
            Via::Stale | Via::Fallback(_) => life.gone(),
            Via::Load | Via::Shared | Via::Elsewhere => life.stale_from(),
        };
        let is_good = |life: Life| request.wish == Wish::Stored && at < until(life);
        (loaded.at >= at || loaded.life.is_some_and(is_good))
            && !self.store.outdates(loaded.since, moment, key, &loaded.value)
    }

    /// When who has something stale is given that, of a flight that began then.
    fn soft_deadline(&self, has_stale: bool, began: Time) -> Option<Time> {
        self.strategy.load.soft_timeout.filter(|_| has_stale).map(|soft| began + soft)
    }

    fn wait_timeout(&self) -> Duration {
        match self.strategy.fetch {
            Fetch::Coalesce { wait_timeout } => wait_timeout,
            Fetch::Independent => Duration::ZERO,
        }
    }

    /// The request's time is up.
    fn give_up(&self, key: &K, request: &Request) -> Step<K, V> {
        let error = match self.strategy.load.soft_timeout {
            Some(after) if request.is_soft => Error::SoftTimeout { after },
            _ => Error::WaitTimeout { after: self.wait_timeout() },
        };
        self.conclude(key, request, Outcome::Error, Err(error))
    }

    /// The wait for a load is over: the request's own, or another's.
    fn conclude(&self, key: &K, request: &Request, outcome: Outcome, landing: Landing<V>) -> Step<K, V> {
        if let Some(meter) = self.meter.as_ref().filter(|_| request.has_waited) {
            meter.waited(self.runtime.now() - request.at);
        }
        ControlFlow::Break(match landing {
            Ok(loaded) => {
                let is_stale = |life: Life| loaded.at < request.at && life.expires <= request.at;
                let (outcome, reason) = match loaded.via {
                    // It had landed and expired, and was on its way to the store, when this request came.
                    Via::Load if loaded.life.is_some_and(is_stale) => (Outcome::Stale, Reason::Revalidating),
                    Via::Load => (outcome, request.why.into()),
                    Via::Shared if loaded.life.is_some_and(|life| life.is_negative()) => {
                        (Outcome::Negative, Reason::Shared)
                    }
                    Via::Shared => (Outcome::Hit, Reason::Shared),
                    Via::Elsewhere => (Outcome::Coalesced, request.why.into()),
                    Via::Stale => (Outcome::Stale, Reason::Revalidating),
                    Via::Fallback(error) => (Outcome::Fallback, Reason::Failed(error)),
                };
                self.counters.answered(outcome);
                let age = self.runtime.coarse_now() - loaded.at;
                Ok(Answer { value: loaded.value, outcome, age, reason })
            }
            Err(error) => self.fall_back(key, request, error),
        })
    }

    /// No load answered: what is stored does, as long as it may.
    fn fall_back(&self, key: &K, request: &Request, error: Error) -> Result<Answer<V>, Error> {
        let is_anew = request.wish == Wish::Anew;
        let can_fall_back = self.strategy.can_fall_back() || is_anew || self.values.lifespan.is_some();
        if !can_fall_back {
            self.counters.answered(Outcome::Error);
            return Err(error);
        }
        let now = self.runtime.coarse_now();
        let instead = |value: &V, age| Answer {
            value: value.clone(),
            outcome: Outcome::Fallback,
            age,
            reason: Reason::Failed(error.clone()),
        };
        let stored = match self.store.look_again(key, now) {
            Found::Fresh { value, loaded } if is_anew => Some(instead(&value, now - loaded)),
            Found::Fresh { value, loaded } => Some(Answer::hit(value, now - loaded)),
            Found::Aged(aged) if now >= aged.life.gone() => None,
            Found::Aged(aged) => {
                let fresh = aged.fresh_at(now).filter(|_| !is_anew);
                Some(fresh.unwrap_or_else(|| instead(&aged.value, now - aged.life.loaded)))
            }
            Found::Missing { .. } => None,
        };
        self.counters.answered(stored.as_ref().map_or(Outcome::Error, |answer| answer.outcome));
        stored.ok_or(error)
    }
}

impl<V: Clone> Aged<V> {
    /// The answer that it is, if it is fresh.
    fn fresh_at(&self, now: Time) -> Option<Answer<V>> {
        let Self { value, life, .. } = self;
        let outcome = if life.is_negative() { Outcome::Negative } else { Outcome::Hit };
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
