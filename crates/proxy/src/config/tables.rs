//! Tables of the file that stand for themselves: read from it, completed with defaults, and shown.

use std::{path::PathBuf, time::Duration};

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_http::{frontend::ClientPrefix, trusted_proxies::TrustedNetwork};
use stockade_model::rate::Rate;

use super::{
    route::NamePattern,
    value::{
        AdminHost, Burst, Connections, HeadSize, Headers, Ipv4Bits, Ipv6Bits, OrNone, PlainDuration,
        PositiveDuration, Size, SocketAddress, Streams,
    },
};
use crate::serve::client_rates::ClientRateBound;

/// Certificate and key in PEM; a reload reads them again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct TlsFiles {
    /// File with the certificate chain.
    pub cert: PathBuf,
    /// File with the private key.
    pub key: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct AdminConfig {
    /// Address with a port. Outside the loopback interface a token is required.
    pub listen: SocketAddress,
    /// File with the token that requests need: `Authorization: Bearer TOKEN`. Default: none.
    pub token_file: Option<PathBuf>,
    /// Host names to accept besides loopback addresses and localhost.
    #[serde(default)]
    pub hosts: Vec<AdminHost>,
    /// Clients that may send `PURGE URL` to the proxy without the token, by address or network ("127.0.0.1", "10.0.0.0/8").
    /// Default: none.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub purge_from: Vec<TrustedNetwork>,
}

/// Next to the file are the purges since it was written, so that nothing purged comes back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct SnapshotConfig {
    /// The file; it and those next to it are as large as the cache, twice while a new one is written.
    pub path: PathBuf,
    /// Between two snapshots; one more is written when the proxy stops. Default: "1m".
    #[serde(default = "SnapshotConfig::every")]
    pub every: PositiveDuration,
}

impl SnapshotConfig {
    pub(super) fn every() -> PositiveDuration {
        PositiveDuration(Duration::from_mins(1))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct LogConfig {
    /// "json", "combined" (Apache's, with cache fields appended) or "none". Default: "json".
    pub format: LogFormat,
    /// File to append to; a reload reopens it. Default: standard output.
    pub path: Option<PathBuf>,
    /// Query parameters whose values are logged as `***`, in any case: names, or `sess*` for all with that prefix; `["*"]` masks
    /// all, `[]` none. Default: names such as `token`, `api_key` and `password`.
    pub mask_query: Vec<NamePattern>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub enum LogFormat {
    #[default]
    Json,
    Combined,
    None,
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
    pub fn is_on(&self) -> bool {
        self.format != LogFormat::None
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        let masked = Self::MASKED.iter().filter_map(|name| name.parse().ok());
        Self { format: LogFormat::default(), path: None, mask_query: masked.collect() }
    }
}

/// How long clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct ClientTimeouts {
    /// For the head of a request. Default: "10s".
    pub head: PositiveDuration,
    /// In which a client sends 16 KiB of a request body, or the rest of it. Default: "30s".
    pub body: PositiveDuration,
    /// In which a client takes 64 KiB of its response, or all that waits for it. Shorter, down to a second, while clients that do
    /// not read hold an eighth of the cache's memory, or half of the connections to an origin, or more. Default: "30s".
    pub write: PositiveDuration,
    /// Between two requests of a connection. Default: "60s".
    pub idle: PositiveDuration,
    /// For a whole request, or "none". Default: "none", and 1 h for the body of a request.
    pub total: OrNone<PositiveDuration>,
    /// For requests in flight when the proxy stops. Default: "30s".
    pub drain: PlainDuration,
    /// From the 503 of `/readyz` to the close of the listeners when the proxy stops: as long as load balancers take to notice. HTTP/1
    /// responses have `Connection: close` meanwhile. Default: "0s".
    pub shutdown_delay: PlainDuration,
}

impl Default for ClientTimeouts {
    /// Close to those of nginx and Varnish.
    fn default() -> Self {
        let seconds = |seconds| PositiveDuration(Duration::from_secs(seconds));
        Self {
            head: seconds(10),
            body: seconds(30),
            write: seconds(30),
            idle: seconds(60),
            total: OrNone(None),
            drain: PlainDuration(Duration::from_secs(30)),
            shutdown_delay: PlainDuration(Duration::ZERO),
        }
    }
}

/// Limits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct ClientBounds {
    /// Size of a request head. Default: "64KiB".
    pub head: HeadSize,
    /// Fields of a request head. Default: 100.
    pub headers: Headers,
    /// Size of a request body. Default: "64MiB".
    pub body: Size,
    /// Concurrent connections. Default: 10000.
    pub connections: Connections,
    /// Concurrent connections of one client; see `client_prefix`. Default: 2000, at most `connections`.
    pub connections_per_client: Option<Connections>,
    /// Request rate of one client, such as "100/s" or "1000/m", or "none". Beyond it: 429. Default: "none".
    pub requests_per_client: OrNone<Rate>,
    /// Requests of one client that may come at once. Default: those of a second.
    pub burst_per_client: Option<Burst>,
    /// The first bits of an address that tell clients apart. Default: { ipv4 = 24, ipv6 = 56 }.
    pub client_prefix: ClientPrefixTable,
    /// Concurrent requests of an HTTP/2 connection. Default: 250.
    pub streams: Streams,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct ClientPrefixTable {
    /// Of an IPv4 address. Default: 24.
    pub ipv4: Ipv4Bits,
    /// Of an IPv6 address. Default: 56.
    pub ipv6: Ipv6Bits,
}

impl Default for ClientBounds {
    /// Enough for browsers.
    fn default() -> Self {
        Self {
            head: HeadSize(64 << 10),
            headers: Headers(100),
            body: Size(64 << 20),
            connections: Connections(10_000),
            connections_per_client: None,
            requests_per_client: OrNone(None),
            burst_per_client: None,
            client_prefix: ClientPrefixTable::default(),
            streams: Streams(250),
        }
    }
}

impl Default for ClientPrefixTable {
    fn default() -> Self {
        Self { ipv4: Ipv4Bits(24), ipv6: Ipv6Bits(56) }
    }
}

impl ClientBounds {
    /// Above an eighth of all, from which on others may take a client's connections.
    const CONNECTIONS_PER_CLIENT: usize = 2_000;

    /// Fills in the defaults that depend on other settings.
    pub(super) fn complete(&mut self) {
        let default = || Connections(Self::CONNECTIONS_PER_CLIENT.min(self.connections.0));
        self.connections_per_client = Some(self.connections_per_client.unwrap_or_else(default));
        self.burst_per_client = self.client_rate().map(|bound| Burst(bound.burst as usize));
    }

    /// Concurrent, of one client.
    #[must_use]
    pub fn connections_per_client(&self) -> usize {
        self.connections_per_client.unwrap_or(self.connections).0
    }

    /// `None`: unlimited.
    #[must_use]
    pub fn client_rate(&self) -> Option<ClientRateBound> {
        let burst = self.burst_per_client.map(|burst| burst.0);
        self.requests_per_client.0.map(|rate| ClientRateBound::new(rate, burst))
    }

    /// The bits of an address that identify a client.
    #[must_use]
    pub fn client_prefix(&self) -> ClientPrefix {
        let bits = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
        let ClientPrefixTable { ipv4, ipv6 } = self.client_prefix;
        ClientPrefix { ipv4_bits: bits(ipv4.0), ipv6_bits: bits(ipv6.0) }
    }
}
