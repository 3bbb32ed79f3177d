//! Connections to an origin: so many and no more, each answer in its time.
//!
//! ```text
//! Request -> Ask -- pool: a turn? ---- a kept connection, or a stream ----> exchange -> Response<Body>
//!                     |     `-------- a seat: connect (name, address, TLS) -^
//!                     `-- wait, so many and so long
//! ```
//!
//! Who is given what is decided in `core`, which is pure; `pool` is the lock around it. A connection's task runs on the
//! runtime of whoever connected; it may be used from any.

mod ask;
mod body;
mod clock;
mod connect;
mod core;
mod error;
mod health;
mod http1;
mod http2;
mod pool;
mod probe;
mod settings;
mod tls;
mod wire;

use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response};
use rustls::ClientConfig;
use stockade_model::time::{Runtime, Time, before};

use self::core::{Limits, PlaceState};
use ask::Ask;
pub use body::Body;
use clock::Clock;
use connect::Connector;
pub use error::UpstreamError;
pub use health::{HealthSettings, Probe};
use pool::{Connecting, Pool, Ready, Turn};
pub use settings::{BadUrl, HostHeader, OriginUrl, Settings, SettingsError};

/// How often a request is sent again that nobody has looked at.
const RESENDS_MAX: u32 = 3;

/// An origin. Clones share its connections, on whichever runtime they are.
#[derive(Clone)]
pub struct Upstream {
    desk: Arc<Desk>,
}

/// What an exchange needs.
struct Desk {
    settings: Settings,
    clock: Clock,
    /// One a place.
    connectors: Vec<Connector>,
    pool: Pool,
}

/// What an origin is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Connections that nobody uses.
    pub idle: usize,
    /// Connections that somebody uses, or makes.
    pub busy: usize,
    /// Requests that wait for one.
    pub waiting: usize,
    /// As [`Settings::urls`] has them.
    pub places: Vec<Place>,
}

/// What one of an origin's places is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it is.
    pub url: OriginUrl,
    /// Whether it is asked before those that rest.
    pub is_healthy: bool,
    /// In a row.
    pub failures: u32,
    /// Requests under way.
    pub requests: usize,
}

/// A request without an answer.
struct Broken {
    error: UpstreamError,
    /// None: it must not be sent again.
    again: Option<Again>,
}

/// How a request is sent again.
enum Again {
    /// On a connection in the place of the one that was closed.
    With(Connecting),
    Anew,
}

impl Broken {
    fn finally(error: UpstreamError) -> Self {
        Self { error, again: None }
    }
}

