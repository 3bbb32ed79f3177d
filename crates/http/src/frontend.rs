//! Connections of clients: listeners, TLS, limits, timeouts and a graceful drain.
//!
//! ```text
//! listener --- a port, shared by threads ----------> worker (one a thread: accepts, evicts idle connections, drains)
//!   connection - TLS, then HTTP/1.1 or HTTP/2 -----> hyper, over a stream whose bytes the scanner reads too
//!     response - may the head be answered? --------> Handler
//!   state ------ activity of a connection ---------> deadline: the time to close it
//! ```
//!
//! Each thread has its own runtime and listeners (`SO_REUSEPORT`): a connection never leaves its thread. The kernel
//! spreads connections by a hash of their addresses, so several long ones may meet on one thread.
//!
//! **Connection limit.** At [`FrontendSettings::connections_max`] a new connection replaces another one, the longest idle of a
//! sample, as in nginx; a connection that has not begun its first request counts as idle. The order of replacement:
//! 1. an idle connection of a client with more than an eighth of all connections;
//! 2. a connection of that client whose request is incomplete, or whose response is not read;
//! 3. an idle connection of any client, unless the new one belongs to a client with more than an eighth;
//! 4. with the same exception, a connection that waits for a trusted proxy.
//!
//! Behind the PROXY protocol a connection is admitted before its client is known; if that client has more than an eighth of a
//! full table, the new connection is closed.
//!
//! Without a connection to close, a new plain connection gets a 503 and a new encrypted one is closed. When file descriptors run out,
//! connections are closed in the same order. The new connection takes one that was kept in `reserve`: it is served if another one
//! closes for it, and otherwise refused in the same way.
//!
//! **Requests** count with their memory; for HTTP/1 only their bodies. All together may have 64 KiB for each connection of the limit, one
//! client an eighth. Beyond that a request gets a 503, and its connection ends. A client at
//! [`FrontendSettings::connections_per_client_max`] loses its own longest idle connection.
//!
//! **Rejected requests.** hyper frames requests. It normalises some heads before a handler sees them (`Content-Length`
//! with `Transfer-Encoding`, repeated lengths, lines that end in a bare LF): `scan` reads the same bytes and rejects
//! those. [`head`] checks the rest. A rejected request is the last one of its connection. The proxy forwards parsed
//! requests only, with new framing.

mod body;
mod client;
mod connection;
mod counts;
mod deadline;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handler;
pub mod head;
mod http2;
mod listener;
mod proxy_protocol;
mod request_memory;
mod reserve;
mod response;
mod scan;
mod send_choice;
mod sendfile;
mod settings;
mod state;
mod stream;
mod table;
mod tls;
mod worker;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use stockade_model::time::Live;
use tokio::{runtime::RuntimeMetrics, sync::watch};

use counts::ThreadCounters;
use listener::{BoundSocket, ListenerKind};
use request_memory::RequestMemory;
use state::ThreadContext;
use table::ConnectionTable;
use tls::TlsConfig;
use worker::{FrontendWorker, RunState};

use crate::{locks::Lock, server};

pub use body::{ClientBody, ClientBodyError};
pub use client::{ClientNetwork, ClientPrefix};
pub use counts::{CloseReason, FrontendStats};
pub use handler::{Handler, HandlerResponse, RefusedHead, RefusedRequest, ResponseRecord, SentBody};
pub use settings::{ClientPressure, FrontendSettings};
pub use state::ConnectionInfo;
pub use tls::{CertificateFiles, CertificateLoadError, ServerCertificate};

/// How long a thread may take to stop beyond its drain timeout; a thread that blocks is left behind.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Threads that serve until they are drained or dropped. A drop aborts the requests in flight.
#[derive(Debug)]
pub struct Frontend {
    addresses: Vec<SocketAddr>,
    drain_timeout: Duration,
    announces_close: Arc<AtomicBool>,
    requests: Arc<RequestMemory>,
    tls: Option<Arc<TlsConfig>>,
    counters: Vec<Arc<ThreadCounters>>,
    /// Of the runtime of each thread.
    workers: Vec<RuntimeMetrics>,
    run_state: watch::Sender<RunState>,
    /// How many requests each thread aborted, sent when it stops.
    stopped: mpsc::Receiver<u64>,
    running: AtomicUsize,
}

