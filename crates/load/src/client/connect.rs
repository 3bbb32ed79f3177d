//! Connections: TCP or a Unix socket, with or without TLS.

use std::{
    fmt, io,
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
    allowed::AllowedTargets,
    endpoint::Endpoint,
    sample::{FailureClass, RequestFailure},
};

/// Opens connections.
#[derive(Clone, Debug)]
pub(crate) struct TransportConnector {
    /// Replaces the address of every endpoint.
    pub(crate) unix_socket: Option<PathBuf>,
    pub(crate) allowed: Option<AllowedTargets>,
    pub(crate) tls: Arc<ClientConfig>,
}

/// The resolved address of an endpoint.
#[derive(Clone, Debug)]
pub(crate) enum EndpointAddress {
    Tcp(Arc<[SocketAddr]>),
    Unix(PathBuf),
}

/// The bytes of HTTP: on a socket, or within TLS.
pub(crate) type Stream = Either<Socket, Box<TlsStream<Socket>>>;

pub(crate) type Socket = Either<TcpStream, UnixStream>;

impl TransportConnector {
    pub(crate) async fn look_up(&self, endpoint: &Endpoint) -> Result<EndpointAddress, RequestFailure> {
        let forbidden = |server: &dyn fmt::Display| {
            let allowed = self.allowed.as_ref().map(ToString::to_string).unwrap_or_default();
            RequestFailure::new(FailureClass::NotAllowed, format!("{server}; allowed: {allowed}"))
        };
        if let Some(path) = &self.unix_socket {
            if self.allowed.as_ref().is_some_and(|allowed| !allowed.has_unix(path)) {
                return Err(forbidden(&path.display()));
            }
            return Ok(EndpointAddress::Unix(path.clone()));
        }
        let unknown =
            |reason: &str| RequestFailure::new(FailureClass::Dns, format!("{}: {reason}", endpoint.host));
        let addresses = match endpoint.host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, endpoint.port)],
            Err(_) => {
                let addresses = lookup_host((endpoint.host.as_str(), endpoint.port)).await;
                addresses.map_err(|error| unknown(&error.to_string()))?.collect()
            }
        };
        if addresses.is_empty() {
            return Err(unknown("it has none"));
        }
        let addresses = match &self.allowed {
            None => addresses,
            Some(allowed) => match allowed.of(endpoint, addresses) {
                addresses if addresses.is_empty() => return Err(forbidden(endpoint)),
                addresses => addresses,
            },
        };
        Ok(EndpointAddress::Tcp(addresses.into()))
    }

    /// Connects, and completes the TLS handshake.
    pub(crate) async fn connect(
        &self,
        endpoint: &Endpoint,
        address: &EndpointAddress,
    ) -> Result<Stream, RequestFailure> {
        let socket = match address {
            EndpointAddress::Tcp(addresses) => Either::Left(connect_tcp(addresses).await?),
            EndpointAddress::Unix(path) => {
                let unix = UnixStream::connect(path).await;
                Either::Right(unix.map_err(|error| connect_failure(&error, &path.display().to_string()))?)
            }
        };
        if !endpoint.is_encrypted {
            return Ok(Either::Left(socket));
        }
        let name = ServerName::try_from(endpoint.host.clone())
            .map_err(|error| RequestFailure::new(FailureClass::Tls, format!("{}: {error}", endpoint.host)))?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await;
        let stream = stream.map_err(|error| match error.raw_os_error() {
            // The connection broke: this is no failure of TLS.
            Some(_) => connection_failure(&error),
            None => RequestFailure::new(FailureClass::Tls, error.to_string()),
        })?;
        Ok(Either::Right(Box::new(stream)))
    }
}

/// Connects to the first address that accepts.
async fn connect_tcp(addresses: &[SocketAddr]) -> Result<TcpStream, RequestFailure> {
    let mut failure = RequestFailure::from(FailureClass::Unreachable);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(tcp) => {
                // Each request is one write; what follows it must not wait for its acknowledgement (Nagle).
                let _ = tcp.set_nodelay(true);
                return Ok(tcp);
            }
            Err(error) => failure = connect_failure(&error, &address.to_string()),
        }
    }
    Err(failure)
}

fn connect_failure(error: &io::Error, to: &str) -> RequestFailure {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let class = match errno {
        Some(Errno::CONNREFUSED) => FailureClass::Refused,
        // The backlog of a Unix socket is full.
        Some(Errno::AGAIN) => {
            return RequestFailure::new(FailureClass::Refused, format!("{to}: its backlog is full"));
        }
        Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => FailureClass::NoPorts,
        Some(Errno::MFILE | Errno::NFILE) => FailureClass::NoFiles,
        Some(Errno::TIMEDOUT) => FailureClass::ConnectTimeout,
        Some(Errno::CONNRESET | Errno::CONNABORTED) => FailureClass::Reset,
        _ => return RequestFailure::new(FailureClass::Unreachable, format!("{to}: {error}")),
    };
    RequestFailure::new(class, to)
}

/// True if TLS negotiated HTTP/2.
pub(crate) fn is_http2(stream: &Stream) -> bool {
    match stream {
        Either::Left(_) => false,
        Either::Right(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
    }
}

/// Classifies the error of an established connection.
pub(crate) fn connection_failure(error: &io::Error) -> RequestFailure {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, TimedOut, WriteZero};
    match error.kind() {
        TimedOut => RequestFailure::new(FailureClass::Timeout, "the connection timed out"),
        ConnectionReset | ConnectionAborted | BrokenPipe | WriteZero => FailureClass::Reset.into(),
        InvalidData => RequestFailure::new(FailureClass::Tls, error.to_string()),
        _ => RequestFailure::new(FailureClass::Reset, error.to_string()),
    }
}
