//! The servers that a load may reach.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::Path,
    str::FromStr,
};

use http::Uri;
use ipnet::IpNet;

use crate::endpoint::Endpoint;

/// The servers that a load may reach, also by redirects and whatever addresses a name has. By default those of this machine.
///
/// ```
/// use stockade_load::AllowedTargets;
///
/// let allowed: AllowedTargets = vec!["10.2.0.0/16:8080".parse()?, "*.staging.example:*".parse()?].into();
/// assert_eq!(allowed.to_string(), "10.2.0.0/16:8080, *.staging.example:*");
/// # Ok::<(), stockade_load::TargetPatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedTargets(Vec<TargetPattern>);

/// A pattern of servers: `10.2.0.0/16:8080`, `10.2.0.7`, `[fd00::/8]:443`, `*.staging.example:*`, `unix:/run/app/*`.
///
/// A network matches addresses, also those that a name has. A name matches the host of a URL, and any address that it has: a server at
/// that address may have other hosts, which a `Host` header can name. `*` stands for any characters. Without a port, all ports match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPattern {
    host: HostPattern,
    /// `None`: any.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Network(IpNet),
    Name(String),
    UnixPath(String),
}

/// A text is not a [`TargetPattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a pattern of servers: write a network or a name, with or without a port, such as `10.2.0.0/16:8080`, \
     `*.staging.example:443` or `unix:/run/app.sock`"
)]
pub struct TargetPatternError(String);

impl AllowedTargets {
    /// All servers at one address.
    #[must_use]
    pub fn only(address: IpAddr) -> Self {
        Self(vec![TargetPattern { host: HostPattern::Network(address.into()), port: None }])
    }

    /// True if this address of an endpoint may be reached.
    pub(crate) fn has(&self, endpoint: &Endpoint, address: &SocketAddr) -> bool {
        self.0.iter().any(|pattern| pattern.matches(endpoint, address))
    }

    /// True if the server of this URL may be reached. The addresses of a name are not looked up: a network matches addresses only.
    #[must_use]
    pub fn has_server(&self, url: &Uri) -> bool {
        if url.host().is_none() {
            return false;
        }
        let Endpoint { host, port, .. } = Endpoint::of_url(url);
        let is_redis = matches!(url.scheme_str(), Some("redis" | "rediss"));
        let port = if is_redis { url.port_u16().unwrap_or(6379) } else { port };
        let host = host.to_ascii_lowercase();
        let host = if host == "localhost" { "127.0.0.1".to_owned() } else { host };
        let address: Option<IpAddr> = host.parse().ok();
        // Some clients read a list of hosts with commas.
        let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        self.0.iter().filter(|pattern| pattern.port.is_none_or(|of| of == port)).any(|pattern| match &pattern
            .host
        {
            HostPattern::Network(network) => {
                address.is_some_and(|address| network.contains(&address.to_canonical()))
            }
            HostPattern::Name(glob) => is_name && matches_glob(glob, &host),
            HostPattern::UnixPath(_) => false,
        })
    }

    /// True if this Unix socket may be reached.
    pub(crate) fn has_unix(&self, path: &Path) -> bool {
        // `..` would lead out of a folder that a pattern names.
        let is_plain =
            path.is_absolute() && path.components().all(|part| part != std::path::Component::ParentDir);
        is_plain
            && path.to_str().is_some_and(|path| {
                self.0.iter().any(|pattern| match &pattern.host {
                    HostPattern::UnixPath(glob) => matches_glob(glob, path),
                    HostPattern::Network(_) | HostPattern::Name(_) => false,
                })
            })
    }
}

impl Default for AllowedTargets {
    fn default() -> Self {
        let loopback = ["127.0.0.0/8", "::1/128"]
            .map(|network| HostPattern::Network(network.parse().expect("a network")));
        Self(loopback.map(|host| TargetPattern { host, port: None }).into())
    }
}

impl From<Vec<TargetPattern>> for AllowedTargets {
    fn from(patterns: Vec<TargetPattern>) -> Self {
        Self(patterns)
    }
}

impl TargetPattern {
    fn matches(&self, endpoint: &Endpoint, address: &SocketAddr) -> bool {
        let port = self.port.is_none_or(|port| port == address.port());
        port && match &self.host {
            HostPattern::Network(network) => network.contains(&address.ip().to_canonical()),
            HostPattern::Name(glob) => matches_glob(glob, &endpoint.host.to_ascii_lowercase()),
            HostPattern::UnixPath(_) => false,
        }
    }
}

impl FromStr for TargetPattern {
    type Err = TargetPatternError;

