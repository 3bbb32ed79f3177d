//! Random events against invariants.

use std::num::{NonZeroU32, NonZeroU64};

use proptest::prelude::*;

use super::*;

const KEEP_ALIVE: Duration = Duration::from_secs(10);
const MAX_AGE: Duration = Duration::from_mins(5);
const REST: Duration = Duration::from_secs(5);
const NOBODY: Client = None;
const A: Client = NonZeroU64::new(1);
const B: Client = NonZeroU64::new(2);

/// A connection of HTTP/1; the peer may have closed it.
#[derive(Debug, PartialEq, Eq)]
struct Connection {
    id: u64,
    is_open: bool,
    opened_at: Time,
    idle_max: Option<Duration>,
}

impl ReusableConnection for Connection {
    fn is_open(&self) -> bool {
        self.is_open
    }

    fn opened_at(&self) -> Time {
        self.opened_at
    }

    fn idle_max(&self) -> Option<Duration> {
        self.idle_max
    }
}

type TestPool = PoolCore<Connection, u64, u64>;

fn core(connections: usize, waiting: usize, endpoints: usize, may_share: bool) -> TestPool {
    let failures = NonZeroU32::new(2).expect("not zero");
    let health = HealthSettings { failures, rest: REST, probe: None };
    let limits =
        PoolLimits { connections, waiting, streams: 3, keep_alive: KEEP_ALIVE, max_age: MAX_AGE, health };
    let mut core = PoolCore::new(limits, endpoints, may_share);
    core.endpoints.iter_mut().for_each(|endpoint| endpoint.observed.longest = Some(Duration::from_hours(1)));
    core
}

fn at(seconds: u32) -> Time {
    Time::ZERO + Duration::from_secs(seconds.into())
}

fn open(id: u64) -> Connection {
    Connection { id, is_open: true, opened_at: Time::ZERO, idle_max: None }
}

#[test]
fn old_connection_takes_no_more_requests() {
    let mut core = core(4, 0, 1, false);
    connect_one(&mut core, at(0));
    core.finish_request(0, NOBODY);
    assert_eq!(core.release_idle(0, 1, open(1), at(295)), None);
    assert_eq!(core.retire(0, 1, at(299)), Err(at(300)), "before the end of the keep-alive");
    assert_eq!(
        core.acquire(NOBODY, Reuse::Allowed, at(299)),
        Some(PoolGrant::Idle { endpoint: 0, id: 1, connection: open(1) })
    );
    core.finish_request(0, NOBODY);
    assert_eq!(core.release_idle(0, 1, open(1), at(300)), Some(open(1)));
    assert_eq!(core.release_idle(0, 2, open(2), at(299)), None);
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(300)), Some(PoolGrant::Connect { endpoint: 0 }));
    assert_eq!(core.take_discarded(), (vec![open(2)], vec![]));
    assert_eq!(core.release_idle(0, 3, open(3), at(299)), None);
    assert_eq!(core.retire(0, 3, at(300)), Ok(open(3)));
}

#[test]
fn connection_that_the_origin_may_close_takes_no_more_requests() {
    let mut core = core(4, 0, 1, false);
    let brief = |id| Connection { idle_max: Some(Duration::from_secs(4)), ..open(id) };
    connect_one(&mut core, at(0));
    core.finish_request(0, NOBODY);
    assert_eq!(core.release_idle(0, 1, brief(1), at(0)), None);
    assert!(matches!(core.acquire(NOBODY, Reuse::Allowed, at(3)), Some(PoolGrant::Idle { .. })));
    core.finish_request(0, NOBODY);
    assert_eq!(core.release_idle(0, 1, brief(1), at(3)), None);
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(7)), Some(PoolGrant::Connect { endpoint: 0 }));
}

#[test]
fn connection_idle_beyond_the_observed_time_is_not_used() {
    let mut core = core(3, 0, 1, false);
    core.endpoints[0].observed = ObservedKeepAlive::default();
    for _ in 0..2 {
        connect_one(&mut core, at(0));
    }
    for id in 1..=2 {
        core.finish_request(0, NOBODY);
        assert_eq!(core.release_idle(0, id, open(id), at(0)), None);
    }
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(4)), Some(PoolGrant::Connect { endpoint: 0 }));
    let second = Some(PoolGrant::Idle { endpoint: 0, id: 2, connection: open(2) });
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(4)), second, "no more may be opened");
    core.finish_request(0, NOBODY);
    assert_eq!(core.release_idle(0, 2, open(2), at(4)), None);
    // The first one shows that the origin keeps them for six seconds at least.
    let second = Some(PoolGrant::Idle { endpoint: 0, id: 2, connection: open(2) });
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(8)), second);
    assert_eq!(core.remove(0, 1, at(8)), (Some(open(1)), None));
}

