//! The shell: lookups that answer at once or wait.

use std::{
    borrow::Borrow,
    future::Future,
    hash::Hash,
    ops::ControlFlow,
    sync::{Arc, Weak},
    time::Duration,
};

use stockade_model::{
    outcome::Outcome,
    seed::Seed,
    time::{Live, Runtime, Time},
};

use crate::{
    admission::Admission,
    answer::{Answer, Error},
    breaker::{BreakerState, Breakers, RouteOf},
    builder::{Builder, Plan, Values},
    busy::Site,
    chance::Chance,
    flight::Flights,
    life::Lifetimes,
    load::{Arrival, Landing, Loaded, Loader, Parts, Via, Whole},
    meter::{self, Meter},
    shard::{Found, Invalidation},
    shared::Shared,
    stats::{Counters, Stats},
    store::{Closer, Publication, Refused, Room, Store},
    strategy::{InvalidStrategy, Strategy},
    tier::What,
    writer::{Write, Writer},
};

/// A cache with one strategy. Clones share it.
///
/// `K` and `V` are cloned freely: a key with every load, a value with every answer. Large values
/// belong behind an `Arc` or in `bytes::Bytes`. That, comparing and hashing happen while others wait,
/// so they must not call the cache.
pub struct Cache<K: Hash + Eq + Clone, V: Clone, R: Runtime = Live> {
    inner: Arc<Inner<K, V, R>>,
}

pub(crate) struct Inner<K: Hash + Eq + Clone, V: Clone, R: Runtime> {
    pub(crate) strategy: Strategy,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) runtime: R,
    pub(crate) store: Arc<Store<K, V>>,
    pub(crate) flights: Arc<Flights<K, Landing<V>>>,
    pub(crate) writer: Writer<K, V, R>,
    pub(crate) admission: Admission,
    pub(crate) breakers: Option<Breakers<K>>,
    pub(crate) chance: Chance,
    pub(crate) counters: Arc<Counters>,
    pub(crate) site: Arc<Site>,
    pub(crate) values: Values<V>,
    pub(crate) shared: Option<Arc<Shared<K, V>>>,
    pub(crate) name: Option<String>,
    pub(crate) meter: Option<Meter>,
}

/// What [views](Cache::view) share.
struct Common<K: Hash + Eq + Clone, V: Clone, R: Runtime> {
    runtime: R,
    store: Arc<Store<K, V>>,
    flights: Arc<Flights<K, Landing<V>>>,
    site: Arc<Site>,
    values: Values<V>,
    shared: Option<Arc<Shared<K, V>>>,
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// An empty cache in real time, on the tokio runtime of the caller.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(strategy: Strategy) -> Result<Self, InvalidStrategy> {
        Self::builder(strategy).build()
    }

    /// For a cache that needs to be told more than its strategy.
    #[must_use]
    pub fn builder(strategy: Strategy) -> Builder<K, V> {
        Builder::new(strategy)
    }
}

