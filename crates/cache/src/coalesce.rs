//! Coalescing (singleflight): one leader loads a key, the others wait for its result. [`Coalescer`] is the table of
//! loads in flight, one per key. A caller [joins](Coalescer::join) and becomes the [`Leader`] or a [`Waiter`]:
//!
//! ```text
//!   Led ---- complete(result) ---> Completed: every waiter is woken with the result
//!   |  ^
//!   |  '---- the elected waiter leads
//!   v        |
//!   Vacant --'  The leader was dropped before it completed (a panic, an abort, a shutdown): one waiter is elected and
//!               woken; if it leaves, another; if none can lead, all receive `lost_result`
//! ```
//!
//! The first caller that meets a vacant load leads it: the elected waiter, another waiter that is polled, or a new
//! caller. An elected caller that is never polled must not hold the key. A load survives one lost leader. A second
//! loss ends it: a load that kills its tasks must not be handed on for ever.
//!
//! A waiter may have a deadline. One [`WaitTimer`] per load wakes the waiters whose deadline has passed: ten
//! thousand waiters need one timer, and a load without waiters needs none.
//!
//! All of this is synchronous: there is no runtime and no clock, and wakers are called outside the locks. Lock
//! order: table, then load.

mod wait_queue;

use std::{
    borrow::Borrow,
    future::Future,
    hash::Hash,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use stockade_model::{seed::Seed, time::Time};

use self::wait_queue::{QueuedWaiter, WaitQueue};
use crate::{locks::Lock, sharded::Sharded};

/// Number of tables, each with its own lock.
const TABLES: usize = 16;
/// Leaders that a load may lose before it ends.
const LEADERS_LOST_MAX: u32 = 2;

/// Loads in flight, one per key, with results of type `T`.
#[derive(Debug)]
pub struct Coalescer<K, T> {
    tables: Sharded<Lock<Table<K, T>>>,
    lost_result: fn() -> T,
}

type Table<K, T> = HashMap<K, Arc<InFlightLoad<K, T>>, FixedState>;

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
    /// `lost_result` is the result when no leader is left.
    #[must_use]
    pub fn new(seed: Seed, lost_result: fn() -> T) -> Arc<Self> {
        let table = |_, hasher: &FixedState| Lock::new(HashMap::with_hasher(hasher.clone()));
        Arc::new(Self { tables: Sharded::new(seed, TABLES, table), lost_result })
    }

    /// Joins the load of `key`, or starts one. `deadline` maps the start of the load to the deadline of this
    /// caller's wait.
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
        now: Time,
        deadline: impl FnOnce(Time) -> Time,
        find_stored: impl FnOnce() -> Option<A>,
        serves: impl FnOnce(&T) -> bool,
    ) -> JoinOutcome<K, T, A> {
        // Dropped after the lock: dropping a value may run any code.
        let _outdated;
        let mut table = self.table(key).lock();
        if let Some(load) = table.get(key) {
            let registration = load.core.lock().register_until(now, deadline(load.started_at));
            match registration {
                Registration::Queued { position, needs_timer } => {
                    return load.wait(position, needs_timer);
                }
                Registration::Lead => return JoinOutcome::Lead(Leader::of(Arc::clone(load))),
                Registration::DeadlinePassed => return JoinOutcome::DeadlinePassed,
                Registration::Completed(answer) if serves(&answer) => return JoinOutcome::Completed(answer),
                Registration::Completed(answer) => _outdated = answer,
            }
        }
        if let Some(answer) = find_stored() {
            return JoinOutcome::Stored(answer);
        }
        let load = self.new_load(key, now, true);
        let replaced = table.insert(key.clone(), Arc::clone(&load));
        drop(table);
        drop(replaced);
        JoinOutcome::Lead(Leader::of(load))
    }

    /// Starts a load if the key is free and `is_done`, called under the lock, returns false.
    pub fn try_start(
        self: &Arc<Self>,
        key: &K,
        now: Time,
        is_done: impl FnOnce() -> bool,
    ) -> Option<Leader<K, T>> {
        let mut table = self.table(key).lock();
        if table.contains_key(key) || is_done() {
            return None;
        }
        let load = self.new_load(key, now, true);
        table.insert(key.clone(), Arc::clone(&load));
        Some(Leader::of(load))
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
        Leader::of(self.new_load(key, now, false))
    }

    /// True if a load of this key is in flight.
    pub fn is_in_flight(&self, key: &K) -> bool {
        self.table(key).lock().contains_key(key)
    }

    /// True if a load of this key is in flight, and a caller waits for it.
    pub fn is_awaited(&self, key: &K) -> bool {
        self.table(key).lock().get(key).is_some_and(|load| load.core.lock().queue.has_callers())
    }

    fn new_load(self: &Arc<Self>, key: &K, started_at: Time, is_joinable: bool) -> Arc<InFlightLoad<K, T>> {
        let core = Lock::new(LoadState::new());
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
    fn table(&self, key: &K) -> &Lock<Table<K, T>> {
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
    fn wait<A>(self: &Arc<Self>, position: u64, needs_timer: bool) -> JoinOutcome<K, T, A> {
        let timer = needs_timer.then(|| WaitTimer::of(self));
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

    fn remove_from(self: &Arc<Self>, table: &mut Table<K, T>) {
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

/// The caller that loads. Dropping it before it [completes](Self::complete) hands the load to a waiter.
#[derive(Debug)]
pub struct Leader<K: Hash + Eq, T> {
    /// `None` after `complete`.
    load: Option<Arc<InFlightLoad<K, T>>>,
}

impl<K: Hash + Eq, T: Clone> Leader<K, T> {
    fn of(load: Arc<InFlightLoad<K, T>>) -> Self {
        Self { load: Some(load) }
    }

    /// The number of leaders that the load had before this one.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.load().core.lock().leaders_lost
    }

    /// The start of the load, under this leader or a previous one.
    #[must_use]
    pub fn started_at(&self) -> Time {
        self.load().started_at
    }

    /// A waiter for this leader's own result. It cannot be elected, because its loader is in use. With a deadline
    /// there may be a timer, as with [`JoinOutcome::Wait`].
    #[must_use]
    pub fn watch(&self, deadline: Option<Time>) -> (Waiter<K, T>, Option<WaitTimer<K, T>>) {
        Waiter::watch(self.load(), deadline, true)
    }

    /// The key of the load.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.load().key
    }

    /// Wakes every waiter with the result. The key stays taken until the guard is dropped; callers that join until
    /// then receive the same result.
    #[must_use = "dropping the guard frees the key, so store first"]
    pub fn complete(mut self, answer: T) -> KeyGuard<K, T> {
        let load = self.load().clone();
        self.load = None;
        let guard = KeyGuard { load };
        let wakers = guard.load.core.lock().complete(answer);
        wakers.into_iter().for_each(Waker::wake);
        guard
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
    load: Arc<InFlightLoad<K, T>>,
}

impl<K: Hash + Eq, T> Drop for KeyGuard<K, T> {
    fn drop(&mut self) {
        self.load.free_key();
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
    ) -> (Self, Option<WaitTimer<K, T>>) {
        let registration = load.core.lock().register(deadline, false, is_caller);
        let (position, needs_timer) = match registration {
            Registration::Queued { position, needs_timer } => (Some(position), needs_timer),
            Registration::Lead | Registration::Completed(_) | Registration::DeadlinePassed => (None, false),
        };
        (Self { load: Arc::clone(load), position }, needs_timer.then(|| WaitTimer::of(load)))
    }
}

/// Wakes the waiters of one load at their deadlines.
///
/// The owner calls [`expire`](Self::expire), then waits until the returned time or until
/// [`completed`](Self::completed), and repeats.
#[derive(Debug)]
pub struct WaitTimer<K: Hash + Eq, T> {
    watch: Waiter<K, T>,
}

impl<K: Hash + Eq, T: Clone> WaitTimer<K, T> {
    fn of(load: &Arc<InFlightLoad<K, T>>) -> Self {
        Self { watch: Waiter::watch(load, None, false).0 }
    }

    /// Wakes waiters whose deadline has passed. Returns the next deadline; `None`: no waiter has one, and the next
    /// waiter gets a new timer.
    pub fn expire(&self, now: Time) -> Option<Time> {
        let (wakers, next) = self.watch.load.core.lock().expire(now);
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
        self.watch.load.core.lock().timed_until = None;
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
            PollOutcome::Lead => {
                self.position = None;
                Poll::Ready(WaitOutcome::Lead(Leader::of(Arc::clone(&self.load))))
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
    leaders_lost: u32,
    /// The time at which the timer looks next.
    timed_until: Option<Time>,
}

#[derive(Debug)]
enum LoadPhase<T> {
    Led,
    /// The elected waiter has been woken and does not lead yet; `None`: it left.
    Vacant {
        elected: Option<u64>,
    },
    Completed(T),
}

enum PollOutcome<T> {
    Pending,
    Completed(T, u32),
    Lead,
    TimedOut,
}

enum Registration<T> {
    /// Queued. `needs_timer`: no timer covers its deadline.
    Queued {
        position: u64,
        needs_timer: bool,
    },
    /// The load was vacant, and the caller leads it.
    Lead,
    /// Not queued: the deadline has passed.
    DeadlinePassed,
    Completed(T),
}

enum Election {
    Elected(Option<Waker>),
    Ended(Vec<Waker>),
    /// Another caller has taken over.
    None,
}

impl<T> LoadState<T> {
    fn new() -> Self {
        Self { phase: LoadPhase::Led, queue: WaitQueue::default(), leaders_lost: 0, timed_until: None }
    }

    fn complete(&mut self, answer: T) -> Vec<Waker> {
        self.phase = LoadPhase::Completed(answer);
        self.queue.drain()
    }

    fn lose_leader(&mut self, lost_result: fn() -> T) -> Election {
        self.leaders_lost += 1;
        if self.leaders_lost < LEADERS_LOST_MAX {
            self.elect(lost_result)
        } else {
            Election::Ended(self.complete(lost_result()))
        }
    }

    fn replace_elected(&mut self, lost_result: fn() -> T) -> Election {
        match self.phase {
            LoadPhase::Vacant { elected: None } => self.elect(lost_result),
            _ => Election::None,
        }
    }

    fn elect(&mut self, lost_result: fn() -> T) -> Election {
        match self.queue.find_first(|position| position.can_lead) {
            Some((elected, position)) => {
                let waker = position.waker.take();
                self.phase = LoadPhase::Vacant { elected: Some(elected) };
                Election::Elected(waker)
            }
            None => Election::Ended(self.complete(lost_result())),
        }
    }

    /// Returns the wakers of expired waiters, and the next deadline.
    fn expire(&mut self, now: Time) -> (Vec<Waker>, Option<Time>) {
        let (wakers, next) = self.queue.expire(now);
        self.timed_until = next;
        (wakers, next)
    }

    /// Removes a waiter. Returns true if it was the elected one: another has to be elected.
    fn remove(&mut self, position: u64) -> bool {
        // Completion has emptied the queue.
        if matches!(self.phase, LoadPhase::Completed(_)) {
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
    fn register_until(&mut self, now: Time, deadline: Time) -> Registration<T> {
        if deadline <= now && matches!(self.phase, LoadPhase::Led) {
            return Registration::DeadlinePassed;
        }
        self.register(Some(deadline), true, true)
    }

    fn register(&mut self, deadline: Option<Time>, can_lead: bool, is_caller: bool) -> Registration<T> {
        match &self.phase {
            LoadPhase::Completed(answer) => Registration::Completed(answer.clone()),
            LoadPhase::Vacant { .. } if can_lead => {
                self.phase = LoadPhase::Led;
                Registration::Lead
            }
            LoadPhase::Led | LoadPhase::Vacant { .. } => {
                let needs_timer =
                    deadline.is_some_and(|deadline| self.timed_until.is_none_or(|until| deadline < until));
                if needs_timer {
                    self.timed_until = deadline;
                }
                let is_timed_out = false;
                let waiter = QueuedWaiter { waker: None, can_lead, deadline, is_timed_out, is_caller };
                let position = self.queue.push(waiter);
                Registration::Queued { position, needs_timer }
            }
        }
    }

    fn poll(&mut self, number: Option<u64>, waker: &Waker) -> PollOutcome<T> {
        if let LoadPhase::Completed(answer) = &self.phase {
            return PollOutcome::Completed(answer.clone(), self.leaders_lost);
        }
        let Some((number, position)) = number.and_then(|number| Some((number, self.queue.get_mut(number)?)))
        else {
            return PollOutcome::Pending;
        };
        if position.can_lead && matches!(self.phase, LoadPhase::Vacant { .. }) {
            self.queue.remove(number);
            self.phase = LoadPhase::Led;
            return PollOutcome::Lead;
        }
        if position.is_timed_out {
            self.queue.remove(number);
            return PollOutcome::TimedOut;
        }
        match &mut position.waker {
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