#[test]
fn observed_keep_alive_follows_the_longest_recent_one() {
    let mut observed = ObservedKeepAlive::default();
    assert_eq!(observed.reusable_for(), Duration::from_millis(750));
    observed.record_closed(Duration::from_millis(4), at(9));
    assert_eq!(observed.reusable_for(), Duration::from_millis(3), "the first counts at once");
    observed.record_kept(Duration::from_secs(8), at(10));
    assert_eq!(observed.reusable_for(), Duration::from_secs(6));
    for _ in 0..100 {
        observed.record_closed(Duration::ZERO, at(20));
    }
    assert_eq!(observed.longest(), Duration::from_secs(7), "a reload is one event");
    observed.record_closed(Duration::from_secs(10), at(20));
    assert_eq!(observed.longest(), Duration::from_secs(10));
    for second in 21..60 {
        observed.record_closed(Duration::from_secs(2), at(second));
    }
    assert!(observed.longest() < Duration::from_secs(3), "{:?}", observed.longest());
}

#[test]
fn request_that_cannot_be_sent_again_gets_a_new_connection() {
    let mut core = core(2, 0, 1, true);
    assert_eq!(core.acquire(NOBODY, Reuse::Avoided, at(0)), Some(PoolGrant::Connect { endpoint: 0 }));
    core.connected(0, Some(Negotiated::Http2 { id: 7, connection: 7, streams_max: 5 }), at(0));
    assert_eq!(core.acquire(NOBODY, Reuse::Avoided, at(0)), Some(PoolGrant::Connect { endpoint: 0 }));
    let stream = Some(PoolGrant::Stream { endpoint: 0, id: 7, connection: 7 });
    assert_eq!(core.acquire(NOBODY, Reuse::Avoided, at(0)), stream, "no more may be opened");
}

#[test]
fn streams_of_an_old_connection_end_and_no_more_begin() {
    let mut core = core(4, 0, 1, true);
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(0)), Some(PoolGrant::Connect { endpoint: 0 }));
    core.connected(0, Some(Negotiated::Http2 { id: 7, connection: 7, streams_max: 5 }), at(0));
    assert!(matches!(core.acquire(NOBODY, Reuse::Allowed, at(299)), Some(PoolGrant::Stream { id: 7, .. })));
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(300)), Some(PoolGrant::Connect { endpoint: 0 }));
    assert_eq!(core.take_discarded(), (vec![], vec![7]));
    core.connected(0, Some(Negotiated::Http2 { id: 8, connection: 8, streams_max: 5 }), at(300));
    assert_eq!(core.end_stream(0, 7, at(301)), None);
    core.end_stream(0, 8, at(301));
    assert_eq!(core.retire_shared(0, 8, at(301)), Err(at(311)));
    assert!(matches!(core.acquire(NOBODY, Reuse::Allowed, at(595)), Some(PoolGrant::Stream { id: 8, .. })));
    core.end_stream(0, 8, at(595));
    assert_eq!(core.retire_shared(0, 8, at(595)), Err(at(600)));
    assert_eq!(core.retire_shared(0, 8, at(600)), Ok(8));
}

/// Opens a connection of HTTP/1, which is then busy.
fn connect_one(core: &mut TestPool, now: Time) -> usize {
    let Some(PoolGrant::Connect { endpoint }) = core.acquire(NOBODY, Reuse::Allowed, now) else {
        panic!("a permit")
    };
    core.connected(endpoint, Some(Negotiated::Http1), now);
    endpoint
}

#[test]
fn most_recently_used_connection_comes_first_and_expired_ones_are_closed() {
    let mut core = core(4, 0, 1, false);
    for _ in 0..3 {
        connect_one(&mut core, at(0));
    }
    for id in 1..=3 {
        core.finish_request(0, NOBODY);
        assert_eq!(core.release_idle(0, id, open(id), at(u32::try_from(id).expect("small"))), None);
    }
    assert_eq!(
        core.acquire(NOBODY, Reuse::Allowed, at(11)),
        Some(PoolGrant::Idle { endpoint: 0, id: 3, connection: open(3) })
    );
    // The second has been idle for ten seconds.
    assert!(matches!(core.acquire(NOBODY, Reuse::Allowed, at(12)), Some(PoolGrant::Connect { endpoint: 0 })));
    assert_eq!(core.take_discarded(), (vec![open(2), open(1)], vec![]));
}

