//! A small client: one request at a time over HTTP/1.1, and the whole reply, which is bounded in size. The caller bounds the time.
//! Redirects are not followed: the headers may have secrets.
//!
//! A connection has no task of its own. Its request drives it until the reply is complete; then it is idle, and a drop closes it.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, Uri,
    header::{CONNECTION, HOST, USER_AGENT},
    uri::{Authority, PathAndQuery},
};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use stockade_model::time::{Live, Runtime, before};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    runtime,
};
use tokio_rustls::TlsConnector;

use crate::tls::{Trust, TrustError};

/// The value of `User-Agent`.
pub const AGENT: HeaderValue = HeaderValue::from_static(concat!("stockade/", env!("CARGO_PKG_VERSION")));
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Room that is taken for a reply before it arrives.
const EXPECTED_BYTES_MAX: u64 = 1 << 20;

/// An `http:` or `https:` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    pub is_encrypted: bool,
    /// Without brackets around IPv6.
    pub host: String,
    pub port: u16,
    /// The value of `Host`.
    pub authority: String,
    /// Path and query; at least `/`.
    pub path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlFault {
    Malformed,
    /// It has a user or a password.
    Credentials,
}

/// Sends requests to one URL. Connects anew for each: they are seconds apart.
pub struct HttpClient {
    url: HttpUrl,
    headers: HeaderMap,
    connector: Connector,
    reply_bytes_max: usize,
}

/// Connects to one server.
pub struct Connector {
    host: Box<str>,
    port: u16,
    /// `None`: without TLS.
    tls: Option<TlsConnector>,
}

/// A connection, which has a request or none.
pub struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// `None`: closed.
    driver: Option<Driver>,
    exchanges: usize,
}

type Driver = http1::Connection<TokioIo<Box<dyn ByteStream>>, Full<Bytes>>;

