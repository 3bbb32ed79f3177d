//! The lock around [`PoolCore`], and guards that release what they hold when dropped.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Duration,
};

use stockade_model::time::{Runtime, Time, before};
use tokio::sync::oneshot;

use super::{
    clock::UpstreamClock,
    core::{self, Negotiated, PoolCore, PoolLimits, ReusableConnection, Reuse},
    error::UpstreamError,
    sender::{Http1Sender, Http2Sender},
    shares::{Client, Clients},
};
use crate::locks::{Guard, Lock};

/// Bounds how often an idle connection is checked.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// How often a waiting request checks that a client waits for its response.
const AWAITED_CHECK: Duration = Duration::from_millis(100);

/// The pools of this process, which share its file descriptors.
static POOLS: Mutex<Vec<Weak<PoolShared>>> = Mutex::new(Vec::new());

/// Closes an idle connection of any pool of the process, which frees its file descriptor. Returns false if no connection is idle.
pub(super) fn close_idle_connection() -> bool {
    let pools: Vec<_> = {
        let pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().filter_map(Weak::upgrade).collect()
    };
    pools.into_iter().any(|pool| {
        let (one, many) = pool.core.lock().take_idle();
        one.is_some() || many.is_some()
    })
}

/// Dropped, it has given up its place in the queue.
type Waiter = oneshot::Sender<Checkout>;

/// The clients of a request to an origin.
#[derive(Clone, Copy)]
pub struct Requester<'a> {
    pub client: Client,
    /// The other clients that wait for the response. `None`: no client does any more, so that a request without a connection is given
    /// up.
    pub others: &'a (dyn Fn() -> Option<Clients> + Send + Sync),
}

impl Requester<'_> {
    /// For requests to which no bound of a client applies.
    pub const UNBOUNDED: Requester<'static> = Requester { client: None, others: &|| Some(Clients::new()) };
}

/// The connections of an origin. Clones share them.
#[derive(Clone)]
pub(super) struct Pool(Arc<PoolShared>);

struct PoolShared {
    core: Lock<PoolCore<PooledHttp1, Http2Sender, Waiter>>,
    clock: UpstreamClock,
    queue_timeout: Duration,
}

/// Dropped, it goes to the next waiter.
pub(super) enum Checkout {
    Ready(ReadyConnection),
    Connect(Connecting),
}

pub(super) enum ReadyConnection {
    Http1(Http1Lease),
    Http2(Http2Lease),
}

/// Counts a connection against the limit until its last owner drops it.
pub(super) struct ConnectionPermit {
    pool: Pool,
    /// It counts as an event stream of this client.
    event_stream_of: OnceLock<Client>,
}

/// A connection of HTTP/1. Dropped, it closes before its permit is free.
pub(super) struct PooledHttp1 {
    sender: Http1Sender,
    permit: Option<Arc<ConnectionPermit>>,
}

impl ReusableConnection for PooledHttp1 {
    fn is_open(&self) -> bool {
        self.sender.is_open()
    }

    fn opened_at(&self) -> Time {
        self.sender.opened_at()
    }

    fn idle_max(&self) -> Option<Duration> {
        self.sender.idle_max()
    }
}

/// A permit to open a connection.
pub(super) struct Connecting {
    pool: Pool,
    pub(super) endpoint: usize,
    client: Client,
    /// Bit set of endpoints that failed.
    tried: u64,
    /// `None`: moved into a connection.
    permit: Option<Arc<ConnectionPermit>>,
}

/// A connection of HTTP/1 in use. Dropping it closes the connection.
pub(super) struct Http1Lease {
    pool: Pool,
    pub(super) endpoint: usize,
    client: Client,
    id: u64,
    /// Its connection is not used again.
    is_event_stream: bool,
    /// `None`: returned to the pool.
    connection: Option<PooledHttp1>,
    /// The connection is reused, so the origin may have closed it.
    pub(super) is_used: bool,
}

/// A stream of HTTP/2 in use. Dropping it ends the stream.
pub(super) struct Http2Lease {
    pool: Pool,
    pub(super) endpoint: usize,
    client: Client,
    id: u64,
    is_event_stream: bool,
    pub(super) connection: Http2Sender,
    /// The connection is reused, so the origin may have closed it.
    pub(super) is_used: bool,
}

