//! One load: a task of its own, that no caller's cancellation ends.

use std::{future::Future, hash::Hash, pin::Pin, sync::Arc, time::Duration};

use stockade_model::time::{Runtime, Time, before};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{Instrument, Span, field::Empty};

use crate::{
    admission::Pass,
    answer::Error,
    breaker::Permit,
    budget::Reservation,
    busy::Busy,
    cache::{Inner, Wish},
    flight::{Leader, Slot},
    invalidations::Moment,
    life::{Life, Lifespan},
    shard::Version,
    shared::{Consulted, Turned},
    store::Room,
    strategy,
    tier::Lease,
    writer::{Claim, Write},
};

/// What a load lands with: everyone aboard is told the same.
pub(crate) type Landing<V> = Result<Loaded<V>, Error>;

/// A value as it came from its load, or from the shared tier.
#[derive(Clone, Debug)]
pub(crate) struct Loaded<V> {
    pub(crate) value: V,
    /// None: it is not to be kept.
    pub(crate) life: Option<Life>,
    /// When its load ended.
    pub(crate) at: Time,
    /// How long its load took.
    pub(crate) took: Duration,
    /// When its load began, or the tier was asked for it, in invalidations.
    pub(crate) since: Moment,
    pub(crate) via: Via,
}

/// How a value was come by.
#[derive(Clone, Debug)]
pub(crate) enum Via {
    /// By a load.
    Load,
    /// It was in the shared tier.
    Shared,
    /// By another node's load, which this one waited for.
    Elsewhere,
    /// It was in the shared tier, stale, and is being refreshed.
    Stale,
    /// It was in the shared tier, stale, and no load answered.
    Fallback(Error),
}

/// What a load brings: a value that can be answered with, and perhaps more that is on its way.
pub struct Arrival<K: Hash + Eq + Clone, V: Clone> {
    /// What callers are given.
    pub value: V,
    /// What is stored when it has come, and the room that was taken for it: the value itself, or one that takes
    /// its place. `None`: the value is all there is. If it fails, nothing is stored and the load has failed,
    /// though its callers have been answered.
    pub rest: Option<Rest<K, V>>,
    /// The room that was taken for the value, where that is all there is.
    pub room: Option<Room<K, V>>,
    /// Whether the source has failed although there is a value: the breaker hears of it.
    pub is_failure: bool,
    /// Whether what is stored stays: the value is for those who wait, is not stored, and takes the place of nothing.
    pub is_fleeting: bool,
    /// Whether the source was asked at all: else the breaker learns nothing of it.
    pub was_asked: bool,
}

/// The end of a value that is on its way.
pub type Rest<K, V> = Pin<Box<dyn Future<Output = Result<(V, Room<K, V>), BoxError>> + Send>>;

/// Why a load failed.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<K: Hash + Eq + Clone, V: Clone> Arrival<K, V> {
    /// All of it at once.
    #[must_use]
    pub fn whole(value: V) -> Self {
        Self { value, rest: None, room: None, is_failure: false, is_fleeting: false, was_asked: true }
    }

    /// All of it at once, for those who wait for it; what is stored stays.
    #[must_use]
    pub fn fleeting(value: V) -> Self {
        Self { is_fleeting: true, ..Self::whole(value) }
    }

    /// What was found out without the source, for those who wait for it.
    #[must_use]
    pub fn unasked(value: V) -> Self {
        Self { was_asked: false, ..Self::fleeting(value) }
    }
}

impl<K: Hash + Eq + Clone, V: Clone + std::fmt::Debug> std::fmt::Debug for Arrival<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { value, rest, is_failure, is_fleeting, .. } = self;
        f.debug_struct("Arrival")
            .field("value", value)
            .field("has_rest", &rest.is_some())
            .field("is_failure", is_failure)
            .field("is_fleeting", is_fleeting)
            .finish()
    }
}

