//! A configuration file, as it is written. Its comments are the descriptions in `docs/proxy.schema.json`.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use http::HeaderName;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use stockade_cache::spec::{
    CacheTable,
    written::{Plain, Size, Text, Words, count, duration_schema},
};
use stockade_model::units::{UnitError, parse_duration};
use toml::Spanned;

use super::{
    route::{HostPattern, PathPattern},
    tier::TierUrl,
};

/// What `stockade proxy --config FILE` is told. Times and sizes are text with a unit: "250ms", "30s", "6h"; "64KiB",
/// "256MiB". Relative paths begin at the file's folder.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "stockade.toml", inline)]
pub(super) struct File {
    /// Where clients come in: addresses with ports. Default: 127.0.0.1:8080.
    #[schemars(with = "Vec<String>")]
    pub(super) listen: Option<Spanned<Vec<Spanned<String>>>>,
    /// How many threads serve. Default: one for each core.
    pub(super) threads: Option<Threads>,
    /// Which names (`Host`) are answered: "example.org", "*.example.org". Default: all of them.
    #[schemars(with = "Vec<String>")]
    pub(super) hosts: Vec<Spanned<String>>,
    /// Encrypted connections for clients: HTTP/2 and HTTP/1.1.
    pub(super) tls: Option<TlsTable>,
    /// Where whoever runs it comes in: health, figures, purging, reloading. Default: nowhere.
    pub(super) admin: Option<AdminTable>,
    /// What is done about missing answers: the `[cache]` block of an experiment. Default: strategy = "breaker". Its
    /// `limit` is that of all routes together; default: { bytes = "256MiB" }.
    #[schemars(with = "Option<CacheTable<TierUrl>>")]
    pub(super) cache: Option<Spanned<CacheTable<TierUrl>>>,
    /// What is written of each request.
    pub(super) log: LogTable,
    /// How long clients may take.
    pub(super) timeouts: TimeoutsTable,
    /// How much clients may ask for.
    pub(super) bounds: BoundsTable,
    /// Where answers come from: one `[[origin]]` each.
    #[schemars(with = "Vec<OriginTable>")]
    pub(super) origin: Vec<Spanned<OriginTable>>,
    /// Which requests go where: one `[[route]]` each. The longest path of the nearest host comes first, wherever it is
    /// written. Default: everything goes to the only origin.
    #[schemars(with = "Vec<RouteTable>")]
    pub(super) route: Vec<Spanned<RouteTable>>,
}

