//! Assigns connections to requests. Pure: no locks, no waiting.
//!
//! A permit is acquired before a connection opens and released when its socket has closed, so the connection limit always
//! holds. A connection in use is not stored here: its lease owns it.

use std::{collections::VecDeque, time::Duration};

use stockade_model::time::Time;

use super::{
    health::{Health, HealthSettings},
    shares::{Client, ClientCounts, FairQueue},
};

/// A connection that takes one request at a time.
pub(super) trait ReusableConnection {
    /// As far as is known without I/O.
    fn is_open(&self) -> bool;

    fn opened_at(&self) -> Time;

    /// How long it may be idle before its next request, if the origin says so.
    fn idle_max(&self) -> Option<Duration>;
}

/// The connections that a request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    Allowed,
    /// A new one, if one may be opened: the origin may close a used one, and the request cannot be sent again.
    Avoided,
}

#[derive(Clone, Debug)]
pub(super) struct PoolLimits {
    pub(super) connections: usize,
    pub(super) waiting: usize,
    pub(super) streams: usize,
    pub(super) keep_alive: Duration,
    /// From the opening of a connection to its last new request.
    pub(super) max_age: Duration,
    pub(super) health: HealthSettings,
}

/// The endpoints of an origin. `One` is a connection of HTTP/1, `Many` of HTTP/2, `W` a waiter.
pub(super) struct PoolCore<One, Many, W> {
    limits: PoolLimits,
    endpoints: Vec<EndpointState<One, Many>>,
    /// Permits in use, without those of event streams.
    connections: usize,
    /// Requests in flight, without event streams of HTTP/1.
    requests: ClientCounts,
    event_streams: ClientCounts,
    /// Connections of HTTP/1 that serve an event stream.
    event_connections: usize,
    queue: FairQueue<W>,
    last_id: u64,
    /// Found closed or too old. The caller drops them after releasing the lock.
    discarded: Discarded<One, Many>,
}

/// Connections that are not used again.
pub(super) type Discarded<One, Many> = (Vec<One>, Vec<Many>);

struct EndpointState<One, Many> {
    /// Most recently used last.
    idle: VecDeque<IdleConnection<One>>,
    observed: ObservedKeepAlive,
    shared: Vec<SharedConnection<Many>>,
    /// Requests in flight, including those that connect.
    busy: usize,
    connecting: usize,
    /// HTTP/2 is possible: no more connections open than the waiting requests may need.
    may_share: bool,
    health: Health,
}

/// The shortest default of common servers is two seconds (Gunicorn).
const ASSUMED_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// How long the origin keeps an idle connection open, as far as has been seen.
#[derive(Default)]
struct ObservedKeepAlive {
    /// The longest time after which a connection was still open, or was closed. `None`: nothing has been seen.
    longest: Option<Duration>,
    seen_at: Time,
}

impl ObservedKeepAlive {
    fn longest(&self) -> Duration {
        self.longest.unwrap_or(ASSUMED_KEEP_ALIVE)
    }

    /// A connection that was idle for this time is open.
    fn record_kept(&mut self, idle: Duration, now: Time) {
        if idle > self.longest() {
            *self = Self { longest: Some(idle), seen_at: now };
        }
    }

    /// The origin has closed a connection after this time. A shorter one than seen before counts an eighth, once a second: an origin
    /// that reloads closes all of them at once.
    fn record_closed(&mut self, idle: Duration, now: Time) {
        match self.longest {
            Some(longest) if idle < longest => {
                if now - self.seen_at >= Duration::from_secs(1) {
                    *self = Self { longest: Some(longest / 8 * 7 + idle / 8), seen_at: now };
                }
            }
            _ => *self = Self { longest: Some(idle), seen_at: now },
        }
    }

    /// How long an idle connection takes requests. After that the origin may close it while a request is on its way.
    fn reusable_for(&self) -> Duration {
        self.longest() / 4 * 3
    }
}

struct IdleConnection<One> {
    id: u64,
    connection: One,
    since: Time,
}

