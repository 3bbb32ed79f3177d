//! Where answers come from.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use http::Uri;
use stockade_cache::spec::{Place, Wrong, written::Text};
use stockade_source::{OpenError, SourceUrl};
use toml::Spanned;

use super::file::{Above, HealthTable, HostHeaderName, OriginTable, Times};

/// Where answers come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// As routes call it.
    pub name: String,
    /// Who answers.
    pub kind: Kind,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// An HTTP server, or several that are the same.
    Http(Box<HttpOrigin>),
    /// A database of documents: `GET /{id}`.
    Documents {
        /// Where it is. It may hold a secret, and shows none.
        source: SourceUrl,
        /// How many documents are asked for at once.
        connections: usize,
    },
}

/// An HTTP server, or several that are the same.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOrigin {
    /// Where they are, one at least: `http:` or `https:`, host and port, a path that stands before every request's
    /// perhaps; no user, no query.
    pub urls: Vec<Uri>,
    /// How many connections there may be to all of them together.
    pub connections: usize,
    /// How many requests may wait for a connection.
    pub waiting: usize,
    /// How long they may take.
    pub timeouts: OriginTimeouts,
    /// Whether HTTP/2 is spoken: agreed on where connections are encrypted, taken for granted where not.
    pub is_http2: bool,
    /// What vouches for their certificates, in PEM; `None`: what the system trusts.
    pub ca: Option<PathBuf>,
    /// Which `Host` they are asked with.
    pub host_header: HostHeader,
    /// When one of them is left alone.
    pub health: Health,
}

/// How long an origin may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginTimeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until the head of an answer is there.
    pub head: Duration,
    /// Between two parts of a body.
    pub body: Duration,
    /// How long a connection is kept that nobody uses.
    pub idle: Duration,
}

/// Which `Host` an origin is asked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// That of the client's request.
    Client,
    /// That of the origin's URL.
    Origin,
}

/// When an origin is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// So many failures to connect or to answer in time, one after the other.
    pub failures: u32,
    /// Then nobody asks it for so long, unless the others are no better.
    pub rest: Duration,
    /// Whether it is asked how it is without a request to answer.
    pub probe: Option<Probe>,
}

/// How an origin is asked how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What is asked for.
    pub path: String,
    /// How often.
    pub every: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// So many good answers, one after the other, and it is well again.
    pub successes: u32,
}

impl Default for OriginTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            idle: Duration::from_mins(1),
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self { failures: 3, rest: Duration::from_secs(5), probe: None }
    }
}

impl Default for HttpOrigin {
    /// Without a URL.
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            connections: 256,
            waiting: 1_024,
            timeouts: OriginTimeouts::default(),
            is_http2: false,
            ca: None,
            host_header: HostHeader::Client,
            health: Health::default(),
        }
    }
}

/// What an `[[origin]]` means, and where its name stands.
pub(super) fn read(table: Spanned<OriginTable>, folder: &Path) -> Result<(Origin, Place), Wrong> {
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
            let message = format!("the origin `{name}` is nowhere: write url = \"http://HOST:PORT\"");
            return Err(Wrong::new(message, at));
        }
        (Some(url), Some(_)) => {
            let message = "there is a `url` and there are `urls`: write all of them into `urls`";
            return Err(Wrong::new(message, Some(url.span())));
        }
    };
    let is_http = |url: &Spanned<String>| is_scheme_of_http(url.get_ref());
    let kind =
        if urls.iter().any(is_http) { http_origin(&urls, table, folder)? } else { documents(&urls, &table)? };
    Ok((Origin { name, kind }, at_name))
}