/// The requests that were in flight when a drain began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainSummary {
    /// Completed, or cancelled by their clients.
    pub finished: u64,
    /// Aborted when the drain timeout passed.
    pub aborted: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum FrontendStartError {
    #[error(transparent)]
    Tls(#[from] CertificateLoadError),
    #[error("cannot listen at {address}: {error}{}", hint(.error))]
    Listen { address: SocketAddr, error: io::Error },
    #[error("there is no address to listen at")]
    NoAddress,
    /// A thread or its runtime cannot be created, or it cannot listen on a port that the frontend has bound.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AddrInUse { ": another program listens there" } else { "" }
}

/// The arguments of a worker thread.
struct WorkerSetup<H> {
    number: usize,
    settings: Arc<FrontendSettings>,
    table: Arc<ConnectionTable>,
    sockets: Arc<Vec<BoundSocket>>,
    handler: H,
    run_state: watch::Receiver<RunState>,
    stopped: mpsc::Sender<u64>,
}

impl Frontend {
    /// Serves with `handler`, which each thread clones. When it returns, every thread listens.
    pub fn start<H: Handler>(settings: FrontendSettings, handler: &H) -> Result<Self, FrontendStartError> {
        let tls = settings.certificate.as_ref().map(TlsConfig::load).transpose()?.map(Arc::new);
        if tls.is_none() && !settings.listen_tls.is_empty() {
            return Err(CertificateLoadError::NotConfigured.into());
        }
        let lists = [
            (&settings.listen, ListenerKind { is_tls: false, has_proxy_header: false }),
            (&settings.listen_tls, ListenerKind { is_tls: true, has_proxy_header: false }),
            (&settings.listen_proxy_protocol, ListenerKind { is_tls: tls.is_some(), has_proxy_header: true }),
        ];
        let addresses =
            lists.into_iter().flat_map(|(list, kind)| list.iter().map(move |address| (*address, kind)));
        let sockets = addresses.map(|(address, kind)| {
            BoundSocket::bind(address, kind).map_err(|error| FrontendStartError::Listen { address, error })
        });
        let sockets = Arc::new(sockets.collect::<Result<Vec<_>, _>>()?);
        if sockets.is_empty() {
            return Err(FrontendStartError::NoAddress);
        }
        let (run_state, run_states) = watch::channel(RunState::Serving);
        let (stopped_sender, stopped) = mpsc::channel();
        let mut frontend = Self {
            addresses: sockets.iter().map(BoundSocket::address).collect(),
            drain_timeout: settings.drain_timeout,
            announces_close: Arc::default(),
            requests: Arc::default(),
            tls,
            counters: Vec::new(),
            workers: Vec::new(),
            run_state,
            stopped,
            running: AtomicUsize::new(0),
        };
        let settings =
            Arc::new(FrontendSettings { head_bytes_max: settings.head_bytes_max.max(8_192), ..settings });
        let table = Arc::new(ConnectionTable::new(settings.threads.get()));
        for number in 0..settings.threads.get() {
            frontend.spawn(WorkerSetup {
                number,
                settings: Arc::clone(&settings),
                table: Arc::clone(&table),
                sockets: Arc::clone(&sockets),
                handler: handler.clone(),
                run_state: run_states.clone(),
                stopped: stopped_sender.clone(),
            })?;
        }
        Ok(frontend)
    }

    /// Starts a thread, and waits until it listens.
    fn spawn<H: Handler>(&mut self, setup: WorkerSetup<H>) -> Result<(), FrontendStartError> {
        let WorkerSetup { number, settings, table, sockets, handler, run_state, stopped } = setup;
        let (listening_sender, listening) = mpsc::channel();
        let counters = Arc::new(ThreadCounters::default());
        self.counters.push(Arc::clone(&counters));
        let runtime = server::runtime().map_err(FrontendStartError::Thread)?;
        self.workers.push(runtime.metrics());
        let time = Live::on(runtime.handle().clone());
        let worker = FrontendWorker {
            handler,
            thread: Arc::new(ThreadContext {
                number,
                settings,
                time,
                counters,
                announces_close: Arc::clone(&self.announces_close),
                requests: Arc::clone(&self.requests),
                send_choice: Lock::default(),
            }),
            table,
            tls: self.tls.clone(),
            sockets,
            lingering: Arc::default(),
            reserve: Arc::default(),
        };
        let mut until_stopped = run_state.clone();
        let run = move || {
            let aborted =
                runtime.block_on(worker.run(|result| drop(listening_sender.send(result)), run_state));
            let _ = stopped.send(aborted);
            // Requests of threads that still drain may use loads and connections to origins of this one.
            let _ = runtime.block_on(until_stopped.wait_for(|state| *state == RunState::Stopped));
            runtime.shutdown_background();
        };
        thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(run)
            .map_err(FrontendStartError::Thread)?;
        self.running.fetch_add(1, Relaxed);
        // A thread that panicked has written its panic to standard error.
        let result = listening.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        result.map_err(FrontendStartError::Thread)
    }

    /// Plain addresses first, then encrypted ones, then those of the PROXY protocol, each in the order of the settings.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// For new connections. Does nothing if no listener uses TLS.
    pub fn replace_certificate(&self, certificate: ServerCertificate) {
        if let Some(tls) = &self.tls {
            tls.replace(certificate);
        }
    }

    #[must_use]
    pub fn stats(&self) -> FrontendStats {
        let mut stats = FrontendStats::default();
        self.counters.iter().for_each(|counters| counters.add_to(&mut stats));
        for worker in &self.workers {
            stats.workers += 1;
            stats.worker_busy_seconds += worker.worker_total_busy_duration(0).as_secs_f64();
            stats.worker_parks += worker.worker_park_count(0);
        }
        stats
    }

    /// From now on each response of HTTP/1 closes its connection, so that clients go elsewhere. New connections are accepted as
    /// before.
    pub fn announce_close(&self) {
        self.announces_close.store(true, Relaxed);
    }

    /// Stops in good order: closes listeners and idle connections, and gives the requests in flight
    /// [`FrontendSettings::drain_timeout`], after which it aborts them.
    ///
    /// Blocks at most for that timeout and some 2 s.
    #[must_use]
    pub fn drain(self) -> DrainSummary {
        let before = self.stats();
        self.run_state.send_replace(RunState::Draining);
        let aborted = self.join(self.drain_timeout + STOP_TIMEOUT);
        let after = self.stats();
        let ended = |stats: FrontendStats| stats.requests_received - stats.requests_in_flight;
        DrainSummary { finished: (ended(after) - ended(before)).saturating_sub(aborted), aborted }
    }

    /// Waits until every thread has stopped. Returns how many requests were aborted.
    fn join(&self, timeout: Duration) -> u64 {
        #[expect(clippy::disallowed_methods, reason = "bounds a wait of this thread, outside of any runtime")]
        let now = Instant::now;
        let deadline = now() + timeout;
        let mut aborted = 0;
        while self.running.load(Relaxed) > 0 {
            match self.stopped.recv_timeout(deadline.saturating_duration_since(now())) {
                Ok(requests) => aborted += requests,
                // The handler blocks the thread.
                Err(RecvTimeoutError::Timeout) => return aborted + self.stats().requests_in_flight,
                Err(RecvTimeoutError::Disconnected) => return aborted,
            }
            self.running.fetch_sub(1, Relaxed);
        }
        aborted
    }
}

impl Drop for Frontend {
    fn drop(&mut self) {
        self.run_state.send_replace(RunState::Stopped);
        self.join(STOP_TIMEOUT);
    }
}
