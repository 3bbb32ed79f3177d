//! Counters of connections and requests, and the reasons for closing them.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Totals since the start of a frontend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontendCounts {
    /// Connections that are open now.
    pub open: u64,
    /// Accepted connections, refused ones included.
    pub connections: u64,
    /// Connections beyond the limit of all connections (if none could be closed) or of one client.
    pub refused: u64,
    /// Connections at an address for the PROXY protocol that are not from a trusted proxy, or begin with no valid header.
    pub proxy_protocol_refused: u64,
    /// Connections that were closed in favour of new ones: idle, or waiting for a client with too many.
    pub evicted: u64,
    /// Failed accepts, for want of file descriptors or memory.
    pub accept_failures: u64,
    /// TLS handshakes that failed or took too long.
    pub tls_failures: u64,
    /// Requests whose head was parsed, rejected ones included.
    pub requests: u64,
    /// Requests between the end of their head and the end of their response.
    pub in_flight: u64,
    /// Requests that were rejected before the handler saw them: malformed, or too large.
    pub malformed: u64,
    /// Connections and requests that were closed, by [`CloseReason`] as an index.
    pub closed: [u64; CloseReason::ALL.len()],
    /// Threads that serve.
    pub workers: u64,
    /// Time in which their runtimes had work: between two parks, summed over the threads.
    pub worker_busy: Duration,
    /// How often a thread parked: it had no work.
    pub worker_parks: u64,
}

/// Why a connection, or a request, was closed before its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A head, or the first request, did not arrive in time.
    Head,
    /// A request body, or a part of it, did not arrive in time.
    Body,
    /// No further request arrived within the keep-alive timeout.
    Idle,
    /// The client did not read its response.
    Stall,
    /// A whole response took too long.
    Total,
    /// The client cancelled more requests than it let complete (HTTP/2 rapid reset).
    Resets,
    /// The drain timeout passed.
    Drain,
}

impl CloseReason {
    /// In the order of their indices.
    pub const ALL: [Self; 7] =
        [Self::Head, Self::Body, Self::Idle, Self::Stall, Self::Total, Self::Resets, Self::Drain];
}

impl fmt::Display for CloseReason {
    /// The label in metrics.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "head",
            Self::Body => "body",
            Self::Idle => "idle",
            Self::Stall => "stall",
            Self::Total => "total",
            Self::Resets => "resets",
            Self::Drain => "drain",
        })
    }
}

impl FrontendCounts {
    #[must_use]
    pub fn closed_for(&self, reason: CloseReason) -> u64 {
        self.closed[reason as usize]
    }
}

/// Counters of one thread, aligned so that no two threads write to the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ThreadCounters {
    pub(super) connections: AtomicU64,
    pub(super) connections_ended: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) proxy_protocol_refused: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) accept_failures: AtomicU64,
    pub(super) tls_failures: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) requests_ended: AtomicU64,
    pub(super) malformed: AtomicU64,
    closed: [AtomicU64; CloseReason::ALL.len()],
}

impl ThreadCounters {
    pub(super) fn record_close(&self, reason: CloseReason) {
        self.closed[reason as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn add_to(&self, counts: &mut FrontendCounts) {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        // Ends are read before beginnings: an end that is counted has its beginning counted.
        let (connections_ended, requests_ended) = (get(&self.connections_ended), get(&self.requests_ended));
        let (connections, requests) = (get(&self.connections), get(&self.requests));
        counts.open += connections.saturating_sub(connections_ended);
        counts.connections += connections;
        counts.refused += get(&self.refused);
        counts.proxy_protocol_refused += get(&self.proxy_protocol_refused);
        counts.evicted += get(&self.evicted);
        counts.accept_failures += get(&self.accept_failures);
        counts.tls_failures += get(&self.tls_failures);
        counts.requests += requests;
        counts.in_flight += requests.saturating_sub(requests_ended);
        counts.malformed += get(&self.malformed);
        for (sum, closed) in counts.closed.iter_mut().zip(&self.closed) {
            *sum += get(closed);
        }
    }
}

/// Adds one to a counter that a single thread writes: cheaper than a locked read-modify-write.
pub(super) fn increment(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}
