//! Connections: TCP or a Unix socket, with or without TLS.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use rustix::io::Errno;
use rustls::{ClientConfig, pki_types::ServerName};
use stockade_model::time::{Runtime, Time};
use tokio::net::{TcpSocket, TcpStream, UnixStream, lookup_host};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use super::addresses::{ResolvedAddresses, connect_first};
use crate::{
    address_rules::{ConnectToRule, ResolveRule},
    allowed::AllowedTargets,
    endpoint::Endpoint,
    sample::{FailureClass, RequestFailure},
    settings::ClientOptions,
};

/// The endpoints whose addresses are kept: redirects may name any number.
const ENDPOINTS_MAX: usize = 10_000;

/// Opens connections.
pub(crate) struct TransportConnector {
    /// Replaces the address of every endpoint.
    unix_socket: Option<PathBuf>,
    allowed: Option<AllowedTargets>,
    resolve: Vec<ResolveRule>,
    connect_to: Vec<ConnectToRule>,
    /// Addresses of this machine; `next_local` counts the connections, which take them in turn.
    local_addresses: Vec<IpAddr>,
    next_local: AtomicUsize,
    tls: Arc<ClientConfig>,
    lookup: Lookup,
    known: Mutex<BTreeMap<Endpoint, Arc<EndpointAddresses>>>,
}

/// Looks up the addresses of a host.
type Lookup = fn(String, u16) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

fn system_lookup(
    host: String,
    port: u16,
) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>> {
    Box::pin(async move { Ok(lookup_host((host, port)).await?.collect()) })
}

/// The addresses of an endpoint, which all threads share; one of them looks them up. `None`: that has not succeeded yet.
#[derive(Debug, Default)]
pub(crate) struct EndpointAddresses(tokio::sync::Mutex<Option<ResolvedAddresses>>);

/// The addresses that a connection tries.
#[derive(Debug)]
pub(crate) enum ConnectionAddresses {
    /// In this order.
    Tcp(Vec<SocketAddr>),
    Unix(PathBuf),
}

/// The bytes of HTTP: on a socket, or within TLS.
pub(crate) type Stream = Either<Socket, Box<TlsStream<Socket>>>;

pub(crate) type Socket = Either<TcpStream, UnixStream>;

impl TransportConnector {
    pub(crate) fn new(options: &ClientOptions, tls: Arc<ClientConfig>) -> Self {
        Self {
            unix_socket: options.unix_socket.clone(),
            allowed: options.allowed.clone(),
            resolve: options.resolve.clone(),
            connect_to: options.connect_to.clone(),
            local_addresses: options.local_addresses.clone(),
            next_local: AtomicUsize::new(0),
            tls,
            lookup: system_lookup,
            known: Mutex::default(),
        }
    }

    /// The shared addresses of an endpoint, which [`look_up`](Self::look_up) fills.
    pub(crate) fn addresses_of(&self, endpoint: &Endpoint) -> Arc<EndpointAddresses> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(addresses) = known.get(endpoint) {
            return Arc::clone(addresses);
        }
        let addresses = Arc::<EndpointAddresses>::default();
        if known.len() < ENDPOINTS_MAX {
            known.insert(endpoint.clone(), Arc::clone(&addresses));
        }
        addresses
    }

    /// The addresses for the next connection to an endpoint. Looks the name up at first, after its ttl, and after failures.
    pub(crate) async fn look_up(
        &self,
        endpoint: &Endpoint,
        addresses: &EndpointAddresses,
        now: Time,
    ) -> Result<ConnectionAddresses, RequestFailure> {
        if let Some(path) = &self.unix_socket {
            if self.allowed.as_ref().is_some_and(|allowed| !allowed.has_unix(path)) {
                return Err(self.forbidden(&path.display()));
            }
            return Ok(ConnectionAddresses::Unix(path.clone()));
        }
        let mut resolved = addresses.0.lock().await;
        if resolved.as_ref().is_none_or(|resolved| resolved.is_due(now)) {
            match (self.resolve(endpoint).await, &mut *resolved) {
                (Ok(found), Some(resolved)) => resolved.renew(found, now),
                (Ok(found), none) => *none = Some(ResolvedAddresses::new(found, now)),
                // A name server that fails does not end a load that has addresses.
                (Err(failure), Some(resolved)) if failure.class == FailureClass::Dns => resolved.keep(now),
                (Err(failure), _) => return Err(failure),
            }
        }
        let order = resolved.as_mut().map(ResolvedAddresses::for_next_connection);
        Ok(ConnectionAddresses::Tcp(order.unwrap_or_default()))
    }

    /// All addresses of an endpoint that may be reached.
    async fn resolve(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, RequestFailure> {
        let to = ConnectToRule::of(&self.connect_to, endpoint);
        let unknown = |reason: &str| RequestFailure::new(FailureClass::Dns, format!("{}: {reason}", to.host));
        let (addresses, is_of_name) = match (ResolveRule::of(&self.resolve, &to), to.host.parse::<IpAddr>()) {
            (Some(addresses), _) => (addresses, false),
            (None, Ok(address)) => (vec![SocketAddr::new(address, to.port)], false),
            (None, Err(_)) => {
                let addresses = (self.lookup)(to.host.clone(), to.port).await;
                (addresses.map_err(|error| unknown(&error.to_string()))?, true)
            }
        };
        if addresses.is_empty() {
            return Err(unknown("it has none"));
        }
        let Some(allowed) = &self.allowed else { return Ok(addresses) };
        let is_allowed = |address: &SocketAddr| {
            // A rule may give any address to a name that is allowed: then the address has to be allowed.
            let host = if is_of_name { to.host.clone() } else { address.ip().to_string() };
            allowed.has(&Endpoint { host, ..to.clone() }, address)
        };
        let addresses: Vec<_> = addresses.into_iter().filter(is_allowed).collect();
        if addresses.is_empty() { Err(self.forbidden(&to)) } else { Ok(addresses) }
    }

    fn forbidden(&self, server: &dyn fmt::Display) -> RequestFailure {
        let allowed = self.allowed.as_ref().map(ToString::to_string).unwrap_or_default();
        RequestFailure::new(FailureClass::NotAllowed, format!("{server}; allowed: {allowed}"))
    }

    /// Connects, and completes the TLS handshake.
    pub(crate) async fn connect<R: Runtime>(
        &self,
        endpoint: &Endpoint,
        to: &ConnectionAddresses,
        runtime: &R,
        failed: &mut Vec<SocketAddr>,
    ) -> Result<Stream, RequestFailure> {
        let socket = match to {
            ConnectionAddresses::Tcp(addresses) => {
                Either::Left(connect_first(runtime, addresses, |to| self.connect_tcp(to), failed).await?)
            }
            ConnectionAddresses::Unix(path) => {
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
            // The connection broke: this is not a failure of TLS.
            Some(_) => connection_failure(&error),
            None => RequestFailure::new(FailureClass::Tls, error.to_string()),
        })?;
        Ok(Either::Right(Box::new(stream)))
    }

    async fn connect_tcp(&self, to: SocketAddr) -> Result<TcpStream, RequestFailure> {
        let tcp = match self.local_address_for(to)? {
            Some(local) => bound_socket(local)?.connect(to).await,
            None => TcpStream::connect(to).await,
        };
        let tcp = tcp.map_err(|error| connect_failure(&error, &to.to_string()))?;
        // Each request is one write; the next write must not wait for its acknowledgement (Nagle).
        let _ = tcp.set_nodelay(true);
        Ok(tcp)
    }

    /// The next of the local addresses that has the family of a server's address; `None`: the system chooses one.
    fn local_address_for(&self, to: SocketAddr) -> Result<Option<IpAddr>, RequestFailure> {
        if self.local_addresses.is_empty() {
            return Ok(None);
        }
        let of_family = || self.local_addresses.iter().filter(|local| local.is_ipv4() == to.is_ipv4());
        match of_family().count() {
            0 => Err(RequestFailure::new(
                FailureClass::Unreachable,
                format!("{to}: no local address is of its family (IPv4 or IPv6)"),
            )),
            count => Ok(of_family().nth(self.next_local.fetch_add(1, Relaxed) % count).copied()),
        }
    }
}