struct SharedConnection<Many> {
    id: u64,
    connection: Many,
    /// Concurrent streams.
    streams_max: usize,
    active: usize,
    opened_at: Time,
    /// When the last stream ended.
    since: Time,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PoolGrant<One, Many> {
    /// A reused connection.
    Idle {
        endpoint: usize,
        id: u64,
        connection: One,
    },
    Stream {
        endpoint: usize,
        id: u64,
        connection: Many,
    },
    /// A permit to connect.
    Connect {
        endpoint: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndpointSnapshot {
    pub(super) is_resting: bool,
    pub(super) failures: u32,
    pub(super) busy: usize,
}

impl<One: ReusableConnection, Many: Clone, W> PoolCore<One, Many, W> {
    pub(super) fn new(limits: PoolLimits, endpoints: usize, may_share: bool) -> Self {
        let endpoint = || EndpointState {
            idle: VecDeque::new(),
            observed: ObservedKeepAlive::default(),
            shared: Vec::new(),
            busy: 0,
            connecting: 0,
            may_share,
            health: Health::default(),
        };
        let endpoints = (0..endpoints).map(|_| endpoint()).collect();
        let queue = FairQueue::new(limits.waiting);
        Self {
            limits,
            endpoints,
            connections: 0,
            requests: ClientCounts::default(),
            event_streams: ClientCounts::default(),
            event_connections: 0,
            queue,
            last_id: 0,
            discarded: (Vec::new(), Vec::new()),
        }
    }

    /// For a connection or a waiter.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// For a new request. `None`: it has to wait, since nothing is free for its client, or others wait for what is free.
    pub(super) fn acquire(
        &mut self,
        client: Client,
        reuse: Reuse,
        now: Time,
    ) -> Option<PoolGrant<One, Many>> {
        let free = self.free();
        if !self.requests.may_take(client, free) || self.queue.next(&self.requests, free).is_some() {
            return None;
        }
        self.take(client, reuse, now)
    }

    fn take(&mut self, client: Client, reuse: Reuse, now: Time) -> Option<PoolGrant<One, Many>> {
        let candidates = self.candidates(now, 0);
        let grant = candidates.into_iter().find_map(|endpoint| self.acquire_at(endpoint, reuse, now));
        if let Some(
            PoolGrant::Idle { endpoint, .. }
            | PoolGrant::Stream { endpoint, .. }
            | PoolGrant::Connect { endpoint },
        ) = &grant
        {
            self.endpoints[*endpoint].busy += 1;
            self.requests.add(client);
        }
        grant
    }

    /// How many more requests there are connections and streams for.
    fn free(&self) -> usize {
        let PoolLimits { connections, streams, .. } = self.limits;
        let per_connection =
            if self.endpoints.iter().any(|endpoint| endpoint.may_share) { streams } else { 1 };
        let unopened = connections.saturating_sub(self.connections).saturating_mul(per_connection);
        let at = |endpoint: &EndpointState<One, Many>| {
            let of = |shared: &SharedConnection<Many>| {
                shared.streams_max.min(streams).saturating_sub(shared.active)
            };
            let connecting = if endpoint.may_share { endpoint.connecting * (streams - 1) } else { 0 };
            endpoint.idle.len() + endpoint.shared.iter().map(of).sum::<usize>() + connecting
        };
        self.endpoints.iter().map(at).sum::<usize>().saturating_add(unopened)
    }

    /// Connections found closed or too old since the last call.
    pub(super) fn take_discarded(&mut self) -> Discarded<One, Many> {
        std::mem::take(&mut self.discarded)
    }

    /// Closes idle connections; the others close when they become idle.
    pub(super) fn close_when_idle(&mut self) -> Discarded<One, Many> {
        self.limits.keep_alive = Duration::ZERO;
        let (mut ones, mut many) = self.take_discarded();
        for endpoint in &mut self.endpoints {
            ones.extend(endpoint.idle.drain(..).map(|idle| idle.connection));
            many.extend(endpoint.shared.drain(..).map(|shared| shared.connection));
        }
        (ones, many)
    }

    fn acquire_at(&mut self, n: usize, reuse: Reuse, now: Time) -> Option<PoolGrant<One, Many>> {
        let limits = &self.limits;
        let endpoint = &mut self.endpoints[n];
        let is_negotiating = endpoint.may_share && endpoint.shared.is_empty() && endpoint.connecting > 0;
        if reuse == Reuse::Avoided && self.connections < limits.connections && !is_negotiating {
            // The connections do not become more.
            self.discarded.0.extend(endpoint.idle.pop_front().map(|idle| idle.connection));
            return Some(self.connect(n));
        }
        if let Some(oldest) = endpoint.idle.front().filter(|oldest| oldest.connection.is_open()) {
            endpoint.observed.record_kept(now - oldest.since, now);
        }
        let reusable_for = endpoint.observed.reusable_for();
        let has_free_permit = self.connections < limits.connections;
        // The others stay idle until the origin closes them, which shows how long it keeps a connection.
        let is_usable = |idle: &mut IdleConnection<One>| {
            now - idle.since < idle.connection.idle_max().unwrap_or(reusable_for) || !has_free_permit
        };
        while let Some(IdleConnection { id, connection, since }) = endpoint.idle.pop_back_if(is_usable) {
            let is_young = now - connection.opened_at() < limits.max_age;
            if connection.is_open() && is_young && now - since < limits.keep_alive {
                return Some(PoolGrant::Idle { endpoint: n, id, connection });
            }
            self.discarded.0.push(connection);
        }
        // Their streams go on. A new connection resolves the origin's name again.
        let is_old = |shared: &mut SharedConnection<Many>| now - shared.opened_at >= limits.max_age;
        self.discarded.1.extend(endpoint.shared.extract_if(.., is_old).map(|shared| shared.connection));
        if let Some(shared) =
            endpoint.shared.iter_mut().find(|shared| shared.active < shared.streams_max.min(limits.streams))
        {
            shared.active += 1;
            return Some(PoolGrant::Stream {
                endpoint: n,
                id: shared.id,
                connection: shared.connection.clone(),
            });
        }
        // The waiting requests may fit on the connections that are opening. The first one also decides the protocol.
        let opening = endpoint.connecting * (limits.streams - 1);
        let fits = endpoint.shared.is_empty() || self.queue.len() <= opening;
        let may_become_shared = endpoint.may_share && endpoint.connecting > 0 && fits;
        if may_become_shared || self.connections >= limits.connections {
            return None;
        }
        Some(self.connect(n))
    }

    fn connect(&mut self, endpoint: usize) -> PoolGrant<One, Many> {
        self.connections += 1;
        self.endpoints[endpoint].connecting += 1;
        PoolGrant::Connect { endpoint }
    }

    /// The endpoints without those in the bit set `tried`: healthy ones first, then by load.
    fn candidates(&self, now: Time, tried: u64) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.endpoints.len()).filter(|n| tried & (1 << n) == 0).collect();
        if order.len() > 1 {
            order.sort_by_key(|&n| (self.endpoints[n].health.is_resting(now), self.endpoints[n].busy));
        }
        order
    }

    /// Moves a permit to the next endpoint that has not been tried.
    pub(super) fn next_endpoint(&mut self, from: usize, tried: u64, now: Time) -> Option<usize> {
        let to = *self.candidates(now, tried).first()?;
        for (endpoint, left) in [(from, true), (to, false)] {
            let EndpointState { busy, connecting, .. } = &mut self.endpoints[endpoint];
            for count in [busy, connecting] {
                *count = if left { *count - 1 } else { *count + 1 };
            }
        }
        Some(to)
    }

    /// A permit whose connection has closed opens another one.
    pub(super) fn reconnect(&mut self, endpoint: usize, client: Client) {
        self.requests.add(client);
        self.endpoints[endpoint].busy += 1;
        self.endpoints[endpoint].connecting += 1;
    }

    /// An attempt to connect has ended. `None`: it failed.
    pub(super) fn connected(&mut self, endpoint: usize, met: Option<Negotiated<Many>>, now: Time) {
        let endpoint = &mut self.endpoints[endpoint];
        endpoint.connecting -= 1;
        match met {
            None => {}
            Some(Negotiated::Http1) => endpoint.may_share = false,
            Some(Negotiated::Http2 { id, connection, streams_max }) => {
                endpoint.may_share = true;
                // The first stream is for the request that connected.
                let active = 1;
                let shared =
                    SharedConnection { id, connection, streams_max, active, opened_at: now, since: now };
                endpoint.shared.push(shared);
            }
        }
    }

    pub(super) fn finish_request(&mut self, endpoint: usize, client: Client) {
        self.endpoints[endpoint].busy -= 1;
        self.requests.remove(client);
    }

    /// The response to a request in flight is an event stream. One of HTTP/1 takes its connection out of the limit, and counts
    /// against a bound of its own, which is as high. One of HTTP/2 counts as any request, and against half of all streams. False:
    /// there are too many, of this client or of all.
    pub(super) fn begin_event_stream(&mut self, client: Client, is_http2: bool) -> bool {
        let PoolLimits { connections, streams, .. } = self.limits;
        let max = if is_http2 { connections.saturating_mul(streams).div_ceil(2) } else { connections };
        if !self.event_streams.may_take(client, max.saturating_sub(self.event_streams.total())) {
            return false;
        }
        self.event_streams.add(client);
        if !is_http2 {
            self.connections -= 1;
            self.event_connections += 1;
            self.requests.remove(client);
        }
        true
    }

    /// For HTTP/1 its socket has closed.
    pub(super) fn end_event_stream(&mut self, client: Client, is_http2: bool) {
        self.event_streams.remove(client);
        self.event_connections -= usize::from(!is_http2);
    }

    /// An event stream of HTTP/1 has ended, and its connection closes.
    pub(super) fn finish_event_stream(&mut self, endpoint: usize) {
        self.endpoints[endpoint].busy -= 1;
    }

    /// Stores an idle connection. Returned: not kept.
    pub(super) fn release_idle(
        &mut self,
        endpoint: usize,
        id: u64,
        connection: One,
        now: Time,
    ) -> Option<One> {
        let is_old = now - connection.opened_at() >= self.limits.max_age;
        if is_old || self.limits.keep_alive.is_zero() || self.endpoints[endpoint].health.is_resting(now) {
            return Some(connection);
        }
        self.endpoints[endpoint].idle.push_back(IdleConnection { id, connection, since: now });
        None
    }

    /// Removes a connection that is idle and too old, or has been idle for too long; otherwise, when to check again.
    pub(super) fn retire(&mut self, endpoint: usize, id: u64, now: Time) -> Result<One, Time> {
        let idle = &mut self.endpoints[endpoint].idle;
        let Some(at) = idle.iter().position(|idle| idle.id == id) else {
            return Err(now + self.limits.keep_alive);
        };
        let IdleConnection { connection, since, .. } = &idle[at];
        let until = (*since + self.limits.keep_alive).min(connection.opened_at() + self.limits.max_age);
        match idle.remove(at) {
            Some(IdleConnection { connection, .. }) if until <= now => Ok(connection),
            kept => {
                // Back at its index, which keeps the order of use.
                kept.into_iter().for_each(|kept| idle.insert(at, kept));
                Err(until)
            }
        }
    }

    /// The same for a shared connection.
    pub(super) fn retire_shared(&mut self, endpoint: usize, id: u64, now: Time) -> Result<Many, Time> {
        let PoolLimits { keep_alive, max_age, .. } = self.limits;
        let shared = &mut self.endpoints[endpoint].shared;
        let Some(at) = shared.iter().position(|shared| shared.id == id) else {
            // It closes with its last stream.
            return Err(Time::NEVER);
        };
        let SharedConnection { active, opened_at, since, .. } = shared[at];
        let until = (since + keep_alive).min(opened_at + max_age);
        match active {
            0 if until <= now => Ok(shared.remove(at).connection),
            0 => Err(until),
            _ => Err(now + keep_alive),
        }
    }

    /// The connection takes no more requests: if it was idle, the origin has closed it. The caller drops the returned values.
    pub(super) fn remove(&mut self, endpoint: usize, id: u64, now: Time) -> (Option<One>, Option<Many>) {
        let EndpointState { idle, observed, shared, .. } = &mut self.endpoints[endpoint];
        let one = idle.iter().position(|idle| idle.id == id).and_then(|at| idle.remove(at));
        if let Some(one) = &one {
            observed.record_closed(now - one.since, now);
        }
        let many = shared.iter().position(|shared| shared.id == id).map(|at| shared.remove(at));
        (one.map(|one| one.connection), many.map(|many| many.connection))
    }

    pub(super) fn set_streams_max(&mut self, endpoint: usize, id: u64, streams_max: usize) {
        if let Some(shared) = self.endpoints[endpoint].shared.iter_mut().find(|shared| shared.id == id) {
            shared.streams_max = streams_max;
        }
    }

    /// Returned: a connection that is not kept.
    pub(super) fn end_stream(&mut self, endpoint: usize, id: u64, now: Time) -> Option<Many> {
        let all = &mut self.endpoints[endpoint].shared;
        let at = all.iter().position(|shared| shared.id == id)?;
        let shared = &mut all[at];
        shared.active -= 1;
        shared.since = now;
        let is_kept = shared.active > 0 || !self.limits.keep_alive.is_zero();
        if is_kept { None } else { Some(all.remove(at).connection) }
    }

    /// Removes the connection that has been idle for the longest at one of the endpoints.
    pub(super) fn take_idle(&mut self) -> (Option<One>, Option<Many>) {
        for endpoint in &mut self.endpoints {
            if let Some(idle) = endpoint.idle.pop_front() {
                return (Some(idle.connection), None);
            }
            if let Some(at) = endpoint.shared.iter().position(|shared| shared.active == 0) {
                return (None, Some(endpoint.shared.remove(at).connection));
            }
        }
        (None, None)
    }

    /// A socket has closed, or has never been opened.
    pub(super) fn release_permit(&mut self) {
        self.connections -= 1;
    }

    /// Returned: the idle connections of an endpoint that has become unhealthy.
    pub(super) fn fail(&mut self, endpoint: usize, now: Time) -> Vec<One> {
        let endpoint = &mut self.endpoints[endpoint];
        endpoint.health.fail(now, &self.limits.health);
        if !endpoint.health.is_resting(now) {
            return Vec::new();
        }
        endpoint.idle.drain(..).map(|idle| idle.connection).collect()
    }

    pub(super) fn succeed(&mut self, endpoint: usize) {
        self.endpoints[endpoint].health.succeed(&self.limits.health);
    }

    /// Queues a waiter. Returned: its id, and a waiter that gave up its place for this one. Error: the queue is full.
    pub(super) fn enqueue(&mut self, client: Client, waiter: W) -> Result<(u64, Option<W>), W> {
        let id = self.next_id();
        self.queue.push(id, client, waiter).map(|displaced| (id, displaced))
    }

    /// Another client waits for the response to a waiting request.
    pub(super) fn add_client(&mut self, id: u64, client: Client) {
        self.queue.add_client(id, client);
    }

    pub(super) fn cancel_wait(&mut self, id: u64) -> Option<W> {
        self.queue.remove(id)
    }

    /// The next waiter, its client, and its grant. `None`: there is nothing free for any waiter.
    pub(super) fn grant_next(&mut self, now: Time) -> Option<(W, Client, PoolGrant<One, Many>)> {
        if self.queue.is_empty() {
            return None;
        }
        let client = self.queue.next(&self.requests, self.free())?;
        let grant = self.take(client, Reuse::Allowed, now)?;
        self.queue.pop(client).map(|waiter| (waiter, client, grant))
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Permits in use, without those of event streams.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections
    }

    /// Connections in use and idle, those of event streams included.
    pub(super) fn open(&self) -> usize {
        self.connections + self.event_connections
    }

    pub(super) fn idle(&self) -> usize {
        let of = |endpoint: &EndpointState<One, Many>| {
            endpoint.idle.len() + endpoint.shared.iter().filter(|shared| shared.active == 0).count()
        };
        self.endpoints.iter().map(of).sum()
    }

    pub(super) fn endpoints(&self, now: Time) -> impl Iterator<Item = EndpointSnapshot> {
        self.endpoints.iter().map(move |endpoint| EndpointSnapshot {
            is_resting: endpoint.health.is_resting(now),
            failures: endpoint.health.failures(),
            busy: endpoint.busy,
        })
    }
}

/// The protocol of a new connection.
pub(super) enum Negotiated<Many> {
    /// The lease owns the connection.
    Http1,
    Http2 {
        id: u64,
        connection: Many,
        streams_max: usize,
    },
}

#[cfg(test)]
mod tests;
