//! The lock around [`PoolCore`], and guards that release what they hold when dropped.

use std::{sync::Arc, time::Duration};

use stockade_model::time::{Runtime, Time, before};
use tokio::sync::oneshot;

use super::{
    clock::UpstreamClock,
    core::{self, Negotiated, PoolCore, PoolLimits, ReusableConnection as _},
    error::UpstreamError,
    http1::Http1Sender,
    http2::Http2Sender,
};
use crate::locks::{Guard, Lock};

/// Bounds how often an idle connection is checked.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(10);

type Waiter = oneshot::Sender<Checkout>;

/// The connections of an origin. Clones share them.
#[derive(Clone)]
pub(super) struct Pool(Arc<PoolShared>);

struct PoolShared {
    core: Lock<PoolCore<Http1Sender, Http2Sender, Waiter>>,
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
pub(super) struct ConnectionPermit(Pool);

/// A permit to open a connection.
pub(super) struct Connecting {
    pool: Pool,
    pub(super) endpoint: usize,
    /// Bit set of endpoints that failed.
    tried: u64,
    /// `None`: moved into a connection.
    permit: Option<Arc<ConnectionPermit>>,
}

/// A connection of HTTP/1 in use. Dropping it closes the connection.
pub(super) struct Http1Lease {
    pool: Pool,
    pub(super) endpoint: usize,
    id: u64,
    /// `None`: returned to the pool.
    connection: Option<Http1Sender>,
    /// The connection is reused, so the origin may have closed it.
    pub(super) is_used: bool,
}

/// A stream of HTTP/2 in use. Dropping it ends the stream.
pub(super) struct Http2Lease {
    pool: Pool,
    pub(super) endpoint: usize,
    id: u64,
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
        Self(Arc::new(PoolShared { core, clock, queue_timeout }))
    }

