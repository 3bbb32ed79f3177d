//! One thread: it accepts connections, evicts idle ones when there are too many, and drains.

use std::{
    future::pending,
    io, iter,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{AcqRel, Relaxed},
        },
    },
    time::Duration,
};

use futures_util::{FutureExt, future::select_all};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stockade_model::time::{Runtime, before, yield_now};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    client::ClientNetwork,
    connection::{self, discard_input},
    counts::{CloseReason, FrontendStats},
    handler::Handler,
    listener::{BACKLOG, BoundSocket, ClientListener, ListenerKind},
    reserve::DescriptorReserve,
    state::{CloseRequest, ConnectionContext, ConnectionInfo, ConnectionState, ThreadContext},
    table::ConnectionTable,
    tls::TlsConfig,
};
use crate::locks::Lock;

/// The pause after a failed accept, and how many idle connections it evicts.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const EVICTED_AT_ONCE: usize = 8;
/// How many refused connections a thread lets linger, and for how long.
const LINGERING_MAX: usize = 64;
const LINGER: Duration = Duration::from_secs(1);
const REFUSAL_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 21\r\n\
    retry-after: 1\r\nconnection: close\r\n\r\ntoo many connections\n";
/// How long aborted connections have to close.
const ABORT_TIMEOUT: Duration = Duration::from_millis(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    Serving,
    Draining,
    Stopped,
}

pub(super) struct FrontendWorker<H> {
    pub(super) handler: H,
    pub(super) thread: Arc<ThreadContext>,
    pub(super) table: Arc<ConnectionTable>,
    pub(super) tls: Option<Arc<TlsConfig>>,
    pub(super) sockets: Arc<Vec<BoundSocket>>,
    /// Refused connections that have not closed yet.
    pub(super) lingering: Arc<AtomicUsize>,
    pub(super) reserve: Arc<Lock<DescriptorReserve>>,
}

impl<H: Handler> FrontendWorker<H> {
    /// Listens, reports that to `listening`, and serves until the frontend stops. Returns how many requests were aborted
    /// then.
    pub(super) async fn run(
        self,
        listening: impl FnOnce(io::Result<()>),
        mut run_state: watch::Receiver<RunState>,
    ) -> u64 {
        let timeout = self.thread.settings.write_stall_timeout;
        let listeners: io::Result<Vec<_>> =
            self.sockets.iter().map(|socket| socket.listen(timeout)).collect();
        let listeners = match listeners {
            Ok(listeners) => listeners,
            Err(error) => {
                listening(Err(error));
                return 0;
            }
        };
        self.reserve.lock().fill();
        listening(Ok(()));
        tokio::select! {
            _ = run_state.wait_for(|state| *state != RunState::Serving) => {}
            () = self.accept_on_all(&listeners) => {}
        }
        let is_draining = *run_state.borrow() == RunState::Draining;
        if is_draining {
            self.accept_queued(listeners).await;
        } else {
            drop(listeners);
        }
        let Self { thread, table, sockets, .. } = self;
        drop(sockets);
        if is_draining {
            drain(&thread, &table, &mut run_state).await;
        }
        abort(&thread, &table).await
    }

    async fn accept_on_all(&self, listeners: &[ClientListener]) {
        if listeners.is_empty() {
            return pending().await;
        }
        select_all(listeners.iter().map(|listener| Box::pin(self.accept_on(listener)))).map(drop).await;
    }

    /// Never returns.
    async fn accept_on(&self, listener: &ClientListener) {
        let Self { table, .. } = self;
        let ThreadContext { time, counters, number, .. } = &*self.thread;
        loop {
            match listener.listener.accept().await {
                Ok((tcp, remote)) => {
                    self.admit(tcp, remote, listener.address, listener.kind);
                    // One connection a turn, as nginx without `multi_accept`: requests do not wait behind a burst of new
                    // connections. An evicted connection closes here.
                    yield_now().await;
                }
                Err(error) if is_client_error(&error) => {}
                // Out of file descriptors or memory.
                Err(_) => {
                    if is_connection_queued(&listener.listener) {
                        counters.accept_failures.increment();
                        let evicted = (0..EVICTED_AT_ONCE)
                            .take_while(|_| table.evict(*number, self.thread.settings.connections_max, None))
                            .inspect(|_| counters.closed(CloseReason::Evicted).increment())
                            .count();
                        if self.accept_with_reserve(listener, evicted > 0) {
                            // Evicted connections close here.
                            yield_now().await;
                            continue;
                        }
                    }
                    // Queued connections are accepted when others have closed.
                    time.sleep_until(time.now() + ACCEPT_PAUSE).await;
                    self.reserve.lock().fill();
                }
            }
        }
    }

    /// Accepts a queued connection with a descriptor of the reserve, and serves or refuses it. False: no connection was queued, or another
    /// thread has taken it.
    fn accept_with_reserve(&self, listener: &ClientListener, is_served: bool) -> bool {
        let ThreadContext { counters, time, .. } = &*self.thread;
        let mut reserve = self.reserve.lock();
        if !reserve.give_up() {
            return false;
        }
        let Some(Ok((tcp, remote))) = listener.listener.accept().now_or_never() else {
            reserve.fill();
            return false;
        };
        if is_served {
            reserve.fill();
            drop(reserve);
            self.admit(tcp, remote, listener.address, listener.kind);
            return true;
        }
        counters.connections_accepted.increment();
        counters.connections_ended.increment();
        counters.connections_refused.increment();
        let response = if listener.kind.is_tls { b"" } else { REFUSAL_RESPONSE };
        let is_first = !reserve.holds_refused();
        reserve.refuse(tcp, response);
        drop(reserve);
        if is_first {
            let (reserve, until) = (Arc::clone(&self.reserve), time.now() + LINGER);
            let time_of_thread = time.clone();
            time.spawn(async move {
                time_of_thread.sleep_until(until).await;
                reserve.lock().release_refused();
            });
        }
        true
    }