    fn from_str(text: &str) -> Result<Self, TargetPatternError> {
        let wrong = || TargetPatternError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let is_absolute = path.starts_with('/');
            let host = HostPattern::UnixPath(path.to_owned());
            return if is_absolute { Ok(Self { host, port: None }) } else { Err(wrong()) };
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
                (host, rest.strip_prefix(':').or(rest.is_empty().then_some("*")).ok_or_else(wrong)?)
            }
            // IPv6 without brackets has no port.
            None if text.matches(':').count() > 1 => (text, "*"),
            None => text.split_once(':').unwrap_or((text, "*")),
        };
        let port = if port == "*" { None } else { Some(port.parse().map_err(|_| wrong())?) };
        let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"*.-_".contains(&byte);
        let host = match host.parse::<IpNet>().ok().or_else(|| host.parse::<IpAddr>().ok().map(IpNet::from)) {
            Some(network) => HostPattern::Network(network),
            // `10.2.*` would be a name, which `10.2.evil.example` has, too.
            None if host != "*"
                && host.bytes().all(|byte| byte.is_ascii_digit() || b".*".contains(&byte)) =>
            {
                return Err(wrong());
            }
            None if !host.is_empty() && host.bytes().all(is_of_a_name) => {
                HostPattern::Name(host.to_ascii_lowercase())
            }
            None => return Err(wrong()),
        };
        Ok(Self { host, port })
    }
}

/// True if the text is the pattern, in which `*` stands for any characters.
fn matches_glob(glob: &str, text: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl fmt::Display for AllowedTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pattern) in self.0.iter().enumerate() {
            write!(f, "{}{pattern}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for TargetPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostPattern::Network(network @ IpNet::V6(_)) => write!(f, "[{network}]")?,
            HostPattern::Network(network) => write!(f, "{network}")?,
            HostPattern::Name(name) => f.write_str(name)?,
            HostPattern::UnixPath(path) => return write!(f, "unix:{path}"),
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => f.write_str(":*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if `pattern` allows this URL, whose host has this address.
    fn allows(pattern: &str, url: &str, address: &str) -> bool {
        let allowed = if pattern.is_empty() {
            AllowedTargets::default()
        } else {
            vec![pattern.parse().unwrap()].into()
        };
        let endpoint = Endpoint::of_url(&url.parse().unwrap());
        allowed.has(&endpoint, &SocketAddr::new(address.parse().unwrap(), endpoint.port))
    }

    #[test]
    fn only_this_machine_is_allowed_by_default() {
        for (url, address, is_allowed) in [
            ("http://localhost:8080/", "127.0.0.1", true),
            ("http://127.9.9.9/", "127.9.9.9", true),
            ("http://[::1]/", "::1", true),
            ("http://localhost/", "10.0.0.1", false),
            ("http://127.0.0.1.example/", "192.0.2.1", false),
            // An address of IPv4 in the form of IPv6 is the same server.
            ("http://a.example/", "::ffff:127.0.0.1", true),
            ("http://a.example/", "::ffff:192.0.2.1", false),
        ] {
            assert_eq!(allows("", url, address), is_allowed, "{url} at {address}");
        }
    }

    #[test]
    fn patterns_match_names_networks_and_ports() {
        for (pattern, url, address, is_allowed) in [
            ("10.2.0.0/16:8080", "http://10.2.3.4:8080/", "10.2.3.4", true),
            ("10.2.0.0/16:8080", "http://10.2.3.4:80/", "10.2.3.4", false),
            ("10.2.0.0/16", "http://app.example/", "10.2.3.4", true),
            ("10.2.0.0/16", "http://app.example/", "10.3.3.4", false),
            ("10.2.3.4", "http://10.2.3.4/", "10.2.3.4", true),
            ("[fd00::/8]:443", "https://[fd00::1]/", "fd00::1", true),
            ("*.staging.example:*", "https://A.Staging.example/", "192.0.2.1", true),
            ("*.staging.example:*", "https://staging.example/", "192.0.2.1", false),
            ("*.staging.example:*", "https://a.staging.example.evil/", "192.0.2.1", false),
            ("app-*.example:80", "http://app-7.example/", "192.0.2.1", true),
            ("unix:/run/*", "http://localhost/", "127.0.0.1", false),
        ] {
            assert_eq!(allows(pattern, url, address), is_allowed, "{pattern}: {url} at {address}");
        }
    }

    #[test]
    fn unix_sockets_need_a_pattern_of_their_own() {
        let allowed: AllowedTargets = vec!["unix:/run/app/*".parse().unwrap()].into();
        for (path, is_allowed) in
            [("/run/app/a.sock", true), ("/run/app/../b.sock", false), ("/run/b.sock", false)]
        {
            assert_eq!(allowed.has_unix(Path::new(path)), is_allowed, "{path}");
        }
        assert!(!AllowedTargets::default().has_unix(Path::new("/run/app/a.sock")));
    }

    #[test]
    fn texts_that_are_no_patterns_are_refused() {
        for text in ["", ":80", "a:b", "[::1", "a b", "http://a/", "unix:a.sock", "10.2.0.0/33", "10.2.*"] {
            let message = text.parse::<TargetPattern>().unwrap_err().to_string();
            assert!(message.starts_with(&format!("`{text}` is not a pattern of servers")), "{message}");
        }
        for text in ["10.2.0.0/16:8080", "[fd00::/8]:*", "*.example:443", "unix:/run/*"] {
            assert_eq!(text.parse::<TargetPattern>().unwrap().to_string(), text);
        }
    }
}
