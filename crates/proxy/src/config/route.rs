//! Routes: which requests go to which origin, and how their responses are cached.

use std::{borrow::Cow, cmp::Reverse, fmt, str::FromStr};

use http::{HeaderName, StatusCode};
use memchr::{memchr, memrchr};
use percent_encoding::{percent_decode, percent_decode_str};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_cache::{Strategy, spec::CacheTable};

use super::{
    Config,
    value::{FinalStatus, HeaderFieldName, PlainDuration},
};

#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// For logs and metrics: host and path, as in `example.org/sounds/*`.
    pub name: String,
    /// Index in [`Config::origins`].
    pub origin: usize,
    /// Without a limit: [`Config::limit`] applies to all routes. Its `ttl` is used only by
    /// [`default_ttl`](RouteTable::default_ttl); its `negative_ttl` applies to a 404 or 410 without a lifetime.
    pub strategy: Strategy,
    /// With the name of the origin, and the default ttl of the cache block.
    pub table: RouteTable,
}

/// The index of the origin, whose name `table` has, may differ between two files.
impl PartialEq for RouteConfig {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.strategy, &self.table) == (&other.name, &other.strategy, &other.table)
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub struct RouteTable {
    /// "/news" matches that path only, "/news/*" all below it. Default: "/*".
    pub path: PathPattern,
    /// "example.org", or "*.example.org" for all below it. Default: any.
    pub host: Option<HostPattern>,
    /// Name of the origin. Default: the only one.
    pub origin: Option<String>,
    /// Caching strategy: overrides `[cache]` key by key; `strategy` replaces all of it. It has no limit of its own.
    #[serde(skip_serializing)]
    pub(super) cache: Option<Box<CacheTable>>,
    /// Freshness lifetime of the `ttl_statuses`, whatever the origin declares.
    pub ttl: Option<PlainDuration>,
    /// Freshness lifetime of the `ttl_statuses` that declare none. Default: the `ttl` written in the cache block; otherwise RFC 9111's
    /// heuristic, and for documents the strategy's ttl.
    pub default_ttl: Option<PlainDuration>,
    /// Statuses to which `ttl` and `default_ttl` apply. The others have the lifetime that the origin declares. Default:
    /// `[200, 203, 204, 301]`.
    pub ttl_statuses: Vec<FinalStatus>,
    /// Lifetime of 404 and 410 responses that declare none. Default: not stored.
    pub negative_ttl: Option<PlainDuration>,
    /// Response fields with tags for purging. Default: `["surrogate-key", "cache-tag"]`.
    pub tag_headers: Vec<HeaderFieldName>,
    /// Response fields that clients do not get, such as `["Server", "X-Powered-By"]`. Default: none.
    pub hide_headers: Vec<HeaderFieldName>,
    /// Query parameters to ignore and not to forward, such as `["utm_*", "fbclid"]`.
    pub ignore_query: Vec<NamePattern>,
    /// Responses with `Set-Cookie`: "refuse" (not stored), "strip" (stored without the cookie) or "store" (each client gets the same
    /// cookie). Default: "refuse".
    pub set_cookie: SetCookie,
    /// `Cache-Control` and `Pragma` of requests: "obey" or "ignore". Default: "obey".
    pub client_directives: ClientDirectives,
    /// Stored answers of a URL after a successful POST, PUT, PATCH or DELETE: "fallback" (load a new one, and serve the old one
    /// if that fails), "remove" or "none". Default: "fallback".
    pub invalidate_on_unsafe: UnsafeInvalidation,
}

impl Default for RouteTable {
    fn default() -> Self {
        let tag_headers = ["surrogate-key", "cache-tag"].map(HeaderName::from_static).map(HeaderFieldName);
        Self {
            path: PathPattern::all(),
            host: None,
            origin: None,
            cache: None,
            ttl: None,
            default_ttl: None,
            // Of pages, and of URLs that have moved for good. An error or a redirect that a client can cause is not among them: stored
            // under a lifetime of the route, it would take the page away from all ("Your Cache Has Fallen", Nguyen et al., CCS 2019).
            ttl_statuses: [200, 203, 204, 301].map(FinalStatus).to_vec(),
            negative_ttl: None,
            tag_headers: tag_headers.to_vec(),
            hide_headers: Vec::new(),
            ignore_query: Vec::new(),
            set_cookie: SetCookie::default(),
            client_directives: ClientDirectives::default(),
            invalidate_on_unsafe: UnsafeInvalidation::default(),
        }
    }
}

impl RouteTable {
    /// True if the lifetimes of the route apply to responses with this status.
    #[must_use]
    pub fn has_ttl_status(&self, status: StatusCode) -> bool {
        self.ttl_statuses.contains(&FinalStatus(status.as_u16().into()))
    }
}

/// What `Cache-Control` and `Pragma` of requests change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub enum ClientDirectives {
    /// RFC 9111, 5.2.1: a client can have a response loaded anew, or not stored.
    #[default]
    Obey,
    /// They change nothing.
    Ignore,
}

/// Responses that set a cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
pub enum UnsafeInvalidation {
    /// A new one is loaded. They answer only if that fails.
    #[default]
    Fallback,
    /// They are removed.
    Remove,
    /// They stay.
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
        let has_host =
            |route: &&RouteConfig| route.table.host.as_ref().is_none_or(|pattern| pattern.matches(host));
        self.routes.iter().find(|route| route.table.path.matches(path) && has_host(route))
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
        if self.table.ignore_query.is_empty() {
            return path_and_query.into();
        }
        let Some((path, query)) = path_and_query.split_once('?') else { return path_and_query.into() };
        let is_ignored = |parameter: &&str| {
            let name = parameter.split('=').next().unwrap_or_default();
            let name = percent_decode_str(name).decode_utf8_lossy();
            self.table.ignore_query.iter().any(|pattern| pattern.matches(&name))
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

    /// Sorts routes by specificity.
    pub(super) fn order(&self) -> impl Ord + use<> {
        let RouteTable { host, path, .. } = &self.table;
        let host = host.as_ref().map(|host| (host.is_suffix, Reverse(host.name.len())));
        (host.is_none(), host, path.is_prefix, Reverse(path.path.len()))
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
