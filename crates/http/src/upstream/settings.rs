//! Settings of an origin's connections.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use http::{
    HeaderValue, Uri,
    uri::{Authority, PathAndQuery},
};

use super::health::HealthSettings;

/// Servers that advertise a hundred streams work on fewer at a time and leave the others waiting: Apache begins with six of a connection,
/// Tomcat stops at twenty. A slow request would hold up those behind it, and more connections cost less.
const STREAMS_MAX: usize = 6;

/// `http://host:port/base` or `https://...`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginUrl {
    pub(super) is_encrypted: bool,
    /// Without the brackets of an IPv6 address.
    pub(super) host: Arc<str>,
    pub(super) port: u16,
    /// Without a trailing slash; empty for the root.
    pub(super) base: Arc<str>,
    /// As in `Host`: without the scheme's default port.
    pub(super) authority: Authority,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {reason}")]
pub struct OriginUrlError {
    /// Without credentials.
    pub text: String,
    /// The cause, and what to do.
    pub reason: &'static str,
}

impl FromStr for OriginUrl {
    type Err = OriginUrlError;

    fn from_str(text: &str) -> Result<Self, OriginUrlError> {
        // The part before an `@` may be a password.
        let shown = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
        let wrong = |reason| OriginUrlError { text: shown.to_owned(), reason };
        let uri: Uri = text.parse().map_err(|_| wrong("is not a URL: write http://HOST:PORT"))?;
        let (is_encrypted, default_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(wrong("has a scheme other than http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("has no host: write http://HOST:PORT"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("has a user: add a header for the origin instead"));
        }
        if uri.query().is_some() || text.contains('#') {
            return Err(wrong("has a query or a fragment: an origin has a host, a port and a path"));
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("has no host: write http://HOST:PORT"));
        }
        let port = match authority.as_str().strip_prefix(uri.host().unwrap_or_default()) {
            Some("") => default_port,
            Some(port) => port
                .trim_start_matches(':')
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| wrong("has an invalid port: use 1 to 65535"))?,
            None => return Err(wrong("has no host: write http://HOST:PORT")),
        };
        let named = uri.host().unwrap_or_default();
        let authority = if port == default_port { named.to_owned() } else { format!("{named}:{port}") };
        let authority = authority.parse().map_err(|_| wrong("has an invalid host"))?;
        let base = uri.path().trim_end_matches('/').into();
        Ok(Self { is_encrypted, host: host.into(), port, base, authority })
    }
}

impl fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.base)
    }
}

impl OriginUrl {
    /// The path and query below the base.
    pub(super) fn target(&self, path: Option<&PathAndQuery>) -> Option<PathAndQuery> {
        match path {
            None if self.base.is_empty() => Some(PathAndQuery::from_static("/")),
            Some(path) if self.base.is_empty() || path.as_str() == "*" => Some(path.clone()),
            Some(path) => format!("{}{path}", self.base).parse().ok(),
            None => format!("{}/", self.base).parse().ok(),
        }
    }

    pub(super) fn host_header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.authority.as_str()).ok()
    }
}

/// The `Host` that the origin is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    #[default]
    Client,
    /// That of the origin's URL.
    Origin,
}

/// How long a request waits for a connection.
pub const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Several are endpoints of one origin: the least busy healthy one is used.
    pub urls: Vec<OriginUrl>,
    /// Of all endpoints, including those being opened.
    pub connections_max: usize,
    /// Requests that may wait for a connection.
    pub waiting_max: usize,
    /// For each of them.
    pub queue_timeout: Duration,
    /// DNS, TCP and TLS together.
    pub connect_timeout: Duration,
    /// From the last byte of the request to the end of the response head.
    pub head_timeout: Duration,
    /// Between bytes of a body, in both directions.
    pub idle_timeout: Duration,
    /// Idle time. Zero: one request per connection.
    pub keep_alive: Duration,
    /// From the opening of a connection to its last new request: the next connection resolves the name again.
    pub max_age: Duration,
    /// With TLS: if the origin negotiates it. Without: always.
    pub http2: bool,
    /// Concurrent streams of an HTTP/2 connection; the origin may allow fewer.
    pub streams_max: usize,
    /// Of a response.
    pub head_bytes_max: usize,
    /// Fields of a response.
    pub headers_max: usize,
    /// Certificates of authorities in PEM, in place of the machine's.
    pub ca: Option<PathBuf>,
    pub host_header: HostHeader,
    pub health: HealthSettings,
}

impl UpstreamSettings {
    /// Defaults: 256 connections; 1,024 requests may wait for 5 s; 1 s to connect; 15 s for a head; 15 s between bytes;
    /// idle connections stay for 50 s, and all for 5 min; HTTP/1.1; heads up to 64 KiB and 100 fields.
    #[must_use]
    pub fn new(url: OriginUrl) -> Self {
        Self {
            urls: vec![url],
            connections_max: 256,
            waiting_max: 1_024,
            queue_timeout: QUEUE_TIMEOUT,
            connect_timeout: Duration::from_secs(1),
            head_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(15),
            keep_alive: Duration::from_secs(50),
            max_age: Duration::from_mins(5),
            http2: false,
            streams_max: STREAMS_MAX,
            head_bytes_max: 64 << 10,
            headers_max: 100,
            ca: None,
            host_header: HostHeader::default(),
            health: HealthSettings::default(),
        }
    }

