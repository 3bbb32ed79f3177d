//! Counters of connections and requests, each declared once, below, with its name in metrics and its help.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};
use stockade_model::snapshot;

/// Declares the [`ThreadCounters`], their sums with the gauges of a frontend ([`FrontendStats`]), and [`CloseReason`].
macro_rules! counters {
    (
        closed {
            $($(#[doc = $close_help:literal])+ $reason:ident: $closed:ident = $close_label:literal,)*
        }
        counters {
            $($(#[doc = $help:literal])+ $field:ident = $family:literal $({ $label:ident = $value:literal })?,)*
        }
    ) => {
        /// Why a connection, or a request, was closed before its own end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CloseReason {
            $($(#[doc = $close_help])+ $reason,)*
        }

        snapshot! {
            /// Connections and requests of clients. Counters are since the start of the frontend.
            #[derive(Copy, Serialize, Deserialize)]
            #[serde(default)]
            pub struct FrontendStats {
                /// Connections of clients now.
                connections: u64 = gauge "stockade_connections",
                $($(#[doc = $help])+ $field: u64 = counter $family $({ $label = $value })?,)*
                $(
                    $(#[doc = $close_help])+
                    $closed: u64 = counter "stockade_connections_closed_total" { reason = $close_label },
                )*
                /// Requests in flight now.
                requests_in_flight: u64 = gauge "stockade_requests_in_flight",
                /// Threads that serve clients.
                workers: u64 = gauge "stockade_workers",
                /// Time in which the runtimes of these threads had work, summed over the threads.
                worker_busy_seconds: f64 = counter "stockade_worker_busy_seconds_total" in Seconds,
                /// How often these threads had no work and parked.
                worker_parks: u64 = counter "stockade_worker_parks_total",
            }
        }

        /// Counters of one thread, aligned so that no two threads write to the same cache line.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(super) struct ThreadCounters {
            pub(super) connections_ended: Counter,
            pub(super) requests_ended: Counter,
            $(pub(super) $field: Counter,)*
            $($closed: Counter,)*
        }

        impl CloseReason {
            pub const ALL: &[Self] = &[$(Self::$reason,)*];
        }

        impl FrontendStats {
            #[must_use]
            pub fn closed_for(&self, reason: CloseReason) -> u64 {
                match reason {
                    $(CloseReason::$reason => self.$closed,)*
                }
            }
        }

        impl ThreadCounters {
            pub(super) fn closed(&self, reason: CloseReason) -> &Counter {
                match reason {
                    $(CloseReason::$reason => &self.$closed,)*
                }
            }

            pub(super) fn add_to(&self, stats: &mut FrontendStats) {
                // Ends are read before beginnings: an end that is counted has its beginning counted.
                let (connections_ended, requests_ended) = (self.connections_ended.get(), self.requests_ended.get());
                let others = *stats;
                $(stats.$field += self.$field.get();)*
                $(stats.$closed += self.$closed.get();)*
                let accepted = stats.connections_accepted - others.connections_accepted;
                stats.connections += accepted.saturating_sub(connections_ended);
                let received = stats.requests_received - others.requests_received;
                stats.requests_in_flight += received.saturating_sub(requests_ended);
            }
        }
    };
}

counters! {
    closed {
        /// Connections whose request head, or first request, did not arrive in time.
        Head: closed_head = "head",
        /// Connections whose request body, or a part of it, did not arrive in time.
        Body: closed_body = "body",
        /// Connections without a further request within the keep-alive timeout.
        Idle: closed_idle = "idle",
        /// Connections and HTTP/2 requests whose client did not read the response.
        Stall: closed_stall = "stall",
        /// Connections and HTTP/2 requests whose whole response took too long.
        Total: closed_total = "total",
        /// Connections whose client cancelled more requests than it let complete (HTTP/2 rapid reset).
        Resets: closed_resets = "resets",
        /// Requests in flight when the drain timeout passed.
        Drain: closed_drain = "drain",
        /// Connections closed in favour of new ones: idle, or waiting for a client with too many.
        Evicted: closed_evicted = "evicted",
    }
    counters {
        /// Connections of clients that were accepted, refused ones included.
        connections_accepted = "stockade_connections_accepted_total",
        /// Connections of clients that were refused at the limit.
        connections_refused = "stockade_connections_refused_total",
        /// Connections to `listen_proxy_protocol` that were not from a trusted proxy, or began with no valid header.
        proxy_protocol_refused = "stockade_proxy_protocol_refused_total",
        /// Accepts that failed for want of file descriptors or memory.
        accept_failures = "stockade_connection_failures_total" { step = "accept" },
        /// TLS handshakes that failed or took too long.
        tls_failures = "stockade_connection_failures_total" { step = "tls" },
        /// Requests whose head was parsed, rejected ones included.
        requests_received = "stockade_requests_received_total",
        /// Requests that were malformed or too large, and answered without a route.
        requests_malformed = "stockade_requests_rejected_total" { reason = "malformed" },
        /// Requests beyond the memory for those of one client, or of all, refused with 503.
        requests_beyond_memory = "stockade_requests_rejected_total" { reason = "memory" },
    }
}

/// A counter that a single thread writes: cheaper than a locked read-modify-write.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn increment(&self) {
        self.0.store(self.get() + 1, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
