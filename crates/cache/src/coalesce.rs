//! Coalescing (singleflight): one leader loads a key, the others wait for its result. [`Coalescer`] is the table of
//! loads in flight, one per key. A caller [joins](Coalescer::join) and becomes the [`Leader`] or a [`Waiter`]:
//!
//! ```text
//!   Led ---- complete(result) ---> Completed: every waiter is woken with the result
//!   |  ^
//!   |  '---- the elected waiter leads
//!   v        |
//!   Vacant --'  The leader was dropped before it completed (a panic, an abort, a shutdown): one waiter is elected and
//!               woken; if it leaves, another; if none can lead, all receive the result of the loss
//! ```
//!
//! The first caller that meets a vacant load leads it: the elected waiter, another waiter that is polled, or a new
//! caller. An elected caller that is never polled must not hold the key. A load survives one lost leader. A second
//! loss ends it: a load that kills its tasks must not be handed on for ever.
//!
//! A load may be hedged: if it takes longer than `hedge_after`, one waiter becomes a further leader, and another one after each further
//! `hedge_after`. The first value completes the load. A leader that [fails](Leader::fail) leaves it to the others; the error of the last one
//! completes it. Hedges have a budget, a share of all loads.
//!
//! A waiter may have a deadline. One [`WaitTimer`] per load and runtime wakes the waiters whose deadline has passed: ten
//! thousand waiters need one timer, and a load without waiters needs none. No waiter depends on the timer of another runtime, which may
//! stand still or shut down.
//!
//! All of this is synchronous: there is no runtime and no clock, and wakers are called outside the locks. Lock
//! order: table, then load.

mod budget;
mod wait_queue;

use std::{
    borrow::Borrow,
    future::Future,
    hash::Hash,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use stockade_model::{
    seed::Seed,
    time::{RuntimeId, Time},
};

use self::{
    budget::HedgeBudget,
    wait_queue::{QueuedWaiter, WaitQueue},
};
use crate::{locks::Lock, sharded::Sharded};

/// Number of tables, each with its own lock.
const TABLES: usize = 16;
/// Leaders that a load may lose before it ends.
const LEADERS_LOST_MAX: u32 = 2;
/// Leaders at the same time, hedges included.
const LEADERS_MAX: u32 = 4;

/// Loads in flight, one per key, with results of type `T`.
#[derive(Debug)]
pub struct Coalescer<K, T> {
    tables: Sharded<Lock<LoadMap<K, T>>>,
    lost_result: fn() -> T,
    budget: HedgeBudget,
}

type LoadMap<K, T> = HashMap<K, Arc<InFlightLoad<K, T>>, FixedState>;

/// A caller that joins a load, and the runtime whose timer ends its wait.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The time, on the clock of all callers.
    pub at: Time,
    /// The caller's runtime.
    pub runtime: RuntimeId,
    /// Loads that started before are not joined: the runtime of their task stands still.
    pub abandoned_before: Time,
}

impl From<Time> for Arrival {
    fn from(at: Time) -> Self {
        Self { at, runtime: RuntimeId::default(), abandoned_before: Time::ZERO }
    }
}

/// The result of [`Coalescer::join`].
#[derive(Debug)]
pub enum JoinOutcome<K: Hash + Eq, T, A> {
    /// `find_stored` returned a value.
    Stored(A),
    /// The load has completed with this result, and the key is not free yet.
    Completed(T),
    /// Another caller leads, and this caller's deadline has passed.
    DeadlinePassed,
    /// Another caller leads. If there is a timer, this caller has to run it.
    Wait(Waiter<K, T>, Option<WaitTimer<K, T>>),
    /// This caller leads.
    Lead(Leader<K, T>),
}

/// The result of a wait.
#[derive(Debug)]
pub enum WaitOutcome<K: Hash + Eq, T> {
    /// The result, and the [ordinal](Leader::ordinal) of the leader that completed the load.
    Completed(T, u32),
    /// The leader was lost, and this waiter leads.
    Lead(Leader<K, T>),
    /// The waiter's deadline has passed.
    TimedOut,
}

