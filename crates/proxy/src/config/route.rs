//! Routes: which requests go to which origin, and how their responses are cached.

use std::{borrow::Cow, cmp::Reverse, fmt, str::FromStr, time::Duration};

use http::{HeaderName, StatusCode};
use memchr::{memchr, memrchr};
use percent_encoding::{percent_decode, percent_decode_str};
use stockade_cache::Strategy;

use super::Config;

#[derive(Clone, Debug, PartialEq)]
pub struct RouteConfig {
    /// For logs and metrics: host and path, as in `example.org/sounds/*`.
    pub name: String,
    /// `None`: any host.
    pub host: Option<HostPattern>,
    pub path: PathPattern,
    /// Index in [`Config::origins`].
    pub origin: usize,
    /// Without a limit: [`Config::limit`] applies to all routes. Its `ttl` is used only by
    /// [`ttl_default`](Self::ttl_default); its `negative_ttl` applies to a 404 or 410 without a lifetime.
    pub strategy: Strategy,
    /// Freshness lifetime of the [`ttl_statuses`](Self::ttl_statuses), whatever the origin declares.
    pub ttl: Option<Duration>,
    /// Freshness lifetime of responses with one of the [`ttl_statuses`](Self::ttl_statuses) that declare none; `None`: the
    /// heuristic of RFC 9111, 4.2.2.
    pub ttl_default: Option<Duration>,
    /// An error or a redirect that a client can cause is not among them: stored under a lifetime of the route, it would take the
    /// page away from all ("Your Cache Has Fallen", Nguyen et al., CCS 2019).
    pub ttl_statuses: Vec<StatusCode>,
    pub set_cookie: SetCookie,
    /// Response fields with tags.
    pub tag_headers: Vec<HeaderName>,
    /// Query parameters that are neither part of the key nor forwarded.
    pub ignored_query: Vec<NamePattern>,
    pub client_directives: ClientDirectives,
    pub unsafe_invalidation: UnsafeInvalidation,
}

/// What `Cache-Control` and `Pragma` of requests change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientDirectives {
    /// RFC 9111, 5.2.1: a client can have a response loaded anew, or not stored.
    #[default]
    Obey,
    Ignore,
}

/// Responses that set a cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// They are for the client alone.
    #[default]
    Refuse,
    /// They are stored without the cookie, which only the client gets whose request was forwarded.
    Strip,
    /// They are stored with the cookie: each client gets the same.
    Store,
}

/// What a successful request with an unsafe method does to the stored responses of the URLs that it may change
/// (RFC 9111, 4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsafeInvalidation {
    /// A new one is loaded. They answer only if that fails.
    #[default]
    Fallback,
    Remove,
    None,
}

/// A host, or `*.example.org` for all below it. Ports are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// In lower case, without a trailing dot.
    name: String,
    is_suffix: bool,
}

/// A path, or `/path/*` for all below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathPattern {
    /// Without the `*`.
    path: String,
    is_prefix: bool,
}

/// A name, or a prefix: `utm_*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamePattern {
    name: String,
    is_prefix: bool,
}

impl Config {
    /// The route of a request by its `Host` and its path without the query.
    ///
    /// Exact hosts come before `*.` patterns, the longest first, and those before routes without a host. Then
    /// exact paths come before `/*` patterns, the longest first. If no route of the most specific host
    /// matches the path, the others are tried.
    #[must_use]
    pub fn route(&self, host: &str, path: &str) -> Option<&RouteConfig> {
        let host = without_port(host);
        let has_host = |route: &&RouteConfig| route.host.as_ref().is_none_or(|pattern| pattern.matches(host));
        self.routes.iter().find(|route| route.path.matches(path) && has_host(route))
    }

    /// True if this `Host` is served at all.
    #[must_use]
    pub fn has_host(&self, host: &str) -> bool {
        self.hosts.is_empty() || {
            let host = without_port(host);
            self.hosts.iter().any(|pattern| pattern.matches(host))
        }
    }
}