/// Three streams each: the protocol is known after the first connection, and the others open at once.
#[test]
fn as_many_http2_connections_open_as_the_waiting_requests_need() {
    let mut core = core(9, 20, 1, true);
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(0)), Some(PoolGrant::Connect { endpoint: 0 }));
    for number in 1..10 {
        assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(0)), None);
        core.enqueue(NOBODY, number).expect("a place");
        assert!(core.grant_next(at(0)).is_none(), "the protocol is unknown");
    }
    core.connected(0, Some(Negotiated::Http2 { id: 7, connection: 7, streams_max: 100 }), at(0));
    let mut granted = |count: usize| -> Vec<_> {
        std::iter::from_fn(|| core.grant_next(at(0)))
            .map(|(waiter, _, grant)| (waiter, matches!(grant, PoolGrant::Connect { .. })))
            .take(count)
            .collect()
    };
    // Two have a stream; three open connections, which have room for the other four.
    assert_eq!(granted(9), [(1, false), (2, false), (3, true), (4, true), (5, true)]);
}

#[test]
fn with_http2_requests_wait_for_the_first_connection() {
    let mut core = core(2, 9, 1, true);
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(0)), Some(PoolGrant::Connect { endpoint: 0 }));
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(0)), None, "all may fit on the first");
    core.connected(0, Some(Negotiated::Http2 { id: 7, connection: 7, streams_max: 5 }), at(0));
    let stream = Some(PoolGrant::Stream { endpoint: 0, id: 7, connection: 7 });
    assert_eq!(
        (core.acquire(NOBODY, Reuse::Allowed, at(0)), core.acquire(NOBODY, Reuse::Allowed, at(0))),
        (stream, Some(PoolGrant::Stream { endpoint: 0, id: 7, connection: 7 }))
    );
    // The origin allows five streams, the limit is three; then a second connection opens.
    assert_eq!(
        (core.acquire(NOBODY, Reuse::Allowed, at(0)), core.acquire(NOBODY, Reuse::Allowed, at(0))),
        (Some(PoolGrant::Connect { endpoint: 0 }), None)
    );
    core.connected(0, Some(Negotiated::Http1), at(0));
    // It was HTTP/1, so the next request does not wait for the one being opened.
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(0)), None, "there are two");
    core.set_streams_max(0, 7, 1);
    assert_eq!((core.end_stream(0, 7, at(1)), core.end_stream(0, 7, at(1))), (None, None));
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(1)), None, "its limit is one now, and one is open");
}

#[test]
fn shared_connection_retires_after_its_last_stream_and_the_keep_alive() {
    let mut core = core(1, 0, 1, true);
    assert_eq!(core.acquire(NOBODY, Reuse::Allowed, at(0)), Some(PoolGrant::Connect { endpoint: 0 }));
    core.connected(0, Some(Negotiated::Http2 { id: 7, connection: 7, streams_max: 5 }), at(0));
    assert_eq!(core.retire_shared(0, 7, at(60)), Err(at(70)), "it is busy");
    assert_eq!(core.end_stream(0, 7, at(61)), None);
    assert_eq!(core.retire_shared(0, 7, at(70)), Err(at(71)));
    assert_eq!(core.retire_shared(0, 7, at(71)), Ok(7));
    assert_eq!(core.retire_shared(0, 7, at(71)), Err(Time::NEVER));
    assert_eq!(core.idle(), 0);
}

#[test]
fn unhealthy_endpoint_keeps_no_connections() {
    let mut core = core(4, 0, 2, false);
    let endpoint = connect_one(&mut core, at(0));
    core.finish_request(endpoint, NOBODY);
    assert_eq!(core.release_idle(endpoint, 1, open(1), at(0)), None);
    assert_eq!(core.fail(endpoint, at(0)), []);
    assert_eq!(core.fail(endpoint, at(0)), [open(1)]);
    assert_eq!(
        core.release_idle(endpoint, 2, open(2), at(1)),
        Some(open(2)),
        "it would be used before the healthy one"
    );
    assert!(
        matches!(core.acquire(NOBODY, Reuse::Allowed, at(1)), Some(PoolGrant::Connect { endpoint: other }) if other != endpoint)
    );
}

