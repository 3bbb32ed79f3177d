//! Origins: HTTP servers, or a database of documents.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use http::Uri;
use stockade_cache::spec::{Span, TomlError, value::TextValue};
use stockade_source::{OpenError, SourceUrl};
use toml::Spanned;

use super::file::{HealthSection, HostHeaderName, OriginSection, PositiveDuration, Times};
use stockade_http::upstream::{HostHeader, QUEUE_TIMEOUT};

#[derive(Clone, Debug, PartialEq)]
pub struct OriginConfig {
    pub name: String,
    pub kind: OriginKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum OriginKind {
    Http(Box<HttpOrigin>),
    /// A database of documents, by `GET /{id}`.
    Documents {
        /// May contain a secret; displayed without it.
        source: SourceUrl,
        /// Concurrent fetches.
        connections: usize,
    },
}

impl OriginKind {
    /// Concurrent connections, or fetches.
    #[must_use]
    pub fn connections(&self) -> usize {
        match self {
            Self::Http(http) => http.connections,
            Self::Documents { connections, .. } => *connections,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct HttpOrigin {
    /// At least one: scheme, host, port and optionally a base path; no user, no query.
    pub urls: Vec<Uri>,
    /// Concurrent connections to all servers.
    pub connections: usize,
    /// Requests that may wait for a connection.
    pub waiting: usize,
    /// Size of the head of a response.
    pub head_bytes: usize,
    /// Fields of the head of a response.
    pub headers: usize,
    pub timeouts: OriginTimeouts,
    /// Negotiated with TLS, assumed without.
    pub is_http2: bool,
    /// Trusted certificates in PEM; `None`: the system's.
    pub ca: Option<PathBuf>,
    pub host_header: HostHeader,
    pub health: HealthConfig,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginTimeouts {
    pub connect: Duration,
    /// Head of a response.
    pub head: Duration,
    /// Between two reads or writes of a body.
    pub body: Duration,
    /// Before an idle connection is closed.
    pub idle: Duration,
    /// Of a connection, after which it takes no more requests.
    pub max_age: Duration,
}

impl OriginTimeouts {
    /// The time after which a request has failed that has got no head of a response, from its wait for a connection on.
    #[must_use]
    pub fn until_head(&self) -> Duration {
        QUEUE_TIMEOUT + self.connect + self.head
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// Consecutive, to connect or to respond in time.
    pub failures: u32,
    /// How long an unhealthy server gets no requests, unless all are unhealthy.
    pub rest: Duration,
    pub probe: Option<ProbeConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeConfig {
    pub path: String,
    pub every: Duration,
    pub timeout: Duration,
    /// Consecutive, until the server is healthy again.
    pub successes: u32,
}

impl Default for OriginTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            idle: Duration::from_mins(1),
            max_age: Duration::from_mins(5),
        }
    }
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self { failures: 3, rest: Duration::from_secs(5), probe: None }
    }
}

impl Default for HttpOrigin {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            connections: 256,
            waiting: 1_024,
            head_bytes: 64 << 10,
            headers: 100,
            timeouts: OriginTimeouts::default(),
            is_http2: false,
            ca: None,
            host_header: HostHeader::Client,
            health: HealthConfig::default(),
        }
    }
}

/// Validates an `[[origin]]`; the span is that of its name.
pub(super) fn read(table: Spanned<OriginSection>, folder: &Path) -> Result<(OriginConfig, Span), TomlError> {
    let at = Some(table.span()).filter(|span| !span.is_empty());
    let mut table = table.into_inner();
    let (name, at_name) = match table.name.take() {
        Some(name) => (name.get_ref().0.0.clone(), Some(name.span())),
        None => ("origin".to_owned(), at.clone()),
    };
    let urls = match (table.url.take(), table.urls.take()) {
        (Some(url), None) => vec![url],
        (None, Some(urls)) if !urls.get_ref().is_empty() => urls.into_inner(),
        (None, _) => {
            let message = format!("the origin `{name}` has no URL: write url = \"http://HOST:PORT\"");
            return Err(TomlError::new(message, at));
        }
        (Some(url), Some(_)) => {
            let message = "`url` and `urls` exclude each other: write all URLs into `urls`";
            return Err(TomlError::new(message, Some(url.span())));
        }
    };
    let is_http = |url: &Spanned<String>| has_http_scheme(url.get_ref());
    let kind =
        if urls.iter().any(is_http) { http_origin(&urls, table, folder)? } else { documents(&urls, &table)? };
    Ok((OriginConfig { name, kind }, at_name))
}

fn has_http_scheme(url: &str) -> bool {
    let scheme = url.split(':').next().unwrap_or_default();
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

fn http_origin(
    urls: &[Spanned<String>],
    table: OriginSection,
    folder: &Path,
) -> Result<OriginKind, TomlError> {
    let default = HttpOrigin::default();
    let mut read: Vec<Uri> = Vec::with_capacity(urls.len());
    for url in urls {
        let wrong = |message: String| TomlError::new(message, Some(url.span()));
        let uri = http_url(url.get_ref()).map_err(wrong)?;
        if read.contains(&uri) {
            return Err(wrong("this URL is listed twice".to_owned()));
        }
        if read.first().is_some_and(|first| first.scheme() != uri.scheme()) {
            return Err(wrong("the servers of an origin have to be all http: or all https:".to_owned()));
        }
        read.push(uri);
    }
    let timeouts = table.timeouts.map(Spanned::into_inner).unwrap_or_default();
    let time = |time: Option<TextValue<PositiveDuration>>, default| time.map_or(default, |time| time.0.0);
    Ok(OriginKind::Http(Box::new(HttpOrigin {
        urls: read,
        connections: table.connections.map_or(default.connections, |count| count.0),
        waiting: table.waiting.map_or(default.waiting, |count| count.into_inner().0),
        head_bytes: table.head.map_or(default.head_bytes, |size| size.into_inner().0.0),
        headers: table.headers.map_or(default.headers, |count| count.into_inner().0),
        timeouts: OriginTimeouts {
            connect: time(timeouts.connect, default.timeouts.connect),
            head: time(timeouts.head, default.timeouts.head),
            body: time(timeouts.body, default.timeouts.body),
            idle: time(timeouts.idle, default.timeouts.idle),
            max_age: time(timeouts.max_age, default.timeouts.max_age),
        },
        is_http2: table.http2.is_some_and(Spanned::into_inner),
        ca: table.ca.map(|path| folder.join(path.into_inner())),
        host_header: match table.host_header.map(Spanned::into_inner) {
            None | Some(HostHeaderName::Client) => HostHeader::Client,
            Some(HostHeaderName::Origin) => HostHeader::Origin,
        },
        health: table.health.map_or(Ok(default.health), |table| health(table.into_inner()))?,
    })))
}

/// Error messages do not contain the URL, which may have a secret.
fn http_url(url: &str) -> Result<Uri, String> {
    let malformed = || "this is not the URL of a server: write http://HOST:PORT".to_owned();
    let uri: Uri = url.parse().map_err(|_| malformed())?;
    let authority = uri.authority().ok_or_else(malformed)?;
    if authority.as_str().contains('@') {
        return Err("the client's `Authorization` is forwarded: remove user and password".to_owned());
    }
    // `http` returns no port for one above 65535.
    let has_port = authority.as_str().len() > authority.host().len();
    if authority.host().is_empty() || has_port && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(malformed());
    }
    if uri.query().is_some() || url.contains('#') {
        return Err("remove the query and the fragment".to_owned());
    }
    Ok(uri)
}

fn health(table: HealthSection) -> Result<HealthConfig, TomlError> {
    let default = HealthConfig::default();
    let HealthSection { failures, rest, path, every, timeout, successes } = table;
    let at = every.as_ref().map(Spanned::span);
    let at = at.or(timeout.as_ref().map(Spanned::span)).or(successes.as_ref().map(Spanned::span));
    let small = |times: Times| u32::try_from(times.0).unwrap_or(u32::MAX);
    let probe = match (path, at) {
        (None, None) => None,
        (None, at) => {
            return Err(TomlError::new("there is no path to probe: write path = \"/healthz\" as well", at));
        }
        (Some(path), _) => Some(ProbeConfig {
            path: path.0.0,
            every: every.map_or(Duration::from_secs(5), |time| time.into_inner().0.0),
            timeout: timeout.map_or(Duration::from_secs(1), |time| time.into_inner().0.0),
            successes: successes.map_or(2, |times| small(times.into_inner())),
        }),
    };
    Ok(HealthConfig {
        failures: failures.map_or(default.failures, small),
        rest: rest.map_or(default.rest, |time| time.0.0),
        probe,
    })
}

fn documents(urls: &[Spanned<String>], table: &OriginSection) -> Result<OriginKind, TomlError> {
    let [url] = urls else {
        let message = "only HTTP origins can have several URLs: write one `url`";
        return Err(TomlError::new(message, urls.first().map(Spanned::span)));
    };
    let source: SourceUrl = url
        .get_ref()
        .parse()
        .map_err(|error: OpenError| TomlError::new(error.to_string(), Some(url.span())))?;
    let http_only = [
        ("waiting", table.waiting.as_ref().map(Spanned::span)),
        ("head", table.head.as_ref().map(Spanned::span)),
        ("headers", table.headers.as_ref().map(Spanned::span)),
        ("timeouts", table.timeouts.as_ref().map(Spanned::span)),
        ("health", table.health.as_ref().map(Spanned::span)),
        ("http2", table.http2.as_ref().map(Spanned::span)),
        ("ca", table.ca.as_ref().map(Spanned::span)),
        ("host_header", table.host_header.as_ref().map(Spanned::span)),
    ];
    if let Some((key, at @ Some(_))) = http_only.into_iter().find(|(_, at)| at.is_some()) {
        let message = format!("`{key}` is for HTTP origins: write such options into the database's URL");
        return Err(TomlError::new(message, at));
    }
    let connections = table.connections.map_or(HttpOrigin::default().connections, |count| count.0);
    Ok(OriginKind::Documents { source, connections })
}
