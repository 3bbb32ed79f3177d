//! Connections: TCP or a Unix socket, with or without TLS.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use rustix::io::Errno;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use crate::{
    endpoint::Endpoint,
    http1::broken,
    sample::{Class, Failure},
};

/// How connections are made.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    /// Where all of them go, in place of the endpoint's address.
    pub(crate) unix: Option<PathBuf>,
    pub(crate) tls: Arc<ClientConfig>,
}

/// The addresses of an endpoint, looked up once.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(Arc<[SocketAddr]>),
    Unix(PathBuf),
}

/// Bytes to and from a peer: plain, or encrypted.
pub(crate) type Stream = Either<Socket, Box<TlsStream<Socket>>>;

/// Those below TLS.
pub(crate) type Socket = Either<TcpStream, UnixStream>;

impl Connector {
    /// Where an endpoint is.
    pub(crate) async fn look_up(&self, endpoint: &Endpoint) -> Result<Address, Failure> {
        if let Some(path) = &self.unix {
            return Ok(Address::Unix(path.clone()));
        }
        let unknown = |reason: &str| Failure::new(Class::Dns, format!("{}: {reason}", endpoint.host));
        let found = match endpoint.host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, endpoint.port)],
            Err(_) => {
                let found = lookup_host((endpoint.host.as_str(), endpoint.port)).await;
                found.map_err(|error| unknown(&error.to_string()))?.collect()
            }
        };
        if found.is_empty() { Err(unknown("it has none")) } else { Ok(Address::Tcp(found.into())) }
    }

    /// A connection that is ready for requests.
    pub(crate) async fn connect(&self, endpoint: &Endpoint, address: &Address) -> Result<Stream, Failure> {
        let socket = match address {
            Address::Tcp(addresses) => Either::Left(tcp(addresses).await?),
            Address::Unix(path) => {
                let unix = UnixStream::connect(path).await;
                Either::Right(unix.map_err(|error| not_connected(&error, &path.display().to_string()))?)
            }
        };
        if !endpoint.is_encrypted {
            return Ok(Either::Left(socket));
        }
        let name = ServerName::try_from(endpoint.host.clone())
            .map_err(|error| Failure::new(Class::Tls, format!("{}: {error}", endpoint.host)))?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await;
        let stream = stream.map_err(|error| match error.raw_os_error() {
            // The connection broke; encryption had no say in it.
            Some(_) => broken(&error),
            None => Failure::new(Class::Tls, error.to_string()),
        })?;
        Ok(Either::Right(Box::new(stream)))
    }
}

/// The first of the addresses that takes it.
async fn tcp(addresses: &[SocketAddr]) -> Result<TcpStream, Failure> {
    let mut refused = Failure::from(Class::Unreachable);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(tcp) => {
                // A request is written at once: nothing that follows has to wait for its acknowledgement.
                let _ = tcp.set_nodelay(true);
                return Ok(tcp);
            }
            Err(error) => refused = not_connected(&error, &address.to_string()),
        }
    }
    Err(refused)
}

fn not_connected(error: &io::Error, to: &str) -> Failure {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let class = match errno {
        Some(Errno::CONNREFUSED) => Class::Refused,
        // A socket's queue of those who want to connect is full.
        Some(Errno::AGAIN) => return Failure::new(Class::Refused, format!("{to}: its queue is full")),
        Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => Class::NoPorts,
        Some(Errno::MFILE | Errno::NFILE) => Class::NoFiles,
        Some(Errno::TIMEDOUT) => Class::ConnectTimeout,
        Some(Errno::CONNRESET | Errno::CONNABORTED) => Class::Reset,
        _ => return Failure::new(Class::Unreachable, format!("{to}: {error}")),
    };
    Failure::new(class, to)
}

/// Whether the peer wants to speak HTTP/2, where encryption has settled that.
pub(crate) fn is_http2(stream: &Stream) -> bool {
    match stream {
        Either::Left(_) => false,
        Either::Right(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
    }
}
