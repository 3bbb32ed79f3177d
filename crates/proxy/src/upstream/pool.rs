//! Turns: the lock around [`Core`], and what is given back by being dropped.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use stockade_model::time::{Runtime, Time, before};
use tokio::sync::oneshot;

use super::{
    clock::Clock,
    core::{self, Core, Kept as _, Limits, Met},
    error::UpstreamError,
    http1::Http1,
    http2::Http2,
};

/// Who rests is not looked at more often.
const LOOK_MIN: Duration = Duration::from_millis(10);

type Waiter = oneshot::Sender<Turn>;

/// All connections of an origin. Clones share them.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    core: Mutex<Core<Http1, Http2, Waiter>>,
    clock: Clock,
    queue_timeout: Duration,
}

/// What a request is given. Dropped, it is given to the next one.
pub(super) enum Turn {
    Ready(Ready),
    Connect(Connecting),
}

/// What a request can be sent on.
pub(super) enum Ready {
    Http1(Lease),
    Http2(Stream),
}

/// A connection's place among those that may be: given back when the last who has it drops it.
pub(super) struct Seat(Pool);

/// Somebody's, who connects.
pub(super) struct Connecting {
    pool: Pool,
    pub(super) place: usize,
    /// Places where it has been in vain, as bits.
    tried: u64,
    /// None: it has been moved into a connection.
    seat: Option<Arc<Seat>>,
}

/// A connection of HTTP/1 that somebody uses. Dropped, it is closed.
pub(super) struct Lease {
    pool: Pool,
    pub(super) place: usize,
    id: u64,
    /// None: it has been given on.
    connection: Option<Http1>,
    /// It was of use before: it may have been closed meanwhile.
    pub(super) is_used: bool,
}

/// A stream of a connection of HTTP/2. Dropped, it has ended.
pub(super) struct Stream {
    pool: Pool,
    pub(super) place: usize,
    id: u64,
    pub(super) connection: Http2,
    /// Its connection was of use before: it may have been closed meanwhile.
    pub(super) is_used: bool,
}

/// A connection as its own task has it. Dropped, after the socket, nobody is given it any more.
pub(super) struct Member {
    pool: Pool,
    place: usize,
    id: u64,
    _seat: Option<Arc<Seat>>,
}

/// Who waits, until it is dropped.
struct Waiting<'a> {
    pool: &'a Pool,
    id: u64,
}

impl Pool {
    pub(super) fn new(
        limits: Limits,
        places: usize,
        may_share: bool,
        queue_timeout: Duration,
        clock: Clock,
    ) -> Self {
        let core = Mutex::new(Core::new(limits, places, may_share));
        Self(Arc::new(Inner { core, clock, queue_timeout }))
    }

    /// Nothing that is dropped under this lock may ask for it: what leaves the core is dropped after it.
    fn core(&self) -> MutexGuard<'_, Core<Http1, Http2, Waiter>> {
        self.0.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known, at one moment.
    pub(super) fn with<T>(&self, look: impl FnOnce(&Core<Http1, Http2, Waiter>, Time) -> T) -> T {
        let now = self.0.clock.now();
        look(&self.core(), now)
    }

    /// A turn now, or when those before have had theirs.
    pub(super) async fn turn(&self) -> Result<Turn, UpstreamError> {
        let (waiting, turn) = {
            let now = self.0.clock.now();
            let mut core = self.core();
            // Whoever waits could not be given a turn, or would have been: nobody overtakes them.
            let turn = if core.waiting() == 0 { core.take(now) } else { None };
            let discarded = core.take_discarded();
            if let Some(turn) = turn {
                drop(core);
                drop(discarded);
                return Ok(self.of(turn));
            }
            let (give, given) = oneshot::channel();
            let waiting = core.waiting();
            let id = core.wait(give);
            drop(core);
            let id = id.ok_or(UpstreamError::Overloaded { waiting })?;
            let waiting = Waiting { pool: self, id };
            // Their seats may be what it waits for.
            drop(discarded);
            (waiting, given)
        };
        let after = self.0.queue_timeout;
        let turn = before(&self.0.clock, self.0.clock.now() + after, turn).await;
        drop(waiting);
        match turn {
            Some(Ok(turn)) => Ok(turn),
            // Nobody drops a waiter that has not been served.
            None | Some(Err(_)) => Err(UpstreamError::QueueTimeout { after }),
        }
    }

    fn of(&self, turn: core::Turn<Http1, Http2>) -> Turn {
        let pool = self.clone();
        match turn {
            core::Turn::Kept { place, id, connection } => Turn::Ready(Ready::Http1(Lease {
                pool,
                place,
                id,
                connection: Some(connection),
                is_used: true,
            })),
            core::Turn::Stream { place, id, connection } => {
                Turn::Ready(Ready::Http2(Stream { pool, place, id, connection, is_used: true }))
            }
            core::Turn::Connect { place } => {
                let seat = Some(Arc::new(Seat(self.clone())));
                Turn::Connect(Connecting { pool, place, tried: 0, seat })
            }
        }
    }

    /// Gives what has become free to those who wait.
    fn deal(&self) {
        loop {
            let now = self.0.clock.now();
            let (dealt, discarded) = {
                let mut core = self.core();
                (core.deal(now), core.take_discarded())
            };
            drop(discarded);
            let Some((waiter, turn)) = dealt else { return };
            // Who has gone gives it back here.
            drop(waiter.send(self.of(turn)));
        }
    }

    /// Nobody asks any more.
    pub(super) fn close(&self) {
        let closed = self.core().close();
        drop(closed);
    }

