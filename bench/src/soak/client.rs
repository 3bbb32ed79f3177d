//! Connections to a proxy.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout},
};

use super::{
    Result,
    incident::{Incident, IncidentKind},
    pattern::PatternBody,
};

/// Much shorter than the proxy's `idle`, so that it never closes a connection on which a request is sent.
const KEPT_FOR: Duration = Duration::from_secs(5);
const KEPT_MAX: usize = 64;
/// Requests of an HTTP/2 connection before it is replaced.
const STREAMS_MAX: u32 = 500;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// A proxy's address and the connections to it.
pub struct Target {
    state: Mutex<State>,
}

struct State {
    address: SocketAddr,
    kept: Vec<(http1::SendRequest<PatternBody>, Instant, SocketAddr)>,
    shared: Option<(http2::SendRequest<PatternBody>, u32)>,
}

/// A connection for one request.
pub enum Sender {
    /// With the address, and whether it had a request before.
    Http1 {
        sender: http1::SendRequest<PatternBody>,
        address: SocketAddr,
        is_used: bool,
    },
    Http2 {
        sender: http2::SendRequest<PatternBody>,
        is_used: bool,
    },
}

impl Target {
    pub fn new(address: SocketAddr) -> Self {
        Self { state: Mutex::new(State { address, kept: Vec::new(), shared: None }) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn address(&self) -> SocketAddr {
        self.state().address
    }

    /// New connections go to another process. Kept ones stay until they are closed.
    pub fn set_address(&self, address: SocketAddr) {
        let mut state = self.state();
        state.address = address;
        state.shared = None;
    }

    /// A kept connection if there is one.
    pub async fn kept(&self) -> std::result::Result<Sender, Incident> {
        let found = {
            let mut state = self.state();
            state.kept.retain(|(sender, since, _)| !sender.is_closed() && since.elapsed() < KEPT_FOR);
            state.kept.pop()
        };
        match found {
            Some((sender, _, address)) => Ok(Sender::Http1 { sender, address, is_used: true }),
            None => self.new_http1(None).await,
        }
    }

    /// A new connection, with a small buffer for slow readers.
    pub async fn new_http1(&self, receive_bytes: Option<u32>) -> std::result::Result<Sender, Incident> {
        let address = self.address();
        let tcp = connect(address, receive_bytes).await?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(tcp)).await.map_err(|error| closed(&error))?;
        // Its requests report its errors.
        tokio::spawn(connection);
        Ok(Sender::Http1 { sender, address, is_used: false })
    }

    pub async fn http2(&self) -> std::result::Result<Sender, Incident> {
        let found = {
            let mut state = self.state();
            match &mut state.shared {
                Some((sender, streams)) if *streams < STREAMS_MAX && !sender.is_closed() => {
                    *streams += 1;
                    Some(sender.clone())
                }
                _ => None,
            }
        };
        if let Some(sender) = found {
            return Ok(Sender::Http2 { sender, is_used: true });
        }
        self.new_http2().await
    }

    pub async fn new_http2(&self) -> std::result::Result<Sender, Incident> {
        let address = self.address();
        let tcp = connect(address, None).await?;
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp));
        let (sender, connection) = handshake.await.map_err(|error| closed(&error))?;
        tokio::spawn(connection);
        let mut state = self.state();
        if state.address == address {
            state.shared = Some((sender.clone(), 1));
        }
        Ok(Sender::Http2 { sender, is_used: false })
    }

    /// After the whole body was read.
    pub async fn keep(&self, sender: Sender) {
        if let Sender::Http1 { mut sender, address, .. } = sender
            && sender.ready().await.is_ok()
        {
            let mut state = self.state();
            if state.kept.len() < KEPT_MAX {
                state.kept.push((sender, Instant::now(), address));
            }
        }
    }

    /// Closes all connections that have no request.
    pub fn clear(&self) {
        let mut state = self.state();
        state.kept.clear();
        state.shared = None;
    }
}

impl Sender {
    /// Whether the connection had a request before: then the proxy may close it meanwhile.
    pub fn is_used(&self) -> bool {
        match self {
            Self::Http1 { is_used, .. } | Self::Http2 { is_used, .. } => *is_used,
        }
    }

    pub fn is_http2(&self) -> bool {
        matches!(self, Self::Http2 { .. })
    }

    pub async fn send(
        &mut self,
        request: Request<PatternBody>,
    ) -> std::result::Result<Response<Incoming>, Incident> {
        let response = match self {
            Self::Http1 { sender, .. } => sender.send_request(request).await,
            Self::Http2 { sender, .. } => sender.send_request(request).await,
        };
        response.map_err(|error| closed(&error))
    }
}

/// An error before a response.
fn closed(error: &hyper::Error) -> Incident {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    Incident::new(IncidentKind::Closed, format!("{error}{}", source.unwrap_or_default()))
}

pub async fn connect(
    address: SocketAddr,
    receive_bytes: Option<u32>,
) -> std::result::Result<TcpStream, Incident> {
    let refused = |error: &dyn std::fmt::Display| Incident::new(IncidentKind::Refused, error.to_string());
    let socket = TcpSocket::new_v4().map_err(|error| refused(&error))?;
    if let Some(bytes) = receive_bytes {
        socket.set_recv_buffer_size(bytes).map_err(|error| refused(&error))?;
    }
    let tcp = timeout(CONNECT_TIMEOUT, socket.connect(address)).await.map_err(|error| refused(&error))?;
    let tcp = tcp.map_err(|error| refused(&error))?;
    let _ = tcp.set_nodelay(true);
    Ok(tcp)
}

/// A request to an admin listener: status, `Date` and body.
pub async fn call(address: SocketAddr, method: &str, target: &str) -> Result<(u16, Option<String>, Bytes)> {
    let exchange = async {
        let tcp = TcpStream::connect(address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(tcp)).await?;
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(target).header("host", "localhost");
        let response = sender.send_request(request.body(PatternBody::empty())?).await?;
        let date = response.headers().get("date").and_then(|date| Some(date.to_str().ok()?.to_owned()));
        let status = response.status().as_u16();
        Ok((status, date, response.into_body().collect().await?.to_bytes()))
    };
    timeout(Duration::from_secs(15), exchange)
        .await
        .map_err(|_| format!("{method} {target} at {address}: no response within 15 s"))?
}
