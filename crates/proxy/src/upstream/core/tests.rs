//! Any order of events against what has to hold at all times.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;

const KEEP_ALIVE: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(5);

/// A connection of HTTP/1 with its number; it may have been closed by the other end.
#[derive(Debug, PartialEq, Eq)]
struct Connection {
    id: u64,
    is_open: bool,
}

impl Kept for Connection {
    fn is_open(&self) -> bool {
        self.is_open
    }
}

type Own = Core<Connection, u64, u64>;

fn core(connections: usize, waiting: usize, places: usize, may_share: bool) -> Own {
    let failures = NonZeroU32::new(2).expect("not zero");
    let health = HealthSettings { failures, rest: REST, probe: None };
    let limits = Limits { connections, waiting, streams: 3, keep_alive: KEEP_ALIVE, health };
    Core::new(limits, places, may_share)
}

fn at(seconds: u32) -> Time {
    Time::ZERO + Duration::from_secs(seconds.into())
}

fn open(id: u64) -> Connection {
    Connection { id, is_open: true }
}

/// A place where a connection to HTTP/1 has been made, which is busy.
fn connect_one(core: &mut Own, now: Time) -> usize {
    let Some(Turn::Connect { place }) = core.take(now) else { panic!("a seat was expected") };
    core.connected(place, Some(Met::One), now);
    place
}

#[test]
fn the_one_that_was_of_use_last_is_taken_and_none_too_late() {
    let mut core = core(4, 0, 1, false);
    for _ in 0..3 {
        connect_one(&mut core, at(0));
    }
    for id in 1..=3 {
        core.leave(0);
        assert_eq!(core.rest(0, id, open(id), at(u32::try_from(id).expect("small"))), None);
    }
    assert_eq!(core.take(at(11)), Some(Turn::Kept { place: 0, id: 3, connection: open(3) }));
    // The second has rested for ten seconds.
    assert!(matches!(core.take(at(12)), Some(Turn::Connect { place: 0 })));
    assert_eq!(core.take_discarded(), [open(2), open(1)]);
}

#[test]
fn who_knows_of_http2_waits_for_the_first_connection() {
    let mut core = core(2, 9, 1, true);
    assert_eq!(core.take(at(0)), Some(Turn::Connect { place: 0 }));
    assert_eq!(core.take(at(0)), None, "the first may have room for all");
    core.connected(0, Some(Met::Many { id: 7, connection: 7, room: 5 }), at(0));
    let stream = Some(Turn::Stream { place: 0, id: 7, connection: 7 });
    assert_eq!(
        (core.take(at(0)), core.take(at(0))),
        (stream, Some(Turn::Stream { place: 0, id: 7, connection: 7 }))
    );
    // It takes five, but three is what we want; and then there is a second.
    assert_eq!((core.take(at(0)), core.take(at(0))), (Some(Turn::Connect { place: 0 }), None));
    core.connected(0, Some(Met::One), at(0));
    // It was HTTP/1: whoever comes next need not wait for what is being made.
    assert_eq!(core.take(at(0)), None, "there are two");
    core.set_room(0, 7, 1);
    assert_eq!((core.end_stream(0, 7, at(1)), core.end_stream(0, 7, at(1))), (None, None));
    assert_eq!(core.take(at(1)), None, "it takes one now, and has one");
}

#[test]
fn a_shared_connection_is_retired_when_its_last_stream_has_ended_long_ago() {
    let mut core = core(1, 0, 1, true);
    assert_eq!(core.take(at(0)), Some(Turn::Connect { place: 0 }));
    core.connected(0, Some(Met::Many { id: 7, connection: 7, room: 5 }), at(0));
    assert_eq!(core.retire_shared(0, 7, at(60)), Err(at(70)), "it is busy");
    assert_eq!(core.end_stream(0, 7, at(61)), None);
    assert_eq!(core.retire_shared(0, 7, at(70)), Err(at(71)));
    assert_eq!(core.retire_shared(0, 7, at(71)), Ok(7));
    assert_eq!(core.retire_shared(0, 7, at(71)), Err(Time::NEVER));
    assert_eq!(core.idle(), 0);
}

