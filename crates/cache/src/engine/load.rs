//! One load, in a task of its own that no caller's cancellation ends.

use std::{hash::Hash, mem::replace, num::NonZeroU64, sync::Arc, time::Duration};

use stockade_model::time::{Runtime, Time, before, is_own_load};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{Instrument, Span, field::Empty};

use super::{
    Engine,
    admission::AdmissionPermit,
    blocking_loads::LoadNumber,
    loaded::{LoadResult, Loaded},
    loader::{CacheMode, LoadFailure, LoadedValue, Loader, Remainder},
    pending_work::WorkGuard,
    shared_tier::{LoadGrant, TierDecision},
    writer::{VersionClaim, Write},
};
use crate::{
    breaker::{BreakerPermit, BreakerVerdict, LoadOutcome},
    coalesce::{KeyGuard, Leader},
    error::Error,
    freshness::Lifespan,
    panics::catch_panic,
    store::{Reservation, budget::ReservedBytes, load_mark::LoadMark, refills::Version},
    strategy,
    tier::Lease,
};

/// A source that has come back and does not answer in this time has no turn for more.
pub(crate) const RAMP_WAIT_MAX: Duration = Duration::from_secs(5);

/// How a load completes: through its leader, or not at all because waiters already have an answer.
enum Completion<K: Hash + Eq, V> {
    Pending(Leader<K, LoadResult<V>>),
    Done(K, KeyGuard<K, LoadResult<V>>),
}

impl<K: Hash + Eq, V: Clone> Completion<K, V> {
    fn key(&self) -> &K {
        match self {
            Self::Pending(leader) => leader.key(),
            Self::Done(key, _) => key,
        }
    }

    fn complete(self, result: LoadResult<V>) -> KeyGuard<K, LoadResult<V>> {
        match self {
            Self::Pending(leader) => leader.complete(result),
            Self::Done(_, key_guard) => key_guard,
        }
    }

    /// A waiter loads in place of this load. If no waiter can, all receive the error.
    fn lose(self, error: Error) {
        if let Self::Pending(leader) = self {
            leader.lose(Err(error));
        }
    }

    /// Waiters receive the error, unless another load of the key is in flight.
    fn fail(self, error: Error) {
        if let Self::Pending(leader) = self {
            leader.fail(Err(error));
        }
    }
}

/// A load that a request starts.
pub(crate) struct NewLoad<K: Hash + Eq + Clone, V: Clone> {
    pub(crate) leader: Leader<K, LoadResult<V>>,
    /// The entry version that the lookup saw.
    pub(crate) seen_version: Version,
    pub(crate) mode: CacheMode,
    /// If it has begun with the lookup.
    pub(crate) mark: Option<LoadMark<K, V>>,
    /// True if the request waits for it as long as it takes.
    pub(crate) is_awaited: bool,
}

/// A load that has not been admitted yet.
struct LoadTask<K: Hash + Eq + Clone, V: Clone, R: Runtime> {
    leader: Leader<K, LoadResult<V>>,
    /// The entry version that the lookup saw.
    seen_version: Version,
    /// The mode of the request that started the load.
    mode: CacheMode,
    mark: LoadMark<K, V>,
    /// `None`: it has to queue.
    admission_permit: Option<AdmissionPermit>,
    turn: BreakerTurn<R>,
    /// Of its wait for admission.
    deadline: Time,
    /// The span of the caller.
    caller: Span,
    pending_work: WorkGuard,
}

/// The verdict of the breaker on a load.
enum BreakerTurn<R: Runtime> {
    /// `None`: the cache has no breaker.
    Admitted(Option<BreakerPermit<R>>),
    /// It is still to be asked, or the load waits for its turn.
    Waits,
}

