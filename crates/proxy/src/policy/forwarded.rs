//! `X-Forwarded-*` of trusted proxies: pure.
//!
//! Any client can send these fields, so they count only on a connection from a trusted proxy, and of a list only as far as
//! trusted proxies wrote it. Host and scheme become part of the cache key: a client whose field a trusted proxy passes on
//! changes no response of others.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use stockade_http::{field::listed, host::is_host, trusted_proxies::TrustedProxies};

pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Proxies between a client and this one; addresses further away are ignored.
const PROXIES_MAX: usize = 32;

/// A request as trusted proxies report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedRequest {
    /// Of the client, or of the trusted proxy whose client is not named.
    pub client: IpAddr,
    /// The client, and the trusted proxies after it: `X-Forwarded-For` of the request to the origin.
    pub addresses: SmallVec<[IpAddr; 4]>,
    /// The host that the client named, if the nearest proxy says so.
    pub host: Option<Result<String, InvalidHost>>,
    /// Whether the client used TLS, if the nearest proxy says so.
    pub is_tls: Option<bool>,
}

/// The last value of `X-Forwarded-Host` is not a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the X-Forwarded-Host field is invalid")]
pub struct InvalidHost;

/// Reads the fields of a request that came from `remote`, a trusted proxy.
///
/// `X-Forwarded-For` is read from its end, up to the first address that is not trusted: the client. Each of these was
/// written by a trusted proxy. The addresses before may be invented, and are dropped.
#[must_use]
pub fn read(headers: &HeaderMap, remote: IpAddr, trusted: &TrustedProxies) -> ForwardedRequest {
    let mut addresses: SmallVec<[IpAddr; 4]> = SmallVec::from_slice(&[remote.to_canonical()]);
    let named: SmallVec<[&[u8]; 8]> = listed(headers, &X_FORWARDED_FOR).collect();
    for text in named.into_iter().rev().take(PROXIES_MAX) {
        let Some(address) = address(text) else { break };
        addresses.push(address);
        if !trusted.contains(address) {
            break;
        }
    }
    addresses.reverse();
    let last = |name| listed(headers, name).last();
    ForwardedRequest {
        client: addresses[0],
        host: last(&X_FORWARDED_HOST).map(host),
        is_tls: last(&X_FORWARDED_PROTO).and_then(is_https),
        addresses,
    }
}

/// An address, possibly with a port.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let in_brackets = || text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address: Option<IpAddr> = in_brackets().parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    address.or_else(with_port).map(|address| address.to_canonical())
}

fn host(text: &[u8]) -> Result<String, InvalidHost> {
    let text = std::str::from_utf8(text).map_err(|_| InvalidHost)?;
    is_host(text.as_bytes()).then(|| text.to_owned()).ok_or(InvalidHost)
}

fn is_https(scheme: &[u8]) -> Option<bool> {
    match scheme {
        _ if scheme.eq_ignore_ascii_case(b"https") => Some(true),
        _ if scheme.eq_ignore_ascii_case(b"http") => Some(false),
        _ => None,
    }
}

/// `X-Forwarded-For` of the request to the origin.
#[must_use]
pub fn addresses_field(addresses: &[IpAddr]) -> HeaderValue {
    let mut text = SmallVec::<[u8; 64]>::new();
    for (index, address) in addresses.iter().enumerate() {
        if index > 0 {
            text.extend_from_slice(b", ");
        }
        push_address(&mut text, *address);
    }
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| unreachable!("addresses are ASCII"))
}

