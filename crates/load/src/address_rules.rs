//! Addresses from the command line instead of those of a name, with curl's syntax.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    num::{NonZeroU16, ParseIntError},
    str::FromStr,
};

use stockade_model::message::shown;

use crate::endpoint::Endpoint;

/// The addresses of a host and port: curl's `--resolve HOST:PORT:ADDR[,ADDR]`. The host `*` is any.
///
/// ```
/// use stockade_load::ResolveRule;
///
/// let rule: ResolveRule = "www.example:443:127.0.0.1,[::1]".parse()?;
/// assert_eq!(rule.to_string(), "www.example:443:127.0.0.1,[::1]");
/// # Ok::<(), stockade_load::AddressRuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveRule {
    /// In lower case.
    host: String,
    port: u16,
    addresses: Vec<IpAddr>,
}

/// Another host and port to connect to: curl's `--connect-to HOST1:PORT1:HOST2:PORT2`. An empty first host or port is any, an empty
/// second one stays as it is.
///
/// ```
/// use stockade_load::ConnectToRule;
///
/// let rule: ConnectToRule = "www.example:443:[::1]:8443".parse()?;
/// assert_eq!(rule.to_string(), "www.example:443:[::1]:8443");
/// # Ok::<(), stockade_load::AddressRuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectToRule {
    /// In lower case.
    from_host: Option<String>,
    from_port: Option<u16>,
    to_host: Option<String>,
    to_port: Option<u16>,
}

/// A text is not a rule. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a rule of addresses: write {form}")]
pub struct AddressRuleError {
    text: String,
    form: &'static str,
}

impl ResolveRule {
    /// The addresses of an endpoint by the first of these rules that names it.
    pub(crate) fn of(rules: &[Self], endpoint: &Endpoint) -> Option<Vec<SocketAddr>> {
        let host = endpoint.host.to_ascii_lowercase();
        let rule = rules
            .iter()
            .find(|rule| rule.port == endpoint.port && (rule.host == "*" || rule.host == host))?;
        Some(rule.addresses.iter().map(|address| SocketAddr::new(*address, endpoint.port)).collect())
    }
}

impl ConnectToRule {
    /// The endpoint to connect to, by the first of these rules that names this one.
    pub(crate) fn of(rules: &[Self], endpoint: &Endpoint) -> Endpoint {
        let host = endpoint.host.to_ascii_lowercase();
        let is_named = |rule: &&Self| {
            rule.from_host.as_ref().is_none_or(|from| *from == host)
                && rule.from_port.is_none_or(|from| from == endpoint.port)
        };
        let Some(rule) = rules.iter().find(is_named) else { return endpoint.clone() };
        Endpoint {
            host: rule.to_host.clone().unwrap_or_else(|| endpoint.host.clone()),
            port: rule.to_port.unwrap_or(endpoint.port),
            ..*endpoint
        }
    }
}

/// The text before the next colon that is not within brackets, and the text after it. Brackets are taken off.
fn split_host(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            Some((host, rest.strip_prefix(':')?))
        }
        None => text.split_once(':'),
    }
}

fn is_host(host: &str) -> bool {
    let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    !host.is_empty() && host.bytes().all(is_of_a_name)
}

/// `None`: the text is empty.
fn optional_port(text: &str) -> Result<Option<u16>, ParseIntError> {
    if text.is_empty() { Ok(None) } else { text.parse::<NonZeroU16>().map(|port| Some(port.get())) }
}

impl FromStr for ResolveRule {
    type Err = AddressRuleError;

    fn from_str(text: &str) -> Result<Self, AddressRuleError> {
        let parse = || {
            let (host, rest) = split_host(text)?;
            let (port, addresses) = rest.split_once(':')?;
            let address = |text: &str| {
                text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text).parse().ok()
            };
            let addresses = addresses.split(',').map(address).collect::<Option<Vec<IpAddr>>>()?;
            let port = port.parse().ok().filter(|port| *port > 0)?;
            let host = host.to_ascii_lowercase();
            (host == "*" || is_host(&host)).then_some(Self { host, port, addresses })
        };
        let form = "HOST:PORT:ADDR[,ADDR], such as `www.example:443:127.0.0.1`";
        parse().ok_or_else(|| AddressRuleError { text: shown(text), form })
    }
}

