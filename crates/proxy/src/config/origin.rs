//! Origins: HTTP servers, or a database of documents.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use http::Uri;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use stockade_http::upstream::{HostHeader, QUEUE_TIMEOUT};
use stockade_source::SourceUrl;

use super::{
    error::SettingError,
    value::{
        HeadSize, Headers, Name, OriginAddress, OriginConnections, PositiveDuration, ProbePath, Times,
        Waiting,
    },
};

#[derive(Clone, Debug, PartialEq)]
pub struct OriginConfig {
    pub name: String,
    pub kind: OriginKind,
    /// For a database all but the number of connections have their defaults.
    pub table: OriginTable,
}

#[derive(Clone, Debug, PartialEq)]
pub enum OriginKind {
    /// At least one URL.
    Http(Vec<Uri>),
    /// A database of documents, by `GET /{id}`.
    Documents(SourceUrl),
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct OriginTable {
    /// Name in routes, logs and metrics. Default: "origin", if there is only one.
    #[serde(skip_serializing)]
    pub(super) name: Option<Name>,
    /// `http://HOST:PORT`, `https://HOST`, or a database of documents: `postgres://USER@HOST/DATABASE`,
    /// `mongodb://HOST/DATABASE`, `couchdb://HOST/DATABASE`, `sqlite:PATH`.
    #[serde(skip_serializing)]
    pub(super) url: Option<OriginAddress>,
    /// Instead of `url`: several equivalent HTTP servers.
    #[serde(skip_serializing)]
    pub(super) urls: Option<Vec<OriginAddress>>,
    /// Concurrent connections to all its servers; for a database, concurrent fetches. Default: 256.
    pub connections: OriginConnections,
    /// Requests that may wait for a connection. Default: 1024.
    pub waiting: Waiting,
    /// Size of the head of a response; beyond it: 502. Default: "64KiB".
    pub head: HeadSize,
    /// Fields of the head of a response; beyond it: 502. Default: 100.
    pub headers: Headers,
    /// Timeouts for this origin.
    pub timeouts: OriginTimeouts,
    /// When a server counts as unhealthy.
    pub health: HealthTable,
    /// Use HTTP/2: negotiated with https, assumed with http. Default: false.
    pub http2: bool,
    /// File with trusted certificates in PEM. Default: those of the system.
    pub ca: Option<PathBuf>,
    /// `Host` of requests to the origin: "client" (the client's) or "origin" (that of the URL). Default: "client".
    #[serde(with = "HostHeaderName")]
    #[cfg_attr(feature = "schema", schemars(with = "HostHeaderName"))]
    pub host_header: HostHeader,
}

/// As the file writes it.
#[derive(Deserialize, Serialize)]
#[serde(remote = "HostHeader", rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
enum HostHeaderName {
    Client,
    Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct OriginTimeouts {
    /// For connecting. Default: "2s".
    pub connect: PositiveDuration,
    /// For the head of a response; a `load.deadline` in the file may end it earlier. Default: "30s".
    pub head: PositiveDuration,
    /// Between two reads or writes of a body. Default: "30s".
    pub body: PositiveDuration,
    /// Before an idle connection is closed. Default: "60s".
    pub idle: PositiveDuration,
    /// Age of a connection after which it takes no more requests, so that changes of the name's addresses are noticed. Default: "5m".
    pub max_age: PositiveDuration,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct HealthTable {
    /// Consecutive failed connections or timeouts that make a server unhealthy. Default: 3.
    pub failures: Times,
    /// How long an unhealthy server gets no requests. Default: "5s".
    pub rest: PositiveDuration,
    /// Path to probe; a status below 400 is healthy. Default: no probes.
    pub path: Option<ProbePath>,
    /// Interval of probes. Default: "5s".
    pub every: Option<PositiveDuration>,
    /// Timeout of a probe. Default: "1s".
    pub timeout: Option<PositiveDuration>,
    /// Consecutive successful probes that make a server healthy again. Default: 2.
    pub successes: Option<Times>,
}

const fn seconds(seconds: u64) -> PositiveDuration {
    PositiveDuration(Duration::from_secs(seconds))
}

impl Default for OriginTable {
    fn default() -> Self {
        Self {
            name: None,
            url: None,
            urls: None,
            connections: OriginConnections(256),
            waiting: Waiting(1_024),
            head: HeadSize(64 << 10),
            headers: Headers(100),
            timeouts: OriginTimeouts::default(),
            health: HealthTable::default(),
            http2: false,
            ca: None,
            host_header: HostHeader::Client,
        }
    }
}

impl Default for OriginTimeouts {
    fn default() -> Self {
        let (connect, head, body) = (seconds(2), seconds(30), seconds(30));
        Self { connect, head, body, idle: seconds(60), max_age: seconds(300) }
    }
}

impl Default for HealthTable {
    fn default() -> Self {
        let (failures, rest) = (Times(3), seconds(5));
        Self { failures, rest, path: None, every: None, timeout: None, successes: None }
    }
}

impl HealthTable {
    pub(crate) const EVERY: PositiveDuration = seconds(5);
    pub(crate) const TIMEOUT: PositiveDuration = seconds(1);
    pub(crate) const SUCCESSES: Times = Times(2);

    /// Fills in what a probe needs. The error: settings of probes, and no path.
    fn complete(&mut self) -> Result<(), &'static str> {
        let Self { path, every, timeout, successes, .. } = self;
        let stated =
            [("every", every.is_some()), ("timeout", timeout.is_some()), ("successes", successes.is_some())];
        if path.is_none() {
            return stated.iter().find(|(_, is_stated)| *is_stated).map_or(Ok(()), |(key, _)| Err(*key));
        }
        every.get_or_insert(Self::EVERY);
        timeout.get_or_insert(Self::TIMEOUT);
        successes.get_or_insert(Self::SUCCESSES);
        Ok(())
    }
}

impl OriginTimeouts {
    /// The time after which a request has failed that has got no head of a response, from its wait for a connection on.
    #[must_use]
    pub fn until_head(&self) -> Duration {
        QUEUE_TIMEOUT + self.connect.0 + self.head.0
    }
}

impl OriginConfig {
    #[must_use]
    pub fn is_http(&self) -> bool {
        matches!(self.kind, OriginKind::Http(_))
    }

