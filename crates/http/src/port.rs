//! A port of a server that listens on it with several threads.

use std::{io, net::SocketAddr};

use tokio::net::TcpSocket;

/// A port that is bound, so that no other program gets it, but on which nothing listens.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl ReservedPort {
    /// Fails if another program has the port, also with `SO_REUSEPORT`: it must not be shared by accident.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        // It never listens: a connection to it would be reset.
        let alone = new_socket(address)?;
        alone.set_reuseaddr(true)?;
        alone.bind(address)?;
        drop(alone);
        let socket = shared_socket(address)?;
        // With SO_REUSEADDR another program could bind the port as long as nothing listens.
        socket.set_reuseaddr(false)?;
        Ok(Self { address: socket.local_addr()?, _socket: socket })
    }

    /// The address, with the port that the kernel chose for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A socket that is bound to a [`ReservedPort`], for one listener of this program.
pub fn shared_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = new_socket(address)?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn new_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}