impl<K: Hash + Eq + Clone, T: Clone> Coalescer<K, T> {
    /// `lost_result` is the result when no leader is left, and no lost one did [say](Leader::lose) what the result is then.
    #[must_use]
    pub fn new(seed: Seed, lost_result: fn() -> T) -> Arc<Self> {
        let table = |_, hasher: &FixedState| Lock::new(HashMap::with_hasher(hasher.clone()));
        Arc::new(Self {
            tables: Sharded::new(seed, TABLES, table),
            lost_result,
            budget: HedgeBudget::default(),
        })
    }

    /// Joins the load of `key`, or starts one. `deadline` maps the start of the load to the deadline of this
    /// caller's wait. If this caller starts the load, a waiter leads a further load after each `hedge_after`; `None`: never.
    ///
    /// `find_stored` is called before a load would start, under the lock. A leader stores its result before it frees
    /// the key, so a caller that finds the key free and nothing stored is the first. Without this check two loads
    /// could follow each other on one miss.
    ///
    /// `serves` is called with a result whose key is not free yet. If it returns false, the caller starts a new
    /// load.
    pub fn join<A>(
        self: &Arc<Self>,
        key: &K,
        arrival: impl Into<Arrival>,
        hedge_after: Option<Duration>,
        deadline: impl FnOnce(Time) -> Time,
        find_stored: impl FnOnce() -> Option<A>,
        serves: impl FnOnce(&T) -> bool,
    ) -> JoinOutcome<K, T, A> {
        let arrival = arrival.into();
        // Dropped after the lock: dropping a value may run any code.
        let _outdated;
        let mut table = self.table(key).lock();
        if let Some(load) = table.get(key).filter(|load| load.started_at >= arrival.abandoned_before) {
            let deadline = deadline(load.started_at);
            let registration = load.core.lock().register_until(arrival, deadline, &self.budget);
            match registration {
                Registration::Queued { position, needs_timer } => {
                    return load.wait(position, needs_timer.then_some(arrival.runtime));
                }
                Registration::Lead(role) => return JoinOutcome::Lead(load.leader(role)),
                Registration::DeadlinePassed => return JoinOutcome::DeadlinePassed,
                Registration::Completed(answer) if serves(&answer) => return JoinOutcome::Completed(answer),
                Registration::Completed(answer) => _outdated = answer,
            }
        }
        if let Some(answer) = find_stored() {
            return JoinOutcome::Stored(answer);
        }
        let load = self.new_load(key, arrival.at, true, hedge_after);
        let replaced = table.insert(key.clone(), Arc::clone(&load));
        drop(table);
        drop(replaced);
        JoinOutcome::Lead(load.leader(LeaderRole::FIRST))
    }

    /// Starts a load if the key is free and `is_done`, called under the lock, returns false. [`join`](Self::join) explains
    /// `hedge_after`.
    pub fn try_start(
        self: &Arc<Self>,
        key: &K,
        arrival: impl Into<Arrival>,
        hedge_after: Option<Duration>,
        is_done: impl FnOnce() -> bool,
    ) -> Option<Leader<K, T>> {
        let arrival = arrival.into();
        let mut table = self.table(key).lock();
        let is_taken = |load: &Arc<InFlightLoad<K, T>>| load.started_at >= arrival.abandoned_before;
        if table.get(key).is_some_and(is_taken) || is_done() {
            return None;
        }
        let load = self.new_load(key, arrival.at, true, hedge_after);
        let replaced = table.insert(key.clone(), Arc::clone(&load));
        drop(table);
        drop(replaced);
        Some(load.leader(LeaderRole::FIRST))
    }