impl<K, V, R> Cache<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// Of a strategy without a fault.
    pub(crate) fn start(runtime: R, seed: Seed, plan: Plan<K, V>) -> Self {
        let Plan { strategy, told, values, route, shared, name } = plan;
        let store = Arc::new(Store::new(seed.child("store"), &strategy, told));
        let flights = Flights::new(seed.child("flights"), || Err(Error::LeaderLost));
        let common =
            Common { runtime, store, flights, site: Arc::default(), values, shared: shared.map(Arc::new) };
        let cache = Self::over(common, seed, strategy, route, name);
        if let Some(shared) = &cache.inner.shared {
            let heeding = Arc::downgrade(&cache.inner);
            shared.tier.listen(Box::new(move |note| {
                if let Some(inner) = heeding.upgrade() {
                    inner.heed(note);
                }
            }));
        }
        cache
    }

    /// The same entries and loads under another strategy, with counts and a breaker of its own: for routes that
    /// differ in what they do about a missing answer, and share what there is room for. The limit is that of
    /// this cache, whatever the strategy says. With a name it tells [metrics](Builder::metrics).
    pub fn view(&self, strategy: &Strategy, name: Option<String>) -> Result<Self, InvalidStrategy> {
        let inner = &*self.inner;
        let strategy = Strategy { limit: inner.strategy.limit.clone(), ..strategy.clone() };
        inner.values.check(&strategy)?;
        let common = Common {
            runtime: inner.runtime.clone(),
            store: Arc::clone(&inner.store),
            flights: Arc::clone(&inner.flights),
            site: Arc::clone(&inner.site),
            values: inner.values.clone(),
            shared: inner.shared.clone(),
        };
        let seed = inner.chance.seed();
        Ok(Self::over(common, seed, strategy, None, name))
    }

    fn over(
        common: Common<K, V, R>,
        seed: Seed,
        strategy: Strategy,
        route: Option<RouteOf<K>>,
        name: Option<String>,
    ) -> Self {
        let Common { runtime, store, flights, site, values, shared } = common;
        let counters = Arc::<Counters>::default();
        let inner = Arc::new(Inner {
            lifetimes: Lifetimes::of(&strategy, values.lifespan.is_some()),
            writer: Writer::new(strategy.writer, Arc::clone(&store), Arc::clone(&counters), runtime.clone()),
            breakers: strategy.breaker.map(|config| Breakers::new(config, route, seed.child("routes"))),
            admission: Admission::new(&strategy.load),
            chance: Chance::new(seed.child("chance")),
            meter: name.as_deref().map(Meter::new),
            strategy,
            runtime,
            store,
            flights,
            site,
            values,
            shared,
            counters,
            name,
        });
        if inner.meter.is_some() {
            inner.runtime.spawn(tell_metrics(Arc::downgrade(&inner), inner.runtime.clone()));
        }
        Self { inner }
    }

    /// The fresh value of `key`, if there is one. Never loads, refreshes nothing and never waits.
    #[must_use]
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let now = self.inner.now_for_lookups();
        match self.inner.store.look_up(key, now) {
            Ok((value, _)) => Some(value),
            Err(closer) => self.inner.look_closer(closer, key, now),
        }
    }

    /// The same as an answer, with its age. What is due to be refreshed, too, is left to
    /// [`get_with`](Self::get_with), which may refresh it.
    #[must_use]
    #[inline]
    pub fn hit<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Answer<V>>
    where
        K: Borrow<Q>,
    {
        let now = self.inner.now_for_lookups();
        let (value, loaded) = self.inner.store.look_up(key, now).ok()?;
        Some(Answer::hit(value, now - loaded))
    }

    /// Stores a value that did not come from a load, for as long as the strategy's `ttl`.
    ///
    /// A load of the same key that is under way is answered to those who wait for it, and not stored. Nobody
    /// knows how long a load would have taken: xfetch refreshes the value when it has expired. A
    /// value that the limit refuses is not stored, and what was stored under its key is gone. Only a limit
    /// in bytes refuses any.
    pub fn insert(&self, key: K, value: V) -> Insertion {
        let inner = &*self.inner;
        let since = if inner.site.is_idle() { inner.store.moment() } else { inner.store.outdate(&key) };
        let at = inner.runtime.coarse_now();
        let life = inner.life_of(&value, at, Duration::ZERO);
        let loaded = |value| Loaded { value, life, at, took: Duration::ZERO, since, via: Via::Load };
        if inner.shared.is_some() {
            inner.tell_written(&key, &loaded(value.clone()));
            if !inner.has_memory() {
                return if life.is_some() { Insertion::Stored } else { Insertion::NotKept };
            }
        }
        let (ticket, insertion) = match life {
            None => (None, Insertion::NotKept),
            Some(_) => match inner.store.ticket(&key, &value, None) {
                Ok(ticket) => (Some(ticket), Insertion::Stored),
                Err(refused) => (None, Insertion::Refused(refused)),
            },
        };
        if inner.writer.is_direct() || ticket.is_none() {
            inner.store.publish(Publication { key, value, since, kept: life.zip(ticket) }, at);
            return insertion;
        }
        let (busy, forgotten) = (inner.site.begin(), (key.clone(), value.clone()));
        let write = Write { key, loaded: loaded(value), claim: None, slot: None, ticket, busy };
        if inner.writer.store_later(write) {
            return insertion;
        }
        let (key, value) = forgotten;
        inner.store.publish(Publication { key, value, since, kept: None }, at);
        Insertion::Refused(Refused::MailboxFull)
    }

    /// Invalidates what is stored under `key`; true if there was something.
    ///
    /// A load of the key that is under way goes on, and answers those who asked before; it is not stored,
    /// and who asks from now on has it loaded anew.
    ///
    /// With a [shared tier](Builder::shared) all nodes do the same: when it is up within a round trip or two,
    /// else when it is back, and until then they serve what they have for as long as its ttl. `Redis::told` waits
    /// until they have been told.
    pub fn invalidate(&self, key: &K, how: Invalidation) -> bool {
        // Told first: nobody here is given the tier's old value after this.
        self.inner.tell_invalidated(|shared| What::Key(shared.keys.encode(key)), how);
        self.inner.invalidate(key, how)
    }

    /// Invalidates everything with this [tag](Builder::tags), and what loads under way bring that has it;
    /// how many entries there were. Which of them do is known when they are over: who asks meanwhile waits for
    /// that, and then has it loaded anew.
    #[expect(clippy::must_use_candidate, reason = "most callers do not care how many there were")]
    pub fn invalidate_tag(&self, tag: &str, how: Invalidation) -> usize {
        self.inner.tell_invalidated(|_| What::Tag(tag.to_owned()), how);
        self.inner.invalidate_tag(tag, how)
    }

    /// Invalidates what is stored under such keys; how many entries there were. What loads under way bring is
    /// answered and not stored. Other nodes of a [shared tier](Builder::shared) are told to invalidate everything.
    pub fn invalidate_where(&self, is_it: impl Fn(&K) -> bool, how: Invalidation) -> usize {
        self.inner.tell_invalidated(|_| What::Everything, how);
        let count = self.inner.store.invalidate_where(&is_it, how, self.inner.runtime.coarse_now());
        self.inner.flights.detach_all();
        count
    }

    /// Invalidates everything, and what loads under way bring; how many entries there were.
    #[expect(clippy::must_use_candidate, reason = "most callers do not care how many there were")]
    pub fn clear(&self, how: Invalidation) -> usize {
        self.inner.tell_invalidated(|_| What::Everything, how);
        self.inner.clear(how)
    }

    /// The value of `key`: stored, or from `load`, or from another caller's load, as the strategy
    /// has it.
    ///
    /// The lookup happens when the future is first polled. `load` is called at most once, in a task
    /// of its own that no caller's cancellation ends; that may be later than the lookup, when this
    /// caller is elected to replace a lost leader.
    pub fn get_with<L, F, E>(
        &self,
        key: K,
        load: L,
    ) -> impl Future<Output = Result<Answer<V>, Error>> + Send + use<'_, K, V, R, L, F, E>
    where
        L: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        self.ask(key, Whole(load), Wish::Stored)
    }

    /// As [`get_with`](Self::get_with), of a value that its load brings piece by piece: callers are answered
    /// with its [beginning](Arrival), and it is stored when all of it is there. Who asks in between is given the
    /// same beginning. No [room](Room) is taken before the load begins: it takes what it needs.
    pub fn get_arriving<L, F, E>(
        &self,
        key: K,
        wish: Wish,
        load: L,
    ) -> impl Future<Output = Result<Answer<V>, Error>> + Send + use<'_, K, V, R, L, F, E>
    where
        L: FnOnce(Room<K, V>) -> F + Send + 'static,
        F: Future<Output = Result<Arrival<K, V>, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        self.ask(key, Parts(load), wish)
    }

    fn ask<L: Loader<K, V>>(
        &self,
        key: K,
        load: L,
        wish: Wish,
    ) -> impl Future<Output = Result<Answer<V>, Error>> + Send + use<'_, K, V, R, L> {
        let inner = &self.inner;
        // Not an `async fn`: that would keep room for its arguments twice, and a million may wait.
        let mut load = Some(load);
        async move {
            let now = inner.runtime.coarse_now();
            let mut request = match wish {
                Wish::Stored => match inner.store.look_up(&key, now) {
                    Ok((value, loaded)) => return Ok(Answer::hit(value, now - loaded)),
                    Err(closer) => match inner.weigh_up(&key, closer.look(&key, now), now, &mut load) {
                        ControlFlow::Break(answer) => return Ok(answer),
                        ControlFlow::Continue(request) => request,
                    },
                },
                Wish::Anew => inner.request_anew(&key, now),
            };
            let mut wait = match inner.board(&key, &mut request, &mut load) {
                ControlFlow::Break(end) => return end,
                ControlFlow::Continue(wait) => wait,
            };
            loop {
                let turn = wait.await;
                wait = match inner.after(&key, &mut request, &mut load, turn) {
                    ControlFlow::Break(end) => return end,
                    ControlFlow::Continue(wait) => wait,
                };
            }
        }
    }

    /// What is stored under `key`, whatever it is good for: perhaps no more than to be validated by a load.
    /// Counts nothing, and spares nothing from eviction.
    #[must_use]
    pub fn peek(&self, key: &K) -> Option<Held<V>> {
        let now = self.inner.runtime.coarse_now();
        self.inner.store.peek(key, now)
    }

    /// Waits until no load is under way and every store has been performed.
    ///
    /// With requests still coming in that may be never.
    pub async fn idle(&self) {
        self.inner.site.idle().await;
    }

    /// Waits until no coalesced load of `key` is under way; with requests still coming in that may be long.
    pub async fn settled(&self, key: &K) {
        // Whoever waits for this is in no hurry: a load tells those who want its value, not those who do not.
        const LOOK_EVERY: Duration = Duration::from_millis(2);
        while self.inner.flights.is_under_way(key) {
            self.inner.runtime.sleep_until(self.inner.runtime.now() + LOOK_EVERY).await;
        }
    }

    /// What this cache has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// How many loads have begun so far: one of the [`stats`](Self::stats), at the price of a read.
    #[must_use]
    pub fn loads(&self) -> u64 {
        self.inner.counters.loads.get()
    }

    /// What the cache holds of its [limit in bytes](crate::Limit::bytes), entries and reservations;
    /// `None`: there is no such limit.
    #[must_use]
    pub fn bytes(&self) -> Option<BytesHeld> {
        self.inner.bytes()
    }

    /// What an entry costs beyond what its key and value own, in bytes: its place in the store, and
    /// what the policy keeps of it.
    #[must_use]
    pub fn entry_bytes(&self) -> usize {
        self.inner.store.entry_bytes()
    }

    /// How many entries are stored, fresh or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.store.len()
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many coalesced loads are under way, one a key.
    #[must_use]
    pub fn flights(&self) -> usize {
        self.inner.flights.under_way()
    }

    /// Every breaker's state by the name of its [route](Builder::route); `""` is that of keys without one.
    /// None without a breaker.
    #[must_use]
    pub fn breakers(&self) -> Vec<(String, BreakerState)> {
        self.inner.breaker_states()
    }

    /// Tells the installed recorder of the `metrics` facade all counts, if the cache was
    /// [built](Builder::metrics) to. That also happens once a second.
    pub fn tell_metrics(&self) {
        self.inner.tell_metrics();
    }
}