    /// Validates an `[[origin]]`, whose place in the file is `at`.
    pub(super) fn new(mut table: OriginTable, at: &str, folder: &Path) -> Result<Self, SettingError> {
        let name = table.name.take().map_or_else(|| "origin".to_owned(), |name| name.0);
        let urls = match (table.url.take(), table.urls.take()) {
            (Some(url), None) => vec![url],
            (None, Some(urls)) if !urls.is_empty() => urls,
            (None, _) => {
                let message = format!("the origin `{name}` has no URL: write url = \"http://HOST:PORT\"");
                return Err(SettingError::new(at, message));
            }
            (Some(_), Some(_)) => {
                let message = "`url` and `urls` exclude each other: write all URLs into `urls`";
                return Err(SettingError::new(format!("{at}.url"), message));
            }
        };
        table.health.complete().map_err(|key| {
            let message = "there is no path to probe: write path = \"/healthz\" as well";
            SettingError::new(format!("{at}.health.{key}"), message)
        })?;
        table.ca = table.ca.map(|path| folder.join(path));
        let kind = match <[OriginAddress; 1]>::try_from(urls) {
            Ok([OriginAddress::Documents(source)]) => {
                table.check_for_documents(at)?;
                OriginKind::Documents(source)
            }
            Ok([OriginAddress::Http(url)]) => OriginKind::Http(vec![url]),
            Err(urls) => OriginKind::Http(servers(urls, at)?),
        };
        Ok(Self { name, kind, table })
    }
}

impl OriginTable {
    /// A database has one setting of an origin.
    fn check_for_documents(&self, at: &str) -> Result<(), SettingError> {
        let settings = |table: &Self| match serde_json::to_value(table) {
            Ok(Value::Object(settings)) => settings,
            _ => Map::new(),
        };
        let default = settings(&Self { connections: self.connections, ..Self::default() });
        let stated = settings(self).into_iter().find(|(key, value)| default.get(key) != Some(value));
        stated.map_or(Ok(()), |(key, _)| {
            let message = format!("`{key}` is for HTTP origins: write such options into the database's URL");
            Err(SettingError::new(format!("{at}.{key}"), message))
        })
    }
}

/// Several servers, which have to be of one kind.
fn servers(urls: Vec<OriginAddress>, at: &str) -> Result<Vec<Uri>, SettingError> {
    let mut read: Vec<Uri> = Vec::with_capacity(urls.len());
    for (index, url) in urls.into_iter().enumerate() {
        let wrong = |message: &str| Err(SettingError::new(format!("{at}.urls.{index}"), message));
        let OriginAddress::Http(url) = url else {
            return wrong("only HTTP origins can have several URLs: write one `url`");
        };
        if read.contains(&url) {
            return wrong("this URL is listed twice");
        }
        if read.first().is_some_and(|first| first.scheme() != url.scheme()) {
            return wrong("the servers of an origin have to be all http: or all https:");
        }
        read.push(url);
    }
    Ok(read)
}

/// Shown without secrets.
impl Serialize for OriginConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Servers<'a> {
            name: &'a str,
            urls: Vec<String>,
            #[serde(flatten)]
            table: &'a OriginTable,
        }
        #[derive(Serialize)]
        struct Database<'a> {
            name: &'a str,
            url: String,
            connections: OriginConnections,
        }
        let Self { name, kind, table } = self;
        match kind {
            OriginKind::Http(urls) => {
                Servers { name, urls: urls.iter().map(ToString::to_string).collect(), table }.serialize(to)
            }
            OriginKind::Documents(source) => {
                Database { name, url: source.to_string(), connections: table.connections }.serialize(to)
            }
        }
    }
}