impl EndpointAddresses {
    /// Notes the addresses that did not accept a connection: they are tried last, and the name is looked up again.
    pub(crate) async fn note_failed(&self, failed: &[SocketAddr]) {
        if let Some(resolved) = &mut *self.0.lock().await {
            resolved.note_failed(failed);
        }
    }
}

impl fmt::Debug for TransportConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportConnector").field("known", &self.known).finish_non_exhaustive()
    }
}

/// A socket with a free port of a local address.
fn bound_socket(local: IpAddr) -> Result<TcpSocket, RequestFailure> {
    let socket = if local.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bound = socket.and_then(|socket| socket.bind(SocketAddr::new(local, 0)).map(|()| socket));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            let text = format!("{local} is not an address of this machine");
            RequestFailure::new(FailureClass::Unreachable, text)
        }
        _ => connect_failure(&error, &local.to_string()),
    })
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

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU16, Ordering},
        time::Duration,
    };

    use super::*;

    /// The port of the only address that every name has now.
    static PORT: AtomicU16 = AtomicU16::new(1);

    fn moving_name(_: String, _: u16) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>> {
        let port = PORT.load(Ordering::SeqCst);
        let result = if port == 0 {
            Err(io::Error::other("no name server"))
        } else {
            Ok(vec![([127, 0, 0, 1], port).into()])
        };
        Box::pin(async move { result })
    }

    #[tokio::test]
    async fn connections_follow_a_name_that_moves() {
        let options = ClientOptions { allowed: Some(AllowedTargets::default()), ..ClientOptions::default() };
        let tls = crate::tls::config(&options, false).expect("a configuration");
        let connector = TransportConnector { lookup: moving_name, ..TransportConnector::new(&options, tls) };
        let endpoint = Endpoint::of_url(&"http://a.example/".parse().expect("a URL"));
        let known = connector.addresses_of(&endpoint);
        let port_at = async |millis| {
            let now = Time::ZERO + Duration::from_millis(millis);
            match connector.look_up(&endpoint, &known, now).await {
                Ok(ConnectionAddresses::Tcp(addresses)) => addresses[0].port(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(port_at(0).await, 1);
        PORT.store(2, Ordering::SeqCst);
        assert_eq!((port_at(29_999).await, port_at(30_000).await), (1, 2));
        // A connection fails: the name is looked up a second later.
        PORT.store(3, Ordering::SeqCst);
        known.note_failed(&[([127, 0, 0, 1], 2).into()]).await;
        assert_eq!((port_at(30_999).await, port_at(31_000).await), (2, 3));
        // Without a name server the last addresses stay.
        PORT.store(0, Ordering::SeqCst);
        assert_eq!(port_at(70_000).await, 3);
        PORT.store(4, Ordering::SeqCst);
        assert_eq!((port_at(99_999).await, port_at(100_000).await), (3, 4));
    }
}
