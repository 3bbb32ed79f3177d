//! Single requests to servers that are not under test: collectors of metrics, and the admin API of a proxy. Bounded in size;
//! the caller bounds the time. Redirects are not followed: the headers have secrets.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, StatusCode, Uri,
    header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT},
    uri::PathAndQuery,
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use stockade_load::{Trust, TrustError};
use stockade_model::time::{Live, Runtime};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

const HEAD_BYTES_MAX: usize = 16 << 10;

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

/// A server and what it is told.
#[derive(Clone, Debug)]
pub struct HttpTarget {
    pub url: HttpUrl,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub trust: Trust,
}

/// Connects anew for each request: requests are seconds apart.
pub struct HttpClient {
    target: HttpTarget,
    tls: Option<TlsConnector>,
    body_bytes_max: usize,
}

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    pub status: StatusCode,
    /// As a number of seconds; dates are ignored.
    pub retry_after: Option<Duration>,
    pub body: Bytes,
}

/// The reason, for a sentence.
type ClientError = String;

impl HttpUrl {
    pub fn parse(text: &str) -> Result<Self, UrlFault> {
        let uri: Uri = text.parse().map_err(|_| UrlFault::Malformed)?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(UrlFault::Malformed),
        };
        let authority = uri.authority().ok_or(UrlFault::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(UrlFault::Credentials);
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(UrlFault::Malformed);
        }
        let port = authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
        Ok(Self { is_encrypted, host, port, authority: authority.to_string(), path })
    }

    /// Scheme, host and port.
    pub fn origin(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

impl HttpClient {
    /// Reads the certificate authorities if the URL needs them. Longer answers are errors.
    pub fn new(target: HttpTarget, body_bytes_max: usize) -> Result<Self, TrustError> {
        let is_encrypted = target.url.is_encrypted;
        let tls = is_encrypted.then(|| target.trust.client_config()).transpose()?;
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        Ok(Self { target, tls, body_bytes_max })
    }

    /// The URL without its query, which may have a secret.
    pub fn shown_url(&self) -> String {
        let url = &self.target.url;
        url.origin() + url.path.split('?').next().unwrap_or_default()
    }

    pub async fn get(&self, time: &Live) -> Result<HttpReply, ClientError> {
        self.send(Method::GET, Bytes::new(), time).await
    }

    /// Sends JSON.
    pub async fn post(&self, json: Bytes, time: &Live) -> Result<HttpReply, ClientError> {
        self.send(Method::POST, json, time).await
    }

    async fn send(&self, method: Method, json: Bytes, time: &Live) -> Result<HttpReply, ClientError> {
        let request = self.request(method, json)?;
        let url = &self.target.url;
        let tcp =
            TcpStream::connect((url.host.as_str(), url.port)).await.map_err(|error| error.to_string())?;
        let Some(tls) = &self.tls else { return self.exchange(tcp, request, time).await };
        let name = ServerName::try_from(url.host.clone()).map_err(|error| error.to_string())?;
        let stream = tls.connect(name, tcp).await.map_err(|error| format!("TLS failed: {error}"))?;
        self.exchange(stream, request, time).await
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<Full<Bytes>>,
        time: &Live,
    ) -> Result<HttpReply, ClientError> {
        let text = |error: hyper::Error| format!("no HTTP answer: {error}");
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(text)?;
        // It ends when the sender and the body are dropped.
        time.spawn(async move {
            let _ = connection.await;
        });
        let response = sender.send_request(request).await.map_err(text)?;
        let (head, body) = response.into_parts();
        let body =
            Limited::new(body, self.body_bytes_max).collect().await.map_err(|error| error.to_string())?;
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(HttpReply {
            status: head.status,
            retry_after: retry_after.map(Duration::from_secs),
            body: body.to_bytes(),
        })
    }

    fn request(&self, method: Method, json: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
        let url = &self.target.url;
        let has_body = method == Method::POST;
        let mut request = Request::builder()
            .method(method)
            .uri(url.path.as_str())
            .header(HOST, &url.authority)
            .header(USER_AGENT, concat!("stockade/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(json))
            .map_err(|error| error.to_string())?;
        if has_body {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in &self.target.headers {
            request.headers_mut().insert(name, value.clone());
        }
        Ok(request)
    }
}
