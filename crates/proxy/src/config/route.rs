//! Which requests go where, and what is cached of their answers.

use std::{borrow::Cow, cmp::Reverse, fmt, str::FromStr, time::Duration};

use http::HeaderName;
use memchr::{memchr, memrchr};
use percent_encoding::percent_decode_str;
use stockade_cache::Strategy;

use super::Config;

/// Requests of some hosts and paths, and what becomes of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// In logs and metrics: its host and path, as in `example.org/sounds/*`.
    pub name: String,
    /// Whose requests; `None`: everybody's.
    pub host: Option<HostPattern>,
    /// For which paths.
    pub path: PathPattern,
    /// The number of its origin in [`Config::origins`].
    pub origin: usize,
    /// What is done about a missing answer. It has no limit of its own: [`Config::limit`] is that of all routes. Its
    /// `ttl` is for none but [`ttl_default`](Self::ttl_default); its `negative_ttl` is how long a 404 or 410 is kept that
    /// does not say so itself.
    pub strategy: Strategy,
    /// How long answers are fresh, whatever the origin says.
    pub ttl: Option<Duration>,
    /// How long answers are fresh of which the origin says nothing; `None`: what RFC 9111 (4.2.2) makes of their age.
    pub ttl_default: Option<Duration>,
    /// Headers of answers that hold their tags.
    pub tag_headers: Vec<HeaderName>,
    /// Parameters that make no difference: nobody is asked for them.
    pub ignored_query: Vec<NamePattern>,
}

/// A host, or `*.example.org`: all below it. A port that a request names makes no difference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// In lower case, without a dot at its end.
    name: String,
    is_suffix: bool,
}

/// A path, or one that ends with `/*`: all below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathPattern {
    /// Without the `*`.
    path: String,
    is_prefix: bool,
}

/// A name, or the beginning of names: `utm_*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamePattern {
    name: String,
    is_prefix: bool,
}

impl Config {
    /// The route of a request, as its `Host` and its path (without the query) have it; `None`: nobody has it.
    ///
    /// An exact host comes before `*.` ones, of which the longest comes first, and those before routes without a
    /// host; then an exact path comes before `/*` ones, of which the longest comes first. A path that no route of
    /// the nearest host has is looked for in the others.
    #[must_use]
    pub fn route(&self, host: &str, path: &str) -> Option<&Route> {
        let host = bare(host);
        let has_host = |route: &&Route| route.host.as_ref().is_none_or(|pattern| pattern.has(host));
        self.routes.iter().find(|route| route.path.has(path) && has_host(route))
    }

    /// Whether requests for this `Host` are answered at all.
    #[must_use]
    pub fn has_host(&self, host: &str) -> bool {
        self.hosts.is_empty() || {
            let host = bare(host);
            self.hosts.iter().any(|pattern| pattern.has(host))
        }
    }
}

impl Route {
    /// The path and query that the origin is asked for and the answer is known by: those of the request without the
    /// parameters that make no difference.
    #[must_use]
    pub fn asked<'a>(&self, path_and_query: &'a str) -> Cow<'a, str> {
        if self.ignored_query.is_empty() {
            return path_and_query.into();
        }
        let Some((path, query)) = path_and_query.split_once('?') else { return path_and_query.into() };
        let is_ignored = |parameter: &&str| {
            let name = parameter.split('=').next().unwrap_or_default();
            let name = percent_decode_str(name).decode_utf8_lossy();
            self.ignored_query.iter().any(|pattern| pattern.has(&name))
        };
        if !query.split('&').any(|parameter| is_ignored(&parameter)) {
            return path_and_query.into();
        }
        let mut asked = String::with_capacity(path_and_query.len());
        asked.push_str(path);
        for parameter in query.split('&').filter(|parameter| !is_ignored(parameter)) {
            asked.push(if asked.len() == path.len() { '?' } else { '&' });
            asked.push_str(parameter);
        }
        asked.into()
    }

    /// Whether another says the same of as many requests, whatever number its origin has: that may be another one in
    /// another file.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.name == other.name && Self { origin: other.origin, ..self.clone() } == *other
    }

    /// The order in which routes are tried.
    pub(super) fn order(&self) -> impl Ord + use<> {
        let host = self.host.as_ref().map(|host| (host.is_suffix, Reverse(host.name.len())));
        (host.is_none(), host, self.path.is_prefix, Reverse(self.path.path.len()))
    }
}

/// A host without its port and the dot at its end.
fn bare(host: &str) -> &str {
    let end = match memrchr(b']', host.as_bytes()) {
        Some(bracket) => bracket + 1,
        None => memchr(b':', host.as_bytes()).unwrap_or(host.len()),
    };
    host[..end].trim_end_matches('.')
}

impl HostPattern {
    /// Whether a host without port is meant.
    fn has(&self, host: &str) -> bool {
        let (host, name) = (host.as_bytes(), self.name.as_bytes());
        if !self.is_suffix {
            return host.eq_ignore_ascii_case(name);
        }
        // One letter and a dot before it, at least.
        host.len() > name.len() + 1
            && host[host.len() - name.len() - 1] == b'.'
            && host[host.len() - name.len()..].eq_ignore_ascii_case(name)
    }
}

impl PathPattern {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self { path: "/".to_owned(), is_prefix: true }
    }

    fn has(&self, path: &str) -> bool {
        // `*` is what OPTIONS may be asked of.
        let is_all = self.is_prefix && self.path == "/";
        is_all || if self.is_prefix { path.starts_with(&self.path) } else { path == self.path }
    }
}

impl NamePattern {
    fn has(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&self.name) } else { name == self.name }
    }
}

/// A pattern that makes no sense; the message says what would.
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
            let message = format!("`{text}` is no host: write a name, or *.NAME for all below it");
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
                format!("`{text}` is no path: write one such as /news, or /news/* for all below it");
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
            let message = format!("`{text}` is no parameter: write its name, or utm_* for all that begin so");
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