impl RouteConfig {
    /// The path and query of the cache key and of the request to the origin: without ignored parameters.
    #[must_use]
    pub fn cache_target<'a>(&self, path_and_query: &'a str) -> Cow<'a, str> {
        if self.ignored_query.is_empty() {
            return path_and_query.into();
        }
        let Some((path, query)) = path_and_query.split_once('?') else { return path_and_query.into() };
        let is_ignored = |parameter: &&str| {
            let name = parameter.split('=').next().unwrap_or_default();
            let name = percent_decode_str(name).decode_utf8_lossy();
            self.ignored_query.iter().any(|pattern| pattern.matches(&name))
        };
        if !query.split('&').any(|parameter| is_ignored(&parameter)) {
            return path_and_query.into();
        }
        let mut target = String::with_capacity(path_and_query.len());
        target.push_str(path);
        for parameter in query.split('&').filter(|parameter| !is_ignored(parameter)) {
            target.push(if target.len() == path.len() { '?' } else { '&' });
            target.push_str(parameter);
        }
        target.into()
    }

    /// Equal apart from the index of the origin, which may differ between two files.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && Self { origin: other.origin, ..self.clone() } == *other
    }

    /// Sorts routes by specificity.
    pub(super) fn order(&self) -> impl Ord + use<> {
        let host = self.host.as_ref().map(|host| (host.is_suffix, Reverse(host.name.len())));
        (host.is_none(), host, self.path.is_prefix, Reverse(self.path.path.len()))
    }
}

/// Without the port and the trailing dot.
fn without_port(host: &str) -> &str {
    let end = match memrchr(b']', host.as_bytes()) {
        Some(bracket) => bracket + 1,
        None => memchr(b':', host.as_bytes()).unwrap_or(host.len()),
    };
    host[..end].trim_end_matches('.')
}

impl HostPattern {
    /// `host` has no port.
    pub(super) fn matches(&self, host: &str) -> bool {
        let (host, name) = (host.as_bytes(), self.name.as_bytes());
        if !self.is_suffix {
            return host.eq_ignore_ascii_case(name);
        }
        // At least one character and a dot precede it.
        host.len() > name.len() + 1
            && host[host.len() - name.len() - 1] == b'.'
            && host[host.len() - name.len()..].eq_ignore_ascii_case(name)
    }
}

impl PathPattern {
    #[must_use]
    pub fn all() -> Self {
        Self { path: "/".to_owned(), is_prefix: true }
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        // `OPTIONS *` has the path `*`.
        let is_all = self.is_prefix && self.path == "/";
        is_all || if self.is_prefix { path.starts_with(&self.path) } else { path == self.path }
    }
}

impl NamePattern {
    pub(super) fn matches(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&self.name) } else { name == self.name }
    }

    /// `name` may be percent-encoded.
    pub(crate) fn matches_ignoring_case(&self, name: &[u8]) -> bool {
        let name = match memchr(b'%', name) {
            Some(_) => Cow::Owned(percent_decode(name).collect()),
            None => Cow::Borrowed(name),
        };
        let pattern = self.name.as_bytes();
        let start = name.get(..pattern.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(pattern))
            && (self.is_prefix || name.len() == pattern.len())
    }
}

/// An invalid pattern; the message has the valid form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(String);

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (name, is_suffix) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let is_ipv6 = name.starts_with('[') && name.ends_with(']');
        if name.contains(':') && !is_ipv6 {
            return Err(PatternError(format!("`{text}` has a port or a scheme: write the name alone")));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if name.is_empty() || !is_ipv6 && !name.chars().all(is_plain) {
            let message = format!("`{text}` is not a host: write a name, or *.NAME for all below it");
            return Err(PatternError(message));
        }
        Ok(Self { name, is_suffix })
    }
}

impl FromStr for PathPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (path, is_prefix) = text.strip_suffix('*').map_or((text, false), |path| (path, true));
        let is_path = path.starts_with('/') && !path.contains(['*', '?', '#', ' ']) && path.is_ascii();
        if !is_path || is_prefix && !path.ends_with('/') {
            let message =
                format!("`{text}` is not a path: write one such as /news, or /news/* for all below it");
            return Err(PatternError(message));
        }
        Ok(Self { path: path.to_owned(), is_prefix })
    }
}

impl FromStr for NamePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (name, is_prefix) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        if name.contains(['*', '&', '=', '?']) || text.is_empty() {
            let message =
                format!("`{text}` is not a parameter: write its name, or utm_* for all with that prefix");
            return Err(PatternError(message));
        }
        Ok(Self { name: name.to_owned(), is_prefix })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_suffix { "*." } else { "" }, self.name)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, if self.is_prefix { "*" } else { "" })
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.is_prefix { "*" } else { "" })
    }
}