/// A certificate and its key, in PEM; read again by a reload.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct TlsTable {
    /// The file with the certificate, and those that vouch for it.
    pub(super) cert: PathBuf,
    /// The file with its key.
    pub(super) key: PathBuf,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct AdminTable {
    /// An address with a port. On another than the loopback there has to be a token.
    #[schemars(with = "String")]
    pub(super) listen: Spanned<Text<Address>>,
    /// A file with the token that requests have to show: `Authorization: Bearer TOKEN`. Default: none is needed.
    pub(super) token_file: Option<PathBuf>,
    /// Names (`Host`) that it answers to, beside addresses of the loopback and localhost.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(super) hosts: Vec<Spanned<String>>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub(super) struct LogTable {
    /// "json", "combined" (Apache's, with the cache's part after it) or "none". Default: "json".
    pub(super) format: LogFormat,
    /// The file to append to; opened again by a reload. Default: standard output.
    pub(super) path: Option<PathBuf>,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(super) enum LogFormat {
    #[default]
    Json,
    Combined,
    None,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub(super) struct TimeoutsTable {
    /// Until the head of a request is there. Default: "10s".
    pub(super) head: Option<Text<Above>>,
    /// Between two parts of a request's body. Default: "30s".
    pub(super) body: Option<Text<Above>>,
    /// Between two parts of an answer that a client reads. Default: "30s".
    pub(super) write: Option<Text<Above>>,
    /// Between two requests of one connection. Default: "60s".
    pub(super) idle: Option<Text<Above>>,
    /// For a request altogether, or "none". Default: "none".
    pub(super) total: Option<Text<AboveOrNone>>,
    /// For what is under way when the proxy stops. Default: "30s".
    pub(super) drain: Option<Text<Plain>>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub(super) struct BoundsTable {
    /// The head of a request. Default: "64KiB".
    pub(super) head: Option<Text<HeadSize>>,
    /// Headers of a request. Default: 100.
    pub(super) headers: Option<Headers>,
    /// The body of a request. Default: "64MiB".
    pub(super) body: Option<Text<Size>>,
    /// Connections at once. Default: 10000.
    pub(super) connections: Option<Connections>,
    /// Requests of one HTTP/2 connection at once. Default: 250.
    pub(super) streams: Option<Streams>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub(super) struct OriginTable {
    /// As routes, logs and figures call it. Default: "origin", if there is one only.
    #[schemars(with = "Option<String>")]
    pub(super) name: Option<Spanned<Text<Name>>>,
    /// Where it is: `http://HOST:PORT`, `https://HOST`, or a source of documents: `postgres://USER@HOST/DATABASE`,
    /// `mongodb://HOST/DATABASE`, `couchdb://HOST/DATABASE`, `sqlite:PATH`.
    #[schemars(with = "Option<String>")]
    pub(super) url: Option<Spanned<String>>,
    /// In place of `url`: several HTTP servers that are the same.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) urls: Option<Spanned<Vec<Spanned<String>>>>,
    /// Connections to all of it at once; of a source of documents: fetches. Default: 256.
    pub(super) connections: Option<OriginConnections>,
    /// Requests that may wait for a connection. Default: 1024.
    #[schemars(with = "Option<Waiting>")]
    pub(super) waiting: Option<Spanned<Waiting>>,
    /// How long it may take.
    #[schemars(with = "Option<OriginTimeoutsTable>")]
    pub(super) timeouts: Option<Spanned<OriginTimeoutsTable>>,
    /// When it is left alone.
    #[schemars(with = "Option<HealthTable>")]
    pub(super) health: Option<Spanned<HealthTable>>,
    /// Whether HTTP/2 is spoken: agreed on with https, taken for granted with http. Default: false.
    #[schemars(with = "Option<bool>")]
    pub(super) http2: Option<Spanned<bool>>,
    /// A file with certificates that vouch for its own, in PEM. Default: what the system trusts.
    #[schemars(with = "Option<PathBuf>")]
    pub(super) ca: Option<Spanned<PathBuf>>,
    /// Which `Host` it is asked with: "client" (the client's) or "origin" (that of its URL). Default: "client".
    #[schemars(with = "Option<HostHeaderName>")]
    pub(super) host_header: Option<Spanned<HostHeaderName>>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(super) enum HostHeaderName {
    Client,
    Origin,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub(super) struct OriginTimeoutsTable {
    /// Until there is a connection. Default: "2s".
    pub(super) connect: Option<Text<Above>>,
    /// Until the head of an answer is there; the strategy's `load.deadline` may end it before. Default: "30s".
    pub(super) head: Option<Text<Above>>,
    /// Between two parts of a body. Default: "30s".
    pub(super) body: Option<Text<Above>>,
    /// How long a connection is kept that nobody uses. Default: "60s".
    pub(super) idle: Option<Text<Above>>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub(super) struct HealthTable {
    /// So many failures to connect or to answer in time, one after the other, and it is left alone. Default: 3.
    pub(super) failures: Option<Times>,
    /// For so long. Default: "5s".
    pub(super) rest: Option<Text<Above>>,
    /// Asked for every so often, to know how it is: an answer below 400 is good. Default: nothing is.
    pub(super) path: Option<Text<ProbePath>>,
    /// How often the path is asked for. Default: "5s".
    #[schemars(with = "Option<Text<Above>>")]
    pub(super) every: Option<Spanned<Text<Above>>>,
    /// How long that may take. Default: "1s".
    #[schemars(with = "Option<Text<Above>>")]
    pub(super) timeout: Option<Spanned<Text<Above>>>,
    /// So many good answers, one after the other, and it is well again. Default: 2.
    #[schemars(with = "Option<Times>")]
    pub(super) successes: Option<Spanned<Times>>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub(super) struct RouteTable {
    /// "/news" is that path alone, "/news/*" all below it. Default: "/*", everything.
    pub(super) path: Option<Text<PathPattern>>,
    /// "example.org", or "*.example.org" for all below it. Default: any.
    pub(super) host: Option<Text<HostPattern>>,
    /// The name of its origin. Default: the only one.
    #[schemars(with = "Option<String>")]
    pub(super) origin: Option<Spanned<String>>,
    /// What is done about missing answers: laid over `[cache]`, key by key; a `strategy` starts anew. It has no limit
    /// of its own.
    #[schemars(with = "Option<CacheTable>")]
    pub(super) cache: Option<Spanned<CacheTable>>,
    /// How long answers are fresh, whatever the origin says.
    pub(super) ttl: Option<Text<Plain>>,
    /// How long answers are fresh of which the origin says nothing. Default: the `ttl` written in the cache's block;
    /// else what RFC 9111 makes of their age, and for documents the strategy's ttl.
    pub(super) default_ttl: Option<Text<Plain>>,
    /// How long a 404 or 410 is kept that does not say so itself. Default: it is not.
    pub(super) negative_ttl: Option<Text<Plain>>,
    /// Headers of answers that hold their tags, for purging. Default: `["surrogate-key", "cache-tag"]`.
    #[schemars(with = "Vec<String>")]
    pub(super) tag_headers: Option<Vec<Spanned<String>>>,
    /// Parameters that make no difference, as in `["utm_*", "fbclid"]`: nobody is asked for them.
    #[schemars(with = "Vec<String>")]
    pub(super) ignore_query: Vec<Spanned<String>>,
}

macro_rules! counts {
    ($($(#[$what:meta])* $name:ident: $least:literal..=$most:literal, $otherwise:literal;)*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy)]
        pub(super) struct $name(pub(super) usize);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                count(from, $least..=$most, $otherwise).map(Self)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "integer", "minimum": $least, "maximum": $most })
            }
        }
    )*};
}

counts! {
    /// Threads that serve.
    Threads: 1..=1_024, "a proxy has 1 to 1,024 threads";
    /// Headers of a request.
    Headers: 1..=10_000, "a request may be let have 1 to 10,000 headers";
    /// Connections of clients.
    Connections: 1..=10_000_000, "there may be 1 to 10,000,000 connections";
    /// Requests of one connection.
    Streams: 1..=100_000, "a connection may have 1 to 100,000 requests at once";
    /// Connections to an origin.
    OriginConnections: 1..=100_000, "an origin has 1 to 100,000 connections";
    /// Requests that wait for one.
    Waiting: 0..=1_000_000, "0 to 1,000,000 requests may wait";
    /// Failures or good answers.
    Times: 1..=1_000, "write a number from 1 to 1,000";
}

/// A word that its own type reads, as a schema has it.
macro_rules! words {
    ($($name:ty: $schema:tt;)*) => {$(
        impl Words for $name {
            fn schema() -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

words! {
    Address: { "type": "string" };
    Name: { "type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$" };
    ProbePath: { "type": "string", "pattern": "^/" };
    HostPattern: { "type": "string" };
    PathPattern: { "type": "string", "pattern": "^/[^*?# ]*\\*?$" };
}

impl Words for HeadSize {
    fn schema() -> Schema {
        Size::schema()
    }
}

impl Words for Above {
    fn schema() -> Schema {
        duration_schema(false)
    }
}

impl Words for AboveOrNone {
    fn schema() -> Schema {
        duration_schema(true)
    }
}

/// An address with a port.
#[derive(Clone, Copy)]
pub(super) struct Address(pub(super) SocketAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = match text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')) {
            Some(port) if port.parse::<u16>().is_ok() => format!("127.0.0.1:{port}"),
            _ => "127.0.0.1:8080, 0.0.0.0:80 or [::]:80".to_owned(),
        };
        let message = || format!("`{text}` is no address: write an IP address and a port, as in {example}");
        text.parse().map(Self).map_err(|_| message())
    }
}

/// What origins are called.
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

/// A name that the admin's listener answers to.
pub(super) struct AdminHost(pub(super) String);

impl FromStr for AdminHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text.parse::<HostPattern>().map_err(|error| error.to_string())?;
        if text.starts_with("*.") {
            return Err(format!("`{text}`: write every name in full, so that nobody can make up one"));
        }
        Ok(Self(host.to_string()))
    }
}

/// What a probe asks for.
pub(super) struct ProbePath(pub(super) String);

impl FromStr for ProbePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_path = text.starts_with('/') && text.parse::<http::uri::PathAndQuery>().is_ok();
        let message = || format!("`{text}` is no path: write one such as /healthz");
        is_path.then(|| Self(text.to_owned())).ok_or_else(message)
    }
}

/// The name of a header.
pub(super) struct HeaderWord(pub(super) HeaderName);

impl FromStr for HeaderWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("`{text}` is no name of a header"))
    }
}

