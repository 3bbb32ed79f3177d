//! The shell: lookups that wait, and the tasks that load.

use std::{borrow::Borrow, future::Future, hash::Hash, sync::Arc, time::Duration};

use stockade_model::{
    outcome::Outcome,
    seed::Seed,
    time::{Live, Runtime, Time, before},
};

use crate::{
    admission::{Admission, Pass},
    answer::{Answer, Error},
    builder::Builder,
    busy::{Busy, Site},
    flight::{Boarding, Flights, Leader, Timekeeper, Turn, Waiter},
    shard::{Found, Version},
    stats::{Counters, Stats},
    store::{Refused, Store, WeighBy},
    strategy::{self, Fetch, InvalidStrategy, Strategy},
    writer::{Claim, Write, Writer},
};

/// What a load lands with: everyone aboard is told the same.
pub(crate) type Landing<V> = Result<Loaded<V>, Error>;

/// A value as it came from its load.
#[derive(Clone, Debug)]
pub(crate) struct Loaded<V> {
    pub(crate) value: V,
    pub(crate) expires: Time,
    /// When its load ended.
    pub(crate) at: Time,
}

impl<V> Loaded<V> {
    /// Whether it may answer a caller who asked then: its load ended later, or it was still fresh.
    /// A waiter can come too late for that while the value waits for the writer.
    fn serves(&self, asked: Time) -> bool {
        self.at >= asked || asked < self.expires
    }

    fn answer(self, outcome: Outcome) -> Answer<V> {
        Answer { value: self.value, outcome }
    }
}

/// A cache with one strategy. Clones share it.
///
/// `K` and `V` are cloned freely: a key with every load, a value with every answer. Large values
/// belong behind an `Arc` or in `bytes::Bytes`. That, comparing and hashing happen while others wait,
/// so they must not call the cache.
pub struct Cache<K: Hash + Eq + Clone, V: Clone, R = Live> {
    inner: Arc<Inner<K, V, R>>,
}

struct Inner<K: Hash + Eq + Clone, V: Clone, R> {
    strategy: Strategy,
    runtime: R,
    store: Arc<Store<K, V>>,
    flights: Arc<Flights<K, Landing<V>>>,
    writer: Writer<K, V, R>,
    admission: Admission,
    counters: Arc<Counters>,
    site: Arc<Site>,
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
    pub(crate) fn start(
        runtime: R,
        seed: Seed,
        strategy: Strategy,
        weigh: Option<WeighBy<K, V>>,
        counts_lookups: bool,
    ) -> Self {
        let limit = strategy.limit.as_ref();
        let store = Arc::new(Store::new(seed.child("store"), limit, weigh, counts_lookups));
        let admission = Admission::new(&strategy.load);
        let counters = Arc::<Counters>::default();
        let writer = Writer::new(strategy.writer, Arc::clone(&store), Arc::clone(&counters), runtime.clone());
        let flights = Flights::new(seed.child("flights"), || Err(Error::LeaderLost));
        let site = Arc::default();
        let inner = Inner { strategy, runtime, store, flights, writer, admission, counters, site };
        Self { inner: Arc::new(inner) }
    }