impl<K, V, R> Engine<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// Starts a load in its own task. Returns false if the breaker refuses it.
    pub(crate) fn start_load(self: &Arc<Self>, new: NewLoad<K, V>, load: Box<dyn Loader<K, V>>) -> bool {
        let NewLoad { leader, seen_version, mode, mark, is_awaited } = new;
        let spawn =
            |task| if is_awaited { self.runtime.spawn_awaited(task) } else { self.runtime.spawn(task) };
        let now = self.runtime.now();
        let deadline = now + self.strategy.load.deadline;
        let (pending_work, caller) = (self.pending_work.start(), Span::current());
        let mark = mark.unwrap_or_else(|| self.store.begin_load(leader.key()));
        // Before the breaker is asked, the shared tier is.
        let turn = match &self.shared {
            Some(_) => Ok(BreakerTurn::Waits),
            None => self.ask_breaker(leader.key(), load.client()),
        };
        let turn = match turn {
            Ok(turn) => turn,
            Err(refused) => {
                leader.fail(Err(refused));
                return false;
            }
        };
        let admission_permit = match &turn {
            BreakerTurn::Waits => None,
            BreakerTurn::Admitted(_) => {
                self.admission.try_admit(&self.store, leader.key(), load.reserves_bytes())
            }
        };
        if admission_permit.is_some() {
            self.count_load(leader.key(), now, deadline);
        }
        let loading = LoadTask {
            leader,
            seen_version,
            mode,
            mark,
            admission_permit,
            turn,
            deadline,
            caller,
            pending_work,
        };
        spawn(Arc::clone(self).run(loading, load));
        true
    }

    fn ask_breaker(&self, key: &K, client: Option<NonZeroU64>) -> Result<BreakerTurn<R>, Error> {
        let Some(breakers) = &self.breakers else { return Ok(BreakerTurn::Admitted(None)) };
        self.blocking_loads.expire(self.runtime.now());
        match breakers.for_key(key).admit(breakers.identity(key, client), &self.runtime) {
            BreakerVerdict::Admitted(permit) => Ok(BreakerTurn::Admitted(Some(permit))),
            BreakerVerdict::Wait => Ok(BreakerTurn::Waits),
            BreakerVerdict::Refused => Err(self.refuse_load()),
        }
    }

    /// Asks the breaker, and waits for a turn on its ramp, for `wait_timeout` or [`RAMP_WAIT_MAX`] at most. `None`: there is no breaker.
    pub(crate) async fn breaker_permit(
        &self,
        key: &K,
        client: Option<NonZeroU64>,
    ) -> Result<Option<BreakerPermit<R>>, Error> {
        if let BreakerTurn::Admitted(permit) = self.ask_breaker(key, client)? {
            return Ok(permit);
        }
        let Some(breakers) = &self.breakers else { return Ok(None) };
        let (breaker, identity) = (breakers.for_key(key), breakers.identity(key, client));
        let patience = self.runtime.now() + self.wait_timeout().min(RAMP_WAIT_MAX);
        let permit = breaker.wait_for_turn(identity, &self.runtime, patience, self.strategy.load.queue).await;
        permit.map(Some).ok_or_else(|| self.refuse_load())
    }

    fn refuse_load(&self) -> Error {
        self.counters.loads_refused.increment();
        Error::BreakerOpen
    }

    /// True if the breaker might admit a load.
    pub(crate) fn may_load(&self, key: &K, client: Option<NonZeroU64>) -> bool {
        self.breakers.as_ref().is_none_or(|breakers| breakers.may_admit(key, client, self.runtime.now()))
    }

    fn count_load(&self, key: &K, now: Time, deadline: Time) {
        self.counters.loads.increment();
        if self.store.open_episode(key, now, deadline) {
            self.counters.episodes.increment();
        }
    }

    /// Queues for admission until the deadline.
    async fn queue_for_admission(
        &self,
        key: &K,
        deadline: Time,
        reserves_bytes: bool,
    ) -> Result<AdmissionPermit, Error> {
        let entered = self.admission.admit(&self.store, key, reserves_bytes);
        let admission_permit = match before(&self.runtime, deadline, entered).await {
            Some(Ok(admission_permit)) => admission_permit,
            Some(Err(rejected)) => {
                self.counters.loads_rejected.increment();
                return Err(rejected);
            }
            None => {
                self.counters.loads_rejected.increment();
                return Err(Error::QueueTimeout { after: self.strategy.load.deadline });
            }
        };
        self.count_load(key, self.runtime.now(), deadline);
        Ok(admission_permit)
    }

    /// The task of one load. It holds a work guard until a write in the mailbox has been enqueued. A shared
    /// tier is looked up before the load, and updated after it.
    async fn run(self: Arc<Self>, loading: LoadTask<K, V, R>, load: Box<dyn Loader<K, V>>) {
        let LoadTask {
            leader,
            mut seen_version,
            mode,
            mark,
            admission_permit,
            turn,
            deadline,
            caller,
            pending_work,
        } = loading;
        let is_alone = leader.is_hedge() || !leader.is_joinable();
        let (mut completion, mut grant) = (Completion::Pending(leader), LoadGrant::LOCAL);
        if let Some(shared) = &self.shared {
            let (key, client) = (completion.key(), load.client());
            // Boxed: this future is larger than the rest of the task.
            match Box::pin(self.look_up_in_tier(shared, key, mode, client, is_alone, deadline)).await {
                TierDecision::Serve(loaded) => return drop(completion.complete(Ok(loaded))),
                TierDecision::Failed(error) => return completion.fail(error),
                TierDecision::Load(granted) => grant = granted,
                TierDecision::ServeAndRefresh(loaded, lease) => {
                    grant.lease = Some(lease);
                    let key = completion.key().clone();
                    // Requests that join until the refresh ends receive this answer.
                    completion = Completion::Done(key, completion.complete(Ok(loaded)));
                }
            }
            if self.runtime.now() >= deadline {
                // The deadline passed in the tier's queue. Dropping the lease lets another node load.
                drop(grant.lease);
                return self.fail(completion, None, grant.stale, self.deadline_error()).await;
            }
            // A value from the tier may have been stored here since.
            seen_version = self.store.version(completion.key());
        }
        let LoadGrant { lease, stale } = grant;
        let execution = self.execute(completion.key(), admission_permit, turn, deadline, caller, load);
        let mut received = match catch_panic(execution).await {
            Ok(Ok(received)) => received,
            Ok(Err(error)) => return self.fail(completion, lease, stale, error).await,
            Err(panic) => {
                completion.lose(panic.error());
                panic.resume()
            }
        };
        if let Some(remainder) = received.remainder.take() {
            let key = completion.key().clone();
            // Requests that join until the value is complete receive this beginning.
            completion = Completion::Done(key, completion.complete(Ok(received.loaded.clone())));
            if let Err(error) = self.receive_remainder(&mut received, remainder).await {
                return self.fail(completion, lease, stale, error).await;
            }
        }
        let ReceivedValue { loaded, bytes, attempt, is_transient, place, .. } = received;
        // Before the callers are answered: their next load may need the slot.
        drop((attempt, place));
        if is_transient {
            self.store.record_not_stored(completion.key());
            // Dropping the lease makes waiting nodes look the key up again.
            return drop(completion.complete(Ok(loaded)));
        }
        let to_share = lease.map(|lease| (lease, completion.key().clone(), loaded.clone()));
        let key_guard = if self.has_memory() {
            let entry = ReceivedEntry { loaded, bytes, mark };
            self.store_and_complete(completion, entry, seen_version, pending_work.clone()).await;
            None
        } else if self.strategy.store != strategy::StoreMode::Sync {
            Some(completion.complete(Ok(loaded)))
        } else {
            if let Some((lease, key, loaded)) = to_share {
                self.complete_lease(lease, &key, Ok(&loaded)).await;
            }
            return drop(completion.complete(Ok(loaded)));
        };
        if let Some((lease, key, loaded)) = to_share {
            self.complete_lease(lease, &key, Ok(&loaded)).await;
        }
        // Free the key last: a request that finds it free looks the key up in the tier.
        drop((key_guard, pending_work));
    }

    /// Completes a load that failed, with a stale value from the tier if there is one.
    async fn fail(
        &self,
        completion: Completion<K, V>,
        lease: Option<Box<dyn Lease>>,
        stale: Option<Loaded<V>>,
        error: Error,
    ) {
        self.store.record_not_stored(completion.key());
        let key = lease.is_some().then(|| completion.key().clone());
        let stale = stale.and_then(|stale| self.as_fallback(stale, &error));
        match stale {
            Some(stale) => drop(completion.complete(Ok(stale))),
            None => completion.fail(error.clone()),
        }
        if let (Some(lease), Some(key)) = (lease, key) {
            self.complete_lease(lease, &key, Err(&error)).await;
        }
    }

    /// Runs the load if the breaker and admission control allow it.
    async fn execute(
        &self,
        key: &K,
        admission_permit: Option<AdmissionPermit>,
        turn: BreakerTurn<R>,
        deadline: Time,
        caller: Span,
        load: Box<dyn Loader<K, V>>,
    ) -> Result<ReceivedValue<'_, K, V, R>, Error> {
        let breaker_permit = match turn {
            BreakerTurn::Admitted(permit) => permit,
            BreakerTurn::Waits => self.breaker_permit(key, load.client()).await?,
        };
        let admission_permit = match admission_permit {
            Some(admission_permit) => admission_permit,
            None => self.queue_for_admission(key, deadline, load.reserves_bytes()).await?,
        };
        // Time in our own queue is not the source's.
        let now = self.runtime.now();
        let deadline = if load.has_deadline() { Time::NEVER } else { now + self.strategy.load.deadline };
        let since = self.store.invalidation_seq();
        let mut attempt = LoadAttempt::start(self, key.clone(), breaker_permit, now, deadline);
        let span = tracing::info_span!(parent: caller, "load", cache = self.name.as_deref(), error = Empty);
        let load = load.load(&|| Reservation::new(&self.store, key)).instrument(span.clone());
        let result = match before(&self.runtime, deadline, load).await {
            Some(result) => result.map_err(LoadFailure::new),
            None => Err(LoadFailure { error: self.deadline_error(), outcome: LoadOutcome::TimedOut }),
        };
        match result {
            Ok(loaded) => {
                let LoadedValue { value, lifespan, remainder, reservation, .. } = loaded;
                let LoadedValue { is_failure, is_transient, is_from_source, .. } = loaded;
                if !is_from_source {
                    drop(attempt.take_permit());
                }
                let took = match remainder {
                    Some(_) => attempt.took(),
                    None => attempt.end(outcome_of(is_failure)),
                };
                let loaded = self.new_loaded(value, lifespan, attempt.started_at + took, took, since);
                let (bytes, place) = admission_permit.into_parts();
                let bytes = reservation.and_then(Reservation::into_bytes).or(bytes);
                Ok(ReceivedValue {
                    loaded,
                    lifespan,
                    bytes,
                    remainder,
                    is_failure,
                    is_transient,
                    attempt,
                    span,
                    place,
                    deadline,
                })
            }
            Err(LoadFailure { error, outcome }) => {
                attempt.end(outcome);
                span.record("error", tracing::field::display(&error));
                Err(error)
            }
        }
    }

    /// Waits for the remainder of a streamed value, and adds it to what is received.
    async fn receive_remainder(
        &self,
        received: &mut ReceivedValue<'_, K, V, R>,
        remainder: Remainder<K, V>,
    ) -> Result<(), Error> {
        let completed =
            match before(&self.runtime, received.deadline, remainder.instrument(received.span.clone())).await
            {
                Some(completed) => completed.map_err(|error| Error::Load(error.into())),
                None => Err(self.deadline_error()),
            };
        match completed {
            Ok((value, reservation)) => {
                let took = received.attempt.end(outcome_of(received.is_failure));
                received.bytes = reservation.into_bytes();
                // Its age counts from its beginning.
                let (at, since) = (received.loaded.at, received.loaded.since);
                received.loaded = self.new_loaded(value, received.lifespan, at, took, since);
                Ok(())
            }
            Err(error) => {
                // A deadline while a value still arrives is not a failure of the source; a broken connection is.
                let has_failed = !matches!(error, Error::Deadline { .. }) || received.is_failure;
                received.attempt.end(outcome_of(has_failed));
                received.span.record("error", tracing::field::display(&error));
                Err(error)
            }
        }
    }

    /// Stores the value and completes the load, in the order that the strategy's [`StoreMode`](strategy::StoreMode)
    /// defines.
    async fn store_and_complete(
        &self,
        completion: Completion<K, V>,
        ReceivedEntry { loaded, bytes, mark }: ReceivedEntry<K, V>,
        seen_version: Version,
        pending_work: WorkGuard,
    ) {
        let permit = match loaded.life {
            Some(_) => self.store.reserve_for_store(completion.key(), &loaded.value, bytes).ok(),
            None => None,
        };
        let key = completion.key().clone();
        let mut write =
            Write { mark, key, loaded: loaded.clone(), claim: None, key_guard: None, permit, pending_work };
        match self.strategy.store {
            strategy::StoreMode::Sync => {
                let stored = self.writer.store(write).await;
                drop(completion.complete(stored.map(|()| loaded)));
            }
            strategy::StoreMode::Async => {
                write.key_guard = Some(completion.complete(Ok(loaded)));
                self.writer.store_async(write);
            }
            strategy::StoreMode::LockedAsync => {
                let key_guard = completion.complete(Ok(loaded));
                match VersionClaim::take(&self.store, &write.key, seen_version) {
                    Some(claim) => {
                        (write.claim, write.key_guard) = (Some(claim), Some(key_guard));
                        self.writer.store_async(write);
                    }
                    None => self.counters.stores_skipped.increment(),
                }
            }
        }
    }
}

