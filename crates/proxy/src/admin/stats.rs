//! The statistics of the proxy. Each is declared once, with its name in metrics and its help.

use serde::{Deserialize, Serialize};
use stockade_cache::{BreakerState, RequestStats, ShadowStats, StoreStats};
use stockade_http::frontend::FrontendStats;
use stockade_model::{outcome::Outcomes, snapshot, telemetry::MetricValue};
use stockade_record::telemetry::{HistogramDeclaration, TimeHistogram};

snapshot! {
    /// The proxy as a whole. Counters are since the start.
    #[derive(Serialize, Deserialize)]
    #[serde(default)]
    pub struct ProxyStats {
        /// Time since the start.
        uptime_seconds: f64 = gauge "stockade_uptime_seconds" in Seconds,
        /// 1 while the proxy stops: connections are accepted for `shutdown_delay`, and then refused while requests in progress are completed.
        is_draining: bool = gauge "stockade_draining",
        /// Bound of the entries, where they are limited.
        entries_limit: Option<u64> = gauge "stockade_entries_limit",
        /// Bound of the bytes, where they are limited.
        bytes_limit: Option<u64> = gauge "stockade_bytes_limit" in Bytes,
        /// Requests beyond the rate of their client, refused with 429.
        requests_refused: u64 = counter "stockade_requests_refused_total",
        /// Resident memory of the process.
        resident_bytes: Option<u64> = gauge "process_resident_memory_bytes" in Bytes,
        /// Lines that the access log lacks.
        log_dropped: u64 = counter "stockade_log_dropped_total",
        +
        /// Connections and requests of clients.
        #[serde(flatten)]
        frontend: FrontendStats,
        /// Contents of the store.
        #[serde(flatten)]
        store: StoreStats,
        /// The ghosts of the cache; absent without `--shadow`.
        shadow: Option<ShadowStats>,
        /// By route, in the order in which they are tried.
        routes: Vec<RouteStats>,
        /// By origin, in the order of the file.
        origins: Vec<OriginStats>,
    }
}

snapshot! {
    /// One route.
    #[derive(Serialize, Deserialize)]
    #[serde(default)]
    pub struct RouteStats {
        /// 0 closed, 1 ramp, 2 half-open, 3 open; absent without a breaker.
        breaker: Option<BreakerStatus> = gauge "stockade_breaker_state",
        +
        /// Its host and path.
        name: String,
        /// Requests by outcome, those that bypass the cache included.
        outcomes: Outcomes,
        /// Counters of the cache for these requests.
        #[serde(flatten)]
        requests: RequestStats,
        response_time: Option<TimeHistogram>,
        wait_time: Option<TimeHistogram>,
        load_time: Option<TimeHistogram>,
    }
}

impl RouteStats {
    pub const HISTOGRAMS: &'static [HistogramDeclaration<Self>] = &[
        HistogramDeclaration {
            field: "response_time",
            family: "stockade_response_seconds",
            help: "Time from the head of a request to the last byte of its response.",
            read: |route| route.response_time.as_ref(),
        },
        HistogramDeclaration {
            field: "load_time",
            family: "stockade_load_seconds",
            help: "Time of a load, failed ones included.",
            read: |route| route.load_time.as_ref(),
        },
        HistogramDeclaration {
            field: "wait_time",
            family: "stockade_wait_seconds",
            help: "Time that a request waited for another load.",
            read: |route| route.wait_time.as_ref(),
        },
    ];
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakerStatus {
    /// All loads.
    Closed,
    /// A growing share of them.
    Ramp,
    /// Probes.
    HalfOpen,
    /// None.
    Open,
}

impl From<BreakerState> for BreakerStatus {
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

impl MetricValue for BreakerStatus {
    fn number(&self) -> Option<f64> {
        Some(match self {
            Self::Closed => 0.0,
            Self::Ramp => 1.0,
            Self::HalfOpen => 2.0,
            Self::Open => 3.0,
        })
    }
}

snapshot! {
    /// One origin.
    #[derive(Serialize, Deserialize)]
    #[serde(default)]
    pub struct OriginStats {
        /// Connections in use.
        connections_busy: u64 = gauge "stockade_upstream_connections" { state = "busy" },
        /// Connections kept for the next request.
        connections_idle: u64 = gauge "stockade_upstream_connections" { state = "idle" },
        /// Requests that wait for a connection.
        waiting: u64 = gauge "stockade_upstream_waiting",
        /// Requests sent to an origin.
        requests: u64 = counter "stockade_upstream_requests_total",
        /// Requests to an origin without a complete response.
        failures: u64 = counter "stockade_upstream_failures_total",
        +
        /// Its name in the configuration.
        name: String,
        servers: Vec<ServerStats>,
    }
}

snapshot! {
    /// One server of an origin.
    #[derive(Serialize, Deserialize)]
    #[serde(default)]
    pub struct ServerStats {
        /// 1 if a server is preferred to those that are not healthy.
        is_healthy: bool = gauge "stockade_upstream_healthy",
        +
        /// Its address, without secrets.
        address: String,
    }
}
