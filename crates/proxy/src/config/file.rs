//! The configuration file as written. Its comments are the descriptions in `docs/proxy.schema.json`.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use http::HeaderName;
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use stockade_cache::spec::{
    CacheTable,
    value::{DurationValue, SizeValue, TextValue, bounded_integer},
};
use stockade_model::{
    rate::{Rate, RateError},
    units::{UnitError, parse_duration},
};
use toml::Spanned;

use super::{
    route::{HostPattern, PathPattern},
    tier::SharedTierUrl,
};

/// The file of `stockade proxy --config FILE`. Times and sizes are strings with a unit: "250ms", "30s", "6h"; "64KiB",
/// "256MiB". Relative paths are relative to the file's folder.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "stockade.toml", inline))]
pub(super) struct ConfigFile {
    /// Addresses to listen on, with ports. Default: 127.0.0.1:8080; with `listen_proxy_protocol` none.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub(super) listen: Option<Spanned<Vec<Spanned<String>>>>,
    /// Addresses where each connection begins with a header of the PROXY protocol, version 1 or 2; needs `trusted_proxies`.
    /// Default: none.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub(super) listen_proxy_protocol: Option<Spanned<Vec<Spanned<String>>>>,
    /// Load balancers and CDNs in front, by address or network ("10.0.0.0/8"): their `X-Forwarded-For`, `-Host` and `-Proto` and
    /// their PROXY protocol name the client. Default: none.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub(super) trusted_proxies: Vec<Spanned<String>>,
    /// Number of threads. Default: one per core.
    pub(super) threads: Option<Threads>,
    /// Host names to serve: "example.org", "*.example.org". Default: all.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub(super) hosts: Vec<Spanned<String>>,
    /// TLS for clients: HTTP/2 and HTTP/1.1.
    pub(super) tls: Option<TlsSection>,
    /// Admin listener: health, metrics, purge, reload. Default: none.
    pub(super) admin: Option<AdminSection>,
    /// Caching strategy: the `[cache]` block of an experiment. Default: strategy = "breaker". `limit` applies to all routes
    /// together; default: { bytes = "256MiB" }.
    #[cfg_attr(feature = "schema", schemars(with = "Option<CacheTable<SharedTierUrl>>"))]
    pub(super) cache: Option<Spanned<CacheTable<SharedTierUrl>>>,
    /// Ghosts: other sizes, policies and ttls, simulated alongside the cache over a sample of the keys. Default: none.
    #[cfg_attr(feature = "schema", schemars(with = "Option<ShadowSection>"))]
    pub(super) shadow: Option<Spanned<ShadowSection>>,
    /// The responses of the cache in a file: a restarted proxy begins with them. Default: none.
    #[cfg_attr(feature = "schema", schemars(with = "Option<SnapshotSection>"))]
    pub(super) snapshot: Option<Spanned<SnapshotSection>>,
    /// Access log.
    pub(super) log: LogSection,
    /// Timeouts for clients.
    pub(super) timeouts: TimeoutsSection,
    /// Limits for clients.
    pub(super) bounds: BoundsSection,
    /// Origins: one `[[origin]]` each.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<OriginSection>"))]
    pub(super) origin: Vec<Spanned<OriginSection>>,
    /// Routes: one `[[route]]` each. The longest path of the most specific host wins, in any order. Default: all requests go
    /// to the only origin.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<RouteSection>"))]
    pub(super) route: Vec<Spanned<RouteSection>>,
}

/// Certificate and key in PEM; a reload reads them again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct TlsSection {
    /// File with the certificate chain.
    pub(super) cert: PathBuf,
    /// File with the private key.
    pub(super) key: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct AdminSection {
    /// Address with a port. Outside the loopback interface a token is required.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub(super) listen: Spanned<TextValue<SocketAddress>>,
    /// File with the token that requests need: `Authorization: Bearer TOKEN`. Default: none.
    pub(super) token_file: Option<PathBuf>,
    /// Host names to accept besides loopback addresses and localhost.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub(super) hosts: Vec<Spanned<String>>,
    /// Clients that may send `PURGE URL` to the proxy without the token, by address or network ("127.0.0.1", "10.0.0.0/8").
    /// Default: none.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub(super) purge_from: Vec<Spanned<String>>,
}