    pub(super) fn fail(&self, place: usize) {
        let now = self.0.clock.now();
        let closed = self.core().fail(place, now);
        drop(closed);
    }

    pub(super) fn succeed(&self, place: usize) {
        self.core().succeed(place);
    }

    fn rest(&self, place: usize, id: u64, connection: Http1) {
        let now = self.0.clock.now();
        let unwanted = self.core().rest(place, id, connection, now);
        drop(unwanted);
        self.deal();
    }
}

impl Member {
    /// The connection takes no more requests.
    pub(super) fn forget(&self) {
        let forgotten = self.pool.core().forget(self.place, self.id);
        drop(forgotten);
        self.pool.deal();
    }

    /// How many streams it takes at once has changed.
    pub(super) fn set_room(&self, room: usize) {
        self.pool.core().set_room(self.place, self.id, room);
        self.pool.deal();
    }

    /// Takes it out of the pool, if it speaks HTTP/1 and has rested for too long; or says when to look again.
    pub(super) fn retire(&self) -> Result<Http1, Time> {
        let now = self.pool.0.clock.now();
        self.pool.core().retire(self.place, self.id, now).map_err(|next| next.max(now + LOOK_MIN))
    }

    /// As [`Self::retire`], of HTTP/2.
    pub(super) fn retire_shared(&self) -> Result<Http2, Time> {
        let now = self.pool.0.clock.now();
        self.pool.core().retire_shared(self.place, self.id, now).map_err(|next| next.max(now + LOOK_MIN))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.core().give_seat_back();
        self.0.deal();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waiter = self.pool.core().wait_no_more(self.id);
        drop(waiter);
    }
}

impl Connecting {
    /// A name for the connection that is made.
    pub(super) fn id(&self) -> u64 {
        self.pool.core().next_id()
    }

    /// The connection that is made, as its task has it.
    pub(super) fn member(&self, id: u64) -> Member {
        Member { pool: self.pool.clone(), place: self.place, id, _seat: self.seat.clone() }
    }

    /// What the connection holds as long as its socket is open.
    pub(super) fn seat(&self) -> Option<Arc<Seat>> {
        self.seat.clone()
    }

    /// Goes to the next place, if there is one where it has not been.
    pub(super) fn go_on(&mut self) -> bool {
        self.tried |= 1 << self.place;
        let now = self.pool.0.clock.now();
        let next = self.pool.core().go_on(self.place, self.tried, now);
        // Others may wait for what it has not made.
        self.pool.deal();
        next.inspect(|next| self.place = *next).is_some()
    }

    /// It has met HTTP/1.
    pub(super) fn lease(mut self, id: u64, connection: Http1) -> Lease {
        self.connected(Some(Met::One));
        Lease { pool: self.pool.clone(), place: self.place, id, connection: Some(connection), is_used: false }
    }

    /// It has met HTTP/2.
    pub(super) fn stream(mut self, id: u64, connection: Http2, room: usize) -> Stream {
        self.connected(Some(Met::Many { id, connection: connection.clone(), room }));
        Stream { pool: self.pool.clone(), place: self.place, id, connection, is_used: false }
    }

    fn connected(&mut self, met: Option<Met<Http2>>) {
        let now = self.pool.0.clock.now();
        self.pool.core().connected(self.place, met, now);
        self.seat = None;
        self.pool.deal();
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            let now = self.pool.0.clock.now();
            {
                let mut core = self.pool.core();
                core.connected(self.place, None, now);
                core.leave(self.place);
            }
            drop(seat);
            self.pool.deal();
        }
    }
}

impl Ready {
    pub(super) fn place(&self) -> usize {
        match self {
            Self::Http1(lease) => lease.place,
            Self::Http2(stream) => stream.place,
        }
    }
}

impl Lease {
    pub(super) fn connection(&mut self) -> Option<&mut Http1> {
        self.connection.as_mut()
    }

    /// Its answer has been read to the end: others may use it, as soon as it is ready.
    pub(super) fn finish(mut self, patience: Duration) {
        let Some(mut connection) = self.connection.take() else { return };
        let (pool, place, id) = (self.pool.clone(), self.place, self.id);
        drop(self);
        if connection.is_ready() {
            return pool.rest(place, id, connection);
        }
        if !connection.is_open() {
            return;
        }
        // It still writes a request that nobody wants to read any more, or has not looked yet.
        let clock = pool.0.clock.clone();
        clock.clone().spawn(async move {
            if before(&clock, clock.now() + patience, connection.ready()).await == Some(true) {
                pool.rest(place, id, connection);
            }
        });
    }

    /// It has turned out to be closed: its seat is for another.
    pub(super) fn connect_again(mut self) -> Option<Connecting> {
        let seat = self.connection.take()?.into_seat()?;
        let (pool, place) = (self.pool.clone(), self.place);
        drop(self);
        pool.core().connect_again(place);
        Some(Connecting { pool, place, tried: 0, seat: Some(seat) })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.core().leave(self.place);
        drop(self.connection.take());
    }
}

impl Stream {
    /// Its connection takes no more requests.
    pub(super) fn forget(&self) {
        let forgotten = self.pool.core().forget(self.place, self.id);
        drop(forgotten);
        self.pool.deal();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let now = self.pool.0.clock.now();
        let unwanted = {
            let mut core = self.pool.core();
            core.leave(self.place);
            core.end_stream(self.place, self.id, now)
        };
        drop(unwanted);
        self.pool.deal();
    }
}