    /// The fresh value of `key`, if there is one. Never loads and never waits.
    #[must_use]
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match self.inner.store.look_up(key, self.inner.now_for_lookups()) {
            Found::Fresh(value) => Some(value),
            Found::Missing { .. } => None,
        }
    }

    /// Stores a value that did not come from a load, for as long as the strategy's `ttl`.
    ///
    /// A load of the same key that is under way goes on, and its value replaces this one. A value that
    /// the limit refuses is not stored, and what was stored under its key is gone. Only a limit in bytes
    /// refuses any.
    pub fn insert(&self, key: K, value: V) -> Insertion {
        let inner = &*self.inner;
        let at = inner.now_for_lookups();
        let ticket = match inner.store.ticket(&key, &value, None) {
            Ok(ticket) => ticket,
            Err(refused) => {
                inner.store.refuse(&key);
                return Insertion::Refused(refused);
            }
        };
        let loaded = inner.loaded(value, at);
        if inner.writer.is_direct() {
            inner.store.publish(key, loaded.value, loaded.expires, at, ticket);
        } else {
            let busy = inner.site.begin();
            let write = Write { key, loaded, claim: None, slot: None, ticket: Some(ticket), busy };
            inner.writer.store_later(write);
        }
        Insertion::Stored
    }

    /// The value of `key`: stored, or from `load`, or from another caller's load, as the strategy
    /// has it.
    ///
    /// The lookup happens when the future is first polled. `load` is called at most once, in a task
    /// of its own that no caller's cancellation ends; that may be later than the lookup, when this
    /// caller is elected to replace a lost leader.
    #[expect(clippy::missing_panics_doc, reason = "a caller leads once, see there")]
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
        let inner = &self.inner;
        // Not an `async fn`: that would keep room for its arguments twice, and a million may wait.
        let mut load = Some(load);
        async move {
            let seen = match inner.store.look_up(&key, inner.now_for_lookups()) {
                Found::Fresh(value) => return Ok(Answer { value, outcome: Outcome::Hit }),
                Found::Missing { version } => version,
            };
            let asked = inner.runtime.now();
            let mut place = inner.board(&key, asked, seen);
            let mut led = None;
            let mut is_again = false;
            loop {
                let waiter = match place {
                    Place::Answer(answer) => return answer,
                    Place::Waiter(waiter) => waiter,
                    Place::Leader(leader, seen) => {
                        led = Some(leader.ordinal());
                        // Who has led and boards again has asked before its successor's load began, and
                        // that serves it.
                        inner.lead(leader, seen, load.take().expect("a caller leads once"))
                    }
                };
                let turn = if is_again && led.is_none() {
                    // Its deadline is out of the order of arrival, in which the timekeeper looks. Boxed,
                    // so that the others do not carry the room for it.
                    let deadline = asked + inner.wait_timeout();
                    Box::pin(before(&inner.runtime, deadline, waiter)).await.unwrap_or(Turn::TimedOut)
                } else {
                    waiter.await
                };
                place = match turn {
                    Turn::Landed(landing, by) if led == Some(by) => {
                        return landing.map(|loaded| loaded.answer(Outcome::Miss));
                    }
                    // It came while the value waited for the writer, and expired before this caller asked.
                    Turn::Landed(Ok(loaded), _) if !loaded.serves(asked) => {
                        is_again = true;
                        inner.board(&key, asked, seen)
                    }
                    Turn::Landed(landing, _) => return coalesced(landing),
                    Turn::Lead(leader) => {
                        let seen = inner.store.version(leader.key());
                        Place::Leader(leader, seen)
                    }
                    Turn::TimedOut => return Err(Error::WaitTimeout { after: inner.wait_timeout() }),
                };
            }
        }
    }

    /// Waits until no load is under way and every store has been performed.
    ///
    /// With requests still coming in that may be never.
    pub async fn idle(&self) {
        self.inner.site.idle().await;
    }

    /// What this cache has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.counters.with(&self.inner.store.tally())
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
        let budget = self.inner.store.budget()?;
        Some(BytesHeld { held: budget.held(), peak: budget.peak() })
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
}

/// What became of a value that was [inserted](Cache::insert).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It is stored, or in the writer's mailbox.
    Stored,
    /// It is not.
    Refused(Refused),
}

/// Bytes under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesHeld {
    /// Now.
    pub held: usize,
    /// At most so far.
    pub peak: usize,
}

/// What a miss makes of its caller.
enum Place<K: Hash + Eq, V> {
    Leader(Leader<K, Landing<V>>, Version),
    Waiter(Waiter<K, Landing<V>>),
    /// Somebody was faster.
    Answer(Result<Answer<V>, Error>),
}

