//! A client that sends raw bytes and reads the responses.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

use super::wire::{Parsed, Side, parse};

/// The limit for all responses of a connection.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long further bytes may follow the last expected response.
const GRACE: Duration = Duration::from_millis(30);

/// One connection.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    pub received: Vec<u8>,
    pub parsed: Parsed,
    /// The proxy has closed the connection, before the client did.
    pub is_closed: bool,
}

impl Exchange {
    /// The statuses of the final responses.
    pub fn statuses(&self) -> impl Iterator<Item = u16> {
        self.parsed.messages.iter().map(super::wire::Message::status).filter(|status| *status >= 200)
    }
}

/// Sends `bytes`, and reads until `responses` final responses have arrived, the proxy closes, or a second has passed.
pub fn exchange(
    address: &str,
    bytes: &[u8],
    is_head: &[bool],
    responses: usize,
    closes: bool,
) -> std::io::Result<Exchange> {
    let mut tcp = TcpStream::connect(address)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(Duration::from_millis(10)))?;
    let mut exchange = Exchange::default();
    // A proxy may close before it has read everything; its response then still arrives.
    let _ = tcp.write_all(bytes);
    if closes {
        let _ = tcp.shutdown(Shutdown::Write);
    }
    let (began, mut buffer, mut complete_at) = (Instant::now(), [0; 16_384], None);
    while began.elapsed() < PATIENCE && complete_at.is_none_or(|at: Instant| at.elapsed() < GRACE) {
        match tcp.read(&mut buffer) {
            Ok(0) => exchange.is_closed = true,
            Ok(read) => exchange.received.extend_from_slice(&buffer[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => exchange.is_closed = true,
        }
        exchange.parsed =
            parse(&exchange.received, Side::Responses { is_head, is_closed: exchange.is_closed });
        if exchange.is_closed {
            break;
        }
        let complete = exchange.parsed.messages.iter().filter(|one| one.is_complete && one.status() >= 200);
        if complete.count() >= responses && complete_at.is_none() {
            complete_at = Some(Instant::now());
        }
    }
    Ok(exchange)
}