    pub(super) fn validate(&self) -> Result<(), UpstreamSettingsError> {
        let wrong = |setting, reason| Err(UpstreamSettingsError::Wrong { setting, reason });
        if self.urls.is_empty() {
            return wrong("urls", "at least one is required");
        }
        if self.urls.len() > URLS_MAX {
            return wrong("urls", "at most 64 are allowed");
        }
        if self.connections_max == 0 {
            return wrong("connections_max", "must be at least 1");
        }
        if self.streams_max == 0 {
            return wrong("streams_max", "must be at least 1");
        }
        if !(HEAD_BYTES_MIN..=HEAD_BYTES_MAX).contains(&self.head_bytes_max) {
            return wrong("head_bytes_max", "must be from 8 KiB to 16 MiB");
        }
        if self.headers_max == 0 || self.headers_max > HEADERS_MAX {
            return wrong("headers_max", "must be from 1 to 10,000");
        }
        if self.ca.is_some() && !self.urls.iter().any(|url| url.is_encrypted) {
            return wrong("ca", "requires an origin with https://");
        }
        let probe = self.health.probe.as_ref();
        if probe
            .is_some_and(|probe| !probe.path.starts_with('/') || probe.path.parse::<PathAndQuery>().is_err())
        {
            return wrong("probe", "the path must start with /");
        }
        let times =
            [self.queue_timeout, self.connect_timeout, self.head_timeout, self.idle_timeout, self.max_age];
        let mut times =
            times.into_iter().chain(probe.into_iter().flat_map(|probe| [probe.every, probe.timeout]));
        if times.any(|time| time.is_zero()) {
            return wrong("timeouts", "must not be zero");
        }
        Ok(())
    }
}

const URLS_MAX: usize = 64;
const HEAD_BYTES_MIN: usize = 8 << 10;
const HEAD_BYTES_MAX: usize = 16 << 20;
const HEADERS_MAX: usize = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum UpstreamSettingsError {
    #[error("{setting}: {reason}")]
    Wrong {
        setting: &'static str,
        /// The cause, and what to do.
        reason: &'static str,
    },
    #[error("{reason}")]
    Trust {
        /// The cause, and what to do.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_shown_without_secrets() {
        for (text, host, port, base, authority) in [
            ("http://a", "a", 80, "", "a"),
            ("http://a:80/", "a", 80, "", "a"),
            ("https://a.example/b/", "a.example", 443, "/b", "a.example"),
            ("https://a:8443/b/c", "a", 8443, "/b/c", "a:8443"),
            ("http://[::1]:81", "::1", 81, "", "[::1]:81"),
            ("http://[::1]", "::1", 80, "", "[::1]"),
        ] {
            let url: OriginUrl = text.parse().expect(text);
            let read = (&*url.host, url.port, &*url.base, url.authority.as_str());
            assert_eq!(read, (host, port, base, authority), "{text}");
            assert_eq!(url.to_string().parse(), Ok(url), "{text}");
        }
        for text in [
            "",
            "a",
            "a:80",
            "ftp://a",
            "http://",
            "http:///b",
            "http://a:0",
            "http://a:65536",
            "http://a:b",
            "http://u:secret@a",
            "http://a?b",
            "http://a/#b",
        ] {
            let wrong = text.parse::<OriginUrl>().expect_err(text);
            assert!(!wrong.to_string().contains("secret"), "{wrong}");
        }
    }

    #[test]
    fn target_is_below_the_base_path() {
        for (base, path, expected) in [
            ("http://a", Some("/b?c"), "/b?c"),
            ("http://a/", None, "/"),
            ("http://a/base/", Some("/b?c"), "/base/b?c"),
            ("http://a/base", Some("/"), "/base/"),
            ("http://a/base", None, "/base/"),
            ("http://a/base", Some("*"), "*"),
        ] {
            let url: OriginUrl = base.parse().expect(base);
            let path = path.map(|path| path.parse::<PathAndQuery>().expect(path));
            assert_eq!(url.target(path.as_ref()).expect("a target").as_str(), expected);
        }
    }

    #[test]
    fn invalid_settings_are_named() {
        let good = || UpstreamSettings::new("http://a".parse().expect("an URL"));
        assert!(good().validate().is_ok());
        let zero = Duration::ZERO;
        for (setting, wrong) in [
            ("urls", UpstreamSettings { urls: vec![], ..good() }),
            ("connections_max", UpstreamSettings { connections_max: 0, ..good() }),
            ("streams_max", UpstreamSettings { streams_max: 0, ..good() }),
            ("head_bytes_max", UpstreamSettings { head_bytes_max: 100, ..good() }),
            ("headers_max", UpstreamSettings { headers_max: 0, ..good() }),
            ("ca", UpstreamSettings { ca: Some("a".into()), ..good() }),
            ("timeouts", UpstreamSettings { head_timeout: zero, ..good() }),
        ] {
            let error = wrong.validate().expect_err(setting).to_string();
            assert!(error.starts_with(setting), "{error}");
        }
    }
}