/// A value that a load returned, or the beginning of one.
struct ReceivedValue<'a, K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    loaded: Loaded<V>,
    lifespan: Option<Lifespan>,
    bytes: Option<ReservedBytes>,
    remainder: Option<Remainder<K, V>>,
    is_failure: bool,
    is_transient: bool,
    attempt: LoadAttempt<'a, K, V, R>,
    span: Span,
    /// The slot among the concurrent loads.
    place: Option<OwnedSemaphorePermit>,
    /// Of the load.
    deadline: Time,
}

/// A loaded value that is to be stored.
struct ReceivedEntry<K: Hash + Eq + Clone, V: Clone> {
    loaded: Loaded<V>,
    bytes: Option<ReservedBytes>,
    mark: LoadMark<K, V>,
}

fn outcome_of(has_failed: bool) -> LoadOutcome {
    if has_failed { LoadOutcome::Failed } else { LoadOutcome::Answered }
}

/// A load that has started. If it is dropped before [`end`](Self::end), it counts as failed, in the breaker too.
struct LoadAttempt<'a, K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    engine: &'a Engine<K, V, R>,
    key: K,
    permit: AttemptPermit<R>,
    started_at: Time,
    is_finished: bool,
}

/// The breaker's permit for a load.
enum AttemptPermit<R: Runtime> {
    /// The cache has no breaker, or it knows the result.
    None,
    Held(BreakerPermit<R>),
    /// Of a caller that blocks.
    Blocking(LoadNumber),
}

