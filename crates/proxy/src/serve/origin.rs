//! Whoever answers when the cache does not: an HTTP server, or a database of documents.

use std::{
    io,
    num::NonZeroU32,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::{asked::Asked, clock, routes::RulesError};
use crate::{
    admin::{OriginStats, ServerStats},
    config,
    documents::{Documents, DocumentsError},
    front::ClientError,
    log::OriginAnswer,
    upstream::{
        self, BadUrl, HealthSettings, HostHeader, OriginUrl, Place, Probe, Settings, State, Upstream,
        UpstreamError,
    },
};

/// An origin, by its name.
pub struct Origin {
    /// As configuration, logs and metrics have it.
    pub name: String,
    /// Who answers.
    pub kind: Kind,
    requests: AtomicU64,
    failures: AtomicU64,
}

/// Who answers.
pub enum Kind {
    /// An HTTP server.
    Http(Upstream),
    /// A database, and how many may ask it at once.
    Documents(Documents),
}

/// An origin did not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OriginError {
    /// The HTTP server.
    #[error(transparent)]
    Http(#[from] UpstreamError),
    /// The database.
    #[error("{reason}")]
    Documents {
        /// What it says, without secrets.
        reason: std::sync::Arc<str>,
        /// What a client is told.
        status: StatusCode,
    },
}

impl OriginError {
    /// What a client is told who can be told nothing better.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Http(UpstreamError::RequestBody { error }) => {
                error.downcast_ref::<ClientError>().map_or(StatusCode::BAD_REQUEST, |error| error.status())
            }
            Self::Http(error) => error.status(),
            Self::Documents { status, .. } => *status,
        }
    }
}

impl From<DocumentsError> for OriginError {
    fn from(error: DocumentsError) -> Self {
        Self::Documents { reason: error.to_string().into(), status: error.status() }
    }
}

impl Origin {
    /// Opens it, as the configuration says. It is probed, and a database lives, on the runtime of the caller.
    #[expect(clippy::disallowed_methods, reason = "probes live as long as the origin")]
    pub async fn open(told: &config::Origin) -> Result<Self, RulesError> {
        let name = told.name.clone();
        let wrong = |reason: String| RulesError::Origin { origin: told.name.clone(), reason };
        let kind = match &told.kind {
            config::Kind::Http(http) => {
                let settings = settings(http).map_err(|error| wrong(error.to_string()))?;
                Kind::Http(Upstream::new(settings).map_err(|error| wrong(error.to_string()))?)
            }
            config::Kind::Documents { source, .. } => {
                let source = source.open().await.map_err(|error| wrong(error.to_string()))?;
                Kind::Documents(Documents::new(source))
            }
        };
        if let Kind::Http(upstream) = &kind {
            drop(tokio::spawn(upstream.probes()));
        }
        Ok(Self { name, kind, requests: AtomicU64::new(0), failures: AtomicU64::new(0) })
    }

    /// Asks it on behalf of a client.
    pub async fn ask<B>(
        &self,
        request: Request<B>,
        asked: &Asked,
    ) -> Result<Response<OriginBody>, OriginError>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        self.requests.fetch_add(1, Relaxed);
        let began = clock::now();
        let answer = self.send(request).await;
        let status = answer.as_ref().ok().map(|answer| answer.status().as_u16());
        if status.is_none() {
            self.failures.fetch_add(1, Relaxed);
        }
        let took = clock::now().duration_since(began).unwrap_or_default();
        asked.route.counts.load().note(took);
        asked.note_origin(OriginAnswer { status, took });
        answer
    }

    async fn send<B>(&self, request: Request<B>) -> Result<Response<OriginBody>, OriginError>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        match &self.kind {
            Kind::Http(upstream) => Ok(upstream.send(request).await?.map(OriginBody::Http)),
            Kind::Documents(documents) => {
                Ok(documents.answer(&request).await?.map(|body| OriginBody::Document(body.into())))
            }
        }
    }

    /// How it goes.
    #[must_use]
    pub fn stats(&self) -> OriginStats {
        let counts = OriginStats {
            name: self.name.clone(),
            requests: self.requests.load(Relaxed),
            failures: self.failures.load(Relaxed),
            ..OriginStats::default()
        };
        let Kind::Http(upstream) = &self.kind else { return counts };
        let State { idle, busy, waiting, places } = upstream.state();
        let server =
            |place: &Place| ServerStats { address: place.url.to_string(), is_healthy: place.is_healthy };
        OriginStats {
            servers: places.iter().map(server).collect(),
            connections_busy: busy as u64,
            connections_idle: idle as u64,
            waiting: waiting as u64,
            ..counts
        }
    }

    /// Whether it says itself how long its answers are fresh.
    #[must_use]
    pub fn is_http(&self) -> bool {
        matches!(self.kind, Kind::Http(_))
    }
}

/// What the configuration says of an HTTP server, as its connections are made.
fn settings(told: &config::HttpOrigin) -> Result<Settings, BadUrl> {
    let urls: Result<Vec<OriginUrl>, _> = told.urls.iter().map(|url| url.to_string().parse()).collect();
    let urls = urls?;
    let usual = Settings::new(urls[0].clone());
    let probe = told.health.probe.as_ref().map(|probe| Probe {
        path: probe.path.clone(),
        every: probe.every,
        timeout: probe.timeout,
        successes: at_least_one(probe.successes),
    });
    Ok(Settings {
        urls,
        connections_max: told.connections,
        waiting_max: told.waiting,
        connect_timeout: told.timeouts.connect,
        head_timeout: told.timeouts.head,
        idle_timeout: told.timeouts.body,
        keep_alive: told.timeouts.idle,
        http2: told.is_http2,
        ca: told.ca.clone(),
        host_header: match told.host_header {
            config::HostHeader::Client => HostHeader::Client,
            config::HostHeader::Origin => HostHeader::Origin,
        },
        health: HealthSettings {
            failures: at_least_one(told.health.failures),
            rest: told.health.rest,
            probe,
        },
        ..usual
    })
}

fn at_least_one(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}

/// What an origin sends.
#[derive(Debug)]
pub enum OriginBody {
    /// As it comes.
    Http(upstream::Body),
    /// A document.
    Document(Full<Bytes>),
    /// One whose beginning has been read.
    Begun(Box<Begun>),
}

/// A body, and what has been read of it already.
#[derive(Debug)]
pub struct Begun {
    /// Until it is sent.
    come: Option<Bytes>,
    rest: OriginBody,
}

impl OriginBody {
    /// The same, behind what has been read of it.
    #[must_use]
    pub fn behind(self, come: Bytes) -> Self {
        Self::Begun(Box::new(Begun { come: Some(come), rest: self }))
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Http(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(io::Error::other)))
            }
            Self::Document(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            Self::Begun(begun) => match begun.come.take() {
                Some(come) => Poll::Ready(Some(Ok(Frame::data(come)))),
                None => Pin::new(&mut begun.rest).poll_frame(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(body) => body.is_end_stream(),
            Self::Document(body) => body.is_end_stream(),
            Self::Begun(begun) => begun.come.is_none() && begun.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(body) => body.size_hint(),
            Self::Document(body) => body.size_hint(),
            Self::Begun(begun) => {
                let come = begun.come.as_ref().map_or(0, |come| come.len() as u64);
                let (rest, mut hint) = (begun.rest.size_hint(), SizeHint::new());
                hint.set_lower(rest.lower().saturating_add(come));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(come));
                }
                hint
            }
        }
    }
}