impl Upstream {
    /// Reads whom to trust. Connects to nobody yet.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        let is_encrypted = settings.urls.iter().any(|url| url.is_encrypted);
        let tls = if is_encrypted { Some(tls::config(&settings)?) } else { None };
        Ok(Self::with(settings, tls.as_ref(), Clock::new()))
    }

    fn with(settings: Settings, tls: Option<&Arc<ClientConfig>>, clock: Clock) -> Self {
        let connector = |url: &OriginUrl| Connector {
            url: url.clone(),
            clock: clock.clone(),
            tls: tls.filter(|_| url.is_encrypted).cloned(),
            timeout: settings.connect_timeout,
            health: HealthSettings { probe: None, ..settings.health.clone() },
            addresses: Mutex::default(),
        };
        let connectors: Vec<_> = settings.urls.iter().map(connector).collect();
        let limits = Limits {
            connections: settings.connections_max,
            waiting: settings.waiting_max,
            streams: settings.streams_max,
            keep_alive: settings.keep_alive,
            health: settings.health.clone(),
        };
        let pool = Pool::new(limits, connectors.len(), settings.http2, settings.queue_timeout, clock.clone());
        Self { desk: Arc::new(Desk { settings, clock, connectors, pool }) }
    }

    /// Sends a request, and awaits the head of its answer. The path and query are those below the origin's own. Of heads
    /// all is passed on in both directions but `Host`: whoever asks takes off what was about another connection, and
    /// what is about this one.
    ///
    /// It is sent again only where nobody can have looked at it, or where a connection that was kept turns out to have
    /// been closed, and then only if the method is idempotent and nothing of the body is gone. Dropped, it is broken off.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<Body>, UpstreamError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let desk = &*self.desk;
        let ask = Ask::new(request, &desk.clock)?;
        let mut turn = desk.pool.turn().await?;
        for resends in 0.. {
            let ready = match turn {
                Turn::Ready(ready) => ready,
                Turn::Connect(connecting) => desk.connect(connecting).await?,
            };
            let place = ready.place();
            let answer = match ready {
                Ready::Http1(lease) => http1::exchange(lease, &ask, desk).await,
                Ready::Http2(stream) => http2::exchange(stream, &ask, desk).await,
            };
            turn = match answer {
                Ok(answer) => {
                    desk.pool.succeed(place);
                    return Ok(answer);
                }
                Err(Broken { again: Some(Again::With(connecting)), .. }) if resends < RESENDS_MAX => {
                    Turn::Connect(connecting)
                }
                Err(Broken { again: Some(Again::Anew), .. }) if resends < RESENDS_MAX => {
                    desk.pool.turn().await?
                }
                Err(Broken { error, .. }) => {
                    if error.is_origins() {
                        desk.pool.fail(place);
                    }
                    return Err(error);
                }
            };
        }
        Err(UpstreamError::closed())
    }

    /// What it is doing now.
    #[must_use]
    pub fn state(&self) -> State {
        let desk = &*self.desk;
        desk.pool.with(|core, now| {
            let place = |(url, place): (&OriginUrl, PlaceState)| Place {
                url: url.clone(),
                is_healthy: !place.is_resting,
                failures: place.failures,
                requests: place.busy,
            };
            let idle = core.idle();
            State {
                idle,
                busy: core.connections().saturating_sub(idle),
                waiting: core.waiting(),
                places: desk.settings.urls.iter().zip(core.places(now)).map(place).collect(),
            }
        })
    }
}

impl Desk {
    /// Connects, to one place after the other.
    async fn connect(&self, mut connecting: Connecting) -> Result<Ready, UpstreamError> {
        loop {
            let place = connecting.place;
            let (error, unconnected) = match self.open(connecting).await {
                Ok(ready) => return Ok(ready),
                Err(failed) => failed,
            };
            self.pool.fail(place);
            connecting = unconnected;
            if !connecting.go_on() {
                return Err(error);
            }
        }
    }

    async fn open(&self, connecting: Connecting) -> Result<Ready, (UpstreamError, Connecting)> {
        let connector = &self.connectors[connecting.place];
        let deadline = self.clock.now() + self.settings.connect_timeout;
        let (wire, is_settled) = match connector.connect(deadline).await {
            Ok(connected) => connected,
            Err(error) => return Err((error, connecting)),
        };
        if is_settled || self.settings.http2 && connector.tls.is_none() {
            http2::open(wire, connecting, deadline, self).await.map(Ready::Http2)
        } else {
            http1::open(wire, connecting, self).await.map(Ready::Http1)
        }
    }

    /// Awaits an answer as long as it may take. `written`: when bytes were taken from us last.
    async fn await_head<F: Future>(
        &self,
        ask: &Ask,
        written: impl Fn() -> Time,
        answer: F,
    ) -> Result<F::Output, UpstreamError> {
        let Settings { head_timeout, idle_timeout, .. } = self.settings;
        let sent = self.clock.now();
        let mut answer = pin!(answer);
        loop {
            let (until, late) = ask.deadline(sent, written(), head_timeout, idle_timeout);
            if until <= self.clock.now() {
                return Err(late);
            }
            // The deadline moves as long as something else does.
            if let Some(answer) = before(&self.clock, until, answer.as_mut()).await {
                return Ok(answer);
            }
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.pool.close();
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.state()).finish()
    }
}