    /// Values from the core are dropped after the lock is released: their drop takes the lock.
    fn core(&self) -> Guard<'_, PoolCore<Http1Sender, Http2Sender, Waiter>> {
        self.0.core.lock()
    }

    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&PoolCore<Http1Sender, Http2Sender, Waiter>, Time) -> T,
    ) -> T {
        let now = self.0.clock.now();
        read(&self.core(), now)
    }

    /// Waits for a connection if none is free.
    pub(super) async fn checkout(&self) -> Result<Checkout, UpstreamError> {
        let (waiting, grant) = {
            let now = self.0.clock.now();
            let mut core = self.core();
            // Waiters come first.
            let grant = if core.waiting() == 0 { core.acquire(now) } else { None };
            let discarded = core.take_discarded();
            if let Some(grant) = grant {
                drop(core);
                drop(discarded);
                return Ok(self.to_checkout(grant));
            }
            let (sender, receiver) = oneshot::channel();
            let waiting = core.waiting();
            let id = core.enqueue(sender);
            drop(core);
            let id = id.ok_or(UpstreamError::Overloaded { waiting })?;
            let waiting = WaiterGuard { pool: self, id };
            // Dropping them may free the permits that it waits for.
            drop(discarded);
            (waiting, receiver)
        };
        let after = self.0.queue_timeout;
        let grant = before(&self.0.clock, self.0.clock.now() + after, grant).await;
        drop(waiting);
        match grant {
            Some(Ok(grant)) => Ok(grant),
            // The sender is dropped only when the waiter leaves the queue.
            None | Some(Err(_)) => Err(UpstreamError::QueueTimeout { after }),
        }
    }

    fn to_checkout(&self, grant: core::PoolGrant<Http1Sender, Http2Sender>) -> Checkout {
        let pool = self.clone();
        match grant {
            core::PoolGrant::Idle { endpoint, id, connection } => {
                Checkout::Ready(ReadyConnection::Http1(Http1Lease {
                    pool,
                    endpoint,
                    id,
                    connection: Some(connection),
                    is_used: true,
                }))
            }
            core::PoolGrant::Stream { endpoint, id, connection } => {
                Checkout::Ready(ReadyConnection::Http2(Http2Lease {
                    pool,
                    endpoint,
                    id,
                    connection,
                    is_used: true,
                }))
            }
            core::PoolGrant::Connect { endpoint } => {
                let permit = Some(Arc::new(ConnectionPermit(self.clone())));
                Checkout::Connect(Connecting { pool, endpoint, tried: 0, permit })
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
            let Some((waiter, grant)) = granted else { return };
            // A waiter that has left drops its grant here.
            drop(waiter.send(self.to_checkout(grant)));
        }
    }

    pub(super) fn close(&self) {
        let closed = self.core().close();
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

    fn release_idle(&self, endpoint: usize, id: u64, connection: Http1Sender) {
        let now = self.0.clock.now();
        let unwanted = self.core().release_idle(endpoint, id, connection, now);
        drop(unwanted);
        self.serve_waiters();
    }
}

impl PoolMembership {
    /// The connection takes no more requests.
    pub(super) fn remove(&self) {
        let removed = self.pool.core().remove(self.endpoint, self.id);
        drop(removed);
        self.pool.serve_waiters();
    }

    pub(super) fn set_streams_max(&self, streams_max: usize) {
        self.pool.core().set_streams_max(self.endpoint, self.id, streams_max);
        self.pool.serve_waiters();
    }

    /// Removes the connection if it is idle for too long; otherwise, when to check again.
    pub(super) fn retire(&self) -> Result<Http1Sender, Time> {
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
        self.0.core().release_permit();
        self.0.serve_waiters();
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let waiter = self.pool.core().cancel_wait(self.id);
        drop(waiter);
    }
}

impl Connecting {
    pub(super) fn id(&self) -> u64 {
        self.pool.core().next_id()
    }

    /// For the task of the new connection.
    pub(super) fn membership(&self, id: u64) -> PoolMembership {
        PoolMembership { pool: self.pool.clone(), endpoint: self.endpoint, id, _permit: self.permit.clone() }
    }

    /// Held until the socket closes.
    pub(super) fn permit(&self) -> Option<Arc<ConnectionPermit>> {
        self.permit.clone()
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

    pub(super) fn lease(mut self, id: u64, connection: Http1Sender) -> Http1Lease {
        self.connected(Some(Negotiated::Http1));
        Http1Lease {
            pool: self.pool.clone(),
            endpoint: self.endpoint,
            id,
            connection: Some(connection),
            is_used: false,
        }
    }

    pub(super) fn stream(mut self, id: u64, connection: Http2Sender, streams_max: usize) -> Http2Lease {
        self.connected(Some(Negotiated::Http2 { id, connection: connection.clone(), streams_max }));
        Http2Lease { pool: self.pool.clone(), endpoint: self.endpoint, id, connection, is_used: false }
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
                core.finish_request(self.endpoint);
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
        self.connection.as_mut()
    }

    /// The response has been read to its end.
    pub(super) fn finish(mut self, idle_timeout: Duration) {
        let Some(mut connection) = self.connection.take() else { return };
        let (pool, endpoint, id) = (self.pool.clone(), self.endpoint, self.id);
        drop(self);
        if connection.is_ready() {
            return pool.release_idle(endpoint, id, connection);
        }
        if !connection.is_open() {
            return;
        }
        // The connection still writes the rest of a request, or has not been polled yet.
        let clock = pool.0.clock.clone();
        clock.clone().spawn(async move {
            if before(&clock, clock.now() + idle_timeout, connection.ready()).await == Some(true) {
                pool.release_idle(endpoint, id, connection);
            }
        });
    }

    /// The connection was closed; its permit opens another one.
    pub(super) fn reconnect(mut self) -> Option<Connecting> {
        let permit = self.connection.take()?.into_permit()?;
        let (pool, endpoint) = (self.pool.clone(), self.endpoint);
        drop(self);
        pool.core().reconnect(endpoint);
        Some(Connecting { pool, endpoint, tried: 0, permit: Some(permit) })
    }
}

impl Drop for Http1Lease {
    fn drop(&mut self) {
        self.pool.core().finish_request(self.endpoint);
        drop(self.connection.take());
    }
}

impl Http2Lease {
    /// The connection takes no more requests.
    pub(super) fn remove(&self) {
        let removed = self.pool.core().remove(self.endpoint, self.id);
        drop(removed);
        self.pool.serve_waiters();
    }
}

impl Drop for Http2Lease {
    fn drop(&mut self) {
        let now = self.pool.0.clock.now();
        let unwanted = {
            let mut core = self.pool.core();
            core.finish_request(self.endpoint);
            core.end_stream(self.endpoint, self.id, now)
        };
        drop(unwanted);
        self.pool.serve_waiters();
    }
}

#[cfg(test)]
mod explored;