/// The connections that a client gets at once.
fn connect_all(core: &mut TestPool, client: Client) -> usize {
    let grants = std::iter::from_fn(|| match core.acquire(client, Reuse::Allowed, at(0))? {
        PoolGrant::Connect { endpoint } => {
            core.connected(endpoint, Some(Negotiated::Http1), at(0));
            Some(())
        }
        other => panic!("{other:?}"),
    });
    grants.count()
}

#[test]
fn one_client_leaves_connections_to_another() {
    let mut core = core(8, 1_000, 1, false);
    assert_eq!(connect_all(&mut core, A), 6);
    for _ in 0..1_000 {
        core.enqueue(A, 0).expect("there is room in the queue");
    }
    assert_eq!(core.grant_next(at(0)), None, "A is over its share");
    assert_eq!(connect_all(&mut core, B), 1, "the last one is for a third client");
    let (b, displaced) = core.enqueue(B, 1).expect("A gives up a place");
    assert_eq!((displaced, core.waiting()), (Some(0), 1_000));
    // A's connection goes to B.
    core.finish_request(0, A);
    core.release_idle(0, 1, open(1), at(0));
    let granted = core.grant_next(at(0)).map(|(waiter, client, _)| (waiter, client));
    assert_eq!(granted, Some((1, B)));
    assert_eq!(core.cancel_wait(b), None);
    core.finish_request(0, A);
    core.release_idle(0, 2, open(2), at(0));
    assert_eq!(core.grant_next(at(0)), None, "A holds four of eight, and two are free");
    core.finish_request(0, A);
    core.release_idle(0, 3, open(3), at(0));
    let granted = core.grant_next(at(0)).map(|(waiter, client, _)| (waiter, client));
    assert_eq!(granted, Some((0, A)));
}

#[test]
fn pool_of_one_connection_takes_turns() {
    let mut core = core(1, 1_000, 1, false);
    assert_eq!(connect_all(&mut core, A), 1);
    for number in 0..500 {
        core.enqueue(A, number).expect("there is room in the queue");
    }
    core.enqueue(B, 1_000).expect("there is room in the queue");
    let mut served = Vec::new();
    let mut holder = A;
    for _ in 0..3 {
        core.finish_request(0, holder);
        core.release_idle(0, 1, open(1), at(0));
        let (waiter, client, _) = core.grant_next(at(0)).expect("the free one");
        served.push(waiter);
        holder = client;
    }
    assert_eq!(served, [0, 1_000, 1]);
}

#[test]
fn new_request_does_not_pass_one_that_waits_for_what_is_free() {
    let mut core = core(2, 9, 1, false);
    assert_eq!(connect_all(&mut core, A), 1);
    assert_eq!(connect_all(&mut core, B), 1);
    core.enqueue(B, 7).expect("there is room in the queue");
    core.finish_request(0, A);
    core.release_idle(0, 1, open(1), at(0));
    // A waiter of B would hold both, so that the free one is A's.
    assert!(matches!(core.acquire(A, Reuse::Allowed, at(0)), Some(PoolGrant::Idle { id: 1, .. })));
    core.finish_request(0, A);
    core.release_idle(0, 1, open(1), at(0));
    core.finish_request(0, B);
    assert_eq!(core.acquire(A, Reuse::Allowed, at(0)), None, "B waits for it");
    assert!(matches!(core.grant_next(at(0)), Some((7, B, PoolGrant::Idle { id: 1, .. }))));
}

#[test]
fn event_streams_count_apart() {
    let mut core = core(4, 9, 1, false);
    for number in 0..3 {
        assert_eq!(connect_all(&mut core, A), 3, "{number}");
        assert!(core.begin_event_stream(A, false), "{number}");
        core.finish_request(0, A);
        core.release_permit();
        core.finish_request(0, A);
        core.release_permit();
    }
    assert_eq!((core.connections(), core.open()), (0, 3));
    connect_one(&mut core, at(0));
    assert!(!core.begin_event_stream(A, false), "the fourth is for another client");
    assert!(core.begin_event_stream(B, false));
    connect_one(&mut core, at(0));
    assert!(!core.begin_event_stream(NOBODY, false), "there are four");
    core.finish_event_stream(0);
    core.end_event_stream(A, false);
    assert!(core.begin_event_stream(NOBODY, false));
    assert_eq!((core.connections(), core.open()), (0, 4));
}

