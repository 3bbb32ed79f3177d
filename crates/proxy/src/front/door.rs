//! Ports that are taken, and listeners on them.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    time::Duration,
};

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket};

/// How many connections may wait to be taken in, a thread; the kernel may allow fewer.
pub(super) const BACKLOG: u32 = 4_096;
/// How long a connection is silent before the kernel asks whether its client still lives.
const PROBE: Duration = Duration::from_mins(1);
/// How much longer than the front the kernel waits for a client that takes nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// A port that is taken: bound, so that nobody else is given it, but nobody listens.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) address: SocketAddr,
    pub(super) is_tls: bool,
    _held: TcpSocket,
}

impl Door {
    pub(super) fn at(address: SocketAddr, is_tls: bool) -> io::Result<Self> {
        // Whoever shares a port has to want it: nobody else's is shared by accident.
        drop(StdListener::bind(address)?);
        let socket = socket(address)?;
        // While nobody listens a port is anybody's who reuses addresses: not this one.
        socket.set_reuseaddr(false)?;
        let address = socket.local_addr()?;
        Ok(Self { address, is_tls, _held: socket })
    }

    /// One of several listeners. What is set on it is inherited by the connections that it takes in, which saves each
    /// of them the calls.
    pub(super) fn listen(&self, write_stall_timeout: Duration) -> io::Result<TcpListener> {
        let socket = socket(self.address)?;
        // It only ever makes answers later.
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, PROBE)?;
        // For what is in the kernel's hands when the connection has been closed here; before that, who counts is first.
        let patience = write_stall_timeout.saturating_add(PATIENCE);
        let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&socket, millis)?;
        socket.listen(BACKLOG)
    }
}

/// Bound to an address that others of this program share.
fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}