/// A time above 0, of a year at most.
#[derive(Clone, Copy)]
pub(super) struct Above(pub(super) Duration);

impl FromStr for Above {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        match parse_duration(text)? {
            Duration::ZERO => Err(TimeError::Zero),
            time if time > Duration::from_hours(365 * 24) => Err(TimeError::Long(text.to_owned())),
            time => Ok(Self(time)),
        }
    }
}

/// A time above 0, of a year at most; `None`: without an end.
#[derive(Clone, Copy)]
pub(super) struct AboveOrNone(pub(super) Option<Duration>);

impl FromStr for AboveOrNone {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        if text == "none" { Ok(Self(None)) } else { text.parse::<Above>().map(|time| Self(Some(time.0))) }
    }
}

/// A time that nothing can be done in, or that nobody lives to see the end of.
#[derive(Debug, thiserror::Error)]
pub(super) enum TimeError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("this has to be above 0: nothing is done in no time")]
    Zero,
    #[error("`{0}` is more than a year")]
    Long(String),
}

/// Bytes of a head.
#[derive(Clone, Copy)]
pub(super) struct HeadSize(pub(super) usize);

impl FromStr for HeadSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What hyper needs at least, and a bound on what ten thousand clients can make it hold.
        let Size(bytes) = text.parse().map_err(|error: UnitError| error.to_string())?;
        let otherwise = || "the head of a request may have 8KiB to 1MiB".to_owned();
        (8 << 10..=1 << 20).contains(&bytes).then_some(Self(bytes)).ok_or_else(otherwise)
    }
}
