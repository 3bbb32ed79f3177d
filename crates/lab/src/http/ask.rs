//! One request, outside of any load.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

/// How long a probe may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a process may take to say how it goes.
const SHORT_PATIENCE: Duration = Duration::from_secs(2);
/// More than this nobody says.
const BYTES_MAX: usize = 16 << 20;

/// A request that was asked.
pub(super) struct Asked {
    /// Status and body.
    pub(super) answer: io::Result<(u16, String)>,
    pub(super) took: Duration,
}

/// GETs a URL, which takes some 10 s at most.
pub(super) fn ask(url: &str) -> Asked {
    let began = now();
    let answer = fetch(url, PATIENCE);
    Asked { answer, took: began.elapsed() }
}

/// What a page of a process says; or why it says nothing.
pub(super) fn get(url: &str) -> Result<String, String> {
    match fetch(url, SHORT_PATIENCE) {
        Ok((200, body)) => Ok(body),
        Ok((_, body)) => Err(format!("does not say how it goes: {}", body.trim())),
        Err(error) => Err(format!("does not say how it goes: {error}")),
    }
}

#[expect(clippy::disallowed_methods, reason = "processes use real time")]
fn now() -> Instant {
    Instant::now()
}

fn fetch(url: &str, patience: Duration) -> io::Result<(u16, String)> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = if address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        address.to_owned()
    } else {
        format!("{address}:80")
    };
    let to = host.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let until = now() + patience;
    let mut tcp = TcpStream::connect_timeout(&to, patience)?;
    tcp.set_read_timeout(Some(patience))?;
    tcp.set_write_timeout(Some(patience))?;
    // A version without chunks.
    write!(tcp, "GET /{path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let answer = read_all(tcp, until)?;
    // A probe's answer may be anything.
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
}

/// What comes until the other end closes. A signal in between is none of its business: who is interrupted asks once more
/// how everyone goes.
fn read_all(mut from: impl Read, until: Instant) -> io::Result<Vec<u8>> {
    let (mut answer, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        match from.read(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && now() <= until => {}
            Err(error) => return Err(error),
            Ok(0) => return Ok(answer),
            Ok(_) if answer.len() > BYTES_MAX || now() > until => {
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

    /// Gives its parts one by one; `None` is a signal.
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
    fn a_signal_does_not_end_what_is_read() {
        let parts = || Parts(VecDeque::from([None, Some("it goes "), None, None, Some("well")]));
        let read = read_all(parts(), now() + PATIENCE).expect("all of it");
        assert_eq!(read, b"it goes well");
        let late = read_all(parts(), now()).map_err(|error| error.kind());
        assert!(late.is_err(), "{late:?}");
    }
}
