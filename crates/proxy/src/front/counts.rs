//! What has happened at the front.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// What has happened at a front since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that are open.
    pub open: u64,
    /// Connections that were taken in, refused ones among them.
    pub connections: u64,
    /// Connections that were refused because there were too many.
    pub refused: u64,
    /// Idle connections that were closed to make room for others.
    pub evicted: u64,
    /// How often no connection could be taken in, for want of file descriptors or memory.
    pub exhausted: u64,
    /// Handshakes that failed, or took too long.
    pub tls_failures: u64,
    /// Requests that have been answered by the handler, or are about to be.
    pub requests: u64,
    /// Requests that are being answered, from head to end of answer.
    pub in_flight: u64,
    /// Requests that were refused before the handler saw them: malformed, or too large.
    pub malformed: u64,
    /// Connections and requests that were cut, by what for: [`Cut`] as an index.
    pub cut: [u64; Cut::ALL.len()],
}

/// What a connection, or a request, was cut for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A head, or a first request, did not come in time.
    Head,
    /// A body did not come in time, in part or as a whole.
    Body,
    /// There was no further request; nobody is hurt.
    Idle,
    /// The client did not read its answer.
    Stall,
    /// An answer took too long as a whole.
    Total,
    /// Requests were given up faster than they could be answered (HTTP/2 rapid reset).
    Resets,
    /// It was not over when the front had to end.
    Drain,
}

impl Cut {
    /// All of them, in the order of their indices.
    pub const ALL: [Self; 7] =
        [Self::Head, Self::Body, Self::Idle, Self::Stall, Self::Total, Self::Resets, Self::Drain];
}

impl fmt::Display for Cut {
    /// As metrics call it.
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

impl Counts {
    /// How many connections and requests were cut for `cut`.
    #[must_use]
    pub fn cut_for(&self, cut: Cut) -> u64 {
        self.cut[cut as usize]
    }
}

/// One thread's counts, aligned so that no two threads write to the same line of the processor's cache.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Tallies {
    pub(super) connections: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) exhausted: AtomicU64,
    pub(super) tls_failures: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) malformed: AtomicU64,
    cut: [AtomicU64; Cut::ALL.len()],
}

impl Tallies {
    pub(super) fn cut(&self, cut: Cut) {
        self.cut[cut as usize].fetch_add(1, Relaxed);
    }

    /// Adds this thread's to those of others.
    pub(super) fn add_to(&self, counts: &mut Counts) {
        let get = |tally: &AtomicU64| tally.load(Relaxed);
        // What has ended is read first: it has begun before.
        let (closed, ended) = (get(&self.closed), get(&self.ended));
        let (connections, requests) = (get(&self.connections), get(&self.requests));
        counts.open += connections.saturating_sub(closed);
        counts.connections += connections;
        counts.refused += get(&self.refused);
        counts.evicted += get(&self.evicted);
        counts.exhausted += get(&self.exhausted);
        counts.tls_failures += get(&self.tls_failures);
        counts.requests += requests;
        counts.in_flight += requests.saturating_sub(ended);
        counts.malformed += get(&self.malformed);
        for (sum, cut) in counts.cut.iter_mut().zip(&self.cut) {
            *sum += get(cut);
        }
    }
}

/// Adds one to a number that only one thread writes: without the lock on the bus that others would need.
pub(super) fn bump(tally: &AtomicU64) {
    tally.store(tally.load(Relaxed) + 1, Relaxed);
}
