//! Configuration: a file or flags, parsed and validated once, before anything listens.
//!
//! ```text
//! stockade.toml -- file: as it is written --+-- read ---> Config --+-- shown: without secrets
//! flags ------- override the file ----------+                      +-- diff: what a reload cannot change
//! ```
//!
//! [`Config`] is plain data: times are [`Duration`]s, sizes are bytes, a strategy is a
//! [`Strategy`](stockade_cache::Strategy). `[cache]` is the block of an experiment file, read by the same code
//! ([`stockade_cache::spec`]), so that the strategy that won can be copied over.
//!
//! ```
//! use stockade_proxy::config::Config;
//!
//! let file = r#"
//!     [cache]
//!     strategy = "swr"
//!     limit = { bytes = "512MiB" }
//!
//!     [[origin]]
//!     name = "app"
//!     url = "http://127.0.0.1:9000"
//! "#;
//! let config = Config::parse("stockade.toml", file).expect("a valid file");
//! let route = config.route("example.org", "/any").expect("the default route matches every path");
//! assert_eq!(config.origins[route.origin].name, "app");
//! ```

mod diff;
mod error;
mod file;
mod flags;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod origin;
mod read;
mod route;
#[cfg(feature = "schema")]
mod schema;
mod shadow;
mod shown;
mod snapshot;
mod tier;

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use stockade_cache::Limit;
use stockade_http::{
    frontend::ClientPrefix,
    trusted_proxies::{TrustedNetwork, TrustedProxies},
};

use crate::serve::client_rates::ClientRateBound;

pub use self::{
    diff::{Change, diff},
    error::{ConfigError, FileError},
    flags::{FlagError, Flags},
    origin::{HealthConfig, HttpOrigin, OriginConfig, OriginKind, OriginTimeouts, ProbeConfig},
    route::{
        ClientDirectives, HostPattern, NamePattern, PathPattern, RouteConfig, SetCookie, UnsafeInvalidation,
    },
    shadow::{GhostSize, ShadowConfig},
    snapshot::SnapshotConfig,
    tier::SharedTierUrl,
};
#[cfg(feature = "schema")]
pub use schema::schema;

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// At least one, here or in `listen_proxy_protocol`.
    pub listen: Vec<SocketAddr>,
    /// Addresses where each connection begins with a header of the PROXY protocol.
    pub listen_proxy_protocol: Vec<SocketAddr>,
    /// Load balancers and CDNs that name the client of a request.
    pub trusted_proxies: TrustedProxies,
    /// `None`: one per core.
    pub threads: Option<NonZeroUsize>,
    pub tls: Option<TlsFiles>,
    /// `None`: no admin listener.
    pub admin: Option<AdminConfig>,
    /// Empty: all hosts.
    pub hosts: Vec<HostPattern>,
    /// For all routes together.
    pub limit: Limit,
    /// The tier that several proxies share.
    pub shared: Option<SharedTierUrl>,
    /// `None`: there are no ghosts.
    pub shadow: Option<ShadowConfig>,
    /// `None`: a restart begins with an empty cache.
    pub snapshot: Option<SnapshotConfig>,
    /// `None`: no access log.
    pub log: Option<LogConfig>,
    /// Timeouts for clients.
    pub timeouts: ClientTimeouts,
    /// Limits for clients.
    pub bounds: ClientBounds,
    /// At least one.
    pub origins: Vec<OriginConfig>,
    /// In the order of [`Config::route`].
    pub routes: Vec<RouteConfig>,
}

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain.
    pub certificates: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Outside the loopback interface a token is required.
    pub listen: SocketAddr,
    /// File with the bearer token.
    pub token_file: Option<PathBuf>,
    /// Accepted host names besides those of the loopback interface.
    pub hosts: Vec<String>,
    /// Clients that may send `PURGE` without the token.
    pub purge_from: Vec<TrustedNetwork>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    pub format: AccessLogFormat,
    /// `None`: standard output.
    pub path: Option<PathBuf>,
    /// Query parameters whose values are masked, in any case.
    pub masked_query: Vec<NamePattern>,
}

impl LogConfig {
    /// Names of secrets: those of OAuth, of signed URLs and of common APIs.
    const MASKED: [&str; 18] = [
        "access_token",
        "api_key",
        "apikey",
        "auth",
        "client_secret",
        "id_token",
        "jwt",
        "key",
        "passwd",
        "password",
        "refresh_token",
        "secret",
        "sig",
        "signature",
        "token",
        "x-amz-security-token",
        "x-amz-signature",
        "x-goog-signature",
    ];

    #[must_use]
    pub fn default_mask() -> Vec<NamePattern> {
        Self::MASKED.iter().filter_map(|name| name.parse().ok()).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// One JSON object per line.
    Json,
    /// Apache's Combined Log Format, followed by the cache outcome and the time.
    Combined,
}

/// How long clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// For the head of a request, from its first byte or the start of the connection.
    pub head: Duration,
    /// Between two reads of a request body.
    pub body: Duration,
    /// Between two writes of a response.
    pub write: Duration,
    /// Between two requests of a connection.
    pub idle: Duration,
    /// For a whole request; `None`: unlimited.
    pub total: Option<Duration>,
    /// For requests in flight when the proxy stops.
    pub drain: Duration,
    /// How long a proxy that stops accepts connections although it is not ready.
    pub shutdown_delay: Duration,
}

/// Limits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientBounds {
    /// Of a request.
    pub head_bytes: usize,
    /// Of a request.
    pub headers: usize,
    /// Of a request.
    pub body_bytes: usize,
    /// Concurrent.
    pub connections: usize,
    /// Concurrent, of one client.
    pub connections_per_client: usize,
    /// `None`: unlimited.
    pub client_rate: Option<ClientRateBound>,
    /// The bits of an address that identify a client.
    pub client_prefix: ClientPrefix,
    /// Concurrent, of one HTTP/2 connection.
    pub streams: usize,
}

impl Default for ClientTimeouts {
    /// Close to those of nginx and Varnish.
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            write: Duration::from_secs(30),
            idle: Duration::from_mins(1),
            total: None,
            drain: Duration::from_secs(30),
            shutdown_delay: Duration::ZERO,
        }
    }
}

impl Default for ClientBounds {
    /// Enough for browsers.
    fn default() -> Self {
        let connections = 10_000;
        Self {
            head_bytes: 64 << 10,
            headers: 100,
            body_bytes: 64 << 20,
            connections,
            // Above an eighth of all, from which on others may take a client's connections.
            connections_per_client: 2_000,
            client_rate: None,
            client_prefix: ClientPrefix::default(),
            streams: 250,
        }
    }
}

#[cfg(test)]
mod tests;
