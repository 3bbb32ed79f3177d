//! What an origin is, and how much it may be asked.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use http::{
    HeaderValue, Uri,
    uri::{Authority, PathAndQuery},
};

use super::health::HealthSettings;

/// Where an origin is: `http://host:port/base`, `https://...`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginUrl {
    pub(super) is_encrypted: bool,
    /// Without the brackets of an IPv6 address.
    pub(super) host: Arc<str>,
    pub(super) port: u16,
    /// Without a slash at its end; empty for the root.
    pub(super) base: Arc<str>,
    /// As a `Host` header names it: the port only where it is not the scheme's own.
    pub(super) authority: Authority,
}

/// It is no URL of an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {reason}")]
pub struct BadUrl {
    /// What was written, without what may be secret.
    pub text: String,
    /// What is wrong, and what to do.
    pub reason: &'static str,
}

impl FromStr for OriginUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        // Whatever stands before an @ may be a password.
        let shown = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
        let wrong = |reason| BadUrl { text: shown.to_owned(), reason };
        let uri: Uri = text.parse().map_err(|_| wrong("is no URL: write http://HOST:PORT"))?;
        let (is_encrypted, default_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(wrong("has another scheme than http:// and https://")),
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
                .ok_or_else(|| wrong("has no port from 1 to 65535"))?,
            None => return Err(wrong("has no host: write http://HOST:PORT")),
        };
        let named = uri.host().unwrap_or_default();
        let authority = if port == default_port { named.to_owned() } else { format!("{named}:{port}") };
        let authority = authority.parse().map_err(|_| wrong("has a host that no host has"))?;
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
    /// Where a request goes: the path and query below the base.
    pub(super) fn target(&self, path: Option<&PathAndQuery>) -> Option<PathAndQuery> {
        match path {
            None if self.base.is_empty() => Some(PathAndQuery::from_static("/")),
            Some(path) if self.base.is_empty() || path.as_str() == "*" => Some(path.clone()),
            Some(path) => format!("{}{path}", self.base).parse().ok(),
            None => format!("{}/", self.base).parse().ok(),
        }
    }

    /// How a `Host` header names it.
    pub(super) fn host_header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.authority.as_str()).ok()
    }
}

/// Which `Host` the origin sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The client's.
    #[default]
    Client,
    /// The one in the origin's URL.
    Origin,
}

/// What an origin is, and how much it may be asked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it is. Several are one origin in several places: the least busy of the healthy is asked.
    pub urls: Vec<OriginUrl>,
    /// Open at once, to all places together, those included that are being made.
    pub connections_max: usize,
    /// How many requests may wait for a connection.
    pub waiting_max: usize,
    /// How long each of them.
    pub queue_timeout: Duration,
    /// Name, TCP and TLS together.
    pub connect_timeout: Duration,
    /// From a request's last byte to the end of its answer's head.
    pub head_timeout: Duration,
    /// Between bytes of a body, in both directions.
    pub idle_timeout: Duration,
    /// How long a connection is kept that nobody uses. Zero: each has one request.
    pub keep_alive: Duration,
    /// Speak HTTP/2: where the origin takes it, with TLS; in any case, without.
    pub http2: bool,
    /// Under way at once on a connection of HTTP/2; the origin may allow fewer.
    pub streams_max: usize,
    /// The largest head of an answer, in bytes.
    pub head_bytes_max: usize,
    /// The most headers of an answer.
    pub headers_max: usize,
    /// A file of authorities in PEM, in place of those of the machine.
    pub ca: Option<PathBuf>,
    /// Which `Host` the origin sees.
    pub host_header: HostHeader,
    /// When a place rests.
    pub health: HealthSettings,
}

impl Settings {
    /// One origin in one place, and what most need: 256 connections and 1,024 who wait for one for 5 s, 1 s to connect,
    /// 15 s for a head, 15 s between bytes, kept for 50 s; HTTP/1.1; heads of 64 KiB and 100 headers.
    #[must_use]
    pub fn new(url: OriginUrl) -> Self {
        Self {
            urls: vec![url],
            connections_max: 256,
            waiting_max: 1_024,
            queue_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(1),
            head_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(15),
            keep_alive: Duration::from_secs(50),
            http2: false,
            streams_max: 100,
            head_bytes_max: 64 << 10,
            headers_max: 100,
            ca: None,
            host_header: HostHeader::default(),
            health: HealthSettings::default(),
        }
    }

    /// What is wrong with them, if anything.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let wrong = |setting, reason| Err(SettingsError::Wrong { setting, reason });
        if self.urls.is_empty() {
            return wrong("urls", "there is none");
        }
        if self.urls.len() > URLS_MAX {
            return wrong("urls", "there are more than 64");
        }
        if self.connections_max == 0 {
            return wrong("connections_max", "there has to be one");
        }
        if self.streams_max == 0 {
            return wrong("streams_max", "there has to be one");
        }
        if !(HEAD_BYTES_MIN..=HEAD_BYTES_MOST).contains(&self.head_bytes_max) {
            return wrong("head_bytes_max", "it is from 8 KiB to 16 MiB");
        }
        if self.headers_max == 0 || self.headers_max > HEADERS_MOST {
            return wrong("headers_max", "it is from 1 to 10,000");
        }
        if self.ca.is_some() && !self.urls.iter().any(|url| url.is_encrypted) {
            return wrong("ca", "it is for an origin with https://");
        }
        let probe = self.health.probe.as_ref();
        if probe
            .is_some_and(|probe| !probe.path.starts_with('/') || probe.path.parse::<PathAndQuery>().is_err())
        {
            return wrong("probe", "its path is none: write one that begins with /");
        }
        let times = [self.queue_timeout, self.connect_timeout, self.head_timeout, self.idle_timeout];
        let mut times =
            times.into_iter().chain(probe.into_iter().flat_map(|probe| [probe.every, probe.timeout]));
        if times.any(|time| time.is_zero()) {
            return wrong("timeouts", "one of them is zero");
        }
        Ok(())
    }
}

const URLS_MAX: usize = 64;
const HEAD_BYTES_MIN: usize = 8 << 10;
const HEAD_BYTES_MOST: usize = 16 << 20;
const HEADERS_MOST: usize = 10_000;

/// An origin cannot be asked with such settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A setting makes no sense.
    #[error("{setting}: {reason}")]
    Wrong {
        /// Which.
        setting: &'static str,
        /// What is wrong, and what to do.
        reason: &'static str,
    },
    /// There is nobody to trust.
    #[error("{reason}")]
    Trust {
        /// Why, and what to do.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_url_is_read_once() {
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
    fn a_request_goes_below_the_base() {
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
    fn settings_that_make_no_sense_are_told() {
        let good = || Settings::new("http://a".parse().expect("an URL"));
        assert!(good().check().is_ok());
        let zero = Duration::ZERO;
        for (setting, wrong) in [
            ("urls", Settings { urls: vec![], ..good() }),
            ("connections_max", Settings { connections_max: 0, ..good() }),
            ("streams_max", Settings { streams_max: 0, ..good() }),
            ("head_bytes_max", Settings { head_bytes_max: 100, ..good() }),
            ("headers_max", Settings { headers_max: 0, ..good() }),
            ("ca", Settings { ca: Some("a".into()), ..good() }),
            ("timeouts", Settings { head_timeout: zero, ..good() }),
        ] {
            let error = wrong.check().expect_err(setting).to_string();
            assert!(error.starts_with(setting), "{error}");
        }
    }
}