/// Each ghost differs from the cache in one setting. All together are 30 at most.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct ShadowSection {
    /// Limits: 0.01 to 100 times that of the cache, such as "2x", or a size or a number of entries, in the unit of that limit. Default:
    /// `["0.5x", "2x"]`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<String>>"))]
    pub(super) sizes: Option<Vec<Spanned<String>>>,
    /// Eviction policies; that of the cache is left out. Default: all.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<String>>"))]
    pub(super) policies: Option<Vec<Spanned<String>>>,
    /// Ttls: times that of each response, such as "2x", or one for all, such as "60s". Default: `["2x"]`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<String>>"))]
    pub(super) ttls: Option<Vec<Spanned<String>>>,
    /// Keys in the sample, at most, 256 to 131072; with the default ghosts each takes 0.8 KiB. Default: 16384.
    pub(super) keys: Option<ShadowKeys>,
}

/// Next to the file are the purges since it was written, so that nothing purged comes back.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct SnapshotSection {
    /// The file; it and those next to it are as large as the cache, twice while a new one is written.
    pub(super) path: PathBuf,
    /// Between two snapshots; one more is written when the proxy stops. Default: "1m".
    pub(super) every: Option<TextValue<PositiveDuration>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct LogSection {
    /// "json", "combined" (Apache's, with cache fields appended) or "none". Default: "json".
    pub(super) format: LogFormat,
    /// File to append to; a reload reopens it. Default: standard output.
    pub(super) path: Option<PathBuf>,
    /// Query parameters whose values are logged as `***`, in any case: names, or `sess*` for all with that prefix; `["*"]` masks
    /// all, `[]` none. Default: names such as `token`, `api_key` and `password`.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub(super) mask_query: Option<Vec<Spanned<String>>>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) enum LogFormat {
    #[default]
    Json,
    Combined,
    None,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct TimeoutsSection {
    /// For the head of a request. Default: "10s".
    pub(super) head: Option<TextValue<PositiveDuration>>,
    /// In which a client sends 16 KiB of a request body, or the rest of it. Default: "30s".
    pub(super) body: Option<TextValue<PositiveDuration>>,
    /// In which a client takes 64 KiB of its response, or all that waits for it. Shorter, down to a second, while clients that do
    /// not read hold an eighth of the cache's memory, or half of the connections to an origin, or more. Default: "30s".
    pub(super) write: Option<TextValue<PositiveDuration>>,
    /// Between two requests of a connection. Default: "60s".
    pub(super) idle: Option<TextValue<PositiveDuration>>,
    /// For a whole request, or "none". Default: "none", and 1 h for the body of a request.
    pub(super) total: Option<TextValue<PositiveDurationOrNone>>,
    /// For requests in flight when the proxy stops. Default: "30s".
    pub(super) drain: Option<TextValue<DurationValue>>,
    /// From the 503 of `/readyz` to the close of the listeners when the proxy stops: as long as load balancers take to notice. HTTP/1
    /// responses have `Connection: close` meanwhile. Default: "0s".
    pub(super) shutdown_delay: Option<TextValue<DurationValue>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct BoundsSection {
    /// Size of a request head. Default: "64KiB".
    pub(super) head: Option<TextValue<HeadSize>>,
    /// Fields of a request head. Default: 100.
    pub(super) headers: Option<Headers>,
    /// Size of a request body. Default: "64MiB".
    pub(super) body: Option<TextValue<SizeValue>>,
    /// Concurrent connections. Default: 10000.
    pub(super) connections: Option<Connections>,
    /// Concurrent connections of one client; see `client_prefix`. Default: 2000, at most `connections`.
    pub(super) connections_per_client: Option<Connections>,
    /// Request rate of one client, such as "100/s" or "1000/m", or "none". Beyond it: 429. Default: "none".
    pub(super) requests_per_client: Option<TextValue<RateOrNone>>,
    /// Requests of one client that may come at once. Default: those of a second.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Burst>"))]
    pub(super) burst_per_client: Option<Spanned<Burst>>,
    /// The first bits of an address that tell clients apart. Default: { ipv4 = 24, ipv6 = 56 }.
    pub(super) client_prefix: ClientPrefixSection,
    /// Concurrent requests of an HTTP/2 connection. Default: 250.
    pub(super) streams: Option<Streams>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct ClientPrefixSection {
    /// Of an IPv4 address. Default: 24.
    pub(super) ipv4: Option<Ipv4Bits>,
    /// Of an IPv6 address. Default: 56.
    pub(super) ipv6: Option<Ipv6Bits>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct OriginSection {
    /// Name in routes, logs and metrics. Default: "origin", if there is only one.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub(super) name: Option<Spanned<TextValue<Name>>>,
    /// `http://HOST:PORT`, `https://HOST`, or a database of documents: `postgres://USER@HOST/DATABASE`,
    /// `mongodb://HOST/DATABASE`, `couchdb://HOST/DATABASE`, `sqlite:PATH`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub(super) url: Option<Spanned<String>>,
    /// Instead of `url`: several equivalent HTTP servers.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<String>>"))]
    pub(super) urls: Option<Spanned<Vec<Spanned<String>>>>,
    /// Concurrent connections to all its servers; for a database, concurrent fetches. Default: 256.
    pub(super) connections: Option<OriginConnections>,
    /// Requests that may wait for a connection. Default: 1024.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Waiting>"))]
    pub(super) waiting: Option<Spanned<Waiting>>,
    /// Size of the head of a response; beyond it: 502. Default: "64KiB".
    #[cfg_attr(feature = "schema", schemars(with = "Option<TextValue<HeadSize>>"))]
    pub(super) head: Option<Spanned<TextValue<HeadSize>>>,
    /// Fields of the head of a response; beyond it: 502. Default: 100.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Headers>"))]
    pub(super) headers: Option<Spanned<Headers>>,
    /// Timeouts for this origin.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OriginTimeoutsSection>"))]
    pub(super) timeouts: Option<Spanned<OriginTimeoutsSection>>,
    /// When a server counts as unhealthy.
    #[cfg_attr(feature = "schema", schemars(with = "Option<HealthSection>"))]
    pub(super) health: Option<Spanned<HealthSection>>,
    /// Use HTTP/2: negotiated with https, assumed with http. Default: false.
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub(super) http2: Option<Spanned<bool>>,
    /// File with trusted certificates in PEM. Default: those of the system.
    #[cfg_attr(feature = "schema", schemars(with = "Option<PathBuf>"))]
    pub(super) ca: Option<Spanned<PathBuf>>,
    /// `Host` of requests to the origin: "client" (the client's) or "origin" (that of the URL). Default: "client".
    #[cfg_attr(feature = "schema", schemars(with = "Option<HostHeaderName>"))]
    pub(super) host_header: Option<Spanned<HostHeaderName>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) enum HostHeaderName {
    Client,
    Origin,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct OriginTimeoutsSection {
    /// For connecting. Default: "2s".
    pub(super) connect: Option<TextValue<PositiveDuration>>,
    /// For the head of a response; a `load.deadline` in the file may end it earlier. Default: "30s".
    pub(super) head: Option<TextValue<PositiveDuration>>,
    /// Between two reads or writes of a body. Default: "30s".
    pub(super) body: Option<TextValue<PositiveDuration>>,
    /// Before an idle connection is closed. Default: "60s".
    pub(super) idle: Option<TextValue<PositiveDuration>>,
    /// Age of a connection after which it takes no more requests, so that changes of the name's addresses are noticed. Default: "5m".
    pub(super) max_age: Option<TextValue<PositiveDuration>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct HealthSection {
    /// Consecutive failed connections or timeouts that make a server unhealthy. Default: 3.
    pub(super) failures: Option<Times>,
    /// How long an unhealthy server gets no requests. Default: "5s".
    pub(super) rest: Option<TextValue<PositiveDuration>>,
    /// Path to probe; a status below 400 is healthy. Default: no probes.
    pub(super) path: Option<TextValue<ProbePath>>,
    /// Interval of probes. Default: "5s".
    #[cfg_attr(feature = "schema", schemars(with = "Option<TextValue<PositiveDuration>>"))]
    pub(super) every: Option<Spanned<TextValue<PositiveDuration>>>,
    /// Timeout of a probe. Default: "1s".
    #[cfg_attr(feature = "schema", schemars(with = "Option<TextValue<PositiveDuration>>"))]
    pub(super) timeout: Option<Spanned<TextValue<PositiveDuration>>>,
    /// Consecutive successful probes that make a server healthy again. Default: 2.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Times>"))]
    pub(super) successes: Option<Spanned<Times>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) struct RouteSection {
    /// "/news" matches that path only, "/news/*" all below it. Default: "/*".
    pub(super) path: Option<TextValue<PathPattern>>,
    /// "example.org", or "*.example.org" for all below it. Default: any.
    pub(super) host: Option<TextValue<HostPattern>>,
    /// Name of the origin. Default: the only one.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub(super) origin: Option<Spanned<String>>,
    /// Caching strategy: overrides `[cache]` key by key; `strategy` replaces all of it. It has no limit of its own.
    #[cfg_attr(feature = "schema", schemars(with = "Option<CacheTable>"))]
    pub(super) cache: Option<Spanned<CacheTable>>,
    /// Freshness lifetime of the `ttl_statuses`, whatever the origin declares.
    pub(super) ttl: Option<TextValue<DurationValue>>,
    /// Freshness lifetime of the `ttl_statuses` that declare none. Default: the `ttl` written in the cache block; otherwise RFC 9111's
    /// heuristic, and for documents the strategy's ttl.
    pub(super) default_ttl: Option<TextValue<DurationValue>>,
    /// Statuses to which `ttl` and `default_ttl` apply. The others have the lifetime that the origin declares. Default:
    /// `[200, 203, 204, 301]`.
    pub(super) ttl_statuses: Option<Vec<FinalStatus>>,
    /// Lifetime of 404 and 410 responses that declare none. Default: not stored.
    pub(super) negative_ttl: Option<TextValue<DurationValue>>,
    /// Response fields with tags for purging. Default: `["surrogate-key", "cache-tag"]`.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub(super) tag_headers: Option<Vec<Spanned<String>>>,
    /// Query parameters to ignore and not to forward, such as `["utm_*", "fbclid"]`.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub(super) ignore_query: Vec<Spanned<String>>,
    /// Responses with `Set-Cookie`: "refuse" (not stored), "strip" (stored without the cookie) or "store" (each client gets the same
    /// cookie). Default: "refuse".
    pub(super) set_cookie: SetCookieName,
    /// `Cache-Control` and `Pragma` of requests: "obey" or "ignore". Default: "obey".
    pub(super) client_directives: ClientDirectivesName,
    /// Stored answers of a URL after a successful POST, PUT, PATCH or DELETE: "fallback" (load a new one, and serve the old one
    /// if that fails), "remove" or "none". Default: "fallback".
    pub(super) invalidate_on_unsafe: UnsafeInvalidationName,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) enum ClientDirectivesName {
    #[default]
    Obey,
    Ignore,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) enum SetCookieName {
    #[default]
    Refuse,
    Strip,
    Store,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub(super) enum UnsafeInvalidationName {
    #[default]
    Fallback,
    Remove,
    None,
}

macro_rules! counts {
    ($($(#[$what:meta])* $name:ident: $min:literal..=$max:literal, $error_text:literal;)*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy)]
        pub(super) struct $name(pub(super) usize);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                bounded_integer(from, $min..=$max, $error_text).map(Self)
            }
        }

        #[cfg(feature = "schema")]
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "integer", "minimum": $min, "maximum": $max })
            }
        }
    )*};
}

counts! {
    /// Threads that serve.
    Threads: 1..=1_024, "a proxy has 1 to 1,024 threads";
    /// Keys in the sample of a shadow.
    ShadowKeys: 256..=131_072, "the sample has 256 to 131,072 keys: write one of these numbers";
    /// Headers of a request or a response.
    Headers: 1..=10_000, "a head may have 1 to 10,000 headers";
    /// Connections of clients.
    Connections: 1..=10_000_000, "there may be 1 to 10,000,000 connections";
    /// Requests of one connection.
    Streams: 1..=100_000, "a connection may have 1 to 100,000 requests at once";
    /// Requests of one client at once.
    Burst: 1..=1_000_000, "1 to 1,000,000 requests may come at once";
    /// Bits of an IPv4 address.
    Ipv4Bits: 1..=32, "1 to 32 bits of an IPv4 address tell clients apart";
    /// Bits of an IPv6 address.
    Ipv6Bits: 1..=56, "1 to 56 bits of an IPv6 address tell clients apart";
    /// Connections to an origin.
    OriginConnections: 1..=100_000, "an origin has 1 to 100,000 connections";
    /// Requests that wait for one.
    Waiting: 0..=1_000_000, "0 to 1,000,000 requests may wait";
    /// Failures or good answers.
    Times: 1..=1_000, "write a number from 1 to 1,000";
    /// A status of a final response.
    FinalStatus: 200..=599, "write a status from 200 to 599";
}

#[derive(Clone, Copy)]
pub(super) struct SocketAddress(pub(super) SocketAddr);

impl FromStr for SocketAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = match text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')) {
            Some(port) if port.parse::<u16>().is_ok() => format!("127.0.0.1:{port}"),
            _ => "127.0.0.1:8080, 0.0.0.0:80 or [::]:80".to_owned(),
        };
        let message =
            || format!("`{text}` is not an address: write an IP address and a port, as in {example}");
        text.parse().map(Self).map_err(|_| message())
    }
}

