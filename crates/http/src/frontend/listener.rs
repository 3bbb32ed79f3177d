//! Bound ports and the listeners on them.

use std::{io, net::SocketAddr, time::Duration};

use crate::port::{ReservedPort, shared_socket};
use rustix::net::sockopt;
use tokio::net::TcpListener;

/// Connections that wait for an accept, a thread; the kernel may allow fewer.
pub(super) const BACKLOG: u32 = 4_096;
/// How long a connection is silent before the kernel probes its client.
const KEEP_ALIVE_PROBE: Duration = Duration::from_mins(1);
/// How much longer than the frontend the kernel waits for a client that takes no bytes.
const KERNEL_MARGIN: Duration = Duration::from_secs(10);

/// A port for clients.
#[derive(Debug)]
pub(super) struct BoundSocket {
    port: ReservedPort,
    kind: ListenerKind,
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
        Ok(Self { port: ReservedPort::bind(address)?, kind })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Accepted connections inherit the options of the listener, which saves each of them the system calls.
    pub(super) fn listen(&self, write_stall_timeout: Duration) -> io::Result<ClientListener> {
        let socket = shared_socket(self.address())?;
        // Nagle's algorithm only delays responses.
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_PROBE)?;
        // For bytes that the kernel holds after the connection was closed here; until then the frontend's own timeout
        // comes first, which counts.
        let timeout = write_stall_timeout.saturating_add(KERNEL_MARGIN);
        let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&socket, millis)?;
        Ok(ClientListener { listener: socket.listen(BACKLOG)?, address: self.address(), kind: self.kind })
    }
}
