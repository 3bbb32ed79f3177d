//! A pool of connections to an origin, with bounds and timeouts.
//!
//! ```text
//! Request -> RetryableRequest -> pool.checkout -- idle connection, or stream ------> exchange -> Response<UpstreamBody>
//!                               |          `--- permit: connect (DNS, TCP, TLS) --^
//!                               `-- wait in a bounded queue
//! ```
//!
//! `core` decides which request gets which connection; it is pure, and `pool` is the lock around it. The task of a
//! connection runs on the runtime that opened it; requests on any runtime may use the connection.

mod body;
mod clock;
mod connect;
mod core;
mod error;
mod event_streams;
#[cfg(test)]
mod explored;
mod framing;
mod health;
mod http1;
mod http2;
mod pool;
mod prober;
mod request;
mod sender;
mod settings;
mod shared;
pub mod shares;
mod socket;
mod tls;

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response};
use rustls::ClientConfig;
use stockade_model::time::Runtime;

use self::core::{EndpointSnapshot, PoolLimits, Reuse};
pub use body::UpstreamBody;
use clock::UpstreamClock;
use connect::OriginConnector;
pub use error::UpstreamError;
use event_streams::is_event_stream;
pub use health::{HealthProbe, HealthSettings};
pub use pool::Requester;
use pool::{Checkout, Connecting, Pool, ReadyConnection};
use request::RetryableRequest;
pub use settings::{
    HostHeader, OriginUrl, OriginUrlError, QUEUE_TIMEOUT, UpstreamSettings, UpstreamSettingsError,
};
use shared::{ExchangeFailure, Retry, UpstreamShared};

/// Clones share the connections, across runtimes.
#[derive(Clone)]
pub struct Upstream {
    shared: Arc<UpstreamShared>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    pub idle: usize,
    /// In use or connecting.
    pub busy: usize,
    pub waiting: usize,
    /// In the order of [`UpstreamSettings::urls`].
    pub endpoints: Vec<EndpointStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    pub url: OriginUrl,
    /// False: other endpoints are preferred.
    pub is_healthy: bool,
    /// Consecutive.
    pub failures: u32,
    /// In flight.
    pub requests: usize,
}

impl Upstream {
    /// Loads the trusted certificates. Does not connect.
    pub fn new(settings: UpstreamSettings) -> Result<Self, UpstreamSettingsError> {
        settings.validate()?;
        let is_encrypted = settings.urls.iter().any(|url| url.is_encrypted);
        let tls = if is_encrypted { Some(tls::config(&settings)?) } else { None };
        Ok(Self::with(settings, tls.as_ref(), UpstreamClock::new()))
    }

    fn with(settings: UpstreamSettings, tls: Option<&Arc<ClientConfig>>, clock: UpstreamClock) -> Self {
        let connector = |url: &OriginUrl| OriginConnector {
            url: url.clone(),
            clock: clock.clone(),
            tls: tls.filter(|_| url.is_encrypted).cloned(),
            timeout: settings.connect_timeout,
            health: HealthSettings { probe: None, ..settings.health.clone() },
            addresses: Mutex::default(),
        };
        let connectors: Vec<_> = settings.urls.iter().map(connector).collect();
        let limits = PoolLimits {
            connections: settings.connections_max,
            waiting: settings.waiting_max,
            streams: settings.streams_max,
            keep_alive: settings.keep_alive,
            max_age: settings.max_age,
            health: settings.health.clone(),
        };
        let pool = Pool::new(limits, connectors.len(), settings.http2, settings.queue_timeout, clock.clone());
        Self { shared: Arc::new(UpstreamShared { settings, clock, connectors, pool }) }
    }

