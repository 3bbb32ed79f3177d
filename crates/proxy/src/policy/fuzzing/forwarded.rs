//! Fields of trusted proxies.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, uri::Authority};
use stockade_http::trusted_proxies::{TrustedNetwork, TrustedProxies};

use crate::policy::forwarded::{X_FORWARDED_FOR, X_FORWARDED_HOST, addresses_field, read};

const REMOTE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// A value of `X-Forwarded-Host` in the first line, values of `X-Forwarded-For` in the others.
///
/// - Trusted proxies wrote every address but the first.
/// - The field for the origin reads the same.
/// - A client that adds addresses before its own changes nothing.
/// - A host is an authority of a URI without user information.
pub fn check(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n').map(HeaderValue::from_bytes);
    let (Some(Ok(host)), Ok(named)) = (lines.next(), lines.collect::<Result<Vec<_>, _>>()) else { return };
    let trusted: TrustedProxies = ["10.0.0.0/8", "2001:db8::/32"]
        .iter()
        .filter_map(|text| text.parse::<TrustedNetwork>().ok())
        .collect();
    let read_with = |values: &[HeaderValue]| {
        let hosts = [(X_FORWARDED_HOST, host.clone())];
        let fields = values.iter().map(|value| (X_FORWARDED_FOR, value.clone()));
        let headers: HeaderMap = hosts.into_iter().chain(fields).collect();
        read(&headers, REMOTE, &trusted)
    };
    let request = read_with(&named);
    let Some(([client, proxies @ ..], REMOTE)) =
        request.addresses.split_last().map(|(last, rest)| (rest, *last))
    else {
        assert_eq!((&request.addresses[..], request.client), (&[REMOTE][..], REMOTE));
        return;
    };
    assert_eq!(request.client, *client);
    assert!(proxies.iter().all(|address| trusted.contains(*address)));
    assert!(request.addresses.iter().all(|address| *address == address.to_canonical()));
    let written = addresses_field(&request.addresses[..=proxies.len()]);
    assert_eq!(read_with(&[written]), request);
    if !trusted.contains(*client) {
        let with_invented = [&[HeaderValue::from_static("10.7.7.7, 203.0.113.77")][..], &named].concat();
        assert_eq!(read_with(&with_invented), request);
    }
    if let Some(Ok(host)) = request.host {
        let authority: Authority = host.parse().expect("an authority");
        assert!(!host.contains('@') && !authority.host().is_empty(), "{host}");
    }
}
