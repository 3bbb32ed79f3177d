//! A proxy that runs: its front, its rules, and what reloading and ending it mean.

use std::{net::SocketAddr, num::NonZeroUsize, thread};

use crate::{
    config::Config,
    front::{self, Drained, Front, Identity},
    serve::{Proxy, routes::RulesError},
};

/// A proxy that answers until it is [drained](Self::drain).
pub struct Server {
    front: Front,
    proxy: Proxy,
}

/// A proxy could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its rules cannot be put in force.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// It cannot listen, or not in secret.
    #[error(transparent)]
    Front(#[from] front::StartError),
}

impl Server {
    /// Opens what the configuration names, and listens. Databases live on the runtime of the caller, which has to go
    /// on.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let settings = settings(&config);
        let proxy = Proxy::open(config).await?;
        let front = Front::start(settings, &proxy)?;
        Ok(Self { front, proxy })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        self.front.addresses()
    }

    /// What answers.
    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Takes nobody in any more, and ends when those who are here have been answered, or their time is up.
    #[must_use]
    pub fn drain(self) -> Drained {
        self.front.drain()
    }
}

fn settings(config: &Config) -> front::Settings {
    let Config { timeouts, bounds, .. } = config;
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let identity = config
        .tls
        .as_ref()
        .map(|tls| Identity { certificates: tls.certificates.clone(), key: tls.key.clone() });
    let listen = config.listen.clone();
    let (listen, listen_tls) = if identity.is_some() { (Vec::new(), listen) } else { (listen, Vec::new()) };
    front::Settings {
        listen,
        listen_tls,
        identity,
        threads: config.threads.unwrap_or_else(cores),
        connections_max: bounds.connections,
        head_timeout: timeouts.head,
        body_idle_timeout: timeouts.body,
        keep_alive: timeouts.idle,
        write_stall_timeout: timeouts.write,
        total_timeout: timeouts.total,
        head_bytes_max: bounds.head_bytes,
        headers_max: bounds.headers,
        body_bytes_max: bounds.body_bytes as u64,
        streams_max: u32::try_from(bounds.streams).unwrap_or(u32::MAX),
        drain: timeouts.drain,
        ..front::Settings::default()
    }
}