/// Held by the task of a connection. Dropped after the socket, it removes the connection from the pool.
pub(super) struct PoolMembership {
    pool: Pool,
    endpoint: usize,
    id: u64,
    _permit: Option<Arc<ConnectionPermit>>,
}

/// Removes the waiter when dropped.
struct WaiterGuard<'a> {
    pool: &'a Pool,
    id: u64,
}

impl Pool {
    pub(super) fn new(
        limits: PoolLimits,
        endpoints: usize,
        may_share: bool,
        queue_timeout: Duration,
        clock: UpstreamClock,
    ) -> Self {
        let core = Lock::new(PoolCore::new(limits, endpoints, may_share));
        let pool = Arc::new(PoolShared { core, clock, queue_timeout });
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        Self(pool)
    }

    /// Values from the core are dropped after the lock is released: their drop takes the lock.
    fn core(&self) -> Guard<'_, PoolCore<PooledHttp1, Http2Sender, Waiter>> {
        self.0.core.lock()
    }

    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&PoolCore<PooledHttp1, Http2Sender, Waiter>, Time) -> T,
    ) -> T {
        let now = self.0.clock.now();
        read(&self.core(), now)
    }

    /// Waits for a connection if none is free for this client.
    pub(super) async fn checkout(
        &self,
        requester: &Requester<'_>,
        reuse: Reuse,
    ) -> Result<Checkout, UpstreamError> {
        let client = requester.client;
        let (waiter, mut grant) = {
            let now = self.0.clock.now();
            let mut core = self.core();
            let grant = core.acquire(client, reuse, now);
            let discarded = core.take_discarded();
            if let Some(grant) = grant {
                drop(core);
                drop(discarded);
                return Ok(self.to_checkout(client, grant));
            }
            let (sender, receiver) = oneshot::channel();
            let queued = core.enqueue(client, sender);
            let waiting = core.waiting();
            drop(core);
            let (id, displaced) = queued.map_err(|_| UpstreamError::Overloaded { waiting })?;
            let waiter = WaiterGuard { pool: self, id };
            // Dropping them may free the permits that it waits for.
            drop((discarded, displaced));
            // With it there may be more waiters than fit on the connections that open.
            self.serve_waiters();
            (waiter, receiver)
        };
        let (clock, after) = (&self.0.clock, self.0.queue_timeout);
        let until = clock.now() + after;
        let result = loop {
            match before(clock, until.min(clock.now() + AWAITED_CHECK), &mut grant).await {
                Some(Ok(checkout)) => break Ok(checkout),
                // Only a waiter that gives up its place loses its sender.
                Some(Err(_)) => break Err(UpstreamError::Overloaded { waiting: self.core().waiting() }),
                None if until <= clock.now() => break Err(UpstreamError::QueueTimeout { after }),
                None => match (requester.others)() {
                    Some(others) => waiter.add_clients(&others),
                    None => break Err(UpstreamError::Abandoned),
                },
            }
        };
        drop(waiter);
        result
    }

    fn to_checkout(&self, client: Client, grant: core::PoolGrant<PooledHttp1, Http2Sender>) -> Checkout {
        let (pool, is_event_stream) = (self.clone(), false);
        match grant {
            core::PoolGrant::Idle { endpoint, id, connection } => {
                Checkout::Ready(ReadyConnection::Http1(Http1Lease {
                    pool,
                    endpoint,
                    client,
                    id,
                    is_event_stream,
                    connection: Some(connection),
                    is_used: true,
                }))
            }
            core::PoolGrant::Stream { endpoint, id, connection } => {
                Checkout::Ready(ReadyConnection::Http2(Http2Lease {
                    pool,
                    endpoint,
                    client,
                    id,
                    is_event_stream,
                    connection,
                    is_used: true,
                }))
            }
            core::PoolGrant::Connect { endpoint } => {
                let event_stream_of = OnceLock::new();
                let permit = Some(Arc::new(ConnectionPermit { pool: self.clone(), event_stream_of }));
                Checkout::Connect(Connecting { pool, endpoint, client, tried: 0, permit })
            }
        }
    }

    /// Assigns free connections to waiters.
    fn serve_waiters(&self) {
        loop {
            let now = self.0.clock.now();
            let (granted, discarded) = {
                let mut core = self.core();
                (core.grant_next(now), core.take_discarded())
            };
            drop(discarded);
            let Some((waiter, client, grant)) = granted else { return };
            // A waiter that has left drops its grant here.
            drop(waiter.send(self.to_checkout(client, grant)));
        }
    }

    pub(super) fn close_when_idle(&self) {
        let closed = self.core().close_when_idle();
        drop(closed);
    }

    pub(super) fn fail(&self, endpoint: usize) {
        let now = self.0.clock.now();
        let closed = self.core().fail(endpoint, now);
        drop(closed);
    }

    pub(super) fn succeed(&self, endpoint: usize) {
        self.core().succeed(endpoint);
    }

    fn release_idle(&self, endpoint: usize, id: u64, connection: PooledHttp1) {
        let now = self.0.clock.now();
        let unwanted = self.core().release_idle(endpoint, id, connection, now);
        drop(unwanted);
        self.serve_waiters();
    }
}

