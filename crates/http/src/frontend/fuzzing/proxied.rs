//! Headers of the PROXY protocol compared with a naive reading.

use std::net::{IpAddr, SocketAddr};

use crate::frontend::proxy_protocol::{ProxiedConnection, parse};

/// The start of what a load balancer sends.
///
/// - The bytes after a header change nothing, and any part of a header is incomplete.
/// - Bytes after a text that is not a header do not make it one.
/// - The addresses are those of a naive reading.
pub fn check(data: &[u8]) {
    let with_more = [data, b"GET / HTTP/1.1\r\n"].concat();
    match parse(data) {
        Err(_) => assert!(parse(&with_more).is_err()),
        Ok(None) => {}
        Ok(Some((connection, length))) => {
            let (header, _) = data.split_at(length);
            assert_eq!(parse(header).ok(), Some(Some((connection, length))));
            assert_eq!(parse(&with_more).ok(), Some(Some((connection, length))));
            for length in (0..length).step_by(1 + length / 64) {
                assert!(
                    matches!(parse(&header[..length]), Ok(None)),
                    "{length} bytes of {}",
                    header.escape_ascii()
                );
            }
            let addresses = connection.map(|ProxiedConnection { client, local, .. }| (client, local));
            assert_eq!(addresses, naive(header), "{}", header.escape_ascii());
        }
    }
}

/// The addresses of the client and of the load balancer.
fn naive(header: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let address = |bytes: &[u8]| match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).map(IpAddr::from),
    };
    match header.strip_prefix(b"\r\n\r\n\0\r\nQUIT\n") {
        None => {
            // After `UNKNOWN` any bytes may follow.
            let line = String::from_utf8_lossy(header);
            let line = line.strip_suffix("\r\n").expect("a whole line");
            let [_, "TCP4" | "TCP6", client, local, client_port, local_port] =
                line.split(' ').collect::<Vec<_>>()[..]
            else {
                return None;
            };
            let socket = |ip: &str, port: &str| {
                SocketAddr::new(ip.parse().expect("an address"), port.parse().expect("a port"))
            };
            Some((socket(client, client_port), socket(local, local_port)))
        }
        Some([command, family, _, _, rest @ ..]) if command & 15 == 1 && matches!(family >> 4, 1 | 2) => {
            let width = if *family == 0x11 { 4 } else { 16 };
            let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
            let socket = |at: usize, port: u16| {
                SocketAddr::new(address(&rest[at..at + width]).expect("its length"), port)
            };
            Some((socket(0, port(2 * width)), socket(width, port(2 * width + 2))))
        }
        Some(_) => None,
    }
}