impl<K, V, R> Inner<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    /// The time, if it matters: without a ttl nothing expires.
    #[inline]
    fn now_for_lookups(&self) -> Time {
        if self.lifetimes.has_end { self.runtime.coarse_now() } else { Time::ZERO }
    }

    #[inline]
    fn look_closer<Q: Hash + Eq + ?Sized>(&self, closer: Closer<'_, K, V>, key: &Q, now: Time) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match closer.look(key, now) {
            Found::Aged(aged) if now < aged.life.expires => {
                let is_negative = aged.life.is_negative();
                self.counters.answered(if is_negative { Outcome::Negative } else { Outcome::Hit });
                Some(aged.value)
            }
            // It was not fresh at the first look.
            _ => None,
        }
    }

    pub(crate) fn invalidate(&self, key: &K, how: Invalidation) -> bool {
        let was_there = self.store.invalidate(key, how, self.runtime.coarse_now());
        // Who asks from now on does not queue behind a load that is of no use to them.
        self.flights.detach(key);
        was_there
    }

    pub(crate) fn invalidate_tag(&self, tag: &str, how: Invalidation) -> usize {
        self.store.invalidate_tag(tag, how, self.runtime.coarse_now())
    }

    pub(crate) fn clear(&self, how: Invalidation) -> usize {
        let were_there = self.store.clear(how, self.runtime.coarse_now());
        self.flights.detach_all();
        were_there
    }

    fn stats(&self) -> Stats {
        self.counters.with(&self.store.tally())
    }

    fn bytes(&self) -> Option<BytesHeld> {
        let budget = self.store.budget()?;
        Some(BytesHeld { held: budget.held(), peak: budget.peak() })
    }

    fn breaker_states(&self) -> Vec<(String, BreakerState)> {
        self.breakers.as_ref().map(|breakers| breakers.states(self.runtime.now())).unwrap_or_default()
    }

    fn tell_metrics(&self) {
        if let Some(meter) = &self.meter {
            meter.tell(&self.stats(), self.store.len(), self.bytes(), &self.breaker_states());
        }
    }
}

