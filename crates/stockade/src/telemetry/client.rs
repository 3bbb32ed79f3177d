//! One POST to a collector, bounded in time and size. Redirects are not followed: the headers have secrets.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode,
    header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use stockade_load::TrustError;
use stockade_model::time::{Live, Runtime};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

use super::target::OtlpTarget;

const HEAD_BYTES_MAX: usize = 16 << 10;
const BODY_BYTES_MAX: usize = 64 << 10;

/// Connects anew for each export: exports are seconds apart.
pub struct OtlpClient {
    target: OtlpTarget,
    tls: Option<TlsConnector>,
}

/// The answer of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpReply {
    pub status: StatusCode,
    /// As a number of seconds; dates are ignored.
    pub retry_after: Option<Duration>,
    pub body: Bytes,
}

/// The reason, for a sentence.
type ClientError = String;

impl OtlpClient {
    /// Reads the certificate authorities if the URL needs them.
    pub fn new(target: OtlpTarget) -> Result<Self, TrustError> {
        let is_encrypted = target.url.is_encrypted;
        let tls = is_encrypted.then(|| target.trust.client_config()).transpose()?;
        Ok(Self { target, tls: tls.map(|config| TlsConnector::from(std::sync::Arc::new(config))) })
    }

    /// The URL without its query, which may have a secret.
    pub fn shown_url(&self) -> String {
        let url = &self.target.url;
        let scheme = if url.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}{}", url.authority, url.path.split('?').next().unwrap_or_default())
    }

    /// Sends JSON. The caller bounds the time.
    pub async fn post(&self, json: Bytes, time: &Live) -> Result<OtlpReply, ClientError> {
        let url = &self.target.url;
        let tcp =
            TcpStream::connect((url.host.as_str(), url.port)).await.map_err(|error| error.to_string())?;
        let Some(tls) = &self.tls else { return self.exchange(tcp, json, time).await };
        let name = ServerName::try_from(url.host.clone()).map_err(|error| error.to_string())?;
        let stream = tls.connect(name, tcp).await.map_err(|error| format!("TLS failed: {error}"))?;
        self.exchange(stream, json, time).await
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        json: Bytes,
        time: &Live,
    ) -> Result<OtlpReply, ClientError> {
        let text = |error: hyper::Error| format!("no HTTP answer: {error}");
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(text)?;
        // It ends when the sender and the body are dropped.
        time.spawn(async move {
            let _ = connection.await;
        });
        let response = sender.send_request(self.request(json)?).await.map_err(text)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(OtlpReply {
            status: head.status,
            retry_after: retry_after.map(Duration::from_secs),
            body: body.to_bytes(),
        })
    }

    fn request(&self, json: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
        let url = &self.target.url;
        let mut request = Request::post(url.path.as_str())
            .header(HOST, &url.authority)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(USER_AGENT, concat!("stockade/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(json))
            .map_err(|error| error.to_string())?;
        for (name, value) in &self.target.headers {
            request.headers_mut().insert(name, value.clone());
        }
        Ok(request)
    }
}