/// Each request has an address. The formatter of an IPv4 address takes 7 % of a hit's instructions.
fn push_address(text: &mut SmallVec<[u8; 64]>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    text.push(b'.');
                }
                text.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        IpAddr::V6(address) => text.extend_from_slice(address.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use stockade_http::trusted_proxies::TrustedNetwork;

    use super::*;
    use crate::policy::testing::{Lines, head};

    fn trusted(networks: &[&str]) -> TrustedProxies {
        networks.iter().map(|text| text.parse::<TrustedNetwork>().expect("a network")).collect()
    }

    fn read_from(remote: &str, lines: Lines<'_>) -> ForwardedRequest {
        let proxies = trusted(&["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"]);
        read(&head(lines), remote.parse().expect("an address"), &proxies)
    }

    #[test]
    fn client_is_the_last_address_that_no_trusted_proxy_has() {
        let cases: [(&[&str], &str); 12] = [
            (&[], "10.0.0.1"),
            (&["203.0.113.9"], "203.0.113.9, 10.0.0.1"),
            // The client invented the first one.
            (&["8.8.8.8, 203.0.113.9"], "203.0.113.9, 10.0.0.1"),
            (&["8.8.8.8", "203.0.113.9, 10.1.2.3"], "203.0.113.9, 10.1.2.3, 10.0.0.1"),
            (&["203.0.113.9, 192.0.2.7, 2001:db8::7"], "203.0.113.9, 192.0.2.7, 2001:db8::7, 10.0.0.1"),
            (&["10.9.9.9"], "10.9.9.9, 10.0.0.1"),
            (&["203.0.113.9:4711"], "203.0.113.9, 10.0.0.1"),
            (&["[2001:db9::1]:80"], "2001:db9::1, 10.0.0.1"),
            (&["[2001:db9::1]"], "2001:db9::1, 10.0.0.1"),
            (&["::ffff:203.0.113.9"], "203.0.113.9, 10.0.0.1"),
            (&["203.0.113.9, unknown"], "10.0.0.1"),
            (&["203.0.113.9, , 10.1.2.3"], "203.0.113.9, 10.1.2.3, 10.0.0.1"),
        ];
        for (lines, expected) in cases {
            let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
            let read = read_from("10.0.0.1", &lines);
            assert_eq!(addresses_field(&read.addresses), expected, "{lines:?}");
            assert_eq!(read.client, read.addresses[0]);
        }
    }

    #[test]
    fn addresses_are_bounded() {
        let many = vec!["10.1.1.1"; 1_000].join(", ");
        let read = read_from("10.0.0.1", &[("x-forwarded-for", &many)]);
        assert_eq!(read.addresses.len(), 1 + PROXIES_MAX);
    }

    #[test]
    fn host_and_scheme_are_those_of_the_nearest_proxy() {
        for (value, expected) in [
            ("example.org", Some(Ok("example.org"))),
            ("evil.example, example.org:8443", Some(Ok("example.org:8443"))),
            ("a*b, [2001:db8::1]:80", Some(Ok("[2001:db8::1]:80"))),
            ("user@example.org", Some(Err(InvalidHost))),
            ("example.org/path", Some(Err(InvalidHost))),
            ("a b", Some(Err(InvalidHost))),
            ("a*b", Some(Err(InvalidHost))),
            ("*", Some(Err(InvalidHost))),
            (":80", Some(Err(InvalidHost))),
            ("a:99999", Some(Err(InvalidHost))),
            ("", None),
        ] {
            let read = read_from("10.0.0.1", &[("x-forwarded-host", value)]);
            let host = read.host.as_ref().map(|host| host.as_deref().map_err(|invalid| *invalid));
            assert_eq!(host, expected, "{value}");
        }
        for (value, expected) in
            [("https", Some(true)), ("HTTP", Some(false)), ("https, http", Some(false)), ("ftp", None)]
        {
            let read = read_from("10.0.0.1", &[("x-forwarded-proto", value)]);
            assert_eq!(read.is_tls, expected, "{value}");
        }
    }

    #[test]
    fn networks_contain_addresses_of_both_protocols() {
        let proxies = trusted(&["10.0.0.0/8", "::1", "::ffff:192.0.2.1"]);
        for (address, expected) in [
            ("10.200.3.4", true),
            ("::ffff:10.200.3.4", true),
            ("11.0.0.1", false),
            ("::1", true),
            ("::2", false),
            ("192.0.2.1", true),
        ] {
            assert_eq!(proxies.contains(address.parse().expect("an address")), expected, "{address}");
        }
        assert!(!TrustedProxies::default().contains(IpAddr::from([127, 0, 0, 1])));
        for wrong in ["10.0.0.0/33", "10.0.0", "example.org", ""] {
            assert!(wrong.parse::<TrustedNetwork>().is_err(), "{wrong}");
        }
    }
}
