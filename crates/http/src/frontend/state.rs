//! The activity of a connection, as its parts record it.
//!
//! No timer is set for a request. A connection checks its deadline after the shortest of its timeouts; between two
//! checks its parts note the time (some 20 ns, once a request).

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::Waker,
    time::Duration,
};

use stockade_model::time::{Live, Runtime, Time};

use super::{
    client::ClientNetwork,
    counts::{CloseReason, Counter, ThreadCounters},
    deadline::{WaitStarts, deadline, shortest_timeout},
    head::Rejection,
    request_memory::{RequestCharge, RequestMemory},
    scan::FramingScanner,
    send_choice::SendChoice,
    settings::FrontendSettings,
};
use crate::locks::Lock;

/// An HTTP/2 connection may cancel this many requests before their ratio to completed ones matters.
const CANCELLED_FREE: u64 = 100;
/// A blocked client has to take as much within [`FrontendSettings::write_stall_timeout`], or all that waits for it.
const STALL_BYTES: u64 = 64 * 1_024;
/// A connection of HTTP/2 is cut with this many refused requests: its client did not stop when it was told to.
const REQUESTS_REFUSED_MAX: u8 = 32;
/// A connection closes this much later than a stalled stream would end by itself.
const STREAM_MARGIN: Duration = Duration::from_millis(500);
/// Stands for no time.
const NONE: u64 = u64::MAX;

/// The connection that a request arrived on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    pub remote: SocketAddr,
    pub local: SocketAddr,
    pub is_tls: bool,
}

/// The state that the connections of a thread share.
#[derive(Debug)]
pub(super) struct ThreadContext {
    pub(super) number: usize,
    pub(super) settings: Arc<FrontendSettings>,
    pub(super) time: Live,
    pub(super) counters: Arc<ThreadCounters>,
    /// Of all threads.
    pub(super) requests: Arc<RequestMemory>,
    /// True if the responses of HTTP/1 close their connections.
    pub(super) announces_close: Arc<AtomicBool>,
    pub(super) send_choice: Lock<SendChoice>,
}

/// A connection and the handler of its requests.
pub(super) struct ConnectionContext<H> {
    pub(super) handler: H,
    pub(super) info: ConnectionInfo,
    pub(super) state: Arc<ConnectionState>,
}

/// Only the connection's own thread writes to it, except for `close_request` and `slot`. Times are in ns.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) thread: Arc<ThreadContext>,
    /// Empty for a trusted proxy, and until the header of the PROXY protocol is there.
    pub(super) client: OnceLock<ClientNetwork>,
    /// Of all connections of `client`.
    pub(super) client_requests: OnceLock<Arc<RequestMemory>>,
    /// The index in the connection table of its thread.
    pub(super) slot: AtomicUsize,
    /// When the connection was accepted, or the last response ended.
    idle_since: AtomicU64,
    /// When an incomplete head began.
    head_since: AtomicU64,
    /// When the client stopped taking bytes, or took the last [`STALL_BYTES`].
    write_blocked_since: AtomicU64,
    /// Bytes that it has taken since then.
    written_bytes: AtomicU64,
    /// When the HTTP/1 request in flight began.
    request_since: AtomicU64,
    /// When the body of the HTTP/1 request in flight began to be waited for.
    body_waited_since: AtomicU64,
    requests: AtomicU64,
    completed: Counter,
    cancelled: Counter,
    /// How many heads the scanner accepted.
    heads_accepted: AtomicU64,
    rejection: OnceLock<Rejection>,
    is_in_body: AtomicBool,
    close_request: AtomicU8,
    waker: OnceLock<Waker>,
    /// Requests that were refused for want of memory.
    requests_refused: AtomicU8,
    /// The HTTP/2 stream that was opened last, until hyper spawns its task.
    newest_stream: Mutex<Option<Arc<Http2Stream>>>,
    /// HTTP/2 streams whose last frame waits in h2, which no task bounds any more; in the order of these frames.
    ending_streams: Mutex<VecDeque<Arc<Http2Stream>>>,
    has_ending_streams: AtomicBool,
}

/// How another part wants the connection to close. A later request never weakens an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CloseRequest {
    None,
    /// After the requests in flight.
    Graceful,
    Immediate,
}

