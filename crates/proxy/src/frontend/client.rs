//! Clients, told apart by the network of their address.

use std::{net::IpAddr, num::NonZeroU64};

/// The network that a provider assigns to one customer: the first 24 bits of an IPv4 address, or the first 56 of an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientNetwork(NonZeroU64);

impl ClientNetwork {
    /// The last byte tells the two protocols apart.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => NonZeroU64::MIN | u64::from(address.to_bits() & !0xff) | 4,
            IpAddr::V6(address) => NonZeroU64::MIN | (address.to_bits() >> 64) as u64 & !0xff | 6,
        })
    }

    #[must_use]
    pub fn number(self) -> NonZeroU64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_networks() {
        let of = |address: &str| ClientNetwork::of(address.parse().expect("an address"));
        assert_eq!(of("192.0.2.1"), of("192.0.2.255"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.7"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:0:ab00::1"), of("2001:db8:0:abff:1::"));
        assert_ne!(of("2001:db8:0:ab00::1"), of("2001:db8:0:ac00::1"));
        assert_ne!(of("0.0.0.0"), of("::"));
    }
}