impl PoolMembership {
    /// The connection takes no more requests.
    pub(super) fn remove(&self) {
        let now = self.pool.0.clock.now();
        let removed = self.pool.core().remove(self.endpoint, self.id, now);
        drop(removed);
        self.pool.serve_waiters();
    }

    pub(super) fn set_streams_max(&self, streams_max: usize) {
        self.pool.core().set_streams_max(self.endpoint, self.id, streams_max);
        self.pool.serve_waiters();
    }

    /// Removes the connection if it is idle for too long; otherwise, when to check again.
    pub(super) fn retire(&self) -> Result<PooledHttp1, Time> {
        let now = self.pool.0.clock.now();
        self.pool
            .core()
            .retire(self.endpoint, self.id, now)
            .map_err(|next| next.max(now + CHECK_INTERVAL_MIN))
    }

    /// The same for HTTP/2.
    pub(super) fn retire_shared(&self) -> Result<Http2Sender, Time> {
        let now = self.pool.0.clock.now();
        self.pool
            .core()
            .retire_shared(self.endpoint, self.id, now)
            .map_err(|next| next.max(now + CHECK_INTERVAL_MIN))
    }
}

impl Drop for PoolMembership {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        {
            let mut core = self.pool.core();
            match self.event_stream_of.get() {
                Some(client) => core.end_event_stream(*client, false),
                None => core.release_permit(),
            }
        }
        self.pool.serve_waiters();
    }
}

impl WaiterGuard<'_> {
    fn add_clients(&self, clients: &[Client]) {
        if clients.is_empty() {
            return;
        }
        {
            let mut core = self.pool.core();
            clients.iter().for_each(|client| core.add_client(self.id, *client));
        }
        // They may take a connection that the first client may not.
        self.pool.serve_waiters();
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let waiter = self.pool.core().cancel_wait(self.id);
        drop(waiter);
    }
}

impl Connecting {
    pub(super) fn new_connection_id(&self) -> u64 {
        self.pool.core().next_id()
    }

    /// For the task of the new connection.
    pub(super) fn membership(&self, id: u64) -> PoolMembership {
        PoolMembership { pool: self.pool.clone(), endpoint: self.endpoint, id, _permit: self.permit.clone() }
    }

    /// Moves to the next endpoint; false: none is left.
    pub(super) fn next_endpoint(&mut self) -> bool {
        self.tried |= 1 << self.endpoint;
        let now = self.pool.0.clock.now();
        let next = self.pool.core().next_endpoint(self.endpoint, self.tried, now);
        // Waiters may use what this attempt did not open.
        self.pool.serve_waiters();
        next.inspect(|next| self.endpoint = *next).is_some()
    }

    pub(super) fn lease(mut self, id: u64, sender: Http1Sender) -> Http1Lease {
        // The connection holds the permit until its socket closes.
        let connection = PooledHttp1 { sender, permit: self.permit.clone() };
        self.connected(Some(Negotiated::Http1));
        Http1Lease {
            pool: self.pool.clone(),
            endpoint: self.endpoint,
            client: self.client,
            id,
            is_event_stream: false,
            connection: Some(connection),
            is_used: false,
        }
    }

