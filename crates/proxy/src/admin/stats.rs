//! How it goes.

use serde::Serialize;
use stockade_cache::BreakerState;
use stockade_model::outcome::Outcomes;

/// How it goes. Counts are since the start, unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// How long it has been running.
    pub uptime_seconds: f64,
    /// No more requests are taken: what is under way is finished.
    pub is_draining: bool,
    /// By route, in the order in which they are tried.
    pub routes: Vec<RouteStats>,
    /// By origin, in the file's order.
    pub origins: Vec<OriginStats>,
    /// Entries stored now, fresh or not.
    pub entries: u64,
    /// How many there may be, if that is limited.
    pub entries_limit: Option<u64>,
    /// Bytes held now of the limit, by entries and for loads under way, if bytes are limited.
    pub bytes: Option<u64>,
    /// How many there may be, if that is limited.
    pub bytes_limit: Option<u64>,
    /// Entries that left because they had expired.
    pub evicted_expired: u64,
    /// Entries that left because others needed their room.
    pub evicted_size: u64,
    /// How often the limit was met and a share of it cleared.
    pub reclaims: u64,
    /// Entries that were purged.
    pub invalidated: u64,
    /// Connections of clients now.
    pub connections: u64,
    /// Connections of clients that were taken in.
    pub connections_accepted: u64,
    /// Connections of clients that there was no room for.
    pub connections_refused: u64,
    /// Requests under way now.
    pub requests_in_flight: u64,
    /// Memory of the whole program now: see [`resident_bytes`](super::resident_bytes).
    pub resident_bytes: Option<u64>,
    /// Lines that the access log lacks.
    pub log_dropped: u64,
}

/// What became of a route's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RouteStats {
    /// Its host and path.
    pub name: String,
    /// Requests, by what the cache did for them.
    pub outcomes: Outcomes,
    /// Loads begun.
    pub loads: u64,
    /// Loads that failed, were cancelled or lost.
    pub loads_failed: u64,
    /// Loads that the breaker did not let begin.
    pub loads_refused: u64,
    /// Loads that the queue had no room or no time for.
    pub loads_rejected: u64,
    /// Loads under way now.
    pub loads_in_flight: u64,
    /// Waits for another request's load, in vain or not.
    pub waiters: u64,
    /// Loads of what could still be answered with.
    pub refreshes: Refreshes,
    /// What its breaker lets through now; `None`: it has none.
    pub breaker: Option<Breaker>,
    /// From a request's head to the last byte of its answer.
    pub response_time: Option<Histogram>,
    /// How long requests waited for another's load.
    pub wait_time: Option<Histogram>,
    /// How long loads took, failed ones too.
    pub load_time: Option<Histogram>,
}

/// Loads of what could still be answered with, by why they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refreshes {
    /// After a share of the ttl.
    pub early: u64,
    /// By chance.
    pub xfetch: u64,
    /// While something stale was served.
    pub swr: u64,
    /// To find out whether the origin is back.
    pub probe: u64,
}

/// What a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Breaker {
    /// All loads.
    Closed,
    /// A growing share of them.
    Ramp,
    /// Probes.
    HalfOpen,
    /// None.
    Open,
}

impl From<BreakerState> for Breaker {
    fn from(state: BreakerState) -> Self {
        match state {
            BreakerState::Closed => Self::Closed,
            BreakerState::Ramp => Self::Ramp,
            BreakerState::HalfOpen => Self::HalfOpen,
            // There are no others so far.
            _ => Self::Open,
        }
    }
}

/// How often what took how long.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histogram {
    /// Up to which time each bucket goes, itself included, growing.
    pub bounds_seconds: Vec<f64>,
    /// How many are in each bucket and in none before it; one more than there are bounds, for what took longer.
    pub counts: Vec<u64>,
    /// How long all of them took together.
    pub sum_seconds: f64,
}

/// What an origin has to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OriginStats {
    /// As the configuration calls it.
    pub name: String,
    /// Each of its servers.
    pub servers: Vec<ServerStats>,
    /// Connections that are used now.
    pub connections_busy: u64,
    /// Connections that are kept for the next request.
    pub connections_idle: u64,
    /// Requests that wait for a connection now.
    pub waiting: u64,
    /// Requests that it was asked for.
    pub requests: u64,
    /// Those that it did not answer, or not to the end.
    pub failures: u64,
}

/// How a server is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServerStats {
    /// Where it is, without secrets.
    pub address: String,
    /// Whether it is asked before those that are not.
    pub is_healthy: bool,
}
