//! The admin interface: a separate listener on its own thread.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /` | a dashboard in HTML |
//! | `GET /healthz` | 200 while the process runs |
//! | `GET /readyz` | 200; 503 once the proxy is to stop |
//! | `GET /stats` | [`ProxyStats`] in JSON |
//! | `GET /metrics` | the same for Prometheus |
//! | `GET /keys` | [`KeyStats`] in JSON |
//! | `GET /config` | the configuration in force, without secrets |
//! | `POST /purge?url=URL`, `?prefix=URL or PATH`, `?tag=TAG`, and `&soft` | removes entries, or marks them stale with `soft` |
//! | `POST /purge_all`, `?soft` | purges all entries, then warms the URLs in its body, if any |
//! | `POST /warm` | fetches every URL in its body, one per line |
//! | `POST /reload` | reloads the configuration |
//!
//! It shares nothing with the client listeners, so it answers while those are full. Limits: 64 connections (at the limit a new one
//! closes the oldest that waits for its client); a request head of 16 KiB, a request body of 1 MiB, 10 seconds to read each.
//!
//! Access: on the loopback without a token, every request is allowed. With a token, a request needs
//! `Authorization: Bearer TOKEN` or, from a browser, the token as the password of any user. `/healthz` and `/readyz`
//! need no token. A `Host` that is neither an IP address nor localhost nor [configured](config::AdminConfig::hosts)
//! is refused, against DNS rebinding. A cross-site POST from a browser is refused as well.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod keys;
mod metrics;
mod page;
mod purge;
mod request_body;
mod response;
mod service;
mod stats;
mod token;
mod warm;

use std::{future::Future, io, net::SocketAddr, sync::Arc};

use http::Uri;
use serde_json::Value;
use stockade_http::server::{self, ServerThread};
use stockade_model::time::Live;

pub(crate) use self::token::Token;
pub use self::{
    keys::{KeyShare, KeyStats, SlowLoad},
    purge::{Purge, PurgeResult, PurgeTarget},
    stats::{BreakerStatus, OriginStats, ProxyStats, RouteStats, ServerStats},
    token::{NewToken, TokenError},
    warm::WarmOutcome,
};
use self::{request_body::AdminLimits, service::AdminService};
use crate::config::{self, Change};

/// The operations that the admin listener needs from the proxy.
pub trait Control: Send + Sync + 'static {
    fn stats(&self) -> ProxyStats;

    fn keys(&self) -> KeyStats;

    /// Removes the matching entries or marks them stale.
    fn purge(&self, purge: &Purge) -> PurgeResult;

    /// Fetches a URL as a client would, so that its response is stored. The caller drops the future after a minute.
    fn warm(&self, url: Uri) -> impl Future<Output = WarmOutcome> + Send;

    /// Reads the configuration and applies what needs no restart. An error changes nothing.
    fn reload(&self) -> impl Future<Output = Result<Vec<Change>, String>> + Send;

    /// The configuration in force, without secrets, see [`Config::shown`](config::Config::shown).
    fn config(&self) -> Value;
}

/// The admin listener; dropping it stops it.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    token: Arc<Token>,
    /// Other users can read the token's file.
    pub warning: Option<String>,
    _thread: ServerThread,
}

/// The admin listener did not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminStartError {
    /// The address is not a loopback address and there is no token.
    #[error("the admin listener at {0} has no token: set [admin] token_file, or listen on 127.0.0.1")]
    Open(SocketAddr),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("cannot listen at {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("cannot start the admin thread: {0}")]
    Thread(#[from] io::Error),
}

impl AdminServer {
    /// Binds and starts to serve; port 0 selects a free port.
    pub fn start<C: Control>(
        settings: &config::AdminConfig,
        control: Arc<C>,
    ) -> Result<Self, AdminStartError> {
        Self::start_with(settings, control, AdminLimits::default())
    }

    fn start_with<C: Control>(
        settings: &config::AdminConfig,
        control: Arc<C>,
        limits: AdminLimits,
    ) -> Result<Self, AdminStartError> {
        if settings.token_file.is_none() && !settings.listen.0.ip().to_canonical().is_loopback() {
            return Err(AdminStartError::Open(settings.listen.0));
        }
        let (token, warning) = Token::read_with_warning(settings.token_file.as_deref())?;
        let token = Arc::new(token);
        let wrong = |error| AdminStartError::Listen { address: settings.listen.0, error };
        let listener = server::bind(settings.listen.0).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        let hosts = settings.hosts.iter().map(|host| host.0.clone()).collect();
        let service = AdminService::new(control, Arc::clone(&token), hosts, limits);
        let respond = move |time: &Live| {
            let time = time.clone();
            Ok(move |request| {
                let (service, time) = (service.clone(), time.clone());
                async move { service.respond(request, &time).await }
            })
        };
        let thread = ServerThread::serve("admin", listener, limits.server, respond)?;
        Ok(Self { address, token, warning, _thread: thread })
    }

    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn token(&self) -> Arc<Token> {
        Arc::clone(&self.token)
    }

    /// Reads the token file without applying it, for a reload outside of `POST /reload`.
    pub fn read_token(&self) -> Result<NewToken, TokenError> {
        self.token.read_again()
    }

    /// Replaces the token that requests need.
    pub fn put_token(&self, token: NewToken) {
        self.token.put(token);
    }
}

#[cfg(test)]
mod tests;