    /// Frees a key whose load must not answer later callers. Its waiters stay.
    pub fn detach<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        // Dropped after the lock.
        let _detached = self.tables.part(self.tables.hash(key)).lock().remove(key);
    }

    /// Frees every key.
    pub fn detach_all(&self) {
        for table in self.tables.iter() {
            let _detached: Vec<_> = table.lock().drain().collect();
        }
    }

    /// Starts a load that no caller can join: an independent load.
    pub fn start_detached(self: &Arc<Self>, key: &K, now: Time) -> Leader<K, T> {
        self.new_load(key, now, false, None).leader(LeaderRole::FIRST)
    }

    /// True if a load of this key is in flight.
    pub fn is_in_flight(&self, key: &K) -> bool {
        self.table(key).lock().contains_key(key)
    }

    /// True if a load of this key is in flight, and a caller waits for it.
    pub fn is_awaited(&self, key: &K) -> bool {
        self.table(key).lock().get(key).is_some_and(|load| load.core.lock().queue.has_callers())
    }

    fn new_load(
        self: &Arc<Self>,
        key: &K,
        started_at: Time,
        is_joinable: bool,
        hedge_after: Option<Duration>,
    ) -> Arc<InFlightLoad<K, T>> {
        if hedge_after.is_some() {
            self.budget.count_load();
        }
        let core = Lock::new(LoadState::new(started_at, hedge_after));
        Arc::new(InFlightLoad {
            key: key.clone(),
            coalescer: Arc::clone(self),
            started_at,
            is_joinable,
            core,
        })
    }
}

impl<K: Hash + Eq, T> Coalescer<K, T> {
    fn table(&self, key: &K) -> &Lock<LoadMap<K, T>> {
        self.tables.part(self.tables.hash(key))
    }

    /// Number of keys in flight, without independent loads.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.tables.iter().map(|table| table.lock().len()).sum()
    }
}

#[derive(Debug)]
struct InFlightLoad<K, T> {
    key: K,
    coalescer: Arc<Coalescer<K, T>>,
    started_at: Time,
    is_joinable: bool,
    core: Lock<LoadState<T>>,
}

impl<K: Hash + Eq, T: Clone> InFlightLoad<K, T> {
    fn leader(self: &Arc<Self>, role: LeaderRole) -> Leader<K, T> {
        Leader { load: Some(Arc::clone(self)), role }
    }

    fn wait<A>(self: &Arc<Self>, position: u64, timer_on: Option<RuntimeId>) -> JoinOutcome<K, T, A> {
        let timer = timer_on.map(|runtime| WaitTimer::of(self, runtime));
        JoinOutcome::Wait(Waiter { load: Arc::clone(self), position: Some(position) }, timer)
    }
}

impl<K: Hash + Eq, T> InFlightLoad<K, T> {
    /// Frees the key. The load itself lives until its waiters are gone.
    fn free_key(self: &Arc<Self>) {
        if self.is_joinable {
            let mut table = self.coalescer.table(&self.key).lock();
            self.remove_from(&mut table);
        }
    }

    fn remove_from(self: &Arc<Self>, table: &mut LoadMap<K, T>) {
        if table.get(&self.key).is_some_and(|current| Arc::ptr_eq(current, self)) {
            table.remove(&self.key);
        }
    }

    /// Elects a waiter after the leader is lost, or ends the load. It holds the table's lock, so that no caller
    /// joins a load that has ended.
    fn elect_successor(self: &Arc<Self>, what: impl FnOnce(&mut LoadState<T>, fn() -> T) -> Election) {
        let election = if self.is_joinable {
            let mut table = self.coalescer.table(&self.key).lock();
            let election = what(&mut self.core.lock(), self.coalescer.lost_result);
            if matches!(election, Election::Ended(_)) {
                self.remove_from(&mut table);
            }
            election
        } else {
            what(&mut self.core.lock(), self.coalescer.lost_result)
        };
        match election {
            Election::Elected(waker) => waker.into_iter().for_each(Waker::wake),
            Election::Ended(wakers) => wakers.into_iter().for_each(Waker::wake),
            Election::None => {}
        }
    }
}

/// The caller that loads. Dropping it before it [completes](Self::complete) hands the load to its other leaders, or else to a waiter.
#[derive(Debug)]
pub struct Leader<K: Hash + Eq, T> {
    /// `None` after `complete` or `fail`.
    load: Option<Arc<InFlightLoad<K, T>>>,
    role: LeaderRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LeaderRole {
    ordinal: u32,
    is_hedge: bool,
}

impl LeaderRole {
    const FIRST: Self = Self { ordinal: 0, is_hedge: false };
}

impl<K: Hash + Eq, T: Clone> Leader<K, T> {
    /// The number of leaders that the load had before this one.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.role.ordinal
    }

