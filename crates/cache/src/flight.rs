//! Coalescing: one leader loads a key, the others wait for it.
//!
//! A [`Flight`](self) is one load and everyone aboard. [`Flights`] is the table of those under way,
//! one a key. A caller [boards](Flights::board) and becomes the [`Leader`] or a [`Waiter`]:
//!
//! ```text
//!   Led --- land(answer) ---------------------------> Landed: every waiter is woken with it
//!    |  ^
//!    |  '-- the elected waiter takes over
//!    v  |
//!   Vacant: the leader was dropped without landing (a panic, an abort, a shutdown);
//!           one waiter is elected and woken; if it leaves, another; if none can lead, all are told
//! ```
//!
//! Whoever comes to a vacant flight first takes over, be it the elected waiter, another one that was
//! polled for a reason of its own, or a newcomer: an elected caller whose future is parked must not
//! hold the key. A flight outlives one lost leader. A second loss ends it: a load that kills whoever runs it must
//! not be handed round for ever.
//!
//! A waiter may have a deadline. One [`Timekeeper`] a flight wakes those whose time is up: ten thousand
//! waiters need one timer, and a flight that nobody boards needs none.
//!
//! The whole is synchronous: no runtime, no clock, wakers are called outside the locks. The order of
//! locks is table, then flight.

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

use crate::{
    seats::{Seat, Seats},
    sharded::Sharded,
    sync::Lock,
};

/// How many tables of flights there are: as many locks.
const TABLES: usize = 16;
/// How many leaders a flight may lose before everyone aboard is told.
const LEADERS_LOST_MAX: u32 = 2;

/// The flights under way, one a key, with answers of type `T`.
#[derive(Debug)]
pub struct Flights<K, T> {
    tables: Sharded<Lock<Table<K, T>>>,
    lost: fn() -> T,
}

type Table<K, T> = HashMap<K, Arc<Flight<K, T>>, FixedState>;

/// What becomes of a caller that boards.
#[derive(Debug)]
pub enum Boarding<K: Hash + Eq, T, A> {
    /// The answer is there already: a leader published it while this caller was on its way.
    Answered(A),
    /// The flight has landed with this, and its key is not free yet.
    Landed(T),
    /// Another leads, and this caller's time is up already.
    Late,
    /// Another leads. Where a timekeeper comes with it, this caller has to see that it is run.
    Wait(Waiter<K, T>, Option<Timekeeper<K, T>>),
    /// This caller leads.
    Lead(Leader<K, T>),
}

/// What a waiter's wait ends with.
#[derive(Debug)]
pub enum Turn<K: Hash + Eq, T> {
    /// The answer, and the [ordinal](Leader::ordinal) of the leader that brought it.
    Landed(T, u32),
    /// The leader was lost, and this waiter is to lead in its place.
    Lead(Leader<K, T>),
    /// The waiter's time is up.
    TimedOut,
}

impl<K: Hash + Eq + Clone, T: Clone> Flights<K, T> {
    /// An empty table. `lost` makes the answer that is given when no leader is left.
    #[must_use]
    pub fn new(seed: Seed, lost: fn() -> T) -> Arc<Self> {
        let table = |_, hasher: &FixedState| Lock::new(HashMap::with_hasher(hasher.clone()));
        Arc::new(Self { tables: Sharded::new(seed, TABLES, table), lost })
    }

    /// Joins the flight for `key`, or begins one. A caller that has to wait does so until the deadline that
    /// `deadline` makes of the time at which the flight began.
    ///
    /// `answered` is asked while the key is held, just before a flight would begin: a leader stores
    /// its answer before it frees the key, so whoever finds the key free and still no answer is the
    /// first. Without that question two loads could follow each other on one miss.
    ///
    /// `serves` is asked of an answer that has landed and whose key is not free yet; one that does
    /// not serve this caller any more makes way for a new flight.
    pub fn board<A>(
        self: &Arc<Self>,
        key: &K,
        now: Time,
        deadline: impl FnOnce(Time) -> Time,
        answered: impl FnOnce() -> Option<A>,
        serves: impl FnOnce(&T) -> bool,
    ) -> Boarding<K, T, A> {
        // Dropped after the table's lock: a user's value may do anything then.
        let _outdated;
        let mut table = self.table(key).lock();
        if let Some(flight) = table.get(key) {
            let sitting = flight.core.lock().sit_until(now, deadline(flight.began));
            match sitting {
                Sitting::Seat { seat, is_first } => return flight.seated(seat, is_first),
                Sitting::Lead => return Boarding::Lead(Leader::of(Arc::clone(flight))),
                Sitting::Late => return Boarding::Late,
                Sitting::Landed(answer) if serves(&answer) => return Boarding::Landed(answer),
                Sitting::Landed(answer) => _outdated = answer,
            }
        }
        if let Some(answer) = answered() {
            return Boarding::Answered(answer);
        }
        let flight = self.flight(key, now, true);
        let replaced = table.insert(key.clone(), Arc::clone(&flight));
        drop(table);
        drop(replaced);
        Boarding::Lead(Leader::of(flight))
    }

