//! The proxies that may name the client of a connection or of a request.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stockade_model::units::text;

/// The addresses and networks of the load balancers and CDNs that may name the client of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrustedProxies(Vec<TrustedNetwork>);

/// An address, or a network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedNetwork(IpNet);

/// Why a text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address or a network: write 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32")]
pub struct TrustedNetworkError(String);

impl FromStr for TrustedNetwork {
    type Err = TrustedNetworkError;

    fn from_str(text: &str) -> Result<Self, TrustedNetworkError> {
        let address = || text.parse::<IpAddr>().map(|address| IpNet::from(address.to_canonical()));
        let network = text.parse().or_else(|_| address());
        network.map(Self).map_err(|_| TrustedNetworkError(text.to_owned()))
    }
}

impl TrustedNetwork {
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl fmt::Display for TrustedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for TrustedNetwork {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        text::parsed(from)
    }
}

impl Serialize for TrustedNetwork {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl FromIterator<TrustedNetwork> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = TrustedNetwork>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

impl TrustedProxies {
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