    /// True if it started while another leader was at work.
    #[must_use]
    pub fn is_hedge(&self) -> bool {
        self.role.is_hedge
    }

    /// False for an independent load.
    #[must_use]
    pub fn is_joinable(&self) -> bool {
        self.load().is_joinable
    }

    /// The start of the load, under this leader or a previous one.
    #[must_use]
    pub fn started_at(&self) -> Time {
        self.load().started_at
    }

    /// A waiter for this leader's own result. It cannot be elected, because its loader is in use. With a deadline
    /// there may be a timer for this runtime, as with [`JoinOutcome::Wait`].
    #[must_use]
    pub fn watch(
        &self,
        deadline: Option<Time>,
        runtime: RuntimeId,
    ) -> (Waiter<K, T>, Option<WaitTimer<K, T>>) {
        Waiter::watch(self.load(), deadline, true, runtime)
    }

    /// The key of the load.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.load().key
    }

    /// Wakes every waiter with the result, unless another leader has completed the load. The key stays taken until the
    /// guard is dropped; callers that join until then receive the same result.
    #[must_use = "dropping the guard frees the key, so store first"]
    pub fn complete(mut self, answer: T) -> KeyGuard<K, T> {
        let load = self.load().clone();
        self.load = None;
        let wakers = load.core.lock().complete(answer, self.role.ordinal);
        let guard = KeyGuard { load: wakers.is_some().then_some(load) };
        wakers.into_iter().flatten().for_each(Waker::wake);
        guard
    }

    /// If other leaders are active they go on, and no further waiter hedges the load. Otherwise `error` completes it.
    pub fn fail(mut self, error: T) {
        let load = self.load().clone();
        self.load = None;
        let wakers = load.core.lock().fail(error, self.role.ordinal);
        if let Some(wakers) = wakers {
            wakers.into_iter().for_each(Waker::wake);
            load.free_key();
        }
    }

    /// Leaves the load to its other leaders. Without one a waiter is elected; if no waiter can lead, `result` completes the load.
    pub fn lose(self, result: T) {
        let _outdated = self.load().core.lock().lost_result.replace(result);
    }

    fn load(&self) -> &Arc<InFlightLoad<K, T>> {
        self.load.as_ref().expect("complete() consumes the leader, so its load is there")
    }
}

impl<K: Hash + Eq, T> Drop for Leader<K, T> {
    fn drop(&mut self) {
        if let Some(load) = self.load.take() {
            load.elect_successor(LoadState::lose_leader);
        }
    }
}

/// Keeps a completed key taken. Dropping it frees the key.
#[derive(Debug)]
pub struct KeyGuard<K: Hash + Eq, T> {
    /// `None`: another leader has completed the load, and its guard keeps the key.
    load: Option<Arc<InFlightLoad<K, T>>>,
}

impl<K: Hash + Eq, T> Drop for KeyGuard<K, T> {
    fn drop(&mut self) {
        if let Some(load) = &self.load {
            load.free_key();
        }
    }
}

/// Waits for a load. Dropping it leaves the queue.
#[derive(Debug)]
pub struct Waiter<K: Hash + Eq, T> {
    load: Arc<InFlightLoad<K, T>>,
    position: Option<u64>,
}

impl<K: Hash + Eq, T: Clone> Waiter<K, T> {
    /// A waiter that cannot lead.
    fn watch(
        load: &Arc<InFlightLoad<K, T>>,
        deadline: Option<Time>,
        is_caller: bool,
        runtime: RuntimeId,
    ) -> (Self, Option<WaitTimer<K, T>>) {
        let registration = load.core.lock().register(deadline, false, is_caller, runtime);
        let (position, needs_timer) = match registration {
            Registration::Queued { position, needs_timer } => (Some(position), needs_timer),
            Registration::Lead(_) | Registration::Completed(_) | Registration::DeadlinePassed => {
                (None, false)
            }
        };
        (Self { load: Arc::clone(load), position }, needs_timer.then(|| WaitTimer::of(load, runtime)))
    }
}