/// Tells the metrics until the cache is gone.
async fn tell_metrics<K, V, R>(inner: Weak<Inner<K, V, R>>, runtime: R)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    while let Some(inner) = inner.upgrade() {
        inner.tell_metrics();
        drop(inner);
        runtime.sleep_until(runtime.now() + meter::EVERY).await;
    }
}

/// What became of a value that was [inserted](Cache::insert).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Insertion {
    /// It is stored, or in the writer's mailbox.
    Stored,
    /// It is not, and what was stored under its key is gone: there was no room for it.
    Refused(Refused),
    /// It is not, and what was stored under its key is gone: it is a [not-found](Builder::not_found), and
    /// the strategy has no `negative_ttl`.
    NotKept,
}

/// Something stored: [`Cache::peek`].
#[derive(Clone, Debug)]
pub struct Held<V> {
    /// The value.
    pub value: V,
    /// How long ago its load ended, to a millisecond or two.
    pub age: Duration,
    /// How long it will be fresh; zero: it has expired.
    pub fresh_for: Duration,
    /// How long it may be given to anybody at all.
    pub servable_for: Duration,
}

/// What a request is content with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// What is stored, as the strategy has it.
    #[default]
    Stored,
    /// Nothing that was stored when it came: a load answers it, its own or another's. If that fails it is given
    /// what is stored all the same, as a [fallback](stockade_model::outcome::Outcome::Fallback).
    Anew,
}

/// Bytes under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesHeld {
    /// Now.
    pub held: usize,
    /// At most so far.
    pub peak: usize,
}

impl<K: Hash + Eq + Clone, V: Clone, R: Runtime> Clone for Cache<K, V, R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K, V, R> std::fmt::Debug for Cache<K, V, R>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Runtime,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("strategy", &self.inner.strategy)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