    pub(super) fn stream(mut self, id: u64, connection: Http2Sender, streams_max: usize) -> Http2Lease {
        self.connected(Some(Negotiated::Http2 { id, connection: connection.clone(), streams_max }));
        let (pool, endpoint, client) = (self.pool.clone(), self.endpoint, self.client);
        Http2Lease { pool, endpoint, client, id, is_event_stream: false, connection, is_used: false }
    }

    fn connected(&mut self, met: Option<Negotiated<Http2Sender>>) {
        let now = self.pool.0.clock.now();
        self.pool.core().connected(self.endpoint, met, now);
        self.permit = None;
        self.pool.serve_waiters();
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let now = self.pool.0.clock.now();
            {
                let mut core = self.pool.core();
                core.connected(self.endpoint, None, now);
                core.finish_request(self.endpoint, self.client);
            }
            drop(permit);
            self.pool.serve_waiters();
        }
    }
}

impl ReadyConnection {
    pub(super) fn endpoint(&self) -> usize {
        match self {
            Self::Http1(lease) => lease.endpoint,
            Self::Http2(stream) => stream.endpoint,
        }
    }
}

impl Http1Lease {
    pub(super) fn connection(&mut self) -> Option<&mut Http1Sender> {
        self.connection.as_mut().map(|connection| &mut connection.sender)
    }

    /// The response is an event stream. False: there are too many.
    pub(super) fn begin_event_stream(&mut self) -> bool {
        let Some(permit) = self.connection.as_ref().and_then(|connection| connection.permit.as_ref()) else {
            return false;
        };
        self.is_event_stream = self.pool.core().begin_event_stream(self.client, false);
        if self.is_event_stream {
            let _ = permit.event_stream_of.set(self.client);
            self.pool.serve_waiters();
        }
        self.is_event_stream
    }

    /// The response has been read to its end.
    pub(super) fn finish(mut self, idle_timeout: Duration) {
        if self.is_event_stream {
            return;
        }
        let Some(mut connection) = self.connection.take() else { return };
        let (pool, endpoint, id) = (self.pool.clone(), self.endpoint, self.id);
        drop(self);
        if connection.sender.requests.is_ready() {
            return pool.release_idle(endpoint, id, connection);
        }
        if !connection.is_open() {
            return;
        }
        // The connection still writes the rest of a request, or has not been polled yet.
        let clock = pool.0.clock.clone();
        clock.clone().spawn(async move {
            let until = clock.now() + idle_timeout;
            if before(&clock, until, connection.sender.requests.ready())
                .await
                .is_some_and(|ready| ready.is_ok())
            {
                pool.release_idle(endpoint, id, connection);
            }
        });
    }

    /// The connection was closed; its permit opens another one.
    pub(super) fn reconnect(mut self) -> Option<Connecting> {
        let permit = self.connection.take()?.permit?;
        let (pool, endpoint, client) = (self.pool.clone(), self.endpoint, self.client);
        drop(self);
        pool.core().reconnect(endpoint, client);
        Some(Connecting { pool, endpoint, client, tried: 0, permit: Some(permit) })
    }
}

impl Drop for Http1Lease {
    fn drop(&mut self) {
        {
            let mut core = self.pool.core();
            if self.is_event_stream {
                core.finish_event_stream(self.endpoint);
            } else {
                core.finish_request(self.endpoint, self.client);
            }
        }
        drop(self.connection.take());
    }
}

impl Http2Lease {
    /// The response is an event stream. False: there are too many.
    pub(super) fn begin_event_stream(&mut self) -> bool {
        self.is_event_stream = self.pool.core().begin_event_stream(self.client, true);
        self.is_event_stream
    }

    /// The connection takes no more requests.
    pub(super) fn remove(&self) {
        let now = self.pool.0.clock.now();
        let removed = self.pool.core().remove(self.endpoint, self.id, now);
        drop(removed);
        self.pool.serve_waiters();
    }
}

impl Drop for Http2Lease {
    fn drop(&mut self) {
        let now = self.pool.0.clock.now();
        let unwanted = {
            let mut core = self.pool.core();
            core.finish_request(self.endpoint, self.client);
            if self.is_event_stream {
                core.end_event_stream(self.client, true);
            }
            core.end_stream(self.endpoint, self.id, now)
        };
        drop(unwanted);
        self.pool.serve_waiters();
    }
}