/// Wakes the waiters of one load at their deadlines.
///
/// The owner calls [`expire`](Self::expire), then waits until the returned time or until
/// [`completed`](Self::completed), and repeats.
#[derive(Debug)]
pub struct WaitTimer<K: Hash + Eq, T> {
    watch: Waiter<K, T>,
    runtime: RuntimeId,
}

impl<K: Hash + Eq, T: Clone> WaitTimer<K, T> {
    fn of(load: &Arc<InFlightLoad<K, T>>, runtime: RuntimeId) -> Self {
        Self { watch: Waiter::watch(load, None, false, runtime).0, runtime }
    }

    /// Wakes waiters whose deadline has passed, and one that is to lead a further load. Returns the next such time;
    /// `None`: no waiter has one, and the next one gets a new timer.
    pub fn expire(&self, now: Time) -> Option<Time> {
        let load = &self.watch.load;
        let (wakers, next) = load.core.lock().expire(now, self.runtime, &load.coalescer.budget);
        wakers.into_iter().for_each(Waker::wake);
        next
    }

    /// Resolves when the load has completed.
    pub async fn completed(&mut self) {
        Pin::new(&mut self.watch).await;
    }
}

impl<K: Hash + Eq, T> Drop for WaitTimer<K, T> {
    /// The next waiter gets a new timer.
    fn drop(&mut self) {
        self.watch.load.core.lock().time_until(self.runtime, None);
    }
}

impl<K: Hash + Eq, T: Clone> Future for Waiter<K, T> {
    type Output = WaitOutcome<K, T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WaitOutcome<K, T>> {
        let step = self.load.core.lock().poll(self.position, cx.waker());
        match step {
            PollOutcome::Pending => Poll::Pending,
            PollOutcome::TimedOut => {
                self.position = None;
                Poll::Ready(WaitOutcome::TimedOut)
            }
            PollOutcome::Completed(answer, by) => {
                self.position = None;
                Poll::Ready(WaitOutcome::Completed(answer, by))
            }
            PollOutcome::Lead(role) => {
                self.position = None;
                Poll::Ready(WaitOutcome::Lead(self.load.leader(role)))
            }
        }
    }
}

impl<K: Hash + Eq, T> Drop for Waiter<K, T> {
    fn drop(&mut self) {
        let Some(position) = self.position.take() else { return };
        let was_elected = self.load.core.lock().remove(position);
        if was_elected {
            self.load.elect_successor(LoadState::replace_elected);
        }
    }
}

/// The state of one load. Pure: it takes no lock and returns wakers instead of calling them.
#[derive(Debug)]
struct LoadState<T> {
    phase: LoadPhase<T>,
    queue: WaitQueue,
    /// Leaders that the load has had, lost ones too.
    leaders: u32,
    leaders_active: u32,
    leaders_lost: u32,
    /// The result if the load ends without a leader, in place of the coalescer's.
    lost_result: Option<T>,
    hedges: Option<Hedges>,
    /// The time at which the timer of each runtime looks next.
    timers: SmallVec<[(RuntimeId, Time); 1]>,
}

/// When waiters lead a further load while the first leader is at work.
#[derive(Debug)]
struct Hedges {
    every: Duration,
    next: Time,
}

#[derive(Debug)]
enum LoadPhase<T> {
    Led,
    /// The elected waiter has been woken and does not lead yet; `None`: it left. If there are active leaders, it is to hedge
    /// their load.
    Vacant {
        elected: Option<u64>,
    },
    /// The result, and the ordinal of the leader that completed the load.
    Completed(T, u32),
}

enum PollOutcome<T> {
    Pending,
    Completed(T, u32),
    Lead(LeaderRole),
    TimedOut,
}

enum Registration<T> {
    /// Queued. `needs_timer`: no timer covers its deadline.
    Queued {
        position: u64,
        needs_timer: bool,
    },
    /// The caller leads: the load was vacant, or a hedge is due.
    Lead(LeaderRole),
    /// Not queued: the deadline has passed.
    DeadlinePassed,
    Completed(T),
}

enum Election {
    Elected(Option<Waker>),
    Ended(Vec<Waker>),
    /// Another caller leads, or the load is completed.
    None,
}