impl<'a, K, V, R> LoadAttempt<'a, K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn start(
        engine: &'a Engine<K, V, R>,
        key: K,
        permit: Option<BreakerPermit<R>>,
        now: Time,
        deadline: Time,
    ) -> Self {
        let permit = match permit {
            None => AttemptPermit::None,
            Some(permit) if is_own_load() => {
                AttemptPermit::Blocking(engine.blocking_loads.start(deadline, permit))
            }
            Some(permit) => AttemptPermit::Held(permit),
        };
        Self { engine, key, permit, started_at: now, is_finished: false }
    }

    /// `None`: the breaker needs no result.
    fn take_permit(&mut self) -> Option<BreakerPermit<R>> {
        match replace(&mut self.permit, AttemptPermit::None) {
            AttemptPermit::None => None,
            AttemptPermit::Held(permit) => Some(permit),
            AttemptPermit::Blocking(number) => {
                let now = self.engine.runtime.now();
                self.engine.blocking_loads.expire(now);
                self.engine.blocking_loads.end(number)
            }
        }
    }

    fn took(&self) -> Duration {
        self.engine.runtime.now() - self.started_at
    }

    /// Records the result. Returns the duration of the load.
    fn end(&mut self, outcome: LoadOutcome) -> Duration {
        self.is_finished = true;
        let engine = self.engine;
        let Engine { runtime, counters, strategy, store, .. } = engine;
        let now = runtime.now();
        let took = now - self.started_at;
        if let Some(permit) = self.take_permit() {
            permit.record_result(outcome);
        }
        #[cfg(feature = "metrics")]
        if let Some(meter) = &engine.meter {
            meter.record_load(took);
        }
        if outcome == LoadOutcome::Answered {
            counters.loads_answered.increment();
            if let Some(load_times) = &engine.load_times {
                load_times.record(took);
            }
        } else {
            counters.loads_failed.increment();
            if outcome != LoadOutcome::NotRun && !strategy.throttle.is_zero() {
                store.throttle(&self.key, runtime.coarse_now(), now + strategy.throttle);
            }
        }
        took
    }
}

impl<K, V, R> Drop for LoadAttempt<'_, K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn drop(&mut self) {
        if !self.is_finished {
            self.end(LoadOutcome::Failed);
        }
    }
}
