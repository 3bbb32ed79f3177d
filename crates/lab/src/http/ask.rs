//! One request, outside of any load.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

/// How long a probe may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a process may take to say how it goes.
const SHORT_PATIENCE: Duration = Duration::from_secs(2);
/// More than this nobody says.
const BYTES_MAX: u64 = 16 << 20;

/// A request that was asked.
pub(super) struct Asked {
    /// Status and body.
    pub(super) answer: io::Result<(u16, String)>,
    pub(super) took: Duration,
}

/// GETs a URL, which takes 10 s at most from one byte to the next.
#[expect(clippy::disallowed_methods, reason = "processes use real time")]
pub(super) fn ask(url: &str) -> Asked {
    let began = Instant::now();
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

fn fetch(url: &str, patience: Duration) -> io::Result<(u16, String)> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut tcp = TcpStream::connect(address)?;
    tcp.set_read_timeout(Some(patience))?;
    tcp.set_write_timeout(Some(patience))?;
    // A version without chunks.
    write!(tcp, "GET /{path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    tcp.take(BYTES_MAX).read_to_end(&mut answer)?;
    // A probe's answer may be anything.
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
}