impl FromStr for ConnectToRule {
    type Err = AddressRuleError;

    fn from_str(text: &str) -> Result<Self, AddressRuleError> {
        let parse = || {
            let (from_host, rest) = split_host(text)?;
            let (from_port, rest) = rest.split_once(':')?;
            let (to_host, to_port) = split_host(rest)?;
            let host = |host: &str| {
                if host.is_empty() {
                    Some(None)
                } else {
                    is_host(host).then(|| Some(host.to_ascii_lowercase()))
                }
            };
            Some(Self {
                from_host: host(from_host)?,
                from_port: optional_port(from_port).ok()?,
                to_host: host(to_host)?,
                to_port: optional_port(to_port).ok()?,
            })
        };
        let form = "HOST1:PORT1:HOST2:PORT2, such as `www.example:443:127.0.0.1:8443`";
        parse().ok_or_else(|| AddressRuleError { text: shown(text), form })
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

impl fmt::Display for ResolveRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> =
            self.addresses.iter().map(|address| bracketed(&address.to_string())).collect();
        write!(f, "{}:{}:{}", bracketed(&self.host), self.port, addresses.join(","))
    }
}

impl fmt::Display for ConnectToRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |host: &Option<String>| host.as_deref().map(bracketed).unwrap_or_default();
        let port = |port: Option<u16>| port.map(|port| port.to_string()).unwrap_or_default();
        let [from_port, to_port] = [self.from_port, self.to_port].map(port);
        write!(f, "{}:{from_port}:{}:{to_port}", host(&self.from_host), host(&self.to_host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Endpoint {
        Endpoint::of_url(&url.parse().unwrap())
    }

    #[test]
    fn rules_name_the_addresses_of_a_host_and_port() {
        let rules = ["a.example:80:10.0.0.1,[::1]", "[::2]:80:10.0.0.2", "*:81:::3"]
            .map(|rule| rule.parse().unwrap());
        for (url, addresses) in [
            ("http://A.example/", &["10.0.0.1:80", "[::1]:80"][..]),
            ("http://[::2]/", &["10.0.0.2:80"]),
            ("http://b.example:81/", &["[::3]:81"]),
            ("http://a.example:82/", &[]),
            ("https://a.example/", &[]),
        ] {
            let found = ResolveRule::of(&rules, &endpoint(url)).unwrap_or_default();
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), addresses, "{url}");
        }
    }

    #[test]
    fn rules_lead_to_another_host_and_port() {
        let rules =
            ["a.example:80:b.example:81", "a.example::[::1]:", ":82::83"].map(|rule| rule.parse().unwrap());
        for (url, to) in [
            ("http://a.example/", "http://b.example:81"),
            ("http://A.example:90/", "http://[::1]:90"),
            ("http://c.example:82/", "http://c.example:83"),
            ("https://a.example:80/", "https://b.example:81"),
            ("http://c.example/", "http://c.example"),
        ] {
            assert_eq!(ConnectToRule::of(&rules, &endpoint(url)).to_string(), to, "{url}");
        }
    }

    #[test]
    fn texts_that_are_not_rules_are_refused() {
        for text in [
            "",
            "a",
            "a:80",
            "a:80:",
            "a:x:1.2.3.4",
            "a:0:1.2.3.4",
            "a:80:b",
            "a b:80:1.2.3.4",
            "a:80:1.2.3.4,",
        ] {
            assert!(text.parse::<ResolveRule>().is_err(), "{text}");
        }
        for text in ["", "a", "a:80", "a:80:b", "a:80:b:x", "a:80:b:70000", "a:80:b/:80", "[::1:80:b:80"] {
            assert!(text.parse::<ConnectToRule>().is_err(), "{text}");
        }
        let message = "\u{1b}[2J".parse::<ResolveRule>().unwrap_err().to_string();
        assert!(
            message.starts_with("`\u{fffd}[2J` is not a rule of addresses: write HOST:PORT:ADDR"),
            "{message}"
        );
        assert_eq!(":::".parse::<ConnectToRule>().unwrap().to_string(), ":::");
    }
}