    /// Begins a flight for a key that is free; `None` if it is not, or if `is_done`, asked while the key
    /// is held.
    pub fn take_off(
        self: &Arc<Self>,
        key: &K,
        now: Time,
        is_done: impl FnOnce() -> bool,
    ) -> Option<Leader<K, T>> {
        let mut table = self.table(key).lock();
        if table.contains_key(key) || is_done() {
            return None;
        }
        let flight = self.flight(key, now, true);
        table.insert(key.clone(), Arc::clone(&flight));
        Some(Leader::of(flight))
    }

    /// Frees a key whose flight is of no use to who comes from now on. Those aboard stay.
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

    /// Begins a flight that nobody else can board: an independent load.
    pub fn depart_alone(self: &Arc<Self>, key: &K, now: Time) -> Leader<K, T> {
        Leader::of(self.flight(key, now, false))
    }

    /// Whether somebody leads a load of a key.
    pub fn is_under_way(&self, key: &K) -> bool {
        self.table(key).lock().contains_key(key)
    }

    fn flight(self: &Arc<Self>, key: &K, began: Time, listed: bool) -> Arc<Flight<K, T>> {
        let core = Lock::new(Core::new());
        Arc::new(Flight { key: key.clone(), flights: Arc::clone(self), began, listed, core })
    }
}

impl<K: Hash + Eq, T> Flights<K, T> {
    fn table(&self, key: &K) -> &Lock<Table<K, T>> {
        self.tables.part(self.tables.hash(key))
    }

    /// How many keys are being loaded, independent loads not counted.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.tables.iter().map(|table| table.lock().len()).sum()
    }
}

#[derive(Debug)]
struct Flight<K, T> {
    key: K,
    flights: Arc<Flights<K, T>>,
    began: Time,
    listed: bool,
    core: Lock<Core<T>>,
}

impl<K: Hash + Eq, T: Clone> Flight<K, T> {
    fn seated<A>(self: &Arc<Self>, seat: u64, is_first: bool) -> Boarding<K, T, A> {
        let timekeeper = is_first.then(|| Timekeeper::of(self));
        Boarding::Wait(Waiter { flight: Arc::clone(self), seat: Some(seat) }, timekeeper)
    }
}

impl<K: Hash + Eq, T> Flight<K, T> {
    /// Frees the key. The flight itself lives as long as somebody aboard does.
    fn unlist(self: &Arc<Self>) {
        if self.listed {
            let mut table = self.flights.table(&self.key).lock();
            self.remove_from(&mut table);
        }
    }

    fn remove_from(self: &Arc<Self>, table: &mut Table<K, T>) {
        if table.get(&self.key).is_some_and(|listed| Arc::ptr_eq(listed, self)) {
            table.remove(&self.key);
        }
    }

    /// The seat at the controls is empty: elect somebody, or end the flight. The table is held, so
    /// that nobody boards a flight that has just ended.
    fn succeed(self: &Arc<Self>, what: impl FnOnce(&mut Core<T>, fn() -> T) -> Succession) {
        let succession = if self.listed {
            let mut table = self.flights.table(&self.key).lock();
            let succession = what(&mut self.core.lock(), self.flights.lost);
            if matches!(succession, Succession::Ended(_)) {
                self.remove_from(&mut table);
            }
            succession
        } else {
            what(&mut self.core.lock(), self.flights.lost)
        };
        match succession {
            Succession::Elected(waker) => waker.into_iter().for_each(Waker::wake),
            Succession::Ended(wakers) => wakers.into_iter().for_each(Waker::wake),
            Succession::None => {}
        }
    }
}

/// The one that loads. Dropped without [landing](Self::land), it hands the load to a waiter.
#[derive(Debug)]
pub struct Leader<K: Hash + Eq, T> {
    /// There until it has landed.
    flight: Option<Arc<Flight<K, T>>>,
}

impl<K: Hash + Eq, T: Clone> Leader<K, T> {
    fn of(flight: Arc<Flight<K, T>>) -> Self {
        Self { flight: Some(flight) }
    }

