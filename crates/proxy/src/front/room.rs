//! Who is there, and who may be asked to leave for the sake of others.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Notify;

use super::{
    counts::bump,
    session::{Asked, Progress},
};

/// Among so many connections the one is looked for that has been idle for longest.
const LOOKED_AT: usize = 64;

/// All the rooms, and how many connections are in them.
#[derive(Debug)]
pub(super) struct House {
    open: AtomicUsize,
    rooms: Vec<Room>,
}

/// The connections of one thread.
#[derive(Debug, Default)]
pub(super) struct Room {
    seats: Mutex<Seats>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Seats {
    taken: Vec<Arc<Progress>>,
    /// Where the next look begins.
    hand: usize,
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat(Arc<Progress>);

impl House {
    pub(super) fn new(rooms: usize) -> Self {
        Self { open: AtomicUsize::new(0), rooms: (0..rooms).map(|_| Room::default()).collect() }
    }

    pub(super) fn is_full(&self, max: usize) -> bool {
        self.open.load(Relaxed) >= max
    }

    pub(super) fn room(&self, number: usize) -> &Room {
        &self.rooms[number]
    }

    pub(super) fn take_seat(&self, progress: &Arc<Progress>) -> Seat {
        self.open.fetch_add(1, Relaxed);
        let mut seats = self.room(progress.thread.number).seats();
        progress.seat.store(seats.taken.len(), Relaxed);
        seats.taken.push(Arc::clone(progress));
        Seat(Arc::clone(progress))
    }

    /// Asks an idle connection to leave, one of this room before those of others.
    pub(super) fn make_room(&self, number: usize) -> bool {
        let (others, from) = self.rooms.split_at(number);
        from.iter().chain(others).any(Room::evict)
    }
}

impl Room {
    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.seats().taken.len()
    }

    /// Asks everybody for something.
    pub(super) fn ask(&self, asked: Asked) {
        // Whoever is woken may run elsewhere and want the lock.
        let all = self.seats().taken.clone();
        all.iter().for_each(|progress| progress.ask(asked));
    }

    /// Completes when nobody is there.
    pub(super) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn evict(&self) -> bool {
        let victim = self.seats().longest_idle();
        let is_found = victim.is_some();
        if let Some(victim) = victim {
            // If its next request has come meanwhile, that is answered.
            victim.ask(Asked::Finish);
        }
        is_found
    }
}

impl Seats {
    /// Of some that are looked at, in turns.
    fn longest_idle(&mut self) -> Option<Arc<Progress>> {
        let looks = self.taken.len().min(LOOKED_AT);
        let start = self.hand;
        self.hand = (start + looks) % self.taken.len().max(1);
        let looked_at = (0..looks).map(|n| &self.taken[(start + n) % self.taken.len()]);
        let idle = looked_at.filter_map(|progress| Some((progress.idle_since()?, progress)));
        idle.min_by_key(|(since, _)| *since).map(|(_, progress)| Arc::clone(progress))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let thread = &self.0.thread;
        thread.house.open.fetch_sub(1, Relaxed);
        let room = thread.house.room(thread.number);
        let mut seats = room.seats();
        let seat = self.0.seat.load(Relaxed);
        let left = seats.taken.swap_remove(seat);
        if let Some(moved) = seats.taken.get(seat) {
            moved.seat.store(seat, Relaxed);
        }
        let is_empty = seats.taken.is_empty();
        drop(seats);
        drop(left);
        bump(&thread.tallies.closed);
        if is_empty {
            room.emptied.notify_waiters();
        }
    }
}