#[test]
fn event_streams_of_http2_stay_streams() {
    // Two connections with three streams each: three event streams.
    let mut core = core(2, 9, 1, true);
    assert_eq!(core.acquire(A, Reuse::Allowed, at(0)), Some(PoolGrant::Connect { endpoint: 0 }));
    core.connected(0, Some(Negotiated::Http2 { id: 7, connection: 7, streams_max: 5 }), at(0));
    assert!(core.begin_event_stream(A, true));
    for client in [A, B] {
        assert!(matches!(core.acquire(client, Reuse::Allowed, at(0)), Some(PoolGrant::Stream { id: 7, .. })));
        assert!(core.begin_event_stream(client, true));
    }
    assert_eq!((core.open(), core.requests.count(A), core.event_streams.total()), (1, 2, 3));
    assert!(!core.begin_event_stream(NOBODY, true));
    core.end_event_stream(A, true);
    assert!(core.begin_event_stream(NOBODY, true));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Of one of three clients, or of none.
    Request(u64),
    BeginEventStream(usize),
    EndEventStream(usize),
    CancelWait(usize),
    Connected {
        which: usize,
        is_http2: bool,
    },
    Unconnected {
        which: usize,
        tries_next: bool,
    },
    Finish {
        which: usize,
        keeps: bool,
    },
    EndStream(usize),
    CloseIdle,
    CloseShared(usize),
    StreamsMax(usize, usize),
    Fail(usize),
    Succeed(usize),
    Wait(u32),
}

fn event() -> impl Strategy<Value = Event> {
    let which = 0..64_usize;
    prop_oneof![
        6 => (0..4_u64).prop_map(Event::Request),
        1 => which.clone().prop_map(Event::BeginEventStream),
        1 => which.clone().prop_map(Event::EndEventStream),
        1 => which.clone().prop_map(Event::CancelWait),
        4 => (which.clone(), any::<bool>()).prop_map(|(which, is_http2)| Event::Connected { which, is_http2 }),
        1 => (which.clone(), any::<bool>()).prop_map(|(which, tries_next)| Event::Unconnected { which, tries_next }),
        4 => (which.clone(), any::<bool>()).prop_map(|(which, keeps)| Event::Finish { which, keeps }),
        4 => which.clone().prop_map(Event::EndStream),
        1 => Just(Event::CloseIdle),
        1 => which.clone().prop_map(Event::CloseShared),
        1 => (which.clone(), 0..6_usize).prop_map(|(which, streams_max)| Event::StreamsMax(which, streams_max)),
        1 => which.clone().prop_map(Event::Fail),
        1 => which.prop_map(Event::Succeed),
        1 => (0..8_u32).prop_map(Event::Wait),
    ]
}

/// A request or its connection: the endpoint, the connection, and the client.
type Held = (usize, u64, Client);

/// A model of the pool's grants.
#[derive(Default)]
struct Model {
    /// With the endpoints that were tried in place of a connection.
    connecting: Vec<Held>,
    leased: Vec<Held>,
    streams: Vec<Held>,
    /// Of HTTP/1.
    event_streams: Vec<Held>,
    /// Open connections of HTTP/2.
    shared: Vec<(usize, u64)>,
    /// Idle connections of HTTP/1.
    idle: Vec<(usize, u64)>,
    waiting: Vec<(u64, Client)>,
}

impl Model {
    fn record_grant(&mut self, client: Client, grant: PoolGrant<Connection, u64>) {
        match grant {
            PoolGrant::Connect { endpoint } => self.connecting.push((endpoint, 0, client)),
            PoolGrant::Idle { endpoint, id, connection } => {
                assert_eq!(id, connection.id);
                assert!(connection.is_open, "a closed connection was granted");
                let at = self.idle.iter().position(|idle| *idle == (endpoint, id)).expect("one that rests");
                self.idle.swap_remove(at);
                self.leased.push((endpoint, id, client));
            }
            PoolGrant::Stream { endpoint, id, connection } => {
                assert_eq!(id, connection);
                assert!(self.shared.contains(&(endpoint, id)), "a stream of a closed connection");
                self.streams.push((endpoint, id, client));
            }
        }
    }

