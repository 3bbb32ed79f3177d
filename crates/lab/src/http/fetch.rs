//! Single requests outside of the load, with limits on time and size.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use stockade_record::clock::instant;

/// The limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit of an admin request.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);
/// The limit of a response, head and body.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// A response and its duration.
pub(super) struct TimedReply {
    /// Status and body.
    pub(super) answer: io::Result<(u16, String)>,
    pub(super) took: Duration,
}

/// GETs a URL within [`PROBE_TIMEOUT`].
pub(super) fn fetch_timed(url: &str) -> TimedReply {
    let began = instant();
    let answer = fetch("GET", url, PROBE_TIMEOUT);
    TimedReply { answer, took: began.elapsed() }
}

/// Sends a request without a body within [`PROBE_TIMEOUT`]: status and body.
pub(super) fn send(method: &str, url: &str) -> io::Result<(u16, String)> {
    fetch(method, url, PROBE_TIMEOUT)
}

/// The admin page of a child process, or an error message.
pub(super) fn get(url: &str) -> Result<String, String> {
    match fetch("GET", url, ADMIN_TIMEOUT) {
        Ok((200, body)) => Ok(body),
        Ok((_, body)) => Err(format!("does not answer at its admin address: {}", body.trim())),
        Err(error) => Err(format!("does not answer at its admin address: {error}")),
    }
}

/// Connects to the host and port of a URL, at the first of its addresses that accepts.
pub(super) fn connect(url: &str, timeout: Duration) -> io::Result<TcpStream> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split('/').next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let default_port = if scheme == "https" { 443 } else { 80 };
    let host = if has_port { authority.to_owned() } else { format!("{authority}:{default_port}") };
    let mut result = Err(io::ErrorKind::NotFound.into());
    for address in host.to_socket_addrs()? {
        result = TcpStream::connect_timeout(&address, timeout);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn fetch(method: &str, url: &str, timeout: Duration) -> io::Result<(u16, String)> {
    let rest =
        url.strip_prefix("http://").ok_or_else(|| io::Error::other("only http: URLs are requested here"))?;
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let until = instant() + timeout;
    let mut tcp = connect(url, timeout)?;
    tcp.set_read_timeout(Some(timeout))?;
    tcp.set_write_timeout(Some(timeout))?;
    // HTTP/1.0 has no chunks.
    write!(tcp, "{method} /{path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let answer = read_all(tcp, until)?;
    // The body of a probe may be binary.
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
}

/// Reads all bytes until the peer closes; retries after signals.
fn read_all(mut from: impl Read, until: Instant) -> io::Result<Vec<u8>> {
    let (mut answer, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        match from.read(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && instant() <= until => {}
            Err(error) => return Err(error),
            Ok(0) => return Ok(answer),
            Ok(_) if answer.len() > REPLY_BYTES_MAX || instant() > until => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Ok(bytes) => answer.extend_from_slice(&part[..bytes]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Returns its parts one by one; `None` is a signal.
    struct Parts(VecDeque<Option<&'static str>>);

    impl Read for Parts {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                Some(None) => Err(io::ErrorKind::Interrupted.into()),
                Some(Some(part)) => part.as_bytes().read(to),
                None => Ok(0),
            }
        }
    }

    #[test]
    fn signal_does_not_end_a_read() {
        let parts = || Parts(VecDeque::from([None, Some("first "), None, None, Some("second")]));
        let read = read_all(parts(), instant() + PROBE_TIMEOUT).expect("all of it");
        assert_eq!(read, b"first second");
        let late = read_all(parts(), instant()).map_err(|error| error.kind());
        assert!(late.is_err(), "{late:?}");
    }
}
