//! Scheme, host and port: requests to the same endpoint share connections.

use std::fmt;

use http::{Uri, uri::Scheme};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    /// `https`, not `http`.
    pub is_encrypted: bool,
    /// A name or an address; IPv6 without its brackets.
    pub host: String,
    /// The default of the scheme where the URL has none.
    pub port: u16,
}

impl Endpoint {
    /// The endpoint of an absolute URL.
    #[must_use]
    pub fn of_url(url: &Uri) -> Self {
        let is_encrypted = url.scheme() == Some(&Scheme::HTTPS);
        let host = url.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self {
            is_encrypted,
            host: host.to_owned(),
            port: url.port_u16().unwrap_or(default_port(is_encrypted)),
        }
    }

    /// The value of `Host`: without the default port of the scheme.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.is_encrypted) { host } else { format!("{host}:{}", self.port) }
    }
}

fn default_port(is_encrypted: bool) -> u16 {
    if is_encrypted { 443 } else { 80 }
}

/// `http://127.0.0.1:8080`
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_encrypted { "https" } else { "http" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_has_the_default_port_of_its_scheme() {
        for (url, endpoint, authority) in [
            ("http://localhost/a", "http://localhost", "localhost"),
            ("http://localhost:80/b?c", "http://localhost", "localhost"),
            ("https://[::1]:8443/", "https://[::1]:8443", "[::1]:8443"),
            ("https://a.example:80/", "https://a.example:80", "a.example:80"),
        ] {
            let parsed = Endpoint::of_url(&url.parse().unwrap());
            let texts = (parsed.to_string(), parsed.authority());
            assert_eq!((texts.0.as_str(), texts.1.as_str()), (endpoint, authority), "{url}");
        }
        assert_eq!(Endpoint::of_url(&"https://[::1]/".parse().unwrap()).host, "::1");
    }
}