    /// Which leader of its flight this is: 0 for the first, 1 for the one elected after it.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.flight().core.lock().leaders_lost
    }

    /// When the flight began, with this leader or with one before it.
    #[must_use]
    pub fn began(&self) -> Time {
        self.flight().began
    }

    /// A wait for this leader's own answer, by a caller that has no load to offer and so cannot be
    /// elected. With a deadline a timekeeper may come with it, as with [`Boarding::Wait`].
    #[must_use]
    pub fn watch(&self, deadline: Option<Time>) -> (Waiter<K, T>, Option<Timekeeper<K, T>>) {
        Waiter::watch(self.flight(), deadline)
    }

    /// The key that is being loaded.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.flight().key
    }

    /// Gives everyone aboard the answer. The key stays taken until the returned slot is dropped: who
    /// boards meanwhile is given the same answer.
    #[must_use = "dropping the slot frees the key, so store first"]
    pub fn land(mut self, answer: T) -> Slot<K, T> {
        let flight = self.flight().clone();
        self.flight = None;
        let slot = Slot { flight };
        let wakers = slot.flight.core.lock().land(answer);
        wakers.into_iter().for_each(Waker::wake);
        slot
    }

    fn flight(&self) -> &Arc<Flight<K, T>> {
        self.flight.as_ref().expect("a leader has its flight until it lands, and landing consumes it")
    }
}

impl<K: Hash + Eq, T> Drop for Leader<K, T> {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            flight.succeed(Core::lose_leader);
        }
    }
}

/// A key that is taken. Dropping it frees the key.
#[derive(Debug)]
pub struct Slot<K: Hash + Eq, T> {
    flight: Arc<Flight<K, T>>,
}

impl<K: Hash + Eq, T> Drop for Slot<K, T> {
    fn drop(&mut self) {
        self.flight.unlist();
    }
}

/// One that waits for a leader. Dropping it leaves the flight.
#[derive(Debug)]
pub struct Waiter<K: Hash + Eq, T> {
    flight: Arc<Flight<K, T>>,
    seat: Option<u64>,
}

impl<K: Hash + Eq, T: Clone> Waiter<K, T> {
    /// Waits and cannot lead.
    fn watch(flight: &Arc<Flight<K, T>>, deadline: Option<Time>) -> (Self, Option<Timekeeper<K, T>>) {
        let sitting = flight.core.lock().sit(deadline, false);
        let (seat, is_first) = match sitting {
            Sitting::Seat { seat, is_first } => (Some(seat), is_first),
            Sitting::Lead | Sitting::Landed(_) | Sitting::Late => (None, false),
        };
        (Self { flight: Arc::clone(flight), seat }, is_first.then(|| Timekeeper::of(flight)))
    }
}

/// Wakes the waiters of one flight whose time is up.
///
/// Whoever runs it calls [`expire`](Self::expire), and then waits until the time that it returns, or
/// until [`landed`](Self::landed), whichever comes first.
#[derive(Debug)]
pub struct Timekeeper<K: Hash + Eq, T> {
    watch: Waiter<K, T>,
}

impl<K: Hash + Eq, T: Clone> Timekeeper<K, T> {
    fn of(flight: &Arc<Flight<K, T>>) -> Self {
        Self { watch: Waiter::watch(flight, None).0 }
    }

    /// Wakes those whose deadline has come, and tells the next one. `None`: nobody has a deadline any
    /// more, and who boards next brings a timekeeper of its own.
    pub fn expire(&self, now: Time) -> Option<Time> {
        let (wakers, next) = self.watch.flight.core.lock().expire(now);
        wakers.into_iter().for_each(Waker::wake);
        next
    }

    /// Completes when there is nothing left to time.
    pub async fn landed(&mut self) {
        Pin::new(&mut self.watch).await;
    }
}

impl<K: Hash + Eq, T> Drop for Timekeeper<K, T> {
    /// Whoever boards next brings another one.
    fn drop(&mut self) {
        self.watch.flight.core.lock().timed_until = None;
    }
}

impl<K: Hash + Eq, T: Clone> Future for Waiter<K, T> {
    type Output = Turn<K, T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn<K, T>> {
        let step = self.flight.core.lock().poll(self.seat, cx.waker());
        match step {
            Step::Pending => Poll::Pending,
            Step::TimedOut => {
                self.seat = None;
                Poll::Ready(Turn::TimedOut)
            }
            Step::Landed(answer, by) => {
                self.seat = None;
                Poll::Ready(Turn::Landed(answer, by))
            }
            Step::Lead => {
                self.seat = None;
                Poll::Ready(Turn::Lead(Leader::of(Arc::clone(&self.flight))))
            }
        }
    }
}

impl<K: Hash + Eq, T> Drop for Waiter<K, T> {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        let was_elected = self.flight.core.lock().leave(seat);
        if was_elected {
            self.flight.succeed(Core::replace_elected);
        }
    }
}

/// The state of one flight. Pure: it calls no waker and takes no lock, it hands wakers back.
#[derive(Debug)]
struct Core<T> {
    phase: Phase<T>,
    seats: Seats,
    leaders_lost: u32,
    /// When somebody looks next for those whose time is up.
    timed_until: Option<Time>,
}