impl<T> LoadState<T> {
    fn new(started_at: Time, hedge_after: Option<Duration>) -> Self {
        let hedges = hedge_after.map(|every| Hedges { every, next: started_at + every });
        Self {
            phase: LoadPhase::Led,
            queue: WaitQueue::default(),
            leaders: 1,
            leaders_active: 1,
            leaders_lost: 0,
            lost_result: None,
            hedges,
            timers: SmallVec::new(),
        }
    }

    /// A caller leads.
    fn add_leader(&mut self) -> LeaderRole {
        let role = LeaderRole { ordinal: self.leaders, is_hedge: self.leaders_active > 0 };
        self.phase = LoadPhase::Led;
        self.leaders += 1;
        self.leaders_active += 1;
        role
    }

    /// Returns the wakers of all waiters; `None`: another leader has completed the load.
    fn complete(&mut self, answer: T, ordinal: u32) -> Option<Vec<Waker>> {
        if matches!(self.phase, LoadPhase::Completed(..)) {
            return None;
        }
        self.phase = LoadPhase::Completed(answer, ordinal);
        Some(self.queue.drain())
    }

    /// One leader ends without a value. Returns the wakers of all waiters if it was the last one.
    fn fail(&mut self, error: T, ordinal: u32) -> Option<Vec<Waker>> {
        if self.leaders_active == 1 {
            return self.complete(error, ordinal);
        }
        self.leaders_active -= 1;
        self.hedges = None;
        if matches!(self.phase, LoadPhase::Vacant { .. }) {
            self.phase = LoadPhase::Led;
        }
        None
    }

    fn lose_leader(&mut self, lost_result: fn() -> T) -> Election {
        self.leaders_active -= 1;
        self.leaders_lost += 1;
        if self.leaders_active > 0 || matches!(self.phase, LoadPhase::Completed(..)) {
            Election::None
        } else if self.leaders_lost < LEADERS_LOST_MAX {
            self.elect(lost_result)
        } else {
            Election::Ended(self.end(lost_result))
        }
    }

    /// Ends the load without a leader.
    fn end(&mut self, lost_result: fn() -> T) -> Vec<Waker> {
        let result = self.lost_result.take().unwrap_or_else(lost_result);
        self.complete(result, self.leaders).unwrap_or_default()
    }

    fn replace_elected(&mut self, lost_result: fn() -> T) -> Election {
        match self.phase {
            LoadPhase::Vacant { elected: None } => self.elect(lost_result),
            _ => Election::None,
        }
    }

    fn elect(&mut self, lost_result: fn() -> T) -> Election {
        match self.queue.find_first(|waiter| waiter.can_lead) {
            Some((elected, waiter)) => {
                let waker = waiter.waker.take();
                self.phase = LoadPhase::Vacant { elected: Some(elected) };
                Election::Elected(waker)
            }
            None if self.leaders_active > 0 => {
                self.phase = LoadPhase::Led;
                Election::None
            }
            None => Election::Ended(self.end(lost_result)),
        }
    }

    /// Returns the wakers of expired waiters and of one that is to lead a further load, and the next such time.
    fn expire(&mut self, now: Time, runtime: RuntimeId, budget: &HedgeBudget) -> (Vec<Waker>, Option<Time>) {
        let (mut wakers, mut next) = self.queue.expire(now);
        if let Some(hedges) = &mut self.hedges
            && self.queue.find_first(QueuedWaiter::may_hedge).is_some()
        {
            if hedges.next <= now {
                hedges.next = now + hedges.every;
                // One that was elected before and has not been polled since has no waker.
                let is_next = |waiter: &QueuedWaiter| waiter.may_hedge() && waiter.waker.is_some();
                if self.leaders_active < LEADERS_MAX
                    && let Some((elected, waiter)) = self.queue.find_first(is_next)
                    && budget.try_take()
                {
                    wakers.extend(waiter.waker.take());
                    self.phase = LoadPhase::Vacant { elected: Some(elected) };
                }
            }
            next = Some(next.map_or(hedges.next, |next| next.min(hedges.next)));
        }
        self.time_until(runtime, next);
        (wakers, next)
    }