#[derive(Clone)]
pub(super) struct Name(pub(super) String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err("names are made of 1 to 64 letters, digits, `_`, `-` and `.`")
        }
    }
}

/// A host name that the admin listener accepts.
pub(super) struct AdminHost(pub(super) String);

impl FromStr for AdminHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text.parse::<HostPattern>().map_err(|error| error.to_string())?;
        if text.starts_with("*.") {
            return Err(format!(
                "`{text}`: write every name in full; a pattern would let others choose a name"
            ));
        }
        Ok(Self(host.to_string()))
    }
}

pub(super) struct ProbePath(pub(super) String);

impl FromStr for ProbePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_path = text.starts_with('/') && text.parse::<http::uri::PathAndQuery>().is_ok();
        let message = || format!("`{text}` is not a path: write one such as /healthz");
        is_path.then(|| Self(text.to_owned())).ok_or_else(message)
    }
}

pub(super) struct HeaderFieldName(pub(super) HeaderName);

impl FromStr for HeaderFieldName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("`{text}` is not a field name"))
    }
}

/// Above 0, at most a year.
#[derive(Clone, Copy)]
pub(super) struct PositiveDuration(pub(super) Duration);

impl FromStr for PositiveDuration {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        match parse_duration(text)? {
            Duration::ZERO => Err(TimeError::Zero),
            time if time > Duration::from_hours(365 * 24) => Err(TimeError::Long(text.to_owned())),
            time => Ok(Self(time)),
        }
    }
}

/// `None`: unlimited.
#[derive(Clone, Copy)]
pub(super) struct PositiveDurationOrNone(pub(super) Option<Duration>);

impl FromStr for PositiveDurationOrNone {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        if text == "none" {
            Ok(Self(None))
        } else {
            text.parse::<PositiveDuration>().map(|time| Self(Some(time.0)))
        }
    }
}

/// `None`: unlimited.
#[derive(Clone, Copy)]
pub(super) struct RateOrNone(pub(super) Option<Rate>);

impl FromStr for RateOrNone {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|rate| Self(Some(rate))) }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TimeError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("this has to be above 0")]
    Zero,
    #[error("`{0}` is more than a year")]
    Long(String),
}

#[derive(Clone, Copy)]
pub(super) struct HeadSize(pub(super) usize);

impl FromStr for HeadSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // hyper's minimum, and a bound on the memory of ten thousand clients.
        let SizeValue(bytes) = text.parse().map_err(|error: UnitError| error.to_string())?;
        let error_text = || "the head of a request may have 8KiB to 1MiB".to_owned();
        (8 << 10..=1 << 20).contains(&bytes).then_some(Self(bytes)).ok_or_else(error_text)
    }
}
