//! The client of a request, as the connection or trusted proxies name it.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use smallvec::{SmallVec, smallvec};
use stockade_http::frontend::{ClientNetwork, ConnectionInfo};

use crate::{
    config::Config,
    policy::forwarded::{self, ForwardedRequest, InvalidHost},
};

#[derive(Clone, Debug)]
pub struct RequestClient {
    /// Its port is 0 if a proxy named the client.
    pub address: SocketAddr,
    pub network: ClientNetwork,
    /// False for a trusted proxy that names no client, and for this process: the bounds of clients do not apply.
    pub is_bounded: bool,
    /// Between the client and the first proxy.
    pub is_tls: bool,
    /// `X-Forwarded-Host` of a trusted proxy, which replaces `Host`.
    pub forwarded_host: Option<Result<String, InvalidHost>>,
    /// The client, and the trusted proxies after it.
    pub addresses: SmallVec<[IpAddr; 4]>,
}

impl RequestClient {
    #[must_use]
    pub fn new(headers: &HeaderMap, connection: ConnectionInfo, config: &Config) -> Self {
        let ConnectionInfo { remote, is_tls, .. } = connection;
        // A socket for both protocols has IPv4 addresses in IPv6.
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let trusted = &config.trusted_proxies;
        let network = |address| ClientNetwork::of(address, config.bounds.client_prefix());
        if !trusted.contains(remote.ip()) {
            return Self {
                address: remote,
                network: network(remote.ip()),
                is_bounded: true,
                is_tls,
                forwarded_host: None,
                addresses: smallvec![remote.ip()],
            };
        }
        let request = forwarded::read(headers, remote.ip(), trusted);
        let ForwardedRequest { client, addresses, host, is_tls: is_client_tls } = request;
        let address = if addresses.len() > 1 { SocketAddr::new(client, 0) } else { remote };
        Self {
            address,
            network: network(client),
            is_bounded: !trusted.contains(client),
            is_tls: is_client_tls.unwrap_or(is_tls),
            forwarded_host: host,
            addresses,
        }
    }
}