#[test]
fn a_place_that_begins_to_rest_keeps_no_connections() {
    let mut core = core(4, 0, 2, false);
    let place = connect_one(&mut core, at(0));
    core.leave(place);
    assert_eq!(core.rest(place, 1, open(1), at(0)), None);
    assert_eq!(core.fail(place, at(0)), []);
    assert_eq!(core.fail(place, at(0)), [open(1)]);
    assert_eq!(core.rest(place, 2, open(2), at(1)), Some(open(2)), "it would be used before the healthy one");
    assert!(matches!(core.take(at(1)), Some(Turn::Connect { place: other }) if other != place));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Ask,
    GiveUp(usize),
    Connected { which: usize, is_http2: bool },
    Unconnected { which: usize, goes_on: bool },
    Finish { which: usize, keeps: bool },
    EndStream(usize),
    CloseIdle,
    CloseShared(usize),
    Room(usize, usize),
    Fail(usize),
    Succeed(usize),
    Wait(u32),
}

fn event() -> impl Strategy<Value = Event> {
    let which = 0..64_usize;
    prop_oneof![
        6 => Just(Event::Ask),
        1 => which.clone().prop_map(Event::GiveUp),
        4 => (which.clone(), any::<bool>()).prop_map(|(which, is_http2)| Event::Connected { which, is_http2 }),
        1 => (which.clone(), any::<bool>()).prop_map(|(which, goes_on)| Event::Unconnected { which, goes_on }),
        4 => (which.clone(), any::<bool>()).prop_map(|(which, keeps)| Event::Finish { which, keeps }),
        4 => which.clone().prop_map(Event::EndStream),
        1 => Just(Event::CloseIdle),
        1 => which.clone().prop_map(Event::CloseShared),
        1 => (which.clone(), 0..6_usize).prop_map(|(which, room)| Event::Room(which, room)),
        1 => which.clone().prop_map(Event::Fail),
        1 => which.prop_map(Event::Succeed),
        1 => (0..8_u32).prop_map(Event::Wait),
    ]
}

/// The world around a core: who holds what.
#[derive(Default)]
struct World {
    connecting: Vec<(usize, u64)>,
    /// Place and connection.
    leased: Vec<(usize, u64)>,
    streams: Vec<(usize, u64)>,
    /// Open connections of HTTP/2, and where.
    shared: Vec<(usize, u64)>,
    /// Open connections of HTTP/1 that nobody uses, and where.
    idle: Vec<(usize, u64)>,
    waiting: Vec<u64>,
}

impl World {
    fn given(&mut self, turn: Turn<Connection, u64>) {
        match turn {
            Turn::Connect { place } => self.connecting.push((place, 0)),
            Turn::Kept { place, id, connection } => {
                assert_eq!(id, connection.id);
                assert!(connection.is_open, "a closed connection was given out");
                let at = self.idle.iter().position(|idle| *idle == (place, id)).expect("one that rests");
                self.idle.swap_remove(at);
                self.leased.push((place, id));
            }
            Turn::Stream { place, id, connection } => {
                assert_eq!(id, connection);
                assert!(self.shared.contains(&(place, id)), "a stream of a connection that is gone");
                self.streams.push((place, id));
            }
        }
    }

    /// Sockets that are closed give their seats back; what that makes room for is given to those who wait.
    fn settle(&mut self, core: &mut Own, now: Time) {
        loop {
            for gone in core.take_discarded() {
                self.idle.retain(|(_, id)| *id != gone.id);
                core.give_seat_back();
            }
            match core.deal(now) {
                Some((waiter, turn)) => {
                    assert_eq!(self.waiting.remove(0), waiter, "somebody was overtaken");
                    self.given(turn);
                }
                None if core.discarded.is_empty() => return,
                None => {}
            }
        }
    }

    fn connections(&self) -> usize {
        self.connecting.len() + self.leased.len() + self.shared.len() + self.idle.len()
    }
}

/// One of them, if there is any.
fn pick<T: Copy>(from: &mut Vec<T>, which: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(which % from.len()))
}

