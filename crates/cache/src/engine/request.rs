//! One request: it is served from the store, starts a load, or waits for one.

use std::{future::Future, hash::Hash, ops::ControlFlow, sync::Arc, time::Duration};

use stockade_model::{
    outcome::Outcome,
    time::{Runtime, RuntimeId, Time, before},
};

use super::{
    Engine,
    load::{NewLoad, RAMP_WAIT_MAX},
    loaded::{LoadResult, Loaded, LoadedFrom},
    loader::{CacheMode, Loader, UnstartedLoader},
};
use crate::{
    answer::{Answer, Reason},
    coalesce::{Arrival, JoinOutcome, Leader, WaitOutcome, WaitTimer, Waiter},
    error::Error,
    freshness::{FreshnessState, Lifetime},
    invalidation::InvalidationSeq,
    stats::Counter,
    store::{
        load_mark::LoadMark,
        refills::Version,
        shard::{AgedEntry, LookupResult},
    },
    strategy::{AfterWait, Fetch},
};

/// A request that waits or loads. A million may wait at once, so it is small.
struct PendingRequest {
    /// When it started, as time and as the sequence number of the last invalidation.
    at: Time,
    seq: InvalidationSeq,
    /// The entry version that its lookup saw.
    seen_version: Version,
    /// The ordinal of the load that it leads.
    led_ordinal: Option<u32>,
    load_reason: LoadReason,
    mode: CacheMode,
    /// True if a stored value can be served while the load is slow.
    has_stale: bool,
    /// True if its deadline is the soft timeout.
    is_soft_deadline: bool,
    has_waited: bool,
}

/// Why a request needs a load.
#[derive(Clone, Copy)]
enum LoadReason {
    Absent,
    Expired,
    /// A fresh value is to be refreshed.
    Early,
    Reload,
}

/// The next wait of a request, or its answer.
type RequestStep<K, V> = ControlFlow<Result<Answer<V>, Error>, Waiter<K, LoadResult<V>>>;

impl From<LoadReason> for Reason {
    fn from(load_reason: LoadReason) -> Self {
        match load_reason {
            LoadReason::Absent => Self::Absent,
            LoadReason::Expired => Self::Expired,
            LoadReason::Early => Self::Early,
            LoadReason::Reload => Self::Reload,
        }
    }
}