fn coalesced<V>(landing: Landing<V>) -> Result<Answer<V>, Error> {
    landing.map(|loaded| loaded.answer(Outcome::Coalesced))
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
        if self.strategy.ttl.is_some() { self.runtime.coarse_now() } else { Time::ZERO }
    }

    /// A value as it is at `at`, fresh from its source.
    fn loaded(&self, value: V, at: Time) -> Loaded<V> {
        // Lookups ask the coarse clock, so by the coarse clock it expires: else it would be fresh for
        // longer than its ttl, and one of no ttl at all would be fresh.
        let expires = |ttl| at.min(self.runtime.coarse_now()) + ttl;
        Loaded { value, expires: self.strategy.ttl.map_or(Time::NEVER, expires), at }
    }

    /// What becomes of a caller who asked at `asked` and saw the entry version `seen` missing.
    fn board(&self, key: &K, asked: Time, mut seen: Version) -> Place<K, V> {
        let Fetch::Coalesce { wait_timeout } = self.strategy.fetch else {
            return Place::Leader(self.flights.depart_alone(key), seen);
        };
        let stored = || match self.store.look_again(key, asked) {
            Found::Fresh(value) => Some(value),
            Found::Missing { version } => {
                seen = version;
                None
            }
        };
        let serves = |landing: &Landing<V>| landing.as_ref().is_ok_and(|loaded| loaded.serves(asked));
        let place = match self.flights.board(key, asked + wait_timeout, stored, serves) {
            Boarding::Lead(leader) => return Place::Leader(leader, seen),
            Boarding::Answered(value) => {
                self.counters.late_hits.increment();
                return Place::Answer(Ok(Answer { value, outcome: Outcome::Hit }));
            }
            Boarding::Landed(landing) => Place::Answer(coalesced(landing)),
            Boarding::Wait(waiter, timekeeper) => {
                if let Some(timekeeper) = timekeeper {
                    self.runtime.spawn(keep_time(timekeeper, self.runtime.clone()));
                }
                Place::Waiter(waiter)
            }
        };
        self.counters.waiters.increment();
        place
    }

    fn wait_timeout(&self) -> Duration {
        match self.strategy.fetch {
            Fetch::Coalesce { wait_timeout } => wait_timeout,
            Fetch::Independent => Duration::ZERO,
        }
    }

    /// Has the key loaded in a task of its own; the wait for that.
    fn lead<L, F, E>(
        self: &Arc<Self>,
        leader: Leader<K, Landing<V>>,
        seen: Version,
        load: L,
    ) -> Waiter<K, Landing<V>>
    where
        L: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        let deadline = self.runtime.now() + self.strategy.load.deadline;
        let pass = self.admission.try_enter(&self.store, leader.key());
        if pass.is_some() {
            self.begin_load(leader.key(), deadline);
        }
        let watch = leader.watch();
        let busy = self.site.begin();
        let loading = Loading { leader, seen, pass, deadline, busy };
        self.runtime.spawn(Arc::clone(self).load(loading, load));
        watch
    }

    fn begin_load(&self, key: &K, deadline: Time) {
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
        self.begin_load(key, deadline);
        Ok(pass)
    }

    /// The task of one load: load, store, answer, in the strategy's order. It is busy until its very
    /// end, and a store that it leaves to the mailbox is on.
    async fn load<L, F, E>(self: Arc<Self>, loading: Loading<K, V>, load: L)
    where
        L: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        let Loading { leader, seen, pass, deadline, busy } = loading;
        let pass = match pass {
            Some(pass) => Ok(pass),
            None => self.enter(leader.key(), deadline).await,
        };
        let loaded = match pass {
            Ok(pass) => match before(&self.runtime, deadline, load()).await {
                Some(loaded) => loaded
                    .map(|value| (value, pass.reservation))
                    .map_err(|error| Error::Load(Arc::from(error.into()))),
                None => Err(Error::Deadline { after: self.strategy.load.deadline }),
            },
            Err(error) => Err(error),
        };
        let (loaded, reserved) = match loaded {
            Ok((value, reserved)) => (self.loaded(value, self.runtime.now()), reserved),
            Err(error) => {
                drop(leader.land(Err(error)));
                return;
            }
        };
        self.counters.loads_answered.increment();
        let ticket = self.store.ticket(leader.key(), &loaded.value, reserved).ok();
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
}

/// A load on its way.
struct Loading<K: Hash + Eq, V> {
    leader: Leader<K, Landing<V>>,
    /// The entry version that its lookup saw.
    seen: Version,
    /// None: it has to queue.
    pass: Option<Pass>,
    deadline: Time,
    busy: Busy,
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

impl<K: Hash + Eq + Clone, V: Clone, R> Clone for Cache<K, V, R> {
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