fn happen(event: Event, core: &mut Own, world: &mut World, now: &mut Time, places: usize) {
    match event {
        Event::Ask => {
            let turn = if core.waiting() == 0 { core.take(*now) } else { None };
            match turn {
                Some(turn) => world.given(turn),
                None => {
                    let name = core.last + 1;
                    world.waiting.extend(core.wait(name));
                }
            }
        }
        Event::GiveUp(which) => {
            if !world.waiting.is_empty() {
                let gone = world.waiting.remove(which % world.waiting.len());
                assert_eq!(core.wait_no_more(gone), Some(gone));
            }
        }
        Event::Connected { which, is_http2 } => {
            let Some((place, _)) = pick(&mut world.connecting, which) else { return };
            let id = core.next_id();
            if is_http2 {
                core.connected(place, Some(Met::Many { id, connection: id, room: 2 }), *now);
                world.shared.push((place, id));
                world.streams.push((place, id));
            } else {
                core.connected(place, Some(Met::One), *now);
                world.leased.push((place, id));
            }
        }
        Event::Unconnected { which, goes_on } => {
            let Some((place, tried)) = pick(&mut world.connecting, which) else { return };
            core.fail(place, *now).iter().for_each(|gone| {
                world.idle.retain(|(_, id)| *id != gone.id);
                core.give_seat_back();
            });
            let tried = tried | 1 << place;
            let next = if goes_on { core.go_on(place, tried, *now) } else { None };
            match next {
                Some(next) => {
                    assert_eq!(tried & 1 << next, 0, "it has been there");
                    world.connecting.push((next, tried));
                }
                None => {
                    core.connected(place, None, *now);
                    core.leave(place);
                    core.give_seat_back();
                }
            }
        }
        Event::Finish { which, keeps } => {
            let Some((place, id)) = pick(&mut world.leased, which) else { return };
            core.leave(place);
            let kept = if keeps { core.rest(place, id, open(id), *now).is_none() } else { false };
            if kept { world.idle.push((place, id)) } else { core.give_seat_back() }
        }
        Event::EndStream(which) => {
            let Some((place, id)) = pick(&mut world.streams, which) else { return };
            core.leave(place);
            assert_eq!(core.end_stream(place, id, *now), None, "it is kept");
        }
        Event::CloseIdle => {
            // The other end closes them all; nobody has been told yet.
            core.places
                .iter_mut()
                .flat_map(|place| &mut place.idle)
                .for_each(|idle| idle.connection.is_open = false);
        }
        Event::CloseShared(which) => {
            let Some((place, id)) = pick(&mut world.shared, which) else { return };
            core.forget(place, id);
            core.give_seat_back();
        }
        Event::Room(which, room) => {
            if let Some((place, id)) = world.shared.get(which % world.shared.len().max(1)) {
                core.set_room(*place, *id, room);
            }
        }
        Event::Fail(which) => {
            for gone in core.fail(which % places, *now) {
                world.idle.retain(|(_, id)| *id != gone.id);
                core.give_seat_back();
            }
        }
        Event::Succeed(which) => core.succeed(which % places),
        Event::Wait(seconds) => *now = *now + Duration::from_secs(seconds.into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens(
        connections in 1..5_usize,
        waiting in 0..6_usize,
        places in 1..4_usize,
        may_share: bool,
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut core = core(connections, waiting, places, may_share);
        let (mut world, mut now) = (World::default(), Time::ZERO);
        for event in events {
            happen(event, &mut core, &mut world, &mut now, places);
            world.settle(&mut core, now);
            prop_assert!(core.connections() <= connections, "{event:?}");
            prop_assert_eq!(core.connections(), world.connections(), "{:?}", event);
            prop_assert_eq!(core.waiting(), world.waiting.len(), "{:?}", event);
            prop_assert!(core.waiting() <= waiting);
            let busy = world.connecting.len() + world.leased.len() + world.streams.len();
            prop_assert_eq!(core.places(now).map(|place| place.busy).sum::<usize>(), busy, "{:?}", event);
            // Nobody waits while there is something for them.
            prop_assert!(core.waiting() == 0 || core.take(now).is_none(), "{event:?}");
        }
        // When all who hold something are done, all who wait are served.
        for _ in 0..10_000 {
            if world.waiting.is_empty() && world.connecting.is_empty() {
                break;
            }
            for event in [
                Event::Connected { which: 0, is_http2: false },
                Event::Finish { which: 0, keeps: true },
                Event::Room(0, 2),
                Event::EndStream(0),
            ] {
                happen(event, &mut core, &mut world, &mut now, places);
                world.settle(&mut core, now);
            }
            if world.connecting.is_empty() && world.leased.is_empty() && world.streams.is_empty() {
                happen(Event::CloseShared(0), &mut core, &mut world, &mut now, places);
                world.settle(&mut core, now);
            }
        }
        prop_assert!(world.waiting.is_empty(), "{} wait for ever", world.waiting.len());
    }
}
