//! The client of one origin: an HTTP server, or a database of documents.

use std::{
    error::Error,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body::Body;

use super::{
    fetched_body::{FetchedBody, UnreadMark},
    upload::{Upload, UploadShare},
    waiting_clients::WaitingClients,
};
use crate::{
    admin::{OriginStats, ServerStats},
    config::{HealthTable, OriginConfig, OriginKind, OriginTable, Times},
    documents::{DocumentOrigin, DocumentsError},
};
use stockade_http::{
    frontend::ClientBodyError,
    upstream::{
        EndpointStatus, HealthProbe, HealthSettings, OriginUrl, OriginUrlError, Requester, Upstream,
        UpstreamError, UpstreamSettings, UpstreamSettingsError, UpstreamStatus,
    },
};

pub struct OriginClient {
    pub name: String,
    backend: OriginBackend,
    waiting: WaitingClients,
    requests: AtomicU64,
    failures: AtomicU64,
}

enum OriginBackend {
    Http(HttpBackend),
    Documents(DocumentOrigin),
}

struct HttpBackend {
    upstream: Upstream,
    uploads: UploadShare,
    /// Responses that wait for their clients, each with a connection.
    unread: Arc<AtomicUsize>,
    /// How many responses can be in flight.
    responses_max: usize,
    until_head: Duration,
}

/// The body of a request to an origin.
pub trait RequestBody:
    Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static
{
}

impl<B> RequestBody for B where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static
{
}

/// The origin did not respond.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OriginError {
    #[error(transparent)]
    Http(#[from] UpstreamError),
    #[error("{reason}")]
    Documents {
        /// Without secrets.
        reason: Arc<str>,
        /// For the client.
        status: StatusCode,
    },
}

#[derive(Debug, thiserror::Error)]
#[error("origin {origin}: {reason}")]
pub struct OriginOpenError {
    pub origin: String,
    pub reason: String,
}

impl OriginError {
    /// The status of the proxy's own reply.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Http(UpstreamError::RequestBody { error }) => error
                .downcast_ref::<ClientBodyError>()
                .map_or(StatusCode::BAD_REQUEST, |error| error.status()),
            Self::Http(error) => error.status(),
            Self::Documents { status, .. } => *status,
        }
    }

    /// False: the client, the load or the proxy itself is the cause. The breaker does not count it.
    #[must_use]
    pub fn is_origin_fault(&self) -> bool {
        match self {
            Self::Http(error) => error.is_origin_fault(),
            Self::Documents { .. } => true,
        }
    }
}

impl OriginError {
    /// True if the request has not been sent, for a reason that is its client's: other clients may have a connection.
    #[must_use]
    pub fn is_about_client(&self) -> bool {
        use UpstreamError::{Abandoned, Overloaded, QueueTimeout};
        matches!(self, Self::Http(Overloaded { .. } | QueueTimeout { .. } | Abandoned))
    }

    /// True if the origin has been silent after it was asked.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Http(UpstreamError::HeadTimeout { .. } | UpstreamError::IdleTimeout { .. }))
    }
}

impl From<DocumentsError> for OriginError {
    fn from(error: DocumentsError) -> Self {
        Self::Documents { reason: error.to_string().into(), status: error.status() }
    }
}

