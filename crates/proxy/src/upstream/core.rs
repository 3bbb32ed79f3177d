//! Who is given which connection. Pure: it holds no lock and never waits; who calls it does.
//!
//! A connection's seat is taken before it is made and given back when its socket is closed, so that there are never
//! more than may be. A busy one is on nobody's list here: whoever uses it holds it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use stockade_model::time::Time;

use super::health::{Health, HealthSettings};

/// A connection that takes one request at a time.
pub(super) trait Kept {
    /// Whether it is open, as far as one can know without asking.
    fn is_open(&self) -> bool;
}

/// What bounds it all.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) waiting: usize,
    pub(super) streams: usize,
    pub(super) keep_alive: Duration,
    pub(super) health: HealthSettings,
}

/// All places of an origin. `One` is a connection of HTTP/1, `Many` of HTTP/2, `W` somebody who waits.
pub(super) struct Core<One, Many, W> {
    limits: Limits,
    places: Vec<Place<One, Many>>,
    /// Seats taken.
    connections: usize,
    waiting: BTreeMap<u64, W>,
    last: u64,
    /// Found closed: whoever holds the lock drops them after it.
    discarded: Vec<One>,
}

struct Place<One, Many> {
    /// The one that was of use last is last.
    idle: VecDeque<Idle<One>>,
    shared: Vec<Shared<Many>>,
    /// Requests under way, those that connect included.
    busy: usize,
    connecting: usize,
    /// Nobody has met another: a second connection is made only when the first is known to be full.
    may_share: bool,
    health: Health,
}

struct Idle<One> {
    id: u64,
    connection: One,
    since: Time,
}

struct Shared<Many> {
    id: u64,
    connection: Many,
    /// Streams at once.
    room: usize,
    active: usize,
    /// When the last stream ended.
    since: Time,
}

/// What a request is given.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn<One, Many> {
    /// A connection that was of use before.
    Kept { place: usize, id: u64, connection: One },
    /// A stream of a connection.
    Stream { place: usize, id: u64, connection: Many },
    /// A seat, to connect to this place.
    Connect { place: usize },
}

/// What is known of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlaceState {
    pub(super) is_resting: bool,
    pub(super) failures: u32,
    pub(super) busy: usize,
}

impl<One: Kept, Many: Clone, W> Core<One, Many, W> {
    pub(super) fn new(limits: Limits, places: usize, may_share: bool) -> Self {
        let place = || Place {
            idle: VecDeque::new(),
            shared: Vec::new(),
            busy: 0,
            connecting: 0,
            may_share,
            health: Health::default(),
        };
        let places = (0..places).map(|_| place()).collect();
        Self { limits, places, connections: 0, waiting: BTreeMap::new(), last: 0, discarded: Vec::new() }
    }

    /// A name for a connection or a waiter.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The best turn that there is now, for whoever waits longest.
    pub(super) fn take(&mut self, now: Time) -> Option<Turn<One, Many>> {
        let turn = self.in_order(now, 0).into_iter().find_map(|place| self.take_at(place, now));
        if let Some(Turn::Kept { place, .. } | Turn::Stream { place, .. } | Turn::Connect { place }) = &turn {
            self.places[*place].busy += 1;
        }
        turn
    }

    /// Connections that were found closed since this was asked last.
    pub(super) fn take_discarded(&mut self) -> Vec<One> {
        std::mem::take(&mut self.discarded)
    }

    /// Nobody asks any more: what is idle is closed, the rest when it becomes so.
    pub(super) fn close(&mut self) -> (Vec<One>, Vec<Many>) {
        self.limits.keep_alive = Duration::ZERO;
        let (mut ones, mut many) = (self.take_discarded(), Vec::new());
        for place in &mut self.places {
            ones.extend(place.idle.drain(..).map(|idle| idle.connection));
            many.extend(place.shared.drain(..).map(|shared| shared.connection));
        }
        (ones, many)
    }