impl<K, V, R> Engine<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// Serves a request for `key`. The lookup happens when the future is first polled.
    pub(crate) fn serve<L: Loader<K, V>>(
        self: &Arc<Self>,
        key: K,
        load: L,
        mode: CacheMode,
    ) -> impl Future<Output = Result<Answer<V>, Error>> + Send + use<'_, K, V, R, L> {
        // Not an `async fn`, whose future would store its arguments twice: a million requests may wait.
        let mut load = Some(load);
        async move {
            let now = self.runtime.coarse_now();
            let mut request = match mode {
                CacheMode::Default => match self.store.look_up::<true, _>(&key, now) {
                    Ok((value, loaded)) => return Ok(Answer::hit(value, now - loaded)),
                    Err(lookup) => {
                        let found = lookup.finish(&key, now);
                        self.store.record_request(&key, now);
                        match self.classify(&key, found, now, &mut load) {
                            ControlFlow::Break(answer) => return Ok(answer),
                            ControlFlow::Continue(request) => request,
                        }
                    }
                },
                CacheMode::Reload => self.request_reload(&key, now),
            };
            let mut wait = match self.join_load(&key, &mut request, &mut load) {
                ControlFlow::Break(end) => return end,
                ControlFlow::Continue(wait) => wait,
            };
            loop {
                let outcome = wait.await;
                wait = match self.handle_wait_outcome(&key, &mut request, &mut load, outcome) {
                    ControlFlow::Break(end) => return end,
                    ControlFlow::Continue(wait) => wait,
                };
            }
        }
    }

    fn new_pending(&self, seen_version: Version, load_reason: LoadReason, has_stale: bool) -> PendingRequest {
        let (at, seq) = (self.runtime.now(), self.store.invalidation_seq());
        let (mode, is_soft_deadline, has_waited) = (CacheMode::Default, false, false);
        PendingRequest {
            at,
            seq,
            seen_version,
            led_ordinal: None,
            load_reason,
            mode,
            has_stale,
            is_soft_deadline,
            has_waited,
        }
    }

    /// A request that does not accept a stored value.
    fn request_reload(&self, key: &K, now: Time) -> PendingRequest {
        let (seen_version, load_reason) = match self.store.version(key) {
            0 => (0, LoadReason::Absent),
            seen_version => (seen_version, LoadReason::Reload),
        };
        let has_stale = self
            .store
            .peek(key, now)
            .is_some_and(|held| !held.servable_for.is_zero() && !held.is_fallback_only);
        PendingRequest { mode: CacheMode::Reload, ..self.new_pending(seen_version, load_reason, has_stale) }
    }

    /// Decides how to serve an entry that is not simply fresh. A refresh takes the loader.
    fn classify(
        self: &Arc<Self>,
        key: &K,
        found: LookupResult<V>,
        now: Time,
        load: &mut dyn UnstartedLoader<K, V>,
    ) -> ControlFlow<Answer<V>, PendingRequest> {
        let AgedEntry { value, life, version: seen_version, is_throttled } = match found {
            LookupResult::Aged(aged) => aged,
            LookupResult::Fresh { value, loaded } => {
                return ControlFlow::Break(Answer::hit(value, now - loaded));
            }
            LookupResult::Missing { version } => {
                let load_reason = if version == 0 { LoadReason::Absent } else { LoadReason::Expired };
                return ControlFlow::Continue(self.new_pending(version, load_reason, false));
            }
        };
        let serve_stored = |outcome, reason| {
            self.counters.answered(outcome);
            ControlFlow::Break(Answer { value, outcome, age: now - life.loaded, reason })
        };
        let is_breaker_closed = || {
            let breaker = self.breakers.as_ref().map(|breakers| breakers.for_key(key));
            breaker.is_none_or(|breaker| breaker.is_closed(self.runtime.now()))
        };
        // A breaker that is not closed decides alone which loads may run.
        let is_throttled = is_throttled && is_breaker_closed();
        let mut refresh = |count: &Counter| {
            if !is_throttled {
                self.refresh(key, seen_version, now, load, count);
            }
        };
        let is_independent = self.strategy.fetch == Fetch::Independent;
        match self.lifetimes.state(&life, now, || (self.runtime.now(), self.random.exponential())) {
            FreshnessState::Fresh if life.is_negative() => serve_stored(Outcome::Negative, Reason::Fresh),
            FreshnessState::Refresh if is_independent && !is_throttled && is_breaker_closed() => {
                self.counters.refreshes(self.strategy.refresh).increment();
                ControlFlow::Continue(self.new_pending(seen_version, LoadReason::Early, true))
            }
            state @ (FreshnessState::Fresh | FreshnessState::Refresh) => {
                if state == FreshnessState::Refresh {
                    refresh(self.counters.refreshes(self.strategy.refresh));
                }
                serve_stored(Outcome::Hit, Reason::Fresh)
            }
            FreshnessState::Stale => {
                refresh(&self.counters.refreshes_swr);
                serve_stored(Outcome::Stale, Reason::Revalidating)
            }
            FreshnessState::StaleIfError if is_throttled => {
                let throttle = self.strategy.throttle;
                serve_stored(Outcome::Fallback, Reason::Failed(Error::Throttled { throttle }))
            }
            // While the breaker is not closed no request waits: probes are background refreshes.
            FreshnessState::StaleIfError if !is_breaker_closed() => {
                refresh(&self.counters.probes);
                serve_stored(Outcome::Fallback, Reason::Failed(Error::BreakerOpen))
            }
            FreshnessState::StaleIfError => {
                let may_be_slow = !life.is_fallback_only();
                ControlFlow::Continue(self.new_pending(seen_version, LoadReason::Expired, may_be_slow))
            }
            FreshnessState::Gone => {
                ControlFlow::Continue(self.new_pending(seen_version, LoadReason::Expired, false))
            }
        }
    }

    /// Starts a background load, unless one is in flight or the breaker refuses it.
    fn refresh(
        self: &Arc<Self>,
        key: &K,
        seen_version: Version,
        now: Time,
        load: &mut dyn UnstartedLoader<K, V>,
        count: &Counter,
    ) {
        if !self.may_load(key, load.client()) {
            return;
        }
        let leader = match self.strategy.fetch {
            Fetch::Coalesce { .. } => {
                // Another request may have refreshed the entry since the lookup.
                let is_done = || self.store.version(key) != seen_version;
                self.coalescer.try_start(key, self.arrival(now), self.hedge_after(), is_done)
            }
            Fetch::Independent => Some(self.coalescer.start_detached(key, now)),
        };
        if let (Some(leader), Some(load)) = (leader, load.take()) {
            let (mode, mark, is_awaited) = (CacheMode::Default, None, false);
            let new = NewLoad { leader, seen_version, mode, mark, is_awaited };
            if self.start_load(new, load) {
                count.increment();
            }
        }
    }

    /// Joins the load in flight for the key, or starts one.
    fn join_load(
        self: &Arc<Self>,
        key: &K,
        request: &mut PendingRequest,
        load: &mut dyn UnstartedLoader<K, V>,
    ) -> RequestStep<K, V> {
        let PendingRequest { at, has_stale, .. } = *request;
        let is_reload = request.mode == CacheMode::Reload;
        if self.strategy.fetch == Fetch::Independent {
            return self.lead(self.coalescer.start_detached(key, at), None, request, load);
        }
        let (mut seen_version, mut is_soft_deadline, mut mark) = (request.seen_version, false, None);
        let stored = || {
            // A value that is written after this moment is not replaced by the load.
            let (found, begun) = self.store.look_up_and_begin_load(key, at);
            mark = Some(begun);
            match found {
                LookupResult::Fresh { value, loaded } if !is_reload || loaded >= at => {
                    Some(Answer::hit(value, at - loaded))
                }
                LookupResult::Fresh { .. } => None,
                LookupResult::Aged(aged) => {
                    seen_version = aged.version;
                    aged.fresh_at(at).filter(|_| !is_reload || aged.life.loaded >= at)
                }
                LookupResult::Missing { version } => {
                    seen_version = version;
                    None
                }
            }
        };
        let can_serve =
            |result: &LoadResult<V>| result.as_ref().is_ok_and(|loaded| self.can_serve(key, loaded, request));
        let deadline = |started_at: Time| {
            let patience = at + self.wait_timeout();
            let soft = self.soft_deadline(has_stale, started_at);
            is_soft_deadline = soft.is_some_and(|soft| soft < patience);
            soft.map_or(patience, |soft| soft.min(patience))
        };
        let hedge_after = self.hedge_after();
        let joined = self.coalescer.join(key, self.arrival(at), hedge_after, deadline, stored, can_serve);
        (request.seen_version, request.is_soft_deadline) = (seen_version, is_soft_deadline);
        match joined {
            JoinOutcome::Lead(leader) => self.lead(leader, mark, request, load),
            JoinOutcome::Stored(answer) => {
                self.counters.answered(answer.outcome);
                ControlFlow::Break(Ok(answer))
            }
            JoinOutcome::Completed(result) => {
                self.counters.waiters.increment();
                self.finish(key, request, Outcome::Coalesced, result)
            }
            JoinOutcome::DeadlinePassed => self.time_out(key, request, load),
            JoinOutcome::Wait(waiter, timer) => {
                self.counters.waiters.increment();
                self.run_wait_timer(timer);
                request.has_waited = true;
                ControlFlow::Continue(waiter)
            }
        }
    }

    fn arrival(&self, at: Time) -> Arrival {
        // The waits of a load in queues, for its turn and for its source end in this time.
        let longest = self.strategy.load.deadline.saturating_mul(3).saturating_add(RAMP_WAIT_MAX);
        Arrival { at, runtime: self.runtime.id(), abandoned_before: at.back(longest) }
    }

    /// Starts the load that this request leads. Returns the wait for its result.
    fn lead(
        self: &Arc<Self>,
        leader: Leader<K, LoadResult<V>>,
        mark: Option<LoadMark<K, V>>,
        request: &mut PendingRequest,
        load: &mut dyn UnstartedLoader<K, V>,
    ) -> RequestStep<K, V> {
        let is_hedge = leader.is_hedge();
        let soft = self.soft_deadline(request.has_stale, leader.started_at());
        // A hedge may fail long before the load that it is to replace ends. Deadlines of waiters are in the order of their arrival.
        let patience = is_hedge.then(|| self.runtime.now() + self.wait_timeout());
        let deadline = [soft, patience].into_iter().flatten().min();
        request.led_ordinal = Some(leader.ordinal());
        request.is_soft_deadline = soft.is_some() && soft == deadline;
        let runtime = deadline.map_or_else(RuntimeId::default, |_| self.runtime.id());
        let (watch, timer) = leader.watch(deadline, runtime);
        self.run_wait_timer(timer);
        let load = load.take().expect("a caller leads once");
        if is_hedge {
            self.counters.hedges.increment();
        }
        let PendingRequest { seen_version, mode, .. } = *request;
        // A waiter may be answered by another load than its hedge: it must not be kept by that.
        let is_awaited = soft.is_none() && !is_hedge;
        self.start_load(NewLoad { leader, seen_version, mode, mark, is_awaited }, load);
        ControlFlow::Continue(watch)
    }

    /// Decides what follows a wait.
    fn handle_wait_outcome(
        self: &Arc<Self>,
        key: &K,
        request: &mut PendingRequest,
        load: &mut dyn UnstartedLoader<K, V>,
        outcome: WaitOutcome<K, LoadResult<V>>,
    ) -> RequestStep<K, V> {
        match outcome {
            WaitOutcome::Completed(result, by) if request.led_ordinal == Some(by) => {
                self.finish(key, request, Outcome::Miss, result)
            }
            // Its own load, a hedge, has been overtaken.
            WaitOutcome::Completed(Ok(loaded), _)
                if load.is_taken() && !self.can_serve(key, &loaded, request) =>
            {
                self.finish(key, request, Outcome::Error, Err(Error::Invalidated))
            }
            // The request joined while the value waited for the writer, and the value had expired or been
            // invalidated before the request started.
            WaitOutcome::Completed(Ok(loaded), _) if !self.can_serve(key, &loaded, request) => {
                self.join_load(key, request, load)
            }
            WaitOutcome::Completed(result, _) => self.finish(key, request, Outcome::Coalesced, result),
            WaitOutcome::Lead(leader) => {
                request.seen_version = self.store.version(leader.key());
                self.lead(leader, None, request, load)
            }
            WaitOutcome::TimedOut => self.time_out(key, request, load),
        }
    }

    fn run_wait_timer(&self, timer: Option<WaitTimer<K, LoadResult<V>>>) {
        if let Some(timer) = timer {
            self.runtime.spawn(expire_waiters(timer, self.runtime.clone()));
        }
    }

    /// True if a loaded value answers a request: the load ended after the request started, or the value was still
    /// valid then, and no invalidation lies between the start of the load and the start of the request.
    fn can_serve(&self, key: &K, loaded: &Loaded<V>, request: &PendingRequest) -> bool {
        let PendingRequest { at, seq, .. } = *request;
        let until = |life: Lifetime| match loaded.via {
            // Without a newer value a stale one is accepted until it is gone.
            LoadedFrom::Stale | LoadedFrom::Fallback(_) => life.gone(),
            LoadedFrom::Load | LoadedFrom::Shared | LoadedFrom::OtherNode => life.stale_from(),
        };
        let is_valid = |life: Lifetime| request.mode == CacheMode::Default && at < until(life);
        (loaded.at >= at || loaded.life.is_some_and(is_valid))
            && !self.store.is_outdated(loaded.since, seq, key, &loaded.value)
    }

    /// The soft deadline of a request that has a stale value, for a load that started at `started_at`.
    fn soft_deadline(&self, has_stale: bool, started_at: Time) -> Option<Time> {
        self.strategy.load.soft_timeout.filter(|_| has_stale).map(|soft| started_at + soft)
    }

    pub(super) fn wait_timeout(&self) -> Duration {
        match self.strategy.fetch {
            Fetch::Coalesce { wait_timeout, .. } => wait_timeout,
            Fetch::Independent => Duration::ZERO,
        }
    }

    /// Ends the wait of a request whose deadline has passed.
    fn time_out(
        self: &Arc<Self>,
        key: &K,
        request: &mut PendingRequest,
        load: &mut dyn UnstartedLoader<K, V>,
    ) -> RequestStep<K, V> {
        if let (Some(after), true) = (self.strategy.load.soft_timeout, request.is_soft_deadline) {
            return self.finish(key, request, Outcome::Error, Err(Error::SoftTimeout { after }));
        }
        let error = Error::WaitTimeout { after: self.wait_timeout() };
        let may_load = matches!(self.strategy.fetch, Fetch::Coalesce { then: AfterWait::Load, .. });
        if !may_load || load.is_taken() {
            return self.finish(key, request, Outcome::Error, Err(error));
        }
        // Another waiter may have loaded it.
        let is_default = request.mode == CacheMode::Default;
        if let Some(stored) = is_default.then(|| self.find_stored(key, request, &error)).flatten() {
            self.counters.answered(stored.outcome);
            return ControlFlow::Break(Ok(stored));
        }
        request.seen_version = self.store.version(key);
        self.lead(self.coalescer.start_detached(key, self.runtime.now()), None, request, load)
    }

    /// Ends a request with the result of its own load or of another's.
    fn finish(
        &self,
        key: &K,
        request: &PendingRequest,
        outcome: Outcome,
        result: LoadResult<V>,
    ) -> RequestStep<K, V> {
        #[cfg(feature = "metrics")]
        if let Some(meter) = self.meter.as_ref().filter(|_| request.has_waited) {
            meter.record_wait(self.runtime.now() - request.at);
        }
        ControlFlow::Break(match result {
            Ok(loaded) => {
                let is_stale = |life: Lifetime| loaded.at < request.at && life.expires <= request.at;
                let (outcome, reason) = match loaded.via {
                    // The load had completed and the value expired, before it was stored and before this request
                    // started.
                    LoadedFrom::Load if loaded.life.is_some_and(is_stale) => {
                        (Outcome::Stale, Reason::Revalidating)
                    }
                    LoadedFrom::Load => (outcome, request.load_reason.into()),
                    LoadedFrom::Shared if loaded.life.is_some_and(|life| life.is_negative()) => {
                        (Outcome::Negative, Reason::Shared)
                    }
                    LoadedFrom::Shared => (Outcome::Hit, Reason::Shared),
                    LoadedFrom::OtherNode => (Outcome::Coalesced, request.load_reason.into()),
                    LoadedFrom::Stale => (Outcome::Stale, Reason::Revalidating),
                    LoadedFrom::Fallback(error) => (Outcome::Fallback, Reason::Failed(error)),
                };
                self.counters.answered(outcome);
                let age = self.runtime.coarse_now() - loaded.at;
                Ok(Answer { value: loaded.value, outcome, age, reason })
            }
            Err(error) => {
                let fallback = self.find_fallback(key, request, &error);
                self.counters.answered(fallback.as_ref().map_or(Outcome::Error, |answer| answer.outcome));
                fallback.ok_or(error)
            }
        })
    }

    /// A stored value in place of a load that failed.
    fn find_fallback(&self, key: &K, request: &PendingRequest, error: &Error) -> Option<Answer<V>> {
        let is_reload = request.mode == CacheMode::Reload;
        let may_fall_back = self.strategy.can_fall_back() || is_reload || self.values.lifespan.is_some();
        may_fall_back.then(|| self.find_stored(key, request, error)).flatten()
    }

    /// A stored value, fresh or stale, for a request whose load has failed or takes too long.
    fn find_stored(&self, key: &K, request: &PendingRequest, error: &Error) -> Option<Answer<V>> {
        let is_reload = request.mode == CacheMode::Reload;
        let now = self.runtime.coarse_now();
        let fallback = |value: &V, age| Answer {
            value: value.clone(),
            outcome: Outcome::Fallback,
            age,
            reason: Reason::Failed(error.clone()),
        };
        match self.store.look_again(key, now) {
            LookupResult::Fresh { value, loaded } if is_reload => Some(fallback(&value, now - loaded)),
            LookupResult::Fresh { value, loaded } => Some(Answer::hit(value, now - loaded)),
            LookupResult::Aged(aged) if now >= aged.life.gone() => None,
            LookupResult::Aged(aged) => {
                let fresh = aged.fresh_at(now).filter(|_| !is_reload);
                Some(fresh.unwrap_or_else(|| fallback(&aged.value, now - aged.life.loaded)))
            }
            LookupResult::Missing { .. } => None,
        }
    }
}

impl<V: Clone> AgedEntry<V> {
    /// The answer, if the entry is fresh.
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

/// Wakes the waiters of one load at their deadlines, until the load completes.
async fn expire_waiters<K, V, R>(mut timer: WaitTimer<K, LoadResult<V>>, runtime: R)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    while let Some(next) = timer.expire(runtime.now()) {
        if before(&runtime, next, timer.completed()).await.is_some() {
            return;
        }
    }
}