    /// Records when the timer of a runtime looks next; `None`: it has ended.
    fn time_until(&mut self, runtime: RuntimeId, next: Option<Time>) {
        self.timers.retain(|&mut (other, _)| other != runtime);
        self.timers.extend(next.map(|next| (runtime, next)));
    }

    /// Removes a waiter. Returns true if it was the elected one: another has to be elected.
    fn remove(&mut self, position: u64) -> bool {
        // Completion has emptied the queue.
        if matches!(self.phase, LoadPhase::Completed(..)) {
            return false;
        }
        self.queue.remove(position);
        match &mut self.phase {
            LoadPhase::Vacant { elected } if *elected == Some(position) => {
                *elected = None;
                true
            }
            _ => false,
        }
    }
}

impl<T: Clone> LoadState<T> {
    /// Queues a caller that can lead, unless its deadline has passed.
    fn register_until(&mut self, arrival: Arrival, deadline: Time, budget: &HedgeBudget) -> Registration<T> {
        let Arrival { at: now, runtime, .. } = arrival;
        if let (LoadPhase::Led, Some(hedges)) = (&self.phase, &mut self.hedges)
            && hedges.next <= now
            && self.leaders_active < LEADERS_MAX
            && budget.try_take()
        {
            hedges.next = now + hedges.every;
            return Registration::Lead(self.add_leader());
        }
        if deadline <= now && matches!(self.phase, LoadPhase::Led) {
            return Registration::DeadlinePassed;
        }
        self.register(Some(deadline), true, true, runtime)
    }

    fn register(
        &mut self,
        deadline: Option<Time>,
        can_lead: bool,
        is_caller: bool,
        runtime: RuntimeId,
    ) -> Registration<T> {
        match &self.phase {
            LoadPhase::Completed(answer, _) => Registration::Completed(answer.clone()),
            LoadPhase::Vacant { .. } if can_lead => Registration::Lead(self.add_leader()),
            LoadPhase::Led | LoadPhase::Vacant { .. } => {
                let hedge = self.hedges.as_ref().filter(|_| can_lead).map(|hedges| hedges.next);
                let wakes_at = [deadline, hedge].into_iter().flatten().min();
                let is_timed = |wakes_at| {
                    self.timers.iter().any(|&(other, until)| other == runtime && until <= wakes_at)
                };
                let needs_timer = wakes_at.is_some_and(|wakes_at| !is_timed(wakes_at));
                if needs_timer {
                    self.time_until(runtime, wakes_at);
                }
                let is_timed_out = false;
                let waiter = QueuedWaiter { waker: None, can_lead, deadline, is_timed_out, is_caller };
                let position = self.queue.push(waiter);
                Registration::Queued { position, needs_timer }
            }
        }
    }

    fn poll(&mut self, position: Option<u64>, waker: &Waker) -> PollOutcome<T> {
        if let LoadPhase::Completed(answer, by) = &self.phase {
            return PollOutcome::Completed(answer.clone(), *by);
        }
        let Some(position) = position else { return PollOutcome::Pending };
        let Some(waiter) = self.queue.get_mut(position) else { return PollOutcome::Pending };
        // A waiter whose deadline has passed leads only if there is no other leader.
        let is_wanted = !waiter.is_timed_out || self.leaders_active == 0;
        if waiter.can_lead && is_wanted && matches!(self.phase, LoadPhase::Vacant { .. }) {
            self.queue.remove(position);
            return PollOutcome::Lead(self.add_leader());
        }
        if waiter.is_timed_out {
            self.queue.remove(position);
            if matches!(self.phase, LoadPhase::Vacant { elected: Some(elected) } if elected == position) {
                self.phase = LoadPhase::Led;
            }
            return PollOutcome::TimedOut;
        }
        match &mut waiter.waker {
            Some(known) => known.clone_from(waker),
            unknown => *unknown = Some(waker.clone()),
        }
        PollOutcome::Pending
    }
}

#[cfg(all(test, shuttle))]
mod explored;
#[cfg(all(test, not(shuttle)))]
mod tests;