/// TCP or TLS.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// An exchange without a complete reply.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The host has no address.
    #[error("{0}")]
    Resolve(#[source] io::Error),
    #[error("{0}")]
    Connect(#[source] io::Error),
    #[error("TLS failed: {0}")]
    Tls(#[source] io::Error),
    /// No part of a reply arrived.
    #[error("no HTTP answer: {0}")]
    NoReply(#[source] hyper::Error),
    /// The rest of the reply is missing.
    #[error("{0}")]
    Incomplete(#[source] hyper::Error),
    #[error("its answer is too long")]
    TooLarge,
}

/// Whether the server of a URL takes TLS, its host without brackets, and its port. `None`: not an `http:` or `https:` URL with a host.
#[must_use]
pub fn endpoint(uri: &Uri) -> Option<(bool, &str, u16)> {
    let (is_encrypted, default_port) = match uri.scheme_str()? {
        "http" => (false, 80),
        "https" => (true, 443),
        _ => return None,
    };
    let host = uri.host()?.trim_matches(['[', ']']);
    (!host.is_empty()).then(|| (is_encrypted, host, uri.port_u16().unwrap_or(default_port)))
}

impl HttpUrl {
    pub fn parse(text: &str) -> Result<Self, UrlFault> {
        let uri: Uri = text.parse().map_err(|_| UrlFault::Malformed)?;
        let authority = uri.authority().map_or("", Authority::as_str).to_owned();
        if authority.contains('@') && matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(UrlFault::Credentials);
        }
        let (is_encrypted, host, port) = endpoint(&uri).ok_or(UrlFault::Malformed)?;
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
        Ok(Self { is_encrypted, host: host.to_owned(), port, authority, path })
    }

    /// Scheme, host and port.
    #[must_use]
    pub fn origin(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

impl HttpClient {
    /// Sends these headers with each request. Reads the certificate authorities if the URL needs them.
    pub fn new(
        url: HttpUrl,
        headers: HeaderMap,
        trust: &Trust,
        reply_bytes_max: usize,
    ) -> Result<Self, TrustError> {
        let tls = url.is_encrypted.then(|| trust.client_config()).transpose()?;
        let connector = Connector::new(&url.host, url.port, tls);
        Ok(Self { url, headers, connector, reply_bytes_max })
    }

    /// The URL without its query, which may have a secret.
    #[must_use]
    pub fn shown_url(&self) -> String {
        self.url.origin() + self.url.path.split('?').next().unwrap_or_default()
    }

    /// Sends a request, without a body if it is empty.
    pub async fn send(&self, method: Method, body: Bytes) -> Result<Response<Bytes>, ClientError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() =
            self.url.path.parse().map_err(|error| ClientError::Resolve(io::Error::other(error)))?;
        let host = HeaderValue::from_str(&self.url.authority);
        request.headers_mut().extend(host.ok().map(|host| (HOST, host)));
        request.headers_mut().insert(USER_AGENT, AGENT);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        request.headers_mut().extend(self.headers.clone());
        self.connector.connect().await?.exchange(request, up_to(self.reply_bytes_max)).await
    }
}

impl Connector {
    #[must_use]
    pub fn new(host: &str, port: u16, tls: Option<ClientConfig>) -> Self {
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        Self { host: host.into(), port, tls }
    }

    /// Connects to the first address of the host that accepts.
    pub async fn tcp(&self) -> Result<TcpStream, ClientError> {
        let addresses = lookup_host((&*self.host, self.port)).await.map_err(ClientError::Resolve)?;
        let addresses: Vec<_> = addresses.collect();
        TcpStream::connect(&addresses[..]).await.map_err(ClientError::Connect)
    }

    pub async fn connect(&self) -> Result<Connection, ClientError> {
        let tcp = self.tcp().await?;
        // A failure only delays small requests.
        let _ = tcp.set_nodelay(true);
        let stream: Box<dyn ByteStream> = match &self.tls {
            Some(tls) => {
                let name = ServerName::try_from(String::from(&*self.host));
                let name = name.map_err(|error| ClientError::Tls(io::Error::other(error)))?;
                Box::new(tls.connect(name, tcp).await.map_err(ClientError::Tls)?)
            }
            None => Box::new(tcp),
        };
        let mut builder = http1::Builder::new();
        let handshake = builder.max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream));
        let (requests, driver) = handshake.await.map_err(ClientError::NoReply)?;
        Ok(Connection { requests, driver: Some(driver), exchanges: 0 })
    }
}

impl Connection {
    /// Sends a request, and awaits all of the reply. `has_room` says of each part, with its bytes, whether it may be kept.
    pub async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        has_room: impl FnMut(usize) -> bool,
    ) -> Result<Response<Bytes>, ClientError> {
        let Self { requests, driver, .. } = self;
        let mut reply = pin!(receive(requests, request, has_room));
        let reply = poll_fn(|cx| {
            drive(driver, cx);
            reply.as_mut().poll(cx)
        });
        let reply = reply.await?;
        self.exchanges += 1;
        Ok(reply)
    }

    /// True if it has had a request.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.exchanges > 0
    }

    /// True if the connection is open, as far as this side knows, and has no request.
    pub async fn is_idle(&mut self) -> bool {
        poll_fn(|cx| {
            drive(&mut self.driver, cx);
            Poll::Ready(self.driver.is_some() && self.requests.is_ready())
        })
        .await
    }
}

async fn receive(
    requests: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    mut has_room: impl FnMut(usize) -> bool,
) -> Result<Response<Bytes>, ClientError> {
    let reply = requests.send_request(request).await.map_err(ClientError::NoReply)?;
    let (head, mut incoming) = reply.into_parts();
    let expected = incoming.size_hint().lower().min(EXPECTED_BYTES_MAX);
    let mut body = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
    while let Some(frame) = incoming.frame().await {
        let Ok(part) = frame.map_err(ClientError::Incomplete)?.into_data() else { continue };
        if !has_room(part.len()) {
            return Err(ClientError::TooLarge);
        }
        body.extend_from_slice(&part);
    }
    body.shrink_to_fit();
    Ok(Response::from_parts(head, body.into()))
}

/// Reads and writes without waiting. A driver that has ended is dropped: otherwise a later request would wait for it.
fn drive(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
        *driver = None;
    }
}

/// Room for a reply of at most `bytes_max` bytes.
pub fn up_to(mut bytes_max: usize) -> impl FnMut(usize) -> bool {
    move |bytes| {
        let left = bytes_max.checked_sub(bytes);
        bytes_max = left.unwrap_or(0);
        left.is_some()
    }
}

/// Awaits a future of this module on a runtime of its own, for a caller that blocks. `None`: it took longer than `timeout`.
pub fn block_within<T>(timeout: Duration, future: impl Future<Output = T>) -> io::Result<Option<T>> {
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let output = runtime.block_on(async {
        let time = Live::new();
        before(&time, time.now() + timeout, future).await
    });
    // Does not wait for a name lookup that hangs.
    runtime.shutdown_background();
    Ok(output)
}