/// What fetches a key's value: called at most once.
pub(crate) trait Loader<K: Hash + Eq + Clone, V: Clone>: Send + 'static {
    /// Whether room for the value is taken before the load begins.
    const TAKES_ROOM: bool;

    /// Fetches it.
    fn load(
        self,
        room: impl FnOnce() -> Room<K, V>,
    ) -> impl Future<Output = Result<Arrival<K, V>, BoxError>> + Send + 'static;
}

/// Brings a value at once.
pub(crate) struct Whole<L>(pub(crate) L);

/// Brings the beginning of a value, and then the rest.
pub(crate) struct Parts<L>(pub(crate) L);

impl<K, V, L, F, E> Loader<K, V> for Whole<L>
where
    K: Hash + Eq + Clone,
    V: Clone,
    L: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<V, E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    const TAKES_ROOM: bool = true;

    fn load(
        self,
        _room: impl FnOnce() -> Room<K, V>,
    ) -> impl Future<Output = Result<Arrival<K, V>, BoxError>> + Send + 'static {
        let load = self.0();
        async move { load.await.map(Arrival::whole).map_err(Into::into) }
    }
}

impl<K, V, L, F, E> Loader<K, V> for Parts<L>
where
    K: Hash + Eq + Clone,
    V: Clone,
    L: FnOnce(Room<K, V>) -> F + Send + 'static,
    F: Future<Output = Result<Arrival<K, V>, E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    const TAKES_ROOM: bool = false;

    fn load(
        self,
        room: impl FnOnce() -> Room<K, V>,
    ) -> impl Future<Output = Result<Arrival<K, V>, BoxError>> + Send + 'static {
        let load = self.0(room());
        async move { load.await.map_err(Into::into) }
    }
}

/// Who lands a load's answer: its leader, or nobody, where it was answered at once and is refreshed.
enum Controls<K: Hash + Eq, V> {
    Led(Leader<K, Landing<V>>),
    Landed(K, Slot<K, Landing<V>>),
}

impl<K: Hash + Eq, V: Clone> Controls<K, V> {
    fn key(&self) -> &K {
        match self {
            Self::Led(leader) => leader.key(),
            Self::Landed(key, _) => key,
        }
    }

    fn land(self, landing: Landing<V>) -> Slot<K, Landing<V>> {
        match self {
            Self::Led(leader) => leader.land(landing),
            Self::Landed(_, slot) => slot,
        }
    }
}

/// A load on its way.
struct Loading<K: Hash + Eq, V, R: Runtime> {
    leader: Leader<K, Landing<V>>,
    /// The entry version that its lookup saw.
    seen: Version,
    /// What whoever began it is content with.
    wish: Wish,
    /// None: it has to queue.
    pass: Option<Pass>,
    permit: Option<Permit<R>>,
    deadline: Time,
    busy: Busy,
}