/// Counts a request as in flight until its response has been written or dropped.
#[derive(Debug)]
pub(super) struct RequestGuard {
    pub(super) connection: Arc<ConnectionState>,
    pub(super) stream: Option<Arc<Http2Stream>>,
    /// Of a request of HTTP/2.
    pub(super) charge: Option<RequestCharge>,
    pub(super) is_complete: bool,
}

/// A request of HTTP/2. Its client may leave one response unread and read others, which no timeout of the connection
/// notices.
#[derive(Debug)]
pub(super) struct Http2Stream {
    began: Time,
    /// When hyper took a frame of the response, in ns, and has not polled for the next one.
    frame_taken_at: AtomicU64,
    has_ended: AtomicBool,
}

impl ConnectionState {
    pub(super) fn new(thread: Arc<ThreadContext>) -> Arc<Self> {
        let now = AtomicU64::new(thread.time.now().as_nanos());
        let none = || AtomicU64::new(NONE);
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            thread,
            client: OnceLock::new(),
            client_requests: OnceLock::new(),
            slot: AtomicUsize::new(0),
            idle_since: now,
            head_since: none(),
            write_blocked_since: none(),
            written_bytes: zero(),
            request_since: none(),
            body_waited_since: none(),
            requests: zero(),
            completed: Counter::default(),
            cancelled: Counter::default(),
            heads_accepted: zero(),
            rejection: OnceLock::new(),
            is_in_body: AtomicBool::new(false),
            close_request: AtomicU8::new(CloseRequest::None as u8),
            waker: OnceLock::new(),
            requests_refused: AtomicU8::new(0),
            newest_stream: Mutex::default(),
            ending_streams: Mutex::default(),
            has_ending_streams: AtomicBool::new(false),
        })
    }

    /// Called once per request, and when a wait begins. The coarse clock would cost more: its own thread, a thousand
    /// times a second.
    fn now(&self) -> u64 {
        self.thread.time.now().as_nanos()
    }

    /// A handshake is bounded as a head is.
    pub(super) fn set_handshaking(&self, is_handshaking: bool) {
        self.head_since.store(if is_handshaking { self.now() } else { NONE }, Relaxed);
    }

    /// Notes what the scanner has read.
    pub(super) fn record_scan(&self, scanner: &FramingScanner) {
        self.heads_accepted.store(scanner.heads_accepted(), Relaxed);
        self.is_in_body.store(scanner.is_in_body(), Relaxed);
        if !scanner.is_in_head() {
            self.head_since.store(NONE, Relaxed);
        } else if self.head_since.load(Relaxed) == NONE {
            self.head_since.store(self.now(), Relaxed);
        }
        if let Some(rejection) = scanner.rejection() {
            let _ = self.rejection.set(rejection);
        }
    }

    /// The client takes no bytes.
    pub(super) fn set_write_blocked(&self) {
        if self.write_blocked_since.load(Relaxed) == NONE {
            self.write_blocked_since.store(self.now(), Relaxed);
        }
    }

    /// The client has taken `bytes`.
    pub(super) fn record_written(&self, bytes: usize) {
        if self.write_blocked_since.load(Relaxed) == NONE {
            return;
        }
        let written = self.written_bytes.load(Relaxed) + bytes as u64;
        self.written_bytes.store(written, Relaxed);
        if written >= STALL_BYTES {
            self.clear_write_blocked();
        }
    }

    /// Nothing waits for the client.
    pub(super) fn clear_write_blocked(&self) {
        if self.write_blocked_since.load(Relaxed) != NONE {
            self.write_blocked_since.store(NONE, Relaxed);
            self.written_bytes.store(0, Relaxed);
        }
    }

    /// Returns the number of the request on its connection, from 0.
    pub(super) fn begin_request(self: &Arc<Self>, stream: Option<Arc<Http2Stream>>) -> (u64, RequestGuard) {
        self.thread.counters.requests_received.increment();
        let number = self.requests.load(Relaxed);
        self.requests.store(number + 1, Relaxed);
        if stream.is_none() && self.thread.settings.total_timeout.is_some() {
            self.request_since.store(self.now(), Relaxed);
        }
        (number, RequestGuard { connection: Arc::clone(self), stream, charge: None, is_complete: false })
    }

    /// Counts the memory of a request. `None`: its client, or all of them, have too many in flight. The connection is to end
    /// then: refused streams that a client does not read take memory, too.
    pub(super) fn try_charge(&self, bytes: usize) -> Option<RequestCharge> {
        let max = self.thread.settings.connections_max;
        let charge = RequestCharge::try_new(bytes, &self.thread.requests, self.client_requests.get(), max);
        if charge.is_none() {
            let refused = self.requests_refused.load(Relaxed).saturating_add(1);
            self.requests_refused.store(refused, Relaxed);
            let is_greedy = refused > REQUESTS_REFUSED_MAX;
            self.request_close(if is_greedy { CloseRequest::Immediate } else { CloseRequest::Graceful });
        }
        charge
    }

    /// Checks that the scanner accepted the head of an HTTP/1 request.
    pub(super) fn check_accepted(&self, number: u64) -> Result<(), Rejection> {
        if number < self.heads_accepted.load(Relaxed) {
            return Ok(());
        }
        let misplaced = Rejection::bad_request("the request does not start where the one before it ends");
        Err(self.rejection.get().copied().unwrap_or(misplaced))
    }

    /// True if the body of an HTTP/1 request is incomplete.
    pub(super) fn is_in_body(&self) -> bool {
        self.is_in_body.load(Relaxed)
    }

    fn requests_in_flight(&self) -> u64 {
        let ended = self.completed.get() + self.cancelled.get();
        self.requests.load(Relaxed).saturating_sub(ended)
    }

    pub(super) fn has_requests_in_flight(&self) -> bool {
        self.requests_in_flight() > 0
    }

    /// `None` while a request is in flight or a head is incomplete.
    pub(super) fn idle_since(&self) -> Option<Time> {
        let is_idle = self.requests_in_flight() == 0 && self.head_since.load(Relaxed) == NONE;
        is_idle.then(|| Time::from_nanos(self.idle_since.load(Relaxed)))
    }

    /// As [`Self::idle_since`], and `None` for a connection that is closing already.
    pub(super) fn evictable_since(&self) -> Option<Time> {
        self.idle_since().filter(|_| self.close_request() == CloseRequest::None)
    }

    /// The body of the HTTP/1 request in flight is waited for since then, or no more.
    pub(super) fn set_body_waited_since(&self, since: Option<Time>) {
        self.body_waited_since.store(since.map_or(NONE, Time::as_nanos), Relaxed);
    }

    /// Since when it waits for its client, in a request or in a response; `None` for a connection that is closing already.
    pub(super) fn waiting_since(&self) -> Option<Time> {
        let waits = [&self.head_since, &self.body_waited_since, &self.write_blocked_since];
        let since = waits.map(|since| since.load(Relaxed)).into_iter().min().unwrap_or(NONE);
        (since != NONE && self.close_request() == CloseRequest::None).then(|| Time::from_nanos(since))
    }

    /// When the connection closes unless something happens, and why.
    pub(super) fn deadline(&self) -> (Time, CloseReason) {
        let time =
            |time: &AtomicU64| Some(time.load(Relaxed)).filter(|time| *time != NONE).map(Time::from_nanos);
        let is_serving = self.requests_in_flight() > 0;
        let waits = WaitStarts {
            idle: time(&self.idle_since).filter(|_| !is_serving),
            has_served: self.requests.load(Relaxed) > 0,
            head: time(&self.head_since),
            write: time(&self.write_blocked_since),
            request: time(&self.request_since).filter(|_| is_serving),
        };
        let settings = &self.thread.settings;
        let (stream, reason) = self.ending_stream_deadline(settings);
        let (deadline, own_reason) = deadline(waits, settings);
        if stream < deadline { (stream, reason) } else { (deadline, own_reason) }
    }

    fn ending_stream_deadline(&self, settings: &FrontendSettings) -> (Time, CloseReason) {
        let never = (Time::NEVER, CloseReason::Stall);
        if !self.has_ending_streams.load(Relaxed) {
            return never;
        }
        let streams = self.unended_streams();
        self.has_ending_streams.store(!streams.is_empty(), Relaxed);
        let (deadline, reason) = streams.front().map_or(never, |stream| stream.deadline(settings));
        (deadline + STREAM_MARGIN, reason)
    }

    /// hyper has taken the last frame of a response.
    pub(super) fn push_ending_stream(&self, stream: &Arc<Http2Stream>) {
        stream.record_frame(&self.thread);
        let mut streams = self.unended_streams();
        // h2 has at most `streams_max` streams open: the others have ended.
        if streams.len() > 2 * self.thread.settings.streams_max as usize {
            streams.retain(|stream| !stream.has_ended.load(Relaxed));
        }
        streams.push_back(Arc::clone(stream));
        drop(streams);
        self.has_ending_streams.store(true, Relaxed);
    }

    /// Locks the ending streams, without those that have ended at the front.
    fn unended_streams(&self) -> MutexGuard<'_, VecDeque<Arc<Http2Stream>>> {
        let mut streams = self.ending_streams.lock().unwrap_or_else(PoisonError::into_inner);
        while streams.front().is_some_and(|stream| stream.has_ended.load(Relaxed)) {
            streams.pop_front();
        }
        streams
    }

    /// When the deadline has to be computed again: soon while something waits for the client.
    pub(super) fn next_check(&self, deadline: Time) -> Time {
        let shortest = shortest_timeout(&self.thread.settings);
        let interval =
            if self.is_waiting_for_client() { shortest.min(FrontendSettings::STALL_CHECK) } else { shortest };
        deadline.min(self.thread.time.now() + interval)
    }

    /// True if the client does not take what is written to it.
    pub(super) fn is_waiting_for_client(&self) -> bool {
        self.write_blocked_since.load(Relaxed) != NONE || self.has_ending_streams.load(Relaxed)
    }

    pub(super) fn close_request(&self) -> CloseRequest {
        match self.close_request.load(Acquire) {
            0 => CloseRequest::None,
            1 => CloseRequest::Graceful,
            _ => CloseRequest::Immediate,
        }
    }

    /// May be called from any thread.
    pub(super) fn request_close(&self, request: CloseRequest) {
        self.close_request.fetch_max(request as u8, Release);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Any waker of the connection's task does: all of them wake the same task.
    pub(super) fn register_waker(&self, waker: &Waker) {
        if self.waker.get().is_none() {
            let _ = self.waker.set(waker.clone());
        }
    }

    pub(super) fn set_newest_stream(&self, stream: Arc<Http2Stream>) {
        *self.newest_stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    pub(super) fn take_newest_stream(&self) -> Option<Arc<Http2Stream>> {
        self.newest_stream.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.thread.counters.requests_ended.increment();
        connection.idle_since.store(connection.now(), Relaxed);
        if let Some(stream) = &self.stream {
            stream.has_ended.store(true, Relaxed);
        }
        if self.is_complete || self.stream.is_none() {
            return connection.completed.increment();
        }
        connection.cancelled.increment();
        // A client that cancels more than it lets complete attacks (CVE-2023-44487).
        if connection.cancelled.get() > CANCELLED_FREE + connection.completed.get()
            && connection.close_request() != CloseRequest::Immediate
        {
            connection.thread.counters.closed(CloseReason::Resets).increment();
            connection.request_close(CloseRequest::Immediate);
        }
    }
}

impl Http2Stream {
    pub(super) fn new(thread: &ThreadContext) -> Self {
        let frame_taken_at = AtomicU64::new(NONE);
        Self { began: thread.time.now(), frame_taken_at, has_ended: AtomicBool::new(false) }
    }

    /// hyper has taken a frame of the response.
    pub(super) fn record_frame(&self, thread: &ThreadContext) {
        self.frame_taken_at.store(thread.time.now().as_nanos(), Relaxed);
    }

    /// hyper polls for a frame: the client can receive it.
    pub(super) fn record_poll(&self) {
        self.frame_taken_at.store(NONE, Relaxed);
    }

    pub(super) fn deadline(&self, settings: &FrontendSettings) -> (Time, CloseReason) {
        let total = settings.total_timeout.map_or(Time::NEVER, |timeout| self.began + timeout);
        let frame_taken_at = Time::from_nanos(self.frame_taken_at.load(Relaxed));
        let stall = if frame_taken_at == Time::NEVER {
            Time::NEVER
        } else {
            frame_taken_at + settings.stall_timeout()
        };
        if stall < total { (stall, CloseReason::Stall) } else { (total, CloseReason::Total) }
    }
}