    /// Sends a request and waits for the response head. The path is relative to the origin's URL. Fields are passed on in
    /// both directions except `Host`: the caller removes hop-by-hop fields.
    ///
    /// A request is sent again only if the origin has not processed it, or if a reused connection turns out to be closed and the
    /// method is idempotent; and if its body has not been sent, or the body is not longer than 64 KiB. Dropping the future
    /// aborts the request.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub fn send<B>(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<UpstreamBody>, UpstreamError>> + Send
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.send_for(&Requester::UNBOUNDED, request)
    }

    /// As [`send`](Self::send), for a client, which shares the connections with others.
    pub async fn send_for<B>(
        &self,
        requester: &Requester<'_>,
        request: Request<B>,
    ) -> Result<Response<UpstreamBody>, UpstreamError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let shared = &*self.shared;
        let pending = RetryableRequest::new(request, &shared.clock)?;
        let reuse = if pending.fits_kept() { Reuse::Allowed } else { Reuse::Avoided };
        let mut checkout = shared.pool.checkout(requester, reuse).await?;
        for resends in 0.. {
            let ready = match checkout {
                Checkout::Ready(ready) => ready,
                // Boxed: most requests find a connection.
                Checkout::Connect(connecting) => Box::pin(shared.connect(connecting)).await?,
            };
            let endpoint = ready.endpoint();
            let answer = match ready {
                ReadyConnection::Http1(lease) => http1::exchange(lease, &pending, shared).await,
                ReadyConnection::Http2(stream) => http2::exchange(stream, &pending, shared).await,
            };
            checkout = match answer {
                Ok(mut answer) => {
                    pending.drop_kept();
                    shared.pool.succeed(endpoint);
                    if is_event_stream(answer.headers()) && !answer.body_mut().begin_event_stream() {
                        return Err(UpstreamError::TooManyEventStreams);
                    }
                    return Ok(answer);
                }
                Err(ExchangeFailure { retry: Some(retry), .. }) if resends < retry.resends_max() => {
                    match retry {
                        Retry::Connect(connecting) => Checkout::Connect(connecting),
                        Retry::Checkout | Retry::Ended => shared.pool.checkout(requester, reuse).await?,
                    }
                }
                Err(ExchangeFailure { error, .. }) => {
                    if error.is_origin_fault() {
                        shared.pool.fail(endpoint);
                    }
                    return Err(error);
                }
            };
        }
        Err(UpstreamError::closed())
    }

    #[must_use]
    pub fn status(&self) -> UpstreamStatus {
        let shared = &*self.shared;
        shared.pool.with(|core, now| {
            let endpoint = |(url, endpoint): (&OriginUrl, EndpointSnapshot)| EndpointStatus {
                url: url.clone(),
                is_healthy: !endpoint.is_resting,
                failures: endpoint.failures,
                requests: endpoint.busy,
            };
            let idle = core.idle();
            UpstreamStatus {
                idle,
                busy: core.open().saturating_sub(idle),
                waiting: core.waiting(),
                endpoints: shared.settings.urls.iter().zip(core.endpoints(now)).map(endpoint).collect(),
            }
        })
    }
}

impl UpstreamShared {
    /// Connects to one endpoint after the other.
    async fn connect(&self, mut connecting: Connecting) -> Result<ReadyConnection, UpstreamError> {
        loop {
            let endpoint = connecting.endpoint;
            let (error, unconnected) = match self.open(connecting).await {
                Ok(ready) => return Ok(ready),
                Err(failed) => failed,
            };
            self.pool.fail(endpoint);
            connecting = unconnected;
            if !connecting.next_endpoint() {
                return Err(error);
            }
        }
    }

    async fn open(&self, connecting: Connecting) -> Result<ReadyConnection, (UpstreamError, Connecting)> {
        let connector = &self.connectors[connecting.endpoint];
        let deadline = self.clock.now() + self.settings.connect_timeout;
        let (socket, is_http2) = match connector.connect(deadline).await {
            Ok(connected) => connected,
            Err(error) => return Err((error, connecting)),
        };
        if is_http2 || self.settings.http2 && connector.tls.is_none() {
            http2::open(socket, connecting, deadline, self).await.map(ReadyConnection::Http2)
        } else {
            http1::open(socket, connecting, self).await.map(ReadyConnection::Http1)
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.status()).finish()
    }
}
