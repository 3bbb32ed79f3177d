//! Bound ports and the listeners on them.

use std::{io, net::SocketAddr, time::Duration};

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait for an accept, a thread; the kernel may allow fewer.
pub(super) const BACKLOG: u32 = 4_096;
/// How long a connection is silent before the kernel probes its client.
const KEEP_ALIVE_PROBE: Duration = Duration::from_mins(1);
/// How much longer than the frontend the kernel waits for a client that takes no bytes.
const KERNEL_MARGIN: Duration = Duration::from_secs(10);

/// A port that is bound, so that no other program gets it, but on which nothing listens.
#[derive(Debug)]
pub(super) struct BoundSocket {
    pub(super) address: SocketAddr,
    pub(super) kind: ListenerKind,
    _socket: TcpSocket,
}

/// The first bytes of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenerKind {
    /// After a header of the PROXY protocol, if there is one.
    pub(super) is_tls: bool,
    pub(super) has_proxy_header: bool,
}

/// One thread's listener on a [`BoundSocket`].
pub(super) struct ClientListener {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
    pub(super) kind: ListenerKind,
}

impl BoundSocket {
    pub(super) fn bind(address: SocketAddr, kind: ListenerKind) -> io::Result<Self> {
        // Fails if another program listens there with SO_REUSEPORT: its port must not be shared by accident. It does not listen, since
        // what connects to it would be reset.
        let alone = new_socket(address)?;
        alone.set_reuseaddr(true)?;
        alone.bind(address)?;
        drop(alone);
        let socket = reusable_socket(address)?;
        // With SO_REUSEADDR another program could bind the port as long as nothing listens.
        socket.set_reuseaddr(false)?;
        let address = socket.local_addr()?;
        Ok(Self { address, kind, _socket: socket })
    }

    /// Accepted connections inherit the options of the listener, which saves each of them the system calls.
    pub(super) fn listen(&self, write_stall_timeout: Duration) -> io::Result<ClientListener> {
        let socket = reusable_socket(self.address)?;
        // Nagle's algorithm only delays responses.
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_PROBE)?;
        // For bytes that the kernel holds after the connection was closed here; until then the frontend's own timeout
        // comes first, which counts.
        let timeout = write_stall_timeout.saturating_add(KERNEL_MARGIN);
        let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&socket, millis)?;
        let Self { address, kind, .. } = *self;
        Ok(ClientListener { listener: socket.listen(BACKLOG)?, address, kind })
    }
}

/// A socket that is bound to an address which others of this program share.
fn reusable_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = new_socket(address)?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn new_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}