fn is_scheme_of_http(url: &str) -> bool {
    let scheme = url.split(':').next().unwrap_or_default();
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

fn http_origin(urls: &[Spanned<String>], table: OriginTable, folder: &Path) -> Result<Kind, Wrong> {
    let usual = HttpOrigin::default();
    let mut read: Vec<Uri> = Vec::with_capacity(urls.len());
    for url in urls {
        let wrong = |message: String| Wrong::new(message, Some(url.span()));
        let uri = http_url(url.get_ref()).map_err(wrong)?;
        if read.contains(&uri) {
            return Err(wrong("this URL is there twice".to_owned()));
        }
        if read.first().is_some_and(|first| first.scheme() != uri.scheme()) {
            return Err(wrong("servers that are the same are all http: or all https:".to_owned()));
        }
        read.push(uri);
    }
    let timeouts = table.timeouts.map(Spanned::into_inner).unwrap_or_default();
    let time = |time: Option<Text<Above>>, usual| time.map_or(usual, |time| time.0.0);
    Ok(Kind::Http(Box::new(HttpOrigin {
        urls: read,
        connections: table.connections.map_or(usual.connections, |count| count.0),
        waiting: table.waiting.map_or(usual.waiting, |count| count.into_inner().0),
        timeouts: OriginTimeouts {
            connect: time(timeouts.connect, usual.timeouts.connect),
            head: time(timeouts.head, usual.timeouts.head),
            body: time(timeouts.body, usual.timeouts.body),
            idle: time(timeouts.idle, usual.timeouts.idle),
        },
        is_http2: table.http2.is_some_and(Spanned::into_inner),
        ca: table.ca.map(|path| folder.join(path.into_inner())),
        host_header: match table.host_header.map(Spanned::into_inner) {
            None | Some(HostHeaderName::Client) => HostHeader::Client,
            Some(HostHeaderName::Origin) => HostHeader::Origin,
        },
        health: table.health.map_or(Ok(usual.health), |table| health(table.into_inner()))?,
    })))
}

/// A URL of a server; what is wrong with another is told without the URL, which may hold a secret.
fn http_url(url: &str) -> Result<Uri, String> {
    let malformed = || "this is no URL of a server: write http://HOST:PORT".to_owned();
    let uri: Uri = url.parse().map_err(|_| malformed())?;
    let authority = uri.authority().ok_or_else(malformed)?;
    if authority.as_str().contains('@') {
        return Err(
            "an origin is asked with the client's `Authorization`: leave user and password out".to_owned()
        );
    }
    // A port beyond 65535 is none, as far as the URL's reader is concerned.
    let has_port = authority.as_str().len() > authority.host().len();
    if authority.host().is_empty() || has_port && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(malformed());
    }
    if uri.query().is_some() || url.contains('#') {
        return Err("an origin's URL has no query and no `#`: leave them out".to_owned());
    }
    Ok(uri)
}

fn health(table: HealthTable) -> Result<Health, Wrong> {
    let usual = Health::default();
    let HealthTable { failures, rest, path, every, timeout, successes } = table;
    let at = every.as_ref().map(Spanned::span);
    let at = at.or(timeout.as_ref().map(Spanned::span)).or(successes.as_ref().map(Spanned::span));
    let small = |times: Times| u32::try_from(times.0).unwrap_or(u32::MAX);
    let probe = match (path, at) {
        (None, None) => None,
        (None, at) => return Err(Wrong::new("nothing is asked for: write path = \"/healthz\" as well", at)),
        (Some(path), _) => Some(Probe {
            path: path.0.0,
            every: every.map_or(Duration::from_secs(5), |time| time.into_inner().0.0),
            timeout: timeout.map_or(Duration::from_secs(1), |time| time.into_inner().0.0),
            successes: successes.map_or(2, |times| small(times.into_inner())),
        }),
    };
    Ok(Health {
        failures: failures.map_or(usual.failures, small),
        rest: rest.map_or(usual.rest, |time| time.0.0),
        probe,
    })
}

fn documents(urls: &[Spanned<String>], table: &OriginTable) -> Result<Kind, Wrong> {
    let [url] = urls else {
        let message = "only HTTP servers can be several that are the same: write one `url`";
        return Err(Wrong::new(message, urls.first().map(Spanned::span)));
    };
    let source: SourceUrl =
        url.get_ref().parse().map_err(|error: OpenError| Wrong::new(error.to_string(), Some(url.span())))?;
    let not_its = [
        ("waiting", table.waiting.as_ref().map(Spanned::span)),
        ("timeouts", table.timeouts.as_ref().map(Spanned::span)),
        ("health", table.health.as_ref().map(Spanned::span)),
        ("http2", table.http2.as_ref().map(Spanned::span)),
        ("ca", table.ca.as_ref().map(Spanned::span)),
        ("host_header", table.host_header.as_ref().map(Spanned::span)),
    ];
    if let Some((key, at @ Some(_))) = not_its.into_iter().find(|(_, at)| at.is_some()) {
        let message = format!("`{key}` is for HTTP servers: a database is told such things in its URL");
        return Err(Wrong::new(message, at));
    }
    let connections = table.connections.map_or(HttpOrigin::default().connections, |count| count.0);
    Ok(Kind::Documents { source, connections })
}
