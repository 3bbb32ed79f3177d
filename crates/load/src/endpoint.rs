//! Where a request goes: what requests have to share to share a connection.

use std::fmt;

use http::{Uri, uri::Scheme};

/// A scheme, a host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// `https`.
    pub is_encrypted: bool,
    /// A name or an address; IPv6 without its brackets.
    pub host: String,
    /// The scheme's own where the URL has none.
    pub port: u16,
}

impl Endpoint {
    /// That of a whole URL.
    #[must_use]
    pub fn of(url: &Uri) -> Self {
        let is_encrypted = url.scheme() == Some(&Scheme::HTTPS);
        let host = url.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self {
            is_encrypted,
            host: host.to_owned(),
            port: url.port_u16().unwrap_or(default_port(is_encrypted)),
        }
    }

    /// As `Host` has it: without the port where that is the scheme's own.
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
    fn urls_share_what_they_have_in_common() {
        for (url, endpoint, authority) in [
            ("http://localhost/a", "http://localhost", "localhost"),
            ("http://localhost:80/b?c", "http://localhost", "localhost"),
            ("https://[::1]:8443/", "https://[::1]:8443", "[::1]:8443"),
            ("https://a.example:80/", "https://a.example:80", "a.example:80"),
        ] {
            let of = Endpoint::of(&url.parse().unwrap());
            assert_eq!((of.to_string().as_str(), of.authority().as_str()), (endpoint, authority), "{url}");
        }
        assert_eq!(Endpoint::of(&"https://[::1]/".parse().unwrap()).host, "::1");
    }
}