#[derive(Debug)]
enum Phase<T> {
    Led,
    /// The elected seat has been woken and nobody has taken over yet; `None`: it left without.
    Vacant {
        elected: Option<u64>,
    },
    Landed(T),
}

enum Step<T> {
    Pending,
    Landed(T, u32),
    Lead,
    TimedOut,
}

enum Sitting<T> {
    /// A seat; the first whose deadline nobody watches over.
    Seat {
        seat: u64,
        is_first: bool,
    },
    /// The flight is vacant: no seat, the controls.
    Lead,
    /// No seat: the deadline has come.
    Late,
    Landed(T),
}

enum Succession {
    Elected(Option<Waker>),
    Ended(Vec<Waker>),
    /// Somebody else has seen to it.
    None,
}

impl<T> Core<T> {
    fn new() -> Self {
        Self { phase: Phase::Led, seats: Seats::default(), leaders_lost: 0, timed_until: None }
    }

    fn land(&mut self, answer: T) -> Vec<Waker> {
        self.phase = Phase::Landed(answer);
        self.seats.drain()
    }

    fn lose_leader(&mut self, lost: fn() -> T) -> Succession {
        self.leaders_lost += 1;
        if self.leaders_lost < LEADERS_LOST_MAX {
            self.elect(lost)
        } else {
            Succession::Ended(self.land(lost()))
        }
    }

    fn replace_elected(&mut self, lost: fn() -> T) -> Succession {
        match self.phase {
            Phase::Vacant { elected: None } => self.elect(lost),
            _ => Succession::None,
        }
    }

    fn elect(&mut self, lost: fn() -> T) -> Succession {
        match self.seats.first_that(|seat| seat.can_lead) {
            Some((elected, seat)) => {
                let waker = seat.waker.take();
                self.phase = Phase::Vacant { elected: Some(elected) };
                Succession::Elected(waker)
            }
            None => Succession::Ended(self.land(lost())),
        }
    }

    /// Gives the wakers of those whose deadline has come, and the next deadline after that.
    fn expire(&mut self, now: Time) -> (Vec<Waker>, Option<Time>) {
        let (wakers, next) = self.seats.expire(now);
        self.timed_until = next;
        (wakers, next)
    }

    /// Empties a seat; true if it was the elected one, which then has to be replaced.
    fn leave(&mut self, seat: u64) -> bool {
        // Landing has emptied all seats.
        if matches!(self.phase, Phase::Landed(_)) {
            return false;
        }
        self.seats.leave(seat);
        match &mut self.phase {
            Phase::Vacant { elected } if *elected == Some(seat) => {
                *elected = None;
                true
            }
            _ => false,
        }
    }
}

impl<T: Clone> Core<T> {
    /// A seat for who can lead, unless it would be taken too late.
    fn sit_until(&mut self, now: Time, deadline: Time) -> Sitting<T> {
        if deadline <= now && matches!(self.phase, Phase::Led) {
            return Sitting::Late;
        }
        self.sit(Some(deadline), true)
    }

    fn sit(&mut self, deadline: Option<Time>, can_lead: bool) -> Sitting<T> {
        match &self.phase {
            Phase::Landed(answer) => Sitting::Landed(answer.clone()),
            Phase::Vacant { .. } if can_lead => {
                self.phase = Phase::Led;
                Sitting::Lead
            }
            Phase::Led | Phase::Vacant { .. } => {
                let is_first =
                    deadline.is_some_and(|deadline| self.timed_until.is_none_or(|until| deadline < until));
                if is_first {
                    self.timed_until = deadline;
                }
                let seat = self.seats.take(Seat { waker: None, can_lead, deadline, is_timed_out: false });
                Sitting::Seat { seat, is_first }
            }
        }
    }

    fn poll(&mut self, number: Option<u64>, waker: &Waker) -> Step<T> {
        if let Phase::Landed(answer) = &self.phase {
            return Step::Landed(answer.clone(), self.leaders_lost);
        }
        let Some((number, seat)) = number.and_then(|number| Some((number, self.seats.get_mut(number)?)))
        else {
            return Step::Pending;
        };
        if seat.can_lead && matches!(self.phase, Phase::Vacant { .. }) {
            self.seats.leave(number);
            self.phase = Phase::Led;
            return Step::Lead;
        }
        if seat.is_timed_out {
            self.seats.leave(number);
            return Step::TimedOut;
        }
        match &mut seat.waker {
            Some(known) => known.clone_from(waker),
            unknown => *unknown = Some(waker.clone()),
        }
        Step::Pending
    }
}

#[cfg(all(test, shuttle))]
mod explored;
#[cfg(all(test, not(shuttle)))]
mod tests;
