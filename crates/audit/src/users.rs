//! The users of an audit: each has a connection of its own and sends one request.

use std::{cell::Cell, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{
    HeaderValue, Request, Response,
    header::{HOST, USER_AGENT},
};
use http_body_util::Full;
use stockade_http::{
    client::{AGENT, Connector, HttpUrl, up_to},
    tls::{Trust, TrustError},
};
use stockade_model::time::{Live, Runtime, before};

/// The largest response that is kept.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Sends requests to the cache.
pub(crate) struct Users {
    connector: Connector,
    host: HeaderValue,
    time: Live,
}

/// A request as its user saw it.
#[derive(Debug)]
pub(crate) struct UserRequest {
    /// From the request, or its failed connection, to the last byte or the failure.
    pub(crate) took: Duration,
    pub(crate) result: Result<Response<Bytes>, RequestFailure>,
}

/// A request without a whole response.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RequestFailure {
    #[error("no response after {0:?}")]
    TimedOut(Duration),
    #[error("{0}")]
    Failed(String),
}

impl Users {
    pub(crate) fn new(url: &HttpUrl, time: Live) -> Result<Self, TrustError> {
        let tls = url.is_encrypted.then(|| Trust::Insecure.client_config()).transpose()?;
        let host = HeaderValue::from_str(&url.authority).unwrap_or(HeaderValue::from_static("localhost"));
        Ok(Self { connector: Connector::new(&url.host, url.port, tls), host, time })
    }

    /// One user's request. The connection is closed after `patience`.
    pub(crate) async fn get(&self, path: &str, patience: Duration) -> UserRequest {
        let called = self.time.now();
        let began = Cell::new(called);
        let exchange = async {
            let mut request = Request::new(Full::new(Bytes::new()));
            *request.uri_mut() =
                path.parse().map_err(|_| RequestFailure::Failed(format!("`{path}` is not a path")))?;
            request.headers_mut().insert(HOST, self.host.clone());
            request.headers_mut().insert(USER_AGENT, AGENT);
            let failed =
                |error: stockade_http::client::ClientError| RequestFailure::Failed(error.to_string());
            let mut connection = self.connector.connect().await.map_err(failed)?;
            began.set(self.time.now());
            connection.exchange(request, up_to(RESPONSE_BYTES_MAX)).await.map_err(failed)
        };
        let result = before(&self.time, called + patience, exchange).await;
        let result = result.unwrap_or(Err(RequestFailure::TimedOut(patience)));
        UserRequest { took: self.time.now() - began.get(), result }
    }

    /// Requests of this many users at once.
    pub(crate) async fn herd(&self, path: &str, users: usize, patience: Duration) -> Vec<UserRequest> {
        join_all((0..users).map(|_| self.get(path, patience))).await
    }

    pub(crate) async fn wait(&self, duration: Duration) {
        self.time.sleep_until(self.time.now() + duration).await;
    }
}

impl UserRequest {
    /// True for a whole response with status 200.
    pub(crate) fn is_ok(&self) -> bool {
        self.result.as_ref().is_ok_and(|response| response.status() == 200)
    }
}
