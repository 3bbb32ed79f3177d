//! Connections to the origin.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::fault::{Fault, Faults};

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// To the first byte of a response, and between two parts of a body.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The reason that a request has no response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    Unreachable,
    Broken,
    Silent,
}

impl Failure {
    pub fn status(self) -> StatusCode {
        if self == Self::Silent { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY }
    }
}

pub struct Upstream {
    origin: SocketAddr,
    /// The connection that was used last is the last.
    kept: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Upstream {
    pub fn new(origin: SocketAddr) -> Self {
        Self { origin, kept: Mutex::default() }
    }

    pub async fn send(
        self: &Arc<Self>,
        request: Request<Full<Bytes>>,
        faults: &Faults,
    ) -> Result<Response<Incoming>, Failure> {
        let is_safe = request.method().is_safe();
        // A kept connection may close at any time. A request that cannot be repeated gets a new one.
        if is_safe && let Some(kept) = self.take_kept() {
            match self.exchange(kept, request.clone()).await {
                Err(Failure::Broken) => {}
                other => return other,
            }
        }
        let answer = self.exchange(self.connect().await?, request.clone()).await;
        if !is_safe && matches!(answer, Err(Failure::Broken)) && faults.has(Fault::RetriesPost) {
            return self.exchange(self.connect().await?, request).await;
        }
        answer
    }

    fn take_kept(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut kept = self.kept.lock().unwrap();
        kept.retain(|connection| !connection.is_closed());
        kept.pop()
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let stream = timeout(CONNECT_MAX, TcpStream::connect(self.origin)).await;
        let stream = stream.map_err(|_| Failure::Silent)?.map_err(|_| Failure::Unreachable)?;
        stream.set_nodelay(true).map_err(|_| Failure::Broken)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| Failure::Broken)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn exchange(
        self: &Arc<Self>,
        mut connection: SendRequest<Full<Bytes>>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failure> {
        let response = timeout(SILENCE_MAX, connection.send_request(request)).await;
        let response = response.map_err(|_| Failure::Silent)?.map_err(|_| Failure::Broken)?;
        let upstream = self.clone();
        tokio::spawn(async move {
            // It is ready when its body was read.
            if connection.ready().await.is_ok() {
                upstream.kept.lock().unwrap().push(connection);
            }
        });
        Ok(response)
    }
}

/// The bytes of a body until its end, or until it broke off.
pub async fn read(mut body: Incoming) -> (Bytes, Result<(), Failure>) {
    let mut bytes = Vec::new();
    let end = loop {
        match timeout(SILENCE_MAX, body.frame()).await {
            Ok(Some(Ok(frame))) => bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..])),
            Ok(Some(Err(_))) => break Err(Failure::Broken),
            Ok(None) => break Ok(()),
            Err(_) => break Err(Failure::Silent),
        }
    };
    (bytes.into(), end)
}
