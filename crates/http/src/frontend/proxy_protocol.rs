//! The PROXY protocol: a load balancer names the client of a connection before the client's first byte.
//!
//! Source: "The PROXY protocol, versions 1 & 2" (2020, by the authors of `HAProxy`). A header is accepted from trusted
//! proxies only, so that no client can name another.

use std::{io, net::SocketAddr};

use proxy_header::{Error as HeaderError, ParseConfig, Protocol, ProxyHeader};
use rustix::net::RecvFlags;
use tokio::{io::Interest, net::TcpStream};

/// The longest header of version 2. The specification asks for at least 536.
const HEADER_BYTES_MAX: usize = 4_096;
/// The longest line of version 1, by the specification.
const LINE_BYTES_MAX: usize = 107;

/// The connection of a client to the load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProxiedConnection {
    pub(super) client: SocketAddr,
    pub(super) local: SocketAddr,
    /// The load balancer ended TLS.
    pub(super) is_tls: bool,
}

/// Receives the header, and leaves the bytes after it unread. `None`: the connection is the load balancer's own, such as a
/// health check.
///
/// # Errors
/// `InvalidData` for bytes that are not a header, `UnexpectedEof` for the end of the connection before the end of the header,
/// and the errors of the connection.
pub(super) async fn receive(tcp: &TcpStream) -> io::Result<Option<ProxiedConnection>> {
    let mut bytes = vec![0; HEADER_BYTES_MAX];
    loop {
        let ready = tcp.ready(Interest::READABLE).await?;
        // The bytes of the header stay in the kernel until all of it is there.
        let peeked = tcp.try_io(Interest::READABLE, || {
            let (_, length) = rustix::net::recv(tcp, &mut bytes[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
            match parse(&bytes[..length])? {
                // No more bytes follow.
                None if length == 0 || ready.is_read_closed() => Err(io::ErrorKind::UnexpectedEof.into()),
                None => Err(io::ErrorKind::WouldBlock.into()),
                Some(header) => Ok(header),
            }
        });
        match peeked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok((connection, header_bytes)) => {
                discard(tcp, &mut bytes[..header_bytes])?;
                return Ok(connection);
            }
        }
    }
}

/// Takes the bytes that were peeked at.
fn discard(tcp: &TcpStream, mut header: &mut [u8]) -> io::Result<()> {
    while !header.is_empty() {
        let read = tcp.try_read(header)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        header = &mut header[read..];
    }
    Ok(())
}

/// The connection that a header names, and the length of the header; `None` if it is incomplete.
pub(super) fn parse(bytes: &[u8]) -> io::Result<Option<(Option<ProxiedConnection>, usize)>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let bytes = match bytes.strip_prefix(b"PROXY") {
        // The library takes any byte for the space.
        Some([other, ..]) if *other != b' ' => return Err(invalid()),
        Some(_) => &bytes[..bytes.len().min(LINE_BYTES_MAX)],
        None => bytes,
    };
    match ProxyHeader::parse(bytes, ParseConfig::default()) {
        Ok((header, header_bytes)) => {
            let is_tls = header.ssl().is_some_and(|tls| tls.client_ssl());
            let connection = match header.proxied_address() {
                None => None,
                Some(address) if address.protocol == Protocol::Stream => {
                    Some(ProxiedConnection { client: address.source, local: address.destination, is_tls })
                }
                Some(_) => return Err(invalid()),
            };
            Ok(Some((connection, header_bytes)))
        }
        Err(HeaderError::BufferTooShort) if bytes.len() < HEADER_BYTES_MAX => Ok(None),
        Err(_) => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VERSION_1: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n";
    /// 192.0.2.1 to 198.51.100.1, ports 56324 and 443, then the field of TLS (0x20) with the flag of an encrypted client.
    const VERSION_2: &[u8] =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x14\xc0\0\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb\
        \x20\0\x05\x01\0\0\0\0";
    const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

    fn connection(is_tls: bool) -> ProxiedConnection {
        ProxiedConnection {
            client: "192.0.2.1:56324".parse().expect("an address"),
            local: "198.51.100.1:443".parse().expect("an address"),
            is_tls,
        }
    }

    #[test]
    fn both_versions_name_the_client() {
        let cases = [
            (VERSION_1, Some(connection(false))),
            (VERSION_2, Some(connection(true))),
            (b"PROXY UNKNOWN\r\n", None),
            (LOCAL, None),
        ];
        for (header, expected) in cases {
            let parsed = parse(&[header, b"GET / HTTP/1.1\r\n\r\n"].concat()).expect("a header");
            assert_eq!(parsed, Some((expected, header.len())), "{header:?}");
            for length in 0..header.len() {
                assert_eq!(parse(&header[..length]).expect("the start of a header"), None, "{length} bytes");
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let too_long = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", &[0; HEADER_BYTES_MAX][..]].concat();
        let over_udp = [&VERSION_2[..13], b"\x12", &VERSION_2[14..]].concat();
        let long_line = [b"PROXY UNKNOWN ", &[b'f'; LINE_BYTES_MAX - 15][..], b"\r\n"].concat();
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"PROXY TCP4 192.0.2.256 198.51.100.1 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 1 65536\r\n",
            b"PROXY TCP6 192.0.2.1 198.51.100.1 1 2\r\n",
            b"PROXY\tTCP4 192.0.2.1 198.51.100.1 1 2\r\n",
            b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\0\0\0\0\0",
            &too_long[..HEADER_BYTES_MAX],
            &over_udp,
            &long_line,
        ] {
            assert!(parse(bytes).is_err(), "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[tokio::test]
    async fn header_that_is_gone_is_an_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        drop(TcpStream::connect(address).await.expect("it listens"));
        let (tcp, _) = listener.accept().await.expect("a connection");
        tcp.readable().await.expect("the end of the connection");
        let error = discard(&tcp, &mut [0; 4]).expect_err("no byte is left");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_not(mut bytes in prop::collection::vec(any::<u8>(), 0..200), start in 0_usize..3) {
            let starts = [&b""[..], b"PROXY TCP4 ", &VERSION_2[..12]];
            bytes.splice(0..0, starts[start].iter().copied());
            if let Ok(Some((_, header_bytes))) = parse(&bytes) {
                prop_assert!(header_bytes <= bytes.len());
            }
        }
    }
}
