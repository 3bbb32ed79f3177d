//! Connections to an HTTP server.
//!
//! A connection has no task of its own. Its request drives it until the response is complete; then it is idle, and a
//! drop closes it. So there are never more connections than permits.

use std::{
    error::Error,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
    http::response,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};

use super::{HttpServer, tls::TlsHandshake};

const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// TCP or TLS.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

type Driver = http1::Connection<TokioIo<Box<dyn ByteStream>>, Full<Bytes>>;

pub(super) struct HttpConnector {
    host: Arc<str>,
    port: u16,
    tls: Option<TlsHandshake>,
}

pub(super) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// `None`: closed.
    driver: Option<Driver>,
    exchanges: usize,
}

/// The response is missing or incomplete.
pub(super) struct HttpExchangeError {
    /// No part of the response was received.
    pub(super) is_before_response: bool,
    pub(super) reason: String,
}

impl HttpConnector {
    pub(super) async fn new(server: &HttpServer) -> Result<Self, String> {
        let tls = match &server.tls {
            Some(settings) => Some(TlsHandshake::new(settings).await?),
            None => None,
        };
        Ok(Self { host: server.host.as_str().into(), port: server.port, tls })
    }

    pub(super) async fn connect(&self) -> Result<Connection, String> {
        let host = &self.host;
        let addresses = lookup_host((&**host, self.port)).await;
        let addresses: Vec<_> = addresses
            .map_err(|error| format!("no address for host `{host}`: {error}; check its name"))?
            .collect();
        let tcp = TcpStream::connect(&addresses[..]).await.map_err(|error| connect_error(&error))?;
        tcp.set_nodelay(true).map_err(|error| connect_error(&error))?;
        let stream: Box<dyn ByteStream> = match &self.tls {
            Some(tls) => Box::new(tls.connect(tcp).await?),
            None => Box::new(tcp),
        };
        let (requests, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| explain(&error))?;
        Ok(Connection { requests, driver: Some(driver), exchanges: 0 })
    }
}

impl Connection {
    /// Sends a request, and awaits all of the response.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(response::Parts, Bytes), HttpExchangeError> {
        let Self { requests, driver, .. } = self;
        let mut response = pin!(async {
            let before_response =
                |error| HttpExchangeError { is_before_response: true, reason: explain(&error) };
            let (head, body) = requests.send_request(request).await.map_err(before_response)?.into_parts();
            let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
            let body = body
                .map_err(|error| HttpExchangeError { is_before_response: false, reason: explain(&*error) })?;
            Ok((head, body.to_bytes()))
        });
        let response = poll_fn(|cx| {
            drive(driver, cx);
            response.as_mut().poll(cx)
        });
        let response = response.await?;
        self.exchanges += 1;
        Ok(response)
    }

    pub(super) fn is_used(&self) -> bool {
        self.exchanges > 0
    }

    /// True if the connection is open, as far as this side knows, and has no request.
    pub(super) async fn is_idle(&mut self) -> bool {
        poll_fn(|cx| {
            drive(&mut self.driver, cx);
            Poll::Ready(self.driver.is_some() && self.requests.is_ready())
        })
        .await
    }
}

/// Reads and writes without waiting. A driver that has ended is dropped: otherwise a later request would wait for it.
fn drive(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
        *driver = None;
    }
}

/// The cause and the remedy.
fn connect_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused: start the server, or check host and port".to_owned()
        }
        _ => format!("cannot connect: {error}; check host and port"),
    }
}

/// The cause of a failed exchange.
fn explain(error: &(dyn Error + 'static)) -> String {
    let causes = || std::iter::successors(Some(error), |&error| error.source());
    let io = causes().find_map(|cause| cause.downcast_ref::<io::Error>());
    let hyper = error.downcast_ref::<hyper::Error>();
    if error.is::<LengthLimitError>() {
        return format!("its answer has more than {} MiB", BODY_BYTES_MAX >> 20);
    }
    if hyper.is_some_and(hyper::Error::is_incomplete_message)
        || io.is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof)
    {
        return "it closed the connection before its answer was whole".to_owned();
    }
    if hyper.is_some_and(hyper::Error::is_parse) {
        return "it does not answer in HTTP: check host, port and scheme".to_owned();
    }
    format!("the connection broke: {}", causes().last().unwrap_or(error))
}