    fn in_flight(&self, client: Client) -> usize {
        let all = self.connecting.iter().chain(&self.leased).chain(&self.streams);
        all.filter(|held| held.2 == client).count()
    }

    /// Closes sockets, which releases permits, and grants to waiters.
    fn serve_waiters(&mut self, core: &mut TestPool, now: Time) {
        loop {
            let (closed, old) = core.take_discarded();
            assert!(old.is_empty(), "no event lasts as long");
            for closed in closed {
                self.idle.retain(|(_, id)| *id != closed.id);
                core.release_permit();
            }
            let free = core.free();
            match core.grant_next(now) {
                Some((waiter, client, grant)) => {
                    self.check_turn(core, waiter, client, free);
                    self.waiting.retain(|waiting| waiting.0 != waiter);
                    self.record_grant(client, grant);
                }
                None if core.discarded.0.is_empty() => return,
                None => {}
            }
        }
    }

    /// No client that may take a connection has fewer in flight, and no request of the same client waits for longer.
    fn check_turn(&self, core: &TestPool, waiter: u64, client: Client, free: usize) {
        for (id, other) in &self.waiting {
            let held = self.in_flight(*other);
            let may_take = other.is_none() || held == 0 || held < 3 * (free - 1);
            assert!(!may_take || self.in_flight(client) <= held, "{other:?} before {client:?}");
            assert!(*other != client || waiter <= *id, "{id} before {waiter}");
        }
        assert_eq!(core.requests.count(client), self.in_flight(client) + 1);
    }

    fn enqueue(&mut self, core: &mut TestPool, client: Client) {
        let name = core.last_id + 1;
        if let Ok((id, displaced)) = core.enqueue(client, name) {
            assert_eq!(id, name);
            if let Some(displaced) = displaced {
                let at = self.waiting.iter().position(|waiting| waiting.0 == displaced).expect("it waited");
                let (_, from) = self.waiting.remove(at);
                let count = |of: Client| self.waiting.iter().filter(|waiting| waiting.1 == of).count();
                assert!(
                    from.is_some() && count(from) > count(client),
                    "{from:?} has no more than {client:?}"
                );
            }
            self.waiting.push((id, client));
        }
    }

    fn connections(&self) -> usize {
        self.connecting.len() + self.leased.len() + self.shared.len() + self.idle.len()
    }
}

fn pick<T: Copy>(from: &mut Vec<T>, which: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(which % from.len()))
}

