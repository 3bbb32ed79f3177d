//! One load: a task of its own, that no caller's cancellation ends.

use std::{future::Future, hash::Hash, sync::Arc, time::Duration};

use stockade_model::time::{Runtime, Time, before};
use tracing::{Instrument, field::Empty};

use crate::{
    admission::Pass,
    answer::Error,
    breaker::Permit,
    busy::Busy,
    cache::Inner,
    flight::Leader,
    invalidations::Moment,
    life::Life,
    shard::Version,
    strategy,
    writer::{Claim, Write},
};

/// What a load lands with: everyone aboard is told the same.
pub(crate) type Landing<V> = Result<Loaded<V>, Error>;

/// A value as it came from its load.
#[derive(Clone, Debug)]
pub(crate) struct Loaded<V> {
    pub(crate) value: V,
    /// None: it is not to be kept.
    pub(crate) life: Option<Life>,
    /// When its load ended.
    pub(crate) at: Time,
    /// When its load began, in invalidations.
    pub(crate) since: Moment,
}

/// What fetches a key's value: called at most once.
pub(crate) trait Loader<V>: Send + 'static {
    /// Fetches it.
    fn load(
        self,
    ) -> impl Future<Output = Result<V, Arc<dyn std::error::Error + Send + Sync>>> + Send + 'static;
}

impl<V, L, F, E> Loader<V> for L
where
    L: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<V, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    fn load(
        self,
    ) -> impl Future<Output = Result<V, Arc<dyn std::error::Error + Send + Sync>>> + Send + 'static {
        let load = self();
        async move { load.await.map_err(|error| Arc::from(error.into())) }
    }
}

/// A load on its way.
struct Loading<K: Hash + Eq, V, R: Runtime> {
    leader: Leader<K, Landing<V>>,
    /// The entry version that its lookup saw.
    seen: Version,
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
    pub(crate) fn launch<L: Loader<V>>(
        self: &Arc<Self>,
        leader: Leader<K, Landing<V>>,
        seen: Version,
        load: L,
    ) -> bool {
        let permit = match &self.breakers {
            Some(breakers) => match breakers.of(leader.key()).admit(&self.runtime) {
                Some(permit) => Some(permit),
                None => {
                    self.counters.loads_refused.increment();
                    drop(leader.land(Err(Error::BreakerOpen)));
                    return false;
                }
            },
            None => None,
        };
        let deadline = self.runtime.now() + self.strategy.load.deadline;
        let pass = self.admission.try_enter(&self.store, leader.key());
        if pass.is_some() {
            self.count_load(leader.key(), deadline);
        }
        let busy = self.site.begin();
        let loading = Loading { leader, seen, pass, permit, deadline, busy };
        self.runtime.spawn(Arc::clone(self).run(loading, load));
        true
    }

    fn count_load(&self, key: &K, deadline: Time) {
        self.counters.loads.increment();
        if self.store.begin_load(key, self.runtime.now(), deadline) {
            self.counters.episodes.increment();
        }
    }

    /// The pass of a load that has to queue for it.
    async fn enter(&self, key: &K, deadline: Time) -> Result<Pass, Error> {
        let pass = match before(&self.runtime, deadline, self.admission.enter(&self.store, key)).await {
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
    /// end, and a store that it leaves to the mailbox is on.
    async fn run<L: Loader<V>>(self: Arc<Self>, loading: Loading<K, V, R>, load: L) {
        let Loading { leader, seen, pass, permit, deadline, busy } = loading;
        let pass = match pass {
            Some(pass) => Ok(pass),
            None => self.enter(leader.key(), deadline).await,
        };
        let pass = match pass {
            Ok(pass) => pass,
            Err(error) => {
                drop(leader.land(Err(error)));
                return;
            }
        };
        let since = self.store.moment();
        let attempt = Attempt::begin(&self, leader.key(), permit);
        let span = tracing::info_span!("load", cache = self.name.as_deref(), error = Empty);
        let loaded = match before(&self.runtime, deadline, load.load().instrument(span.clone())).await {
            Some(loaded) => loaded.map_err(Error::Load),
            None => Err(Error::Deadline { after: self.strategy.load.deadline }),
        };
        let took = attempt.end(loaded.is_ok());
        let loaded = match loaded {
            Ok(value) => self.take_in(value, self.runtime.now(), took, since),
            Err(error) => {
                span.record("error", tracing::field::display(&error));
                drop(leader.land(Err(error)));
                return;
            }
        };
        let ticket = match loaded.life {
            Some(_) => self.store.ticket(leader.key(), &loaded.value, pass.into_room()).ok(),
            None => None,
        };
        let mut write = Write {
            key: leader.key().clone(),
            loaded: loaded.clone(),
            claim: None,
            slot: None,
            ticket,
            busy: busy.clone(),
        };
        match self.strategy.store {
            strategy::Store::Sync => {
                let stored = self.writer.store(write).await;
                drop(leader.land(stored.map(|()| loaded)));
            }
            strategy::Store::Async => {
                write.slot = Some(leader.land(Ok(loaded)));
                self.writer.store_later(write);
            }
            strategy::Store::LockedAsync => {
                let slot = leader.land(Ok(loaded));
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
        // Lookups ask the coarse clock, so by the coarse clock it lives: else it would be fresh for
        // longer than its ttl, and one of no ttl at all would be fresh.
        let loaded = at.min(self.runtime.coarse_now());
        let is_not_found = self.not_found.as_ref().is_some_and(|is_not_found| is_not_found(&value));
        let life = if is_not_found {
            self.lifetimes.negative_life(loaded)
        } else {
            Some(self.lifetimes.life(loaded, took, || self.chance.share()))
        };
        Loaded { value, life, at, since }
    }
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
    key: &'a K,
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
    fn begin(inner: &'a Inner<K, V, R>, key: &'a K, permit: Option<Permit<R>>) -> Self {
        Self { inner, key, permit, began: inner.runtime.now(), is_over: false }
    }

    /// It is over; how long it took.
    fn end(mut self, is_answered: bool) -> Duration {
        self.note(is_answered)
    }

    fn note(&mut self, is_answered: bool) -> Duration {
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
                store.throttle(self.key, runtime.coarse_now(), now + strategy.throttle);
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
            self.note(false);
        }
    }
}
