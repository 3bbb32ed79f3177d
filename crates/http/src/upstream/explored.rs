//! Requests that share the connections of an origin, in every schedule that shuttle finds. The connections are hyper's,
//! over pipes in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::FutureExt;
use shuttle::{
    future::{self, block_on, yield_now},
    thread,
};
use stockade_model::time::Time;
use tokio::runtime::Builder;

use super::{
    clock::UpstreamClock,
    core::{PoolLimits, Reuse},
    error::UpstreamError,
    health::HealthSettings,
    http1,
    pool::{Checkout, Connecting, Http1Lease, Pool, ReadyConnection, Requester},
};
use crate::locks::explored::explore;

struct Origin {
    pool: Pool,
    in_use: AtomicUsize,
    open: AtomicUsize,
    connections_max: usize,
}

/// How a request ends.
#[derive(Clone, Copy)]
enum End {
    /// Its connection is used again.
    Finished,
    /// Its connection closes.
    Cancelled,
    /// A connection cannot be opened; a used one closes.
    Failed,
}

impl Origin {
    fn new(connections_max: usize) -> Arc<Self> {
        let limits = PoolLimits {
            connections: connections_max,
            waiting: 10,
            streams: 1,
            keep_alive: Duration::from_mins(1),
            max_age: Duration::from_mins(1),
            health: HealthSettings::default(),
        };
        let pool = Pool::new(limits, 1, false, Duration::from_mins(1), UpstreamClock::new());
        Arc::new(Self { pool, in_use: AtomicUsize::new(0), open: AtomicUsize::new(0), connections_max })
    }

    async fn request(self: Arc<Self>, end: End) -> Result<(), UpstreamError> {
        let checkout = self.pool.checkout(&Requester::UNBOUNDED, Reuse::Allowed).await?;
        let lease = match checkout {
            Checkout::Ready(ReadyConnection::Http1(lease)) => lease,
            Checkout::Ready(ReadyConnection::Http2(_)) => unreachable!("the origin speaks HTTP/1"),
            Checkout::Connect(connecting) if matches!(end, End::Failed) => {
                yield_now().await;
                drop(connecting);
                return Ok(());
            }
            Checkout::Connect(connecting) => self.connect(connecting),
        };
        let in_use = self.in_use.fetch_add(1, SeqCst) + 1;
        assert!(in_use <= self.connections_max, "{in_use} requests have a connection");
        yield_now().await;
        self.in_use.fetch_sub(1, SeqCst);
        match end {
            End::Finished => lease.finish(Duration::from_mins(1)),
            End::Cancelled | End::Failed => drop(lease),
        }
        Ok(())
    }

    fn connect(self: &Arc<Self>, connecting: Connecting) -> Http1Lease {
        let open = self.open.fetch_add(1, SeqCst) + 1;
        assert!(open <= self.connections_max, "{open} connections are open");
        let origin = Arc::clone(self);
        let closed = move || {
            origin.open.fetch_sub(1, SeqCst);
        };
        let (lease, connection) = http1::open_in_memory(connecting, closed);
        drop(future::spawn(connection));
        lease
    }

    fn spawn(self: &Arc<Self>, end: End) -> thread::JoinHandle<Result<(), UpstreamError>> {
        let origin = Arc::clone(self);
        thread::spawn(move || block_on(origin.request(end)))
    }

    /// A request whose client leaves while it waits.
    fn abandon(self: &Arc<Self>) -> thread::JoinHandle<()> {
        let origin = Arc::clone(self);
        thread::spawn(move || {
            drop(origin.pool.checkout(&Requester::UNBOUNDED, Reuse::Allowed).now_or_never());
        })
    }

    /// Every connection closes, and nothing remains counted.
    fn close(&self) {
        self.pool.close_when_idle();
        while self.pool.with(|core, _| core.open()) > 0 {
            thread::yield_now();
        }
        let counts = self.pool.with(|core, _| {
            let busy: usize = core.endpoints(Time::ZERO).map(|endpoint| endpoint.busy).sum();
            (busy, core.waiting(), core.idle())
        });
        assert_eq!(counts, (0, 0, 0));
    }
}

/// Timers belong to a runtime; no timer ends while a schedule runs.
fn explore_with_timers(test: impl Fn() + Copy + Send + Sync + 'static) {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    explore(test);
}

#[test]
fn requests_share_one_connection_and_all_are_served() {
    explore_with_timers(|| {
        let origin = Origin::new(1);
        let requests = [End::Finished, End::Finished, End::Cancelled].map(|end| origin.spawn(end));
        assert!(requests.into_iter().all(|request| request.join().unwrap().is_ok()));
        origin.close();
    });
}

#[test]
fn waiters_that_leave_and_connections_that_fail_cost_others_nothing() {
    explore_with_timers(|| {
        let origin = Origin::new(1);
        let leaver = origin.abandon();
        let requests = [End::Finished, End::Failed, End::Finished].map(|end| origin.spawn(end));
        assert!(requests.into_iter().all(|request| request.join().unwrap().is_ok()));
        leaver.join().unwrap();
        origin.close();
    });
}

#[test]
fn two_connections_serve_four_requests() {
    explore_with_timers(|| {
        let origin = Origin::new(2);
        let ends = [End::Cancelled, End::Finished, End::Finished, End::Failed];
        let requests = ends.map(|end| origin.spawn(end));
        assert!(requests.into_iter().all(|request| request.join().unwrap().is_ok()));
        origin.close();
    });
}
