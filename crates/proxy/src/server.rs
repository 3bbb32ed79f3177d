//! A proxy that runs: its front, its rules, its admin's listener and its log, and what reloading and ending it mean.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use http::Uri;
use serde_json::Value;
use stockade_cache::Redis;
use stockade_model::time::{Runtime, Time};
use tokio::runtime::Handle;

use crate::{
    admin::{self, Admin, Control, Purge, Stats, Warmed, resident_bytes},
    config::{Change, Config, diff},
    front::{self, Certified, Drained, Front, Identity},
    log::{Log, LogError},
    serve::{Proxy, clock::PerCore, routes::RulesError},
};

/// A proxy that answers until it is [drained](Self::drain).
pub struct Server {
    running: Arc<Running>,
    addresses: Vec<SocketAddr>,
    admin: Option<Admin>,
    /// What it does without for now, and why.
    pub warnings: Vec<String>,
}

/// Reads the configuration again; or says what is wrong with it.
pub type ReadAgain = Box<dyn Fn() -> Result<Config, String> + Send + Sync>;

struct Running {
    proxy: Proxy,
    /// `None`: it drains.
    front: Mutex<Option<Front>>,
    log: Option<Log>,
    read_again: ReadAgain,
    /// Where databases and probes live.
    home: Handle,
    clock: PerCore,
    began: Time,
    is_draining: AtomicBool,
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
    /// Whoever runs it cannot come in.
    #[error("admin: {0}")]
    Admin(#[from] admin::StartError),
    /// It cannot write its log.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Server {
    /// Opens what the configuration names, and listens. Databases and probes live on the runtime of the caller, which has
    /// to go on.
    pub async fn start(config: Config, read_again: ReadAgain) -> Result<Self, StartError> {
        let settings = settings(&config);
        let told = config.admin.clone();
        let log = config.log.as_ref().map(Log::start).transpose()?;
        let mut warnings = Vec::new();
        if let Some(url) = &config.shared
            && let Err(error) = Redis::at(url.redis.clone()).check().await
        {
            // It may be away for now, and come back.
            warnings.push(format!("{url}: {error}; until it can be used each node loads for itself"));
        }
        let proxy = Proxy::open(config, log.as_ref().map(Log::logger)).await?;
        let front = Front::start(settings, &proxy)?;
        let addresses = front.addresses().to_vec();
        let clock = PerCore::new();
        let running = Arc::new(Running {
            proxy,
            front: Mutex::new(Some(front)),
            log,
            read_again,
            home: Handle::current(),
            began: clock.now(),
            clock,
            is_draining: AtomicBool::new(false),
        });
        let admin =
            told.map(|told| Admin::start(&told, Arc::new(Counter(Arc::clone(&running))))).transpose()?;
        Ok(Self { running, addresses, admin, warnings })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where whoever runs it comes in.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// What answers.
    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        &self.running.proxy
    }

    /// Reads the configuration again and takes up what can be: routes, origins, hosts, certificates, the log's file and
    /// the token. No entry is lost. What has changed; or what is wrong, and then all stays as it was.
    pub async fn reload(&self) -> Result<Vec<Change>, String> {
        let token =
            self.admin.as_ref().map(Admin::read_token).transpose().map_err(|error| error.to_string())?;
        let changes = Arc::clone(&self.running).reload().await?;
        if let (Some(admin), Some(token)) = (&self.admin, token) {
            admin.put_token(token);
        }
        Ok(changes)
    }

    /// Takes nobody in any more, and ends when those who are here have been answered, or their time is up. It blocks,
    /// and the runtime that it was started on has to go on: databases live there.
    #[must_use]
    pub fn drain(self) -> Drained {
        self.running.is_draining.store(true, Ordering::Relaxed);
        let front = self.running.front().take();
        front.map(Front::drain).unwrap_or_default()
    }
}

impl Running {
    fn front(&self) -> MutexGuard<'_, Option<Front>> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn reload(self: Arc<Self>) -> Result<Vec<Change>, String> {
        let started = self.proxy.rules();
        let told = (self.read_again)()?;
        let changes = diff(&started.config, &told);
        let config = told.without_a_restart(&started.config);
        // Whatever may be wrong comes first: then all of it is in force, or nothing.
        let certified = identity(&config).as_ref().map(Certified::read).transpose();
        let certified = certified.map_err(|error| error.to_string())?;
        let log = config.log.clone();
        self.proxy.reload(config).await.map_err(|error| error.to_string())?;
        if let (Some(front), Some(certified)) = (&*self.front(), certified) {
            front.certify(certified);
        }
        if let (Some(log), Some(told)) = (&self.log, log) {
            log.change(&told);
            log.reopen();
        }
        Ok(changes)
    }
}

