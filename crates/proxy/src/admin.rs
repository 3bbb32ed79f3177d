//! Where whoever runs the proxy comes in: a listener of its own, on a thread of its own.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /` | a page that shows how it goes |
//! | `GET /healthz` | 200 while it runs |
//! | `GET /readyz` | 200 while it takes requests; 503 once it drains |
//! | `GET /stats` | [`Stats`] in JSON |
//! | `GET /metrics` | the same for Prometheus |
//! | `GET /config` | the configuration in force, without secrets |
//! | `POST /purge?url=URL`, `?prefix=URL`, `?tag=TAG`, and `&soft` | forgets answers, or holds them for stale |
//! | `POST /purge_all`, `?soft` | all of them; then warms up what its body lists, if it has one |
//! | `POST /warm` | asks for every URL in its body, one a line |
//! | `POST /reload` | reads the configuration again |
//!
//! It shares nothing with the listeners of clients: when those are full, this one answers. It has 64 connections, a
//! head of 16 KiB and a body of 1 MiB at most, and waits for neither longer than ten seconds.
//!
//! Who may: everybody who reaches it, on the loopback and without a token; with one, whoever shows it, as
//! `Authorization: Bearer TOKEN` or, for browsers, as the password of any user. `/healthz` and `/readyz` tell nothing
//! and need none. A `Host` that is neither an address nor localhost nor [configured](config::Admin::hosts) is refused:
//! it may be a name that somebody else made point here (DNS rebinding). So is a POST that a browser sends for another
//! site's page.

mod guard;
mod memory;
mod metrics;
mod page;
mod purge;
mod server;
mod service;
mod stats;
mod token;
mod warm;

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use http::Uri;
use serde_json::Value;
use tokio::sync::watch;

pub use self::{
    memory::resident_bytes,
    purge::{Purge, What},
    stats::{Breaker, Histogram, OriginStats, Refreshes, RouteStats, ServerStats, Stats},
    token::{Fresh as FreshToken, TokenError},
    warm::Warmed,
};
use self::{server::Limits, service::Service, token::Token};
use crate::config::{self, Change};

/// What the admin's listener asks of the proxy.
pub trait Control: Send + Sync + 'static {
    /// How it goes.
    fn stats(&self) -> Stats;

    /// Forgets what is meant, or holds it for stale; says how many answers that was.
    fn purge(&self, purge: &Purge) -> usize;

    /// Asks for a URL, as a client would, so that its answer is stored. It is dropped if that takes a minute.
    fn warm(&self, url: Uri) -> impl Future<Output = Warmed> + Send;

    /// Reads the configuration again, and takes up what can be; or says what is wrong with it, and changes nothing.
    fn reload(&self) -> Result<Vec<Change>, String>;

    /// The configuration in force, without secrets: [`Config::shown`](config::Config::shown).
    fn config(&self) -> Value;
}

/// A listener that answers until it is dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    token: Arc<Token>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// The admin's listener could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Anybody could come in.
    #[error("anybody who can reach {0} could purge and reload: give it a token, or listen on 127.0.0.1")]
    Open(SocketAddr),
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// It cannot listen there.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// There is no thread or file descriptor left.
    #[error("cannot start the admin's thread: {0}")]
    Thread(io::Error),
}

impl Admin {
    /// Listens; port 0: any that is free.
    pub fn start<C: Control>(settings: &config::Admin, control: Arc<C>) -> Result<Self, StartError> {
        Self::start_with(settings, control, Limits::default())
    }

    fn start_with<C: Control>(
        settings: &config::Admin,
        control: Arc<C>,
        limits: Limits,
    ) -> Result<Self, StartError> {
        if settings.token_file.is_none() && !settings.listen.ip().to_canonical().is_loopback() {
            return Err(StartError::Open(settings.listen));
        }
        let token = Arc::new(Token::read(settings.token_file.as_deref())?);
        let listener = std::net::TcpListener::bind(settings.listen)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let wrong = |error| StartError::Listen { address: settings.listen, error };
        let listener = listener.map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        let service = Service::new(control, Arc::clone(&token), settings.hosts.clone(), limits);
        let (stop, stopped) = watch::channel(false);
        let (ready, is_ready) = mpsc::channel();
        let run = move || server::run(listener, &service, stopped, &ready);
        let thread =
            thread::Builder::new().name("admin".to_owned()).spawn(run).map_err(StartError::Thread)?;
        is_ready.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).map_err(StartError::Thread)?;
        Ok(Self { address, token, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads the token again, as `POST /reload` does.
    pub fn read_token(&self) -> Result<FreshToken, TokenError> {
        self.token.read_again()
    }

    /// From now on requests have to show this one.
    pub fn put_token(&self, token: FreshToken) {
        self.token.put(token);
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // It has said what it died of, if it did.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