fn apply_event(event: Event, core: &mut TestPool, model: &mut Model, now: &mut Time, endpoints: usize) {
    match event {
        Event::Request(client) => {
            let client = NonZeroU64::new(client);
            match core.acquire(client, Reuse::Allowed, *now) {
                Some(grant) => model.record_grant(client, grant),
                None => model.enqueue(core, client),
            }
        }
        Event::BeginEventStream(which) => {
            let Some((endpoint, id, client)) = pick(&mut model.leased, which) else { return };
            if core.begin_event_stream(client, false) {
                model.event_streams.push((endpoint, id, client));
            } else {
                model.leased.push((endpoint, id, client));
            }
        }
        Event::EndEventStream(which) => {
            let Some((endpoint, _, client)) = pick(&mut model.event_streams, which) else { return };
            core.finish_event_stream(endpoint);
            core.end_event_stream(client, false);
        }
        Event::CancelWait(which) => {
            if !model.waiting.is_empty() {
                let (closed, _) = model.waiting.remove(which % model.waiting.len());
                assert_eq!(core.cancel_wait(closed), Some(closed));
            }
        }
        Event::Connected { which, is_http2 } => {
            let Some((endpoint, _, client)) = pick(&mut model.connecting, which) else { return };
            let id = core.next_id();
            if is_http2 {
                core.connected(
                    endpoint,
                    Some(Negotiated::Http2 { id, connection: id, streams_max: 2 }),
                    *now,
                );
                model.shared.push((endpoint, id));
                model.streams.push((endpoint, id, client));
            } else {
                core.connected(endpoint, Some(Negotiated::Http1), *now);
                model.leased.push((endpoint, id, client));
            }
        }
        Event::Unconnected { which, tries_next } => {
            let Some((endpoint, tried, client)) = pick(&mut model.connecting, which) else { return };
            core.fail(endpoint, *now).iter().for_each(|closed| {
                model.idle.retain(|(_, id)| *id != closed.id);
                core.release_permit();
            });
            let tried = tried | 1 << endpoint;
            let next = if tries_next { core.next_endpoint(endpoint, tried, *now) } else { None };
            match next {
                Some(next) => {
                    assert_eq!(tried & 1 << next, 0, "already tried");
                    model.connecting.push((next, tried, client));
                }
                None => {
                    core.connected(endpoint, None, *now);
                    core.finish_request(endpoint, client);
                    core.release_permit();
                }
            }
        }
        Event::Finish { which, keeps } => {
            let Some((endpoint, id, client)) = pick(&mut model.leased, which) else { return };
            core.finish_request(endpoint, client);
            let kept = if keeps { core.release_idle(endpoint, id, open(id), *now).is_none() } else { false };
            if kept { model.idle.push((endpoint, id)) } else { core.release_permit() }
        }
        Event::EndStream(which) => {
            let Some((endpoint, id, client)) = pick(&mut model.streams, which) else { return };
            core.finish_request(endpoint, client);
            assert_eq!(core.end_stream(endpoint, id, *now), None, "it is kept");
        }
        Event::CloseIdle => {
            // The peer closes them without notice.
            core.endpoints
                .iter_mut()
                .flat_map(|endpoint| &mut endpoint.idle)
                .for_each(|idle| idle.connection.is_open = false);
        }
        Event::CloseShared(which) => {
            let Some((endpoint, id)) = pick(&mut model.shared, which) else { return };
            core.remove(endpoint, id, *now);
            core.release_permit();
        }
        Event::StreamsMax(which, streams_max) => {
            if let Some((endpoint, id)) = model.shared.get(which % model.shared.len().max(1)) {
                core.set_streams_max(*endpoint, *id, streams_max);
            }
        }
        Event::Fail(which) => {
            for closed in core.fail(which % endpoints, *now) {
                model.idle.retain(|(_, id)| *id != closed.id);
                core.release_permit();
            }
        }
        Event::Succeed(which) => core.succeed(which % endpoints),
        Event::Wait(seconds) => *now = *now + Duration::from_secs(seconds.into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_after_any_events(
        connections in 1..5_usize,
        waiting in 0..6_usize,
        endpoints in 1..4_usize,
        may_share: bool,
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut core = core(connections, waiting, endpoints, may_share);
        let (mut model, mut now) = (Model::default(), Time::ZERO);
        for event in events {
            apply_event(event, &mut core, &mut model, &mut now, endpoints);
            model.serve_waiters(&mut core, now);
            prop_assert!(core.connections() <= connections, "{event:?}");
            prop_assert_eq!(core.connections(), model.connections(), "{:?}", event);
            prop_assert_eq!(core.waiting(), model.waiting.len(), "{:?}", event);
            prop_assert!(core.waiting() <= waiting);
            prop_assert_eq!(core.open() - core.connections(), model.event_streams.len(), "{:?}", event);
            prop_assert!(model.event_streams.len() <= connections, "{event:?}");
            let in_flight = model.connecting.len() + model.leased.len() + model.streams.len();
            prop_assert_eq!(core.requests.total(), in_flight, "{:?}", event);
            let busy = in_flight + model.event_streams.len();
            prop_assert_eq!(core.endpoints(now).map(|endpoint| endpoint.busy).sum::<usize>(), busy, "{:?}", event);
            // No request waits while a connection is free that its client may take.
            prop_assert!(core.grant_next(now).is_none(), "{event:?}");
        }
        // Once all connections are released, all waiters are served.
        for _ in 0..10_000 {
            if model.waiting.is_empty() && model.connecting.is_empty() {
                break;
            }
            for event in [
                Event::Connected { which: 0, is_http2: false },
                Event::Finish { which: 0, keeps: true },
                Event::StreamsMax(0, 2),
                Event::EndStream(0),
            ] {
                apply_event(event, &mut core, &mut model, &mut now, endpoints);
                model.serve_waiters(&mut core, now);
            }
            if model.connecting.is_empty() && model.leased.is_empty() && model.streams.is_empty() {
                apply_event(Event::CloseShared(0), &mut core, &mut model, &mut now, endpoints);
                model.serve_waiters(&mut core, now);
            }
        }
        prop_assert!(model.waiting.is_empty(), "{} requests wait forever", model.waiting.len());
    }
}