/// What the admin's listener asks.
struct Counter(Arc<Running>);

impl Control for Counter {
    fn stats(&self) -> Stats {
        let running = &*self.0;
        let rules = running.proxy.rules();
        let cache = running.proxy.cache();
        let (held, stored) = (cache.bytes(), cache.stats());
        let front = running.front().as_ref().map(Front::counts).unwrap_or_default();
        let limit = &rules.config.limit;
        Stats {
            uptime_seconds: (running.clock.now() - running.began).as_secs_f64(),
            is_draining: running.is_draining.load(Ordering::Relaxed),
            routes: rules.routes.iter().map(|route| route.stats()).collect(),
            origins: rules.origins.iter().map(|origin| origin.stats()).collect(),
            entries: cache.len() as u64,
            entries_limit: limit.entries.map(|entries| entries as u64),
            bytes: held.map(|held| held.held as u64),
            bytes_limit: limit.bytes.map(|bytes| bytes as u64),
            evicted_expired: stored.evicted_expired,
            evicted_size: stored.evicted_size,
            reclaims: stored.reclaims,
            invalidated: stored.invalidated,
            connections: front.open,
            connections_accepted: front.connections,
            connections_refused: front.refused,
            requests_in_flight: front.in_flight,
            resident_bytes: resident_bytes(),
            log_dropped: running.log.as_ref().map_or(0, Log::dropped),
        }
    }

    fn purge(&self, purge: &Purge) -> usize {
        self.0.proxy.purge(purge)
    }

    async fn warm(&self, url: Uri) -> Warmed {
        self.0.proxy.warm(url).await
    }

    fn reload(&self) -> Result<Vec<Change>, String> {
        let running = Arc::clone(&self.0);
        let (tell, told) = mpsc::channel();
        // At home, where what it opens has to live. Whoever asks is on another thread.
        let reloading = async move { tell.send(running.reload().await) };
        drop(self.0.home.spawn(reloading));
        told.recv().unwrap_or_else(|_| Err("it is ending".to_owned()))
    }

    fn config(&self) -> Value {
        self.0.proxy.rules().config.shown()
    }
}

fn identity(config: &Config) -> Option<Identity> {
    let tls = config.tls.as_ref()?;
    Some(Identity { certificates: tls.certificates.clone(), key: tls.key.clone() })
}

fn settings(config: &Config) -> front::Settings {
    let Config { timeouts, bounds, .. } = config;
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let identity = identity(config);
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
        body_timeout: timeouts.total.unwrap_or(Duration::MAX),
        keep_alive: timeouts.idle,
        write_stall_timeout: timeouts.write,
        total_timeout: timeouts.total,
        head_bytes_max: bounds.head_bytes,
        headers_max: bounds.headers,
        body_bytes_max: bounds.body_bytes as u64,
        streams_max: u32::try_from(bounds.streams).unwrap_or(u32::MAX),
        drain: timeouts.drain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_as_long_as_its_request() {
        for (told, expected) in [("", Duration::MAX), ("total = \"10m\"", Duration::from_mins(10))] {
            let text =
                format!("[timeouts]\nbody = \"20s\"\n{told}\n[[origin]]\nurl = \"http://127.0.0.1:1\"\n");
            let settings = settings(&Config::parse("test.toml", &text).expect("a sound file"));
            assert_eq!(
                (settings.body_idle_timeout, settings.body_timeout),
                (Duration::from_secs(20), expected)
            );
        }
    }
}