impl<K, V, R> Inner<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// Has the key loaded in a task of its own, unless the breaker is against it; false then.
    pub(crate) fn launch<L: Loader<K, V>>(
        self: &Arc<Self>,
        leader: Leader<K, Landing<V>>,
        seen: Version,
        wish: Wish,
        load: L,
    ) -> bool {
        let deadline = self.runtime.now() + self.strategy.load.deadline;
        let busy = self.site.begin();
        if self.shared.is_some() {
            let loading = Loading { leader, seen, wish, pass: None, permit: None, deadline, busy };
            self.runtime.spawn(Arc::clone(self).run(loading, load));
            return true;
        }
        let permit = match self.permit(leader.key()) {
            Ok(permit) => permit,
            Err(refused) => {
                drop(leader.land(Err(refused)));
                return false;
            }
        };
        let pass = self.admission.try_enter(&self.store, leader.key(), L::TAKES_ROOM);
        if pass.is_some() {
            self.count_load(leader.key(), deadline);
        }
        let loading = Loading { leader, seen, wish, pass, permit, deadline, busy };
        self.runtime.spawn(Arc::clone(self).run(loading, load));
        true
    }

    /// The breaker's leave to load a key; `None`: there is no breaker.
    fn permit(&self, key: &K) -> Result<Option<Permit<R>>, Error> {
        let Some(breakers) = &self.breakers else { return Ok(None) };
        let permit = breakers.of(key).admit(&self.runtime);
        if permit.is_none() {
            self.counters.loads_refused.increment();
        }
        permit.map(Some).ok_or(Error::BreakerOpen)
    }

    fn count_load(&self, key: &K, deadline: Time) {
        self.counters.loads.increment();
        if self.store.begin_load(key, self.runtime.now(), deadline) {
            self.counters.episodes.increment();
        }
    }

    /// The pass of a load that has to queue for it.
    async fn enter(&self, key: &K, deadline: Time, takes_room: bool) -> Result<Pass, Error> {
        let entered = self.admission.enter(&self.store, key, takes_room);
        let pass = match before(&self.runtime, deadline, entered).await {
            Some(Ok(pass)) => pass,
            Some(Err(rejected)) => {
                self.counters.loads_rejected.increment();
                return Err(rejected);
            }
            None => {
                self.counters.loads_rejected.increment();
                return Err(Error::QueueTimeout { after: self.strategy.load.deadline });
            }
        };
        self.count_load(key, deadline);
        Ok(pass)
    }

    /// The task of one load: load, store, answer, in the strategy's order. It is busy until its very
    /// end, and a store that it leaves to the mailbox is on. A shared tier is asked first and told last.
    async fn run<L: Loader<K, V>>(self: Arc<Self>, loading: Loading<K, V, R>, load: L) {
        let Loading { leader, mut seen, wish, pass, permit, deadline, busy } = loading;
        let (mut controls, mut turned) = (Controls::Led(leader), Turned::LOCAL);
        if let Some(shared) = &self.shared {
            // In a box of its own: it takes more room than all the rest.
            match Box::pin(self.consult(shared, controls.key(), wish, deadline)).await {
                Consulted::Answered(loaded) => return drop(controls.land(Ok(loaded))),
                Consulted::Failed(error) => return drop(controls.land(Err(error))),
                Consulted::Load(turn) => turned = turn,
                Consulted::Refresh(loaded, lease) => {
                    turned.lease = Some(lease);
                    let key = controls.key().clone();
                    // Who boards until it is over is given the same answer.
                    controls = Controls::Landed(key, controls.land(Ok(loaded)));
                }
            }
            if self.runtime.now() >= deadline {
                // Its turn came too late. The lease goes, and whoever has time left loads.
                drop(turned.lease);
                return self.fail(controls, None, turned.stale, self.overdue()).await;
            }
            // What came from the tier may be here by now.
            seen = self.store.version(controls.key());
        }
        let Turned { lease, stale } = turned;
        let mut arrived = match self.perform(controls.key(), pass, permit, deadline, load).await {
            Ok(arrived) => arrived,
            Err(error) => return self.fail(controls, lease, stale, error).await,
        };
        if let Some(rest) = arrived.rest.take() {
            let key = controls.key().clone();
            // Who boards until all of it is there is given the same beginning.
            controls = Controls::Landed(key, controls.land(Ok(arrived.loaded.clone())));
            if let Err(error) = self.complete(&mut arrived, rest, deadline).await {
                return self.fail(controls, lease, stale, error).await;
            }
        }
        let Arrived { loaded, room, attempt, is_fleeting, .. } = arrived;
        drop(attempt);
        if is_fleeting {
            // The lease goes with it, and whoever waits on another node finds out for itself.
            return drop(controls.land(Ok(loaded)));
        }
        let told = lease.map(|lease| (lease, controls.key().clone(), loaded.clone()));
        let slot = if self.has_memory() {
            self.store_and_land(controls, loaded, room, seen, busy.clone()).await;
            None
        } else if self.strategy.store != strategy::Store::Sync {
            Some(controls.land(Ok(loaded)))
        } else {
            if let Some((lease, key, loaded)) = told {
                self.settle(lease, &key, Ok(&loaded)).await;
            }
            return drop(controls.land(Ok(loaded)));
        };
        if let Some((lease, key, loaded)) = told {
            self.settle(lease, &key, Ok(&loaded)).await;
        }
        // Only then: who finds the key free asks the tier.
        drop((slot, busy));
    }

    /// No load answered.
    async fn fail(
        &self,
        controls: Controls<K, V>,
        lease: Option<Box<dyn Lease>>,
        stale: Option<Loaded<V>>,
        error: Error,
    ) {
        let key = lease.is_some().then(|| controls.key().clone());
        let stale = stale.and_then(|stale| self.instead(stale, &error));
        drop(controls.land(stale.ok_or_else(|| error.clone())));
        if let (Some(lease), Some(key)) = (lease, key) {
            self.settle(lease, &key, Err(&error)).await;
        }
    }

    /// A load, if the breaker and the others that are under way let it begin. With its value, the room that
    /// was kept for it.
    async fn perform<L: Loader<K, V>>(
        &self,
        key: &K,
        pass: Option<Pass>,
        permit: Option<Permit<R>>,
        deadline: Time,
        load: L,
    ) -> Result<Arrived<'_, K, V, R>, Error> {
        let permit = if self.shared.is_some() { self.permit(key)? } else { permit };
        let pass = match pass {
            Some(pass) => pass,
            None => self.enter(key, deadline, L::TAKES_ROOM).await?,
        };
        let since = self.store.moment();
        let mut attempt = Attempt::begin(self, key.clone(), permit);
        let span = tracing::info_span!("load", cache = self.name.as_deref(), error = Empty);
        let load = load.load(|| Room::new(&self.store, key)).instrument(span.clone());
        let arrival = match before(&self.runtime, deadline, load).await {
            Some(arrival) => arrival.map_err(|error| Error::Load(error.into())),
            None => Err(self.overdue()),
        };
        match arrival {
            Ok(Arrival { value, rest, room: taken, is_failure, is_fleeting, was_asked }) => {
                if !was_asked {
                    attempt.permit = None;
                }
                let took = if rest.is_some() { attempt.took() } else { attempt.end(!is_failure) };
                let loaded = self.take_in(value, self.runtime.now(), took, since);
                let (room, place) = pass.into_parts();
                let room = taken.and_then(Room::into_reservation).or(room);
                Ok(Arrived { loaded, room, rest, is_failure, is_fleeting, attempt, span, _place: place })
            }
            Err(error) => {
                attempt.end(false);
                span.record("error", tracing::field::display(&error));
                Err(error)
            }
        }
    }

    /// No answer came before the deadline of a load.
    pub(crate) fn overdue(&self) -> Error {
        Error::Deadline { after: self.strategy.load.deadline }
    }

    /// Waits for the rest of a value that has begun to arrive.
    async fn complete(
        &self,
        arrived: &mut Arrived<'_, K, V, R>,
        rest: Rest<K, V>,
        deadline: Time,
    ) -> Result<(), Error> {
        let completed = match before(&self.runtime, deadline, rest.instrument(arrived.span.clone())).await {
            Some(completed) => completed.map_err(|error| Error::Load(error.into())),
            None => Err(self.overdue()),
        };
        match completed {
            Ok((value, room)) => {
                let took = arrived.attempt.end(!arrived.is_failure);
                arrived.room = room.into_reservation();
                // It is as old as its beginning.
                let (at, since) = (arrived.loaded.at, arrived.loaded.since);
                arrived.loaded = self.take_in(value, at, took, since);
                Ok(())
            }
            Err(error) => {
                // What is slow to arrive has been answered with; what breaks off has not.
                arrived.attempt.end(matches!(error, Error::Deadline { .. }) && !arrived.is_failure);
                arrived.span.record("error", tracing::field::display(&error));
                Err(error)
            }
        }
    }

    /// Stores here and answers, in the strategy's order.
    async fn store_and_land(
        &self,
        controls: Controls<K, V>,
        loaded: Loaded<V>,
        room: Option<Reservation>,
        seen: Version,
        busy: Busy,
    ) {
        let ticket = match loaded.life {
            Some(_) => self.store.ticket(controls.key(), &loaded.value, room).ok(),
            None => None,
        };
        let key = controls.key().clone();
        let mut write = Write { key, loaded: loaded.clone(), claim: None, slot: None, ticket, busy };
        match self.strategy.store {
            strategy::Store::Sync => {
                let stored = self.writer.store(write).await;
                drop(controls.land(stored.map(|()| loaded)));
            }
            strategy::Store::Async => {
                write.slot = Some(controls.land(Ok(loaded)));
                self.writer.store_later(write);
            }
            strategy::Store::LockedAsync => {
                let slot = controls.land(Ok(loaded));
                match Claim::take(&self.store, &write.key, seen) {
                    Some(claim) => {
                        (write.claim, write.slot) = (Some(claim), Some(slot));
                        self.writer.store_later(write);
                    }
                    None => self.counters.stores_skipped.increment(),
                }
            }
        }
    }

    /// A value as it is at `at`, after a load that took so long.
    pub(crate) fn take_in(&self, value: V, at: Time, took: Duration, since: Moment) -> Loaded<V> {
        let life = self.life_of(&value, at, took);
        Loaded { value, life, at, took, since, via: Via::Load }
    }

    /// The life of such a value; `None`: it is not to be kept.
    pub(crate) fn life_of(&self, value: &V, at: Time, took: Duration) -> Option<Life> {
        // Lookups ask the coarse clock, so by the coarse clock it lives: else it would be fresh for
        // longer than its ttl, and one of no ttl at all would be fresh.
        let loaded = at.min(self.runtime.coarse_now());
        let own = match self.lifespan(value) {
            Some(Lifespan::NONE) => return None,
            own => own,
        };
        if self.values.not_found.as_ref().is_some_and(|is_not_found| is_not_found(value)) {
            return self.lifetimes.negative_life(own, loaded);
        }
        Some(self.lifetimes.life(own, loaded, took, || self.chance.share()))
    }

    /// How long a value says that it is good for.
    pub(crate) fn lifespan(&self, value: &V) -> Option<Lifespan> {
        self.values.lifespan.as_ref().and_then(|lifespan| lifespan(value))
    }
}