    fn take_at(&mut self, n: usize, now: Time) -> Option<Turn<One, Many>> {
        let limits = &self.limits;
        let place = &mut self.places[n];
        while let Some(Idle { id, connection, since }) = place.idle.pop_back() {
            if connection.is_open() && now - since < limits.keep_alive {
                return Some(Turn::Kept { place: n, id, connection });
            }
            self.discarded.push(connection);
        }
        if let Some(shared) =
            place.shared.iter_mut().find(|shared| shared.active < shared.room.min(limits.streams))
        {
            shared.active += 1;
            return Some(Turn::Stream { place: n, id: shared.id, connection: shared.connection.clone() });
        }
        let is_next_to_be_seen = place.may_share && place.connecting > 0;
        if is_next_to_be_seen || self.connections >= limits.connections {
            return None;
        }
        self.connections += 1;
        place.connecting += 1;
        Some(Turn::Connect { place: n })
    }

    /// All places but those `tried` (bits): those that rest last, the least busy first.
    fn in_order(&self, now: Time, tried: u64) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.places.len()).filter(|n| tried & (1 << n) == 0).collect();
        if order.len() > 1 {
            order.sort_by_key(|&n| (self.places[n].health.is_resting(now), self.places[n].busy));
        }
        order
    }

    /// Where somebody with a seat goes who could not connect where it was to: not where it has been.
    pub(super) fn go_on(&mut self, from: usize, tried: u64, now: Time) -> Option<usize> {
        let to = *self.in_order(now, tried).first()?;
        for (place, left) in [(from, true), (to, false)] {
            let Place { busy, connecting, .. } = &mut self.places[place];
            for count in [busy, connecting] {
                *count = if left { *count - 1 } else { *count + 1 };
            }
        }
        Some(to)
    }

    /// Somebody with a seat, whose connection is no more, makes another.
    pub(super) fn connect_again(&mut self, place: usize) {
        self.places[place].busy += 1;
        self.places[place].connecting += 1;
    }

    /// Whoever connected does not any more; it says what it has met.
    pub(super) fn connected(&mut self, place: usize, met: Option<Met<Many>>, now: Time) {
        let place = &mut self.places[place];
        place.connecting -= 1;
        match met {
            None => {}
            Some(Met::One) => place.may_share = false,
            Some(Met::Many { id, connection, room }) => {
                place.may_share = true;
                // Its first stream is for whoever made it.
                place.shared.push(Shared { id, connection, room, active: 1, since: now });
            }
        }
    }

    /// A request is done with a place.
    pub(super) fn leave(&mut self, place: usize) {
        self.places[place].busy -= 1;
    }

    /// A connection is at rest. Given back: one that is not kept.
    pub(super) fn rest(&mut self, place: usize, id: u64, connection: One, now: Time) -> Option<One> {
        if self.limits.keep_alive.is_zero() || self.places[place].health.is_resting(now) {
            return Some(connection);
        }
        self.places[place].idle.push_back(Idle { id, connection, since: now });
        None
    }

    /// When this connection has to be looked at again; or it, if it has rested for too long.
    pub(super) fn retire(&mut self, place: usize, id: u64, now: Time) -> Result<One, Time> {
        let idle = &mut self.places[place].idle;
        let Some(at) = idle.iter().position(|idle| idle.id == id) else {
            return Err(now + self.limits.keep_alive);
        };
        let until = idle[at].since + self.limits.keep_alive;
        match idle.remove(at) {
            Some(Idle { connection, .. }) if until <= now => Ok(connection),
            kept => {
                // Where it was: the order says which was of use last.
                kept.into_iter().for_each(|kept| idle.insert(at, kept));
                Err(until)
            }
        }
    }

    /// As [`Self::retire`], of one that is shared.
    pub(super) fn retire_shared(&mut self, place: usize, id: u64, now: Time) -> Result<Many, Time> {
        let keep_alive = self.limits.keep_alive;
        let shared = &mut self.places[place].shared;
        match shared.iter().position(|shared| shared.id == id) {
            Some(at) if shared[at].active == 0 && shared[at].since + keep_alive <= now => {
                Ok(shared.remove(at).connection)
            }
            Some(at) if shared[at].active == 0 => Err(shared[at].since + keep_alive),
            Some(_) => Err(now + keep_alive),
            // Who still has a stream of it is the last.
            None => Err(Time::NEVER),
        }
    }

    /// A connection takes no more requests. What is dropped has to be dropped by whoever calls.
    pub(super) fn forget(&mut self, place: usize, id: u64) -> (Option<One>, Option<Many>) {
        let Place { idle, shared, .. } = &mut self.places[place];
        let one = idle.iter().position(|idle| idle.id == id).and_then(|at| idle.remove(at));
        let many = shared.iter().position(|shared| shared.id == id).map(|at| shared.remove(at));
        (one.map(|one| one.connection), many.map(|many| many.connection))
    }

    /// How many streams a connection takes at once has changed.
    pub(super) fn set_room(&mut self, place: usize, id: u64, room: usize) {
        if let Some(shared) = self.places[place].shared.iter_mut().find(|shared| shared.id == id) {
            shared.room = room;
        }
    }

    /// A stream has ended. Given back: a connection that is not kept.
    pub(super) fn end_stream(&mut self, place: usize, id: u64, now: Time) -> Option<Many> {
        let all = &mut self.places[place].shared;
        let at = all.iter().position(|shared| shared.id == id)?;
        let shared = &mut all[at];
        shared.active -= 1;
        shared.since = now;
        let is_kept = shared.active > 0 || !self.limits.keep_alive.is_zero();
        if is_kept { None } else { Some(all.remove(at).connection) }
    }

    /// A connection's socket is closed, or was never made.
    pub(super) fn give_seat_back(&mut self) {
        self.connections -= 1;
    }

    /// A place failed. Given back: its connections, if it rests from now on.
    pub(super) fn fail(&mut self, place: usize, now: Time) -> Vec<One> {
        let place = &mut self.places[place];
        place.health.fail(now, &self.limits.health);
        if !place.health.is_resting(now) {
            return Vec::new();
        }
        place.idle.drain(..).map(|idle| idle.connection).collect()
    }

    /// A place answered.
    pub(super) fn succeed(&mut self, place: usize) {
        self.places[place].health.succeed(&self.limits.health);
    }

    /// Somebody waits, behind all others. None: as many do as may.
    pub(super) fn wait(&mut self, waiter: W) -> Option<u64> {
        if self.waiting.len() >= self.limits.waiting {
            return None;
        }
        let id = self.next_id();
        self.waiting.insert(id, waiter);
        Some(id)
    }

    /// Somebody does not wait any more.
    pub(super) fn wait_no_more(&mut self, id: u64) -> Option<W> {
        self.waiting.remove(&id)
    }

    /// Whose turn it is, and what it is. None: nobody's.
    pub(super) fn deal(&mut self, now: Time) -> Option<(W, Turn<One, Many>)> {
        if self.waiting.is_empty() {
            return None;
        }
        let turn = self.take(now)?;
        self.waiting.pop_first().map(|(_, waiter)| (waiter, turn))
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn connections(&self) -> usize {
        self.connections
    }

    /// Connections that nobody uses.
    pub(super) fn idle(&self) -> usize {
        let of = |place: &Place<One, Many>| {
            place.idle.len() + place.shared.iter().filter(|shared| shared.active == 0).count()
        };
        self.places.iter().map(of).sum()
    }

    pub(super) fn places(&self, now: Time) -> impl Iterator<Item = PlaceState> {
        self.places.iter().map(move |place| PlaceState {
            is_resting: place.health.is_resting(now),
            failures: place.health.failures(),
            busy: place.busy,
        })
    }
}

/// What speaks at the other end of a new connection.
pub(super) enum Met<Many> {
    /// HTTP/1: whoever made it holds it.
    One,
    /// HTTP/2.
    Many { id: u64, connection: Many, room: usize },
}

#[cfg(test)]
mod tests;