    /// Serves a connection, or refuses it.
    fn admit(&self, tcp: TcpStream, remote: SocketAddr, local: SocketAddr, kind: ListenerKind) {
        let Self { table, tls, .. } = self;
        let ThreadContext { settings, time, counters, number, .. } = &*self.thread;
        counters.connections_accepted.increment();
        let ListenerKind { is_tls, has_proxy_header } = kind;
        let is_trusted = settings.trusted_proxies.contains(remote.ip());
        if has_proxy_header && !is_trusted {
            counters.proxy_protocol_refused.increment();
            counters.connections_ended.increment();
            return;
        }
        let client = (!is_trusted).then(|| ClientNetwork::of(remote.ip(), settings.client_prefix));
        let is_full = table.is_full(settings.connections_max);
        let has_too_many = |client: ClientNetwork| {
            table.count(client) >= settings.connections_per_client_max && !table.evict_of(*number, client)
        };
        if client.is_some_and(has_too_many)
            || is_full && !table.evict(*number, settings.connections_max, client)
        {
            counters.connections_refused.increment();
            self.refuse(tcp, kind);
            return;
        }
        if is_full {
            counters.closed(CloseReason::Evicted).increment();
        }
        let (handler, info) = (self.handler.clone(), ConnectionInfo { remote, local, is_tls });
        let state = ConnectionState::new(Arc::clone(&self.thread));
        let slot = table.insert(&state);
        if let Some(client) = client {
            slot.set_client(client);
        }
        let context = ConnectionContext { handler, info, state };
        let tls = tls.clone().filter(|_| is_tls);
        time.spawn(async move {
            if has_proxy_header {
                connection::serve_proxied(tcp, tls, context, &slot).await;
            } else {
                connection::serve(tcp, tls, context).await;
            }
            drop(slot);
        });
    }

    /// Sends a 503, unless the client expects TLS.
    fn refuse(&self, mut tcp: TcpStream, kind: ListenerKind) {
        if kind.is_tls || self.lingering.load(Relaxed) >= LINGERING_MAX {
            self.thread.counters.connections_ended.increment();
            return;
        }
        let (thread, lingering) = (Arc::clone(&self.thread), Arc::clone(&self.lingering));
        lingering.fetch_add(1, AcqRel);
        self.thread.time.spawn(async move {
            let closed_by_client = async {
                tcp.write_all(REFUSAL_RESPONSE).await?;
                tcp.shutdown().await?;
                discard_input(&mut tcp).await
            };
            let _ = before(&thread.time, thread.time.now() + LINGER, closed_by_client).await;
            lingering.fetch_sub(1, AcqRel);
            thread.counters.connections_ended.increment();
        });
    }

    /// Stops listening, and accepts the queued connections, which the kernel would reset otherwise.
    async fn accept_queued(&self, listeners: Vec<ClientListener>) {
        for ClientListener { listener, address, kind } in listeners {
            // Checks the kernel's queue: tokio knows only connections that arrived before its last poll.
            let Ok(listener) = listener.into_std() else { continue };
            let queued = iter::from_fn(|| listener.accept().ok()).take(BACKLOG as usize);
            for (tcp, remote) in queued {
                let tcp = tcp.set_nonblocking(true).and_then(|()| TcpStream::from_std(tcp));
                if let Ok(tcp) = tcp {
                    self.admit(tcp, remote, address, kind);
                }
            }
        }
        // They are polled once before the drain requests their close.
        yield_now().await;
    }
}

/// The connection ended before it was accepted; the next one may not have.
fn is_client_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// Waits for the requests in flight, at most for the drain timeout.
async fn drain(thread: &ThreadContext, table: &ConnectionTable, run_state: &mut watch::Receiver<RunState>) {
    let connections = table.thread(thread.number);
    connections.request_close(CloseRequest::Graceful);
    tokio::select! {
        () = connections.wait_until_empty() => {}
        () = thread.time.sleep_until(thread.time.now() + thread.settings.drain_timeout) => {}
        _ = run_state.wait_for(|state| *state == RunState::Stopped) => {}
    }
}

/// Closes the remaining connections. Returns how many requests were in flight.
async fn abort(thread: &ThreadContext, table: &ConnectionTable) -> u64 {
    let mut stats = FrontendStats::default();
    thread.counters.add_to(&mut stats);
    for _ in 0..stats.requests_in_flight {
        thread.counters.closed(CloseReason::Drain).increment();
    }
    let connections = table.thread(thread.number);
    connections.request_close(CloseRequest::Immediate);
    let _ = before(&thread.time, thread.time.now() + ABORT_TIMEOUT, connections.wait_until_empty()).await;
    stats.requests_in_flight
}

/// False if no connection is queued: without a free file descriptor Linux fails an accept before it looks into the queue.
fn is_connection_queued(listener: &TcpListener) -> bool {
    let mut listener = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut listener, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