/// A load that has brought a value, or its beginning.
struct Arrived<'a, K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    loaded: Loaded<V>,
    room: Option<Reservation>,
    rest: Option<Rest<K, V>>,
    is_failure: bool,
    is_fleeting: bool,
    attempt: Attempt<'a, K, V, R>,
    span: Span,
    /// One of those that may be under way at once.
    _place: Option<OwnedSemaphorePermit>,
}

/// A load that has begun. Dropped before its [end](Self::end) it was lost, and has failed: the breaker
/// hears of it, too.
struct Attempt<'a, K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    inner: &'a Inner<K, V, R>,
    key: K,
    permit: Option<Permit<R>>,
    began: Time,
    is_over: bool,
}

impl<'a, K, V, R> Attempt<'a, K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn begin(inner: &'a Inner<K, V, R>, key: K, permit: Option<Permit<R>>) -> Self {
        Self { inner, key, permit, began: inner.runtime.now(), is_over: false }
    }

    /// How long it has taken so far.
    fn took(&self) -> Duration {
        self.inner.runtime.now() - self.began
    }

    /// It is over; how long it took.
    fn end(&mut self, is_answered: bool) -> Duration {
        self.is_over = true;
        let Inner { runtime, counters, strategy, store, meter, .. } = self.inner;
        let now = runtime.now();
        let took = now - self.began;
        if let Some(permit) = self.permit.take() {
            permit.settle(is_answered);
        }
        if let Some(meter) = meter {
            meter.loaded(took);
        }
        if is_answered {
            counters.loads_answered.increment();
        } else {
            counters.loads_failed.increment();
            if !strategy.throttle.is_zero() {
                store.throttle(&self.key, runtime.coarse_now(), now + strategy.throttle);
            }
        }
        took
    }
}

impl<K, V, R> Drop for Attempt<'_, K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn drop(&mut self) {
        if !self.is_over {
            self.end(false);
        }
    }
}
