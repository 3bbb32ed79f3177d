//! The configuration file. The comments of its tables are the descriptions in `docs/proxy.schema.json`.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Deserialize;
use stockade_cache::spec::CacheTable;
use stockade_http::trusted_proxies::TrustedNetwork;

use super::{
    AdminConfig, ClientBounds, ClientTimeouts, HostPattern, LogConfig, ShadowConfig, SharedTierUrl,
    SnapshotConfig, TlsFiles,
    origin::OriginTable,
    route::RouteTable,
    value::{SocketAddress, Threads},
};

/// The file of `stockade proxy --config FILE`. Times and sizes are strings with a unit: "250ms", "30s", "6h"; "64KiB",
/// "256MiB". Relative paths are relative to the file's folder.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "stockade.toml", inline))]
pub(super) struct ConfigFile {
    /// Addresses to listen on, with ports. Default: 127.0.0.1:8080; with `listen_proxy_protocol` none.
    pub(super) listen: Option<Vec<SocketAddress>>,
    /// Addresses where each connection begins with a header of the PROXY protocol, version 1 or 2; needs `trusted_proxies`.
    /// Default: none.
    pub(super) listen_proxy_protocol: Vec<SocketAddress>,
    /// Load balancers and CDNs in front, by address or network ("10.0.0.0/8"): their `X-Forwarded-For`, `-Host` and `-Proto` and
    /// their PROXY protocol name the client. Default: none.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub(super) trusted_proxies: Vec<TrustedNetwork>,
    /// Number of threads. Default: one per core.
    pub(super) threads: Option<Threads>,
    /// Host names to serve: "example.org", "*.example.org". Default: all.
    pub(super) hosts: Vec<HostPattern>,
    /// TLS for clients: HTTP/2 and HTTP/1.1.
    pub(super) tls: Option<TlsFiles>,
    /// Admin listener: health, metrics, purge, reload. Default: none.
    pub(super) admin: Option<AdminConfig>,
    /// Caching strategy: the `[cache]` block of an experiment. Default: strategy = "breaker". `limit` applies to all routes
    /// together; default: { bytes = "256MiB" }.
    pub(super) cache: Option<CacheTable<SharedTierUrl>>,
    /// Ghosts: other sizes, policies and ttls, simulated alongside the cache over a sample of the keys. Default: none.
    pub(super) shadow: Option<ShadowConfig>,
    /// The responses of the cache in a file: a restarted proxy begins with them. Default: none.
    pub(super) snapshot: Option<SnapshotConfig>,
    /// Access log.
    pub(super) log: LogConfig,
    /// Timeouts for clients.
    pub(super) timeouts: ClientTimeouts,
    /// Limits for clients.
    pub(super) bounds: ClientBounds,
    /// Origins: one `[[origin]]` each.
    pub(super) origin: Vec<OriginTable>,
    /// Routes: one `[[route]]` each. The longest path of the most specific host wins, in any order. Default: all requests go
    /// to the only origin.
    pub(super) route: Vec<RouteTable>,
}
