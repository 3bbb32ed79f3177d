//! The host of a request: pure.
//!
//! `Host`, `:authority` and `X-Forwarded-Host` have one grammar: routes, cache keys and the origin read the same host.

use std::net::Ipv6Addr;

/// The bytes of a host name. RFC 3986 also allows percent-encoding and sub-delimiters, which no host name uses.
static IS_NAME_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

/// Accepts a name or an address with an optional port: no user information, nothing after the port.
#[must_use]
pub fn is_host(bytes: &[u8]) -> bool {
    let (is_name, port) = if bytes.first() == Some(&b'[') {
        let Some(end) = bytes.iter().position(|byte| *byte == b']') else { return false };
        let address = std::str::from_utf8(&bytes[1..end]).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
        (address.is_some(), &bytes[end + 1..])
    } else {
        let end = bytes.iter().position(|byte| !IS_NAME_BYTE[usize::from(*byte)]).unwrap_or(bytes.len());
        (end > 0, &bytes[end..])
    };
    is_name && is_port(port)
}

/// Accepts the empty string, or a colon and a number.
fn is_port(port: &[u8]) -> bool {
    let [b':', digits @ ..] = port else { return port.is_empty() };
    let number = digits.iter().try_fold(0_u16, |number, digit| {
        let digit = char::from(*digit).to_digit(10).and_then(|digit| u16::try_from(digit).ok())?;
        number.checked_mul(10)?.checked_add(digit)
    });
    !digits.is_empty() && number.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_checked() {
        let valid = [
            "a",
            "A.b-c_d~e",
            "a:0",
            "a:65535",
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:80",
            "1",
            "a.",
            "xn--1",
        ];
        let invalid = [
            "",
            ":",
            ":80",
            "a:",
            "a:b",
            "a:65536",
            "a:-1",
            "a:+1",
            "a:80:80",
            "u@a",
            "a@",
            "a b",
            "a,b",
            "a/b",
            "a?b",
            "a#b",
            "a%41",
            "[",
            "[]",
            "[::1",
            "::1",
            "[::1]x",
            "[::1]:",
            "[1.2.3.4]",
            "[::1%eth0]",
            "a]",
            "\u{e4}",
            "\"a\"",
        ];
        for (hosts, is_valid) in [(&valid[..], true), (&invalid[..], false)] {
            for host in hosts {
                assert_eq!(is_host(host.as_bytes()), is_valid, "{host:?}");
            }
        }
    }
}
