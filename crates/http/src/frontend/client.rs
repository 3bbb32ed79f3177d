//! Clients, told apart by the network of their address.

use std::{net::IpAddr, num::NonZeroU64};

/// The number of leading bits of an address that identify a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPrefix {
    /// At most 32.
    pub ipv4_bits: u8,
    /// At most 56; more count as 56, because a provider assigns a prefix of 56 bits to one customer.
    pub ipv6_bits: u8,
}

impl ClientPrefix {
    pub const IPV6_BITS_MAX: u8 = 56;
}

impl Default for ClientPrefix {
    fn default() -> Self {
        Self { ipv4_bits: 24, ipv6_bits: 56 }
    }
}

/// The network of a client: the first bits of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientNetwork(NonZeroU64);

impl ClientNetwork {
    /// The last byte tells the two protocols apart.
    #[must_use]
    pub fn of(address: IpAddr, prefix: ClientPrefix) -> Self {
        let kept = |bits: u8| !u64::MAX.checked_shr(bits.into()).unwrap_or(0);
        Self(match address.to_canonical() {
            IpAddr::V4(address) => {
                let network = u64::from(address.to_bits()) << 32 & kept(prefix.ipv4_bits);
                NonZeroU64::MIN | network | 4
            }
            IpAddr::V6(address) => {
                let bits = prefix.ipv6_bits.min(ClientPrefix::IPV6_BITS_MAX);
                NonZeroU64::MIN | (address.to_bits() >> 64) as u64 & kept(bits) | 6
            }
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

    fn network(address: &str, ipv4_bits: u8, ipv6_bits: u8) -> ClientNetwork {
        ClientNetwork::of(address.parse().expect("an address"), ClientPrefix { ipv4_bits, ipv6_bits })
    }

    #[test]
    fn clients_are_networks() {
        let of = |address: &str| network(address, 24, 56);
        assert_eq!(of("192.0.2.1"), of("192.0.2.255"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.7"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:0:ab00::1"), of("2001:db8:0:abff:1::"));
        assert_ne!(of("2001:db8:0:ab00::1"), of("2001:db8:0:ac00::1"));
        assert_ne!(of("0.0.0.0"), of("::"));
    }

    #[test]
    fn prefix_decides_how_many_bits_count() {
        assert_ne!(network("192.0.2.1", 32, 56), network("192.0.2.2", 32, 56));
        assert_eq!(network("192.0.2.1", 0, 56), network("10.0.0.1", 0, 56));
        assert_eq!(network("2001:db8::", 24, 32), network("2001:db8:ffff::", 24, 32));
        assert_ne!(network("2001:db8::", 24, 32), network("2001:db9::", 24, 32));
        assert_eq!(network("2001:db8::1", 24, 128), network("2001:db8:0:ff::1", 24, 128));
    }
}