impl OriginClient {
    /// Health probes and database connections run on the caller's runtime.
    #[expect(clippy::disallowed_methods, reason = "probes live as long as the origin")]
    pub async fn open(config: &OriginConfig) -> Result<Self, OriginOpenError> {
        let name = config.name.clone();
        let open_error = |reason: String| OriginOpenError { origin: config.name.clone(), reason };
        let table = &config.table;
        let backend = match &config.kind {
            OriginKind::Http(urls) => {
                let settings =
                    upstream_settings(urls, table).map_err(|error| open_error(error.to_string()))?;
                let backend = HttpBackend::new(settings, table.timeouts.until_head())
                    .map_err(|error| open_error(error.to_string()))?;
                OriginBackend::Http(backend)
            }
            OriginKind::Documents(source) => {
                let source = source.open().await.map_err(|error| open_error(error.to_string()))?;
                OriginBackend::Documents(DocumentOrigin::new(source))
            }
        };
        if let OriginBackend::Http(http) = &backend {
            drop(tokio::spawn(http.upstream.probes()));
        }
        let (requests, failures) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { name, backend, waiting: WaitingClients::default(), requests, failures })
    }

    /// Reads the files of an HTTP origin; of a database nothing is checked. It does not connect.
    pub fn check(config: &OriginConfig) -> Result<(), OriginOpenError> {
        let OriginKind::Http(urls) = &config.kind else { return Ok(()) };
        let open_error = |reason: String| OriginOpenError { origin: config.name.clone(), reason };
        let settings =
            upstream_settings(urls, &config.table).map_err(|error| open_error(error.to_string()))?;
        HttpBackend::new(settings, config.table.timeouts.until_head())
            .map(drop)
            .map_err(|error| open_error(error.to_string()))
    }

    pub async fn send<B: RequestBody>(
        &self,
        request: Request<B>,
        requester: &Requester<'_>,
    ) -> Result<Response<FetchedBody>, OriginError> {
        self.requests.fetch_add(1, Relaxed);
        let result = match &self.backend {
            OriginBackend::Http(http) => http.send(request, requester).await.map_err(OriginError::from),
            OriginBackend::Documents(documents) => documents
                .answer(&request)
                .await
                .map(|response| response.map(|body| FetchedBody::Document(body.into())))
                .map_err(OriginError::from),
        };
        if result.is_err() {
            self.failures.fetch_add(1, Relaxed);
        }
        result
    }

    #[must_use]
    pub fn waiting_clients(&self) -> &WaitingClients {
        &self.waiting
    }

    #[must_use]
    pub fn stats(&self) -> OriginStats {
        let counts = OriginStats {
            name: self.name.clone(),
            requests: self.requests.load(Relaxed),
            failures: self.failures.load(Relaxed),
            ..OriginStats::default()
        };
        let OriginBackend::Http(http) = &self.backend else { return counts };
        let UpstreamStatus { idle, busy, waiting, endpoints } = http.upstream.status();
        let server = |endpoint: &EndpointStatus| ServerStats {
            address: endpoint.url.to_string(),
            is_healthy: endpoint.is_healthy,
        };
        OriginStats {
            servers: endpoints.iter().map(server).collect(),
            connections_busy: busy as u64,
            connections_idle: idle as u64,
            waiting: (waiting + http.uploads.waiting()) as u64,
            ..counts
        }
    }

    /// Empty for a database.
    #[must_use]
    pub fn servers(&self) -> Vec<EndpointStatus> {
        match &self.backend {
            OriginBackend::Http(http) => http.upstream.status().endpoints,
            OriginBackend::Documents(_) => Vec::new(),
        }
    }

    /// The share of its connections that responses hold for clients which do not read, from 0 to 1.
    #[must_use]
    pub fn unread_share(&self) -> f64 {
        match &self.backend {
            OriginBackend::Http(http) => http.unread.load(Relaxed) as f64 / http.responses_max as f64,
            OriginBackend::Documents(_) => 0.0,
        }
    }

    /// The time after which a request has failed that has got no head of a response; zero for a database.
    #[must_use]
    pub fn until_head(&self) -> Duration {
        match &self.backend {
            OriginBackend::Http(http) => http.until_head,
            OriginBackend::Documents(_) => Duration::ZERO,
        }
    }

    /// True if it is an HTTP server, which can declare how long its responses are fresh.
    #[must_use]
    pub fn is_http(&self) -> bool {
        matches!(self.backend, OriginBackend::Http(_))
    }
}

impl HttpBackend {
    fn new(settings: UpstreamSettings, until_head: Duration) -> Result<Self, UpstreamSettingsError> {
        let streams = if settings.http2 { settings.streams_max } else { 1 };
        let responses_max = settings.connections_max.saturating_mul(streams);
        let UpstreamSettings { connections_max, waiting_max, queue_timeout, .. } = settings;
        let uploads = UploadShare::new(connections_max, responses_max, waiting_max, queue_timeout);
        let upstream = Upstream::new(settings)?;
        Ok(Self { upstream, uploads, unread: Arc::default(), responses_max, until_head })
    }

    async fn send<B: RequestBody>(
        &self,
        request: Request<B>,
        requester: &Requester<'_>,
    ) -> Result<Response<FetchedBody>, UpstreamError> {
        let (head, body) = request.into_parts();
        let upload = Upload::begin(body, &self.uploads, requester.client).await?;
        let response = self.upstream.send_for(requester, Request::from_parts(head, upload)).await?;
        Ok(response.map(|body| FetchedBody::Http(body, UnreadMark::new(&self.unread))))
    }
}

fn upstream_settings(urls: &[Uri], table: &OriginTable) -> Result<UpstreamSettings, OriginUrlError> {
    let urls: Result<Vec<OriginUrl>, _> = urls.iter().map(|url| url.to_string().parse()).collect();
    let urls = urls?;
    let defaults = UpstreamSettings::new(urls[0].clone());
    let OriginTable { timeouts, health, .. } = table;
    let probe = health.path.as_ref().map(|path| HealthProbe {
        path: path.0.clone(),
        every: health.every.unwrap_or(HealthTable::EVERY).0,
        timeout: health.timeout.unwrap_or(HealthTable::TIMEOUT).0,
        successes: at_least_one(health.successes.unwrap_or(HealthTable::SUCCESSES)),
    });
    Ok(UpstreamSettings {
        urls,
        connections_max: table.connections.0,
        waiting_max: table.waiting.0,
        connect_timeout: timeouts.connect.0,
        head_timeout: timeouts.head.0,
        idle_timeout: timeouts.body.0,
        keep_alive: timeouts.idle.0,
        max_age: timeouts.max_age.0,
        head_bytes_max: table.head.0,
        headers_max: table.headers.0,
        http2: table.http2,
        ca: table.ca.clone(),
        host_header: table.host_header,
        health: HealthSettings { failures: at_least_one(health.failures), rest: health.rest.0, probe },
        ..defaults
    })
}

fn at_least_one(times: Times) -> NonZeroU32 {
    u32::try_from(times.0).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}
