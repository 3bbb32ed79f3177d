//! A running proxy: frontend, routes, admin listener and access log, with reload and drain.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use http::Uri;
use serde_json::Value;
use stockade_cache::RedisTier;
use stockade_http::frontend::{
    self, CertificateFiles, ClientPressure, DrainSummary, Frontend, ServerCertificate,
};
use stockade_model::proc::{own_resident_bytes, own_unshared_bytes, raise_open_files};
use stockade_model::time::{Runtime, Time};
use tokio::{runtime::Handle, sync::Mutex as AsyncMutex};

use crate::{
    admin::{self, AdminServer, Control, KeyStats, ProxyStats, Purge, PurgeResult, WarmOutcome},
    check::shadow_warning,
    config::{Change, Config, diff},
    health_watch::{self, HealthEvent, HealthReading, HealthWatch},
    log::{AccessLogError, AccessLogWriter},
    memory::{self, MemoryReading},
    serve::{
        Proxy,
        entry_codec::EntryCodec,
        router::RouterError,
        runtime::{LocalRuntime, system_now},
    },
    snapshot::SnapshotThread,
};

/// A proxy that serves until it is [drained](Self::drain).
pub struct ProxyServer {
    state: Arc<ServerState>,
    addresses: Vec<SocketAddr>,
    admin: Option<AdminServer>,
    snapshots: Option<SnapshotThread>,
    /// Parts that do not work yet, with reasons, and settings that are not safe.
    pub warnings: Vec<String>,
}

/// Reads the configuration again. Fails with a message that names the fault.
pub type ConfigReader = Box<dyn Fn() -> Result<Config, String> + Send + Sync>;

struct ServerState {
    proxy: Proxy,
    /// `None` while it drains.
    frontend: Mutex<Option<Frontend>>,
    log: Option<AccessLogWriter>,
    read_config: ConfigReader,
    /// One reload at a time: of two, the configuration that was read last stays in force.
    reloading: AsyncMutex<()>,
    /// Databases and health checks run there.
    runtime: Handle,
    local: LocalRuntime,
    started_at: Time,
    is_draining: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
pub enum ProxyStartError {
    #[error(transparent)]
    Router(#[from] RouterError),
    #[error(transparent)]
    Frontend(#[from] frontend::FrontendStartError),
    #[error("admin: {0}")]
    Admin(#[from] admin::AdminStartError),
    #[error(transparent)]
    Log(#[from] AccessLogError),
}

impl ProxyServer {
    /// Opens what the configuration names, and listens. Databases and health checks run on the caller's runtime, which
    /// has to keep running.
    pub async fn start(config: Config, read_config: ConfigReader) -> Result<Self, ProxyStartError> {
        let mut settings = frontend_settings(&config);
        let admin_config = config.admin.clone();
        let log = config.log.is_on().then(|| AccessLogWriter::start(&config.log)).transpose()?;
        let mut warnings: Vec<String> = shadow_warning(&config).into_iter().collect();
        let open_files = raise_open_files();
        let connections_max = clients_that_fit(&config, open_files);
        if connections_max < settings.connections_max {
            warnings.push(format!(
                "this process may have {open_files} open files: at most {connections_max} clients are connected at once, in place \
                 of `[bounds] connections` {}; raise LimitNOFILE or `ulimit -n`",
                settings.connections_max
            ));
            settings.connections_max = connections_max;
        }
        if let Some(url) = &config.shared
            && let Err(error) = RedisTier::with_url(url.redis.clone()).check().await
        {
            // Not an error: it may come back.
            warnings.push(format!("{url}: {error}; until it is reachable, each node loads for itself"));
        }
        let proxy = Proxy::open(config, log.as_ref().map(AccessLogWriter::logger)).await?;
        match proxy.body_file() {
            Ok(file) => settings.body_file = Some(Arc::clone(file)),
            Err(error) => warnings.push(format!("large bodies are copied when they are sent: {error}")),
        }
        let pressure_source = proxy.clone();
        settings.pressure = ClientPressure::new(move || pressure_source.pressure());
        let frontend = Frontend::start(settings, &proxy)?;
        let addresses = frontend.addresses().to_vec();
        let local = LocalRuntime::new();
        let state = Arc::new(ServerState {
            proxy,
            frontend: Mutex::new(Some(frontend)),
            log,
            read_config,
            reloading: AsyncMutex::new(()),
            runtime: Handle::current(),
            started_at: local.now(),
            local,
            is_draining: AtomicBool::new(false),
        });
        let admin = admin_config
            .map(|config| AdminServer::start(&config, Arc::new(AdminControl(Arc::clone(&state)))))
            .transpose()?;
        if let Some(admin) = &admin {
            state.proxy.set_purge_token(admin.token());
        }
        warnings.extend(admin.as_ref().and_then(|admin| admin.warning.clone()));
        Ok(Self { state, addresses, admin, snapshots: None, warnings })
    }

    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminServer::address)
    }

    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        &self.state.proxy
    }

    /// Reads the configuration again and applies what needs no restart: routes, origins, hosts, certificates, the log's
    /// file and the token. The cache keeps its entries. Returns the changes; on an error nothing changes.
    pub async fn reload(&self) -> Result<Vec<Change>, String> {
        let token = self
            .admin
            .as_ref()
            .map(AdminServer::read_token)
            .transpose()
            .map_err(|error| error.to_string())?;
        let changes = Arc::clone(&self.state).reload().await?;
        if let (Some(admin), Some(token)) = (&self.admin, token) {
            admin.put_token(token);
        }
        Ok(changes)
    }

    /// Passes each change of a server or a breaker to `note`, until the proxy ends.
    pub fn watch_health(
        &self,
        note: impl Fn(&HealthEvent) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (state, time) = (Arc::downgrade(&self.state), self.state.local.clone());
        async move {
            let mut watch = HealthWatch::default();
            while let Some(state) = state.upgrade() {
                watch.read(&HealthReading::of(&state.proxy.router())).iter().for_each(&note);
                drop(state);
                time.sleep_until(time.now() + health_watch::INTERVAL).await;
            }
        }
    }

    /// Keeps the memory of the process, which has to be the proxy's alone, below its bound, until the proxy ends.
    pub fn keep_memory_bound(&self) -> impl Future<Output = ()> + Send + 'static {
        let (state, time) = (Arc::downgrade(&self.state), self.state.local.clone());
        let mut last = None;
        async move {
            while let Some(state) = state.upgrade() {
                let usage = state.proxy.cache().byte_usage();
                // As long as nothing is stored or removed, entries have no room to make.
                let is_idle = last == usage && usage.is_none_or(|usage| usage.set_aside == 0);
                if !is_idle {
                    state.set_memory_aside();
                }
                last = usage;
                drop(state);
                let pause = if is_idle { memory::IDLE_INTERVAL } else { memory::INTERVAL };
                time.sleep_until(time.now() + pause).await;
            }
        }
    }

    /// Restores the responses of `[snapshot]` while requests are served already, and keeps their file from then on. `note` receives
    /// the result, and later errors.
    pub fn keep_snapshots(&mut self, note: impl Fn(&str) + Send + 'static) -> io::Result<()> {
        let config = self.state.proxy.router().config.snapshot.clone();
        let proxy = &self.state.proxy;
        let codec = EntryCodec { body_file: proxy.body_file().ok().cloned() };
        let start = |config| SnapshotThread::start(config, proxy.cache().clone(), codec, note);
        self.snapshots = config.map(start).transpose()?;
        Ok(())
    }

    /// How long [`leave`](Self::leave) takes.
    #[must_use]
    pub fn shutdown_delay(&self) -> Duration {
        self.state.proxy.router().config.timeouts.shutdown_delay.0
    }

    /// Makes `/readyz` answer 503 at once, and lets each HTTP/1 response close its connection. The future ends after
    /// `timeouts.shutdown_delay`: until then load balancers that have not noticed yet can still connect.
    pub fn leave(&self) -> impl Future<Output = ()> + '_ {
        self.state.is_draining.store(true, Ordering::Relaxed);
        if let Some(frontend) = &*self.state.frontend() {
            frontend.announce_close();
        }
        let delay = self.shutdown_delay();
        let time = &self.state.local;
        async move {
            if !delay.is_zero() {
                time.sleep_until(time.now() + delay).await;
            }
        }
    }

    /// Stops accepting connections, and returns when the requests in flight have completed or the drain timeout has
    /// passed. It blocks; the runtime of [`start`](Self::start) has to keep running, since databases need it.
    #[must_use]
    pub fn drain(self) -> DrainSummary {
        self.state.is_draining.store(true, Ordering::Relaxed);
        let frontend = self.state.frontend().take();
        let drained = frontend.map(Frontend::drain).unwrap_or_default();
        if let Some(snapshots) = self.snapshots {
            snapshots.end();
        }
        drained
    }
}

impl ServerState {
    /// `None`: the system does not tell.
    fn memory_reading(&self) -> Option<MemoryReading> {
        let router = self.proxy.router();
        let origins = router.origins.iter().map(|origin| origin.stats());
        let body_file = self.proxy.body_file().ok().and_then(|file| file.resident_bytes().ok());
        let usage = self.proxy.cache().byte_usage()?;
        Some(MemoryReading {
            process: own_unshared_bytes()?,
            body_file: body_file.unwrap_or_default(),
            counted: usage.used.saturating_sub(usage.set_aside) as u64,
            client_connections: self.frontend().as_ref()?.stats().connections,
            origin_connections: origins.map(|origin| origin.connections_busy + origin.connections_idle).sum(),
        })
    }

    fn frontend(&self) -> MutexGuard<'_, Option<Frontend>> {
        self.frontend.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes entries leave room for memory that they do not need.
    fn set_memory_aside(&self) {
        let Some(limit_bytes) = self.proxy.router().config.limit.bytes else { return };
        let Some(reading) = self.memory_reading() else { return };
        let limit_bytes = limit_bytes as u64;
        let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let body_file_max = to_usize(reading.body_file_max(limit_bytes));
        let refused = self.proxy.body_file().map_or(0, |file| {
            file.set_bytes_max(body_file_max);
            file.take_refused_bytes()
        });
        self.proxy.cache().set_aside(to_usize(reading.surplus(limit_bytes, refused as u64)));
    }

    async fn reload(self: Arc<Self>) -> Result<Vec<Change>, String> {
        let _reloading = self.reloading.lock().await;
        let current = self.proxy.router();
        let new = (self.read_config)()?;
        let changes = diff(&current.config, &new);
        let config = new.reloadable(&current.config);
        // Everything that can fail comes first, so that the whole configuration is applied or nothing.
        let certificate = certificate(&config).as_ref().map(ServerCertificate::load).transpose();
        let certificate = certificate.map_err(|error| error.to_string())?;
        let log_config = config.log.clone();
        self.proxy.reload(config).await.map_err(|error| error.to_string())?;
        if let (Some(frontend), Some(certificate)) = (&*self.frontend(), certificate) {
            frontend.replace_certificate(certificate);
        }
        if let Some(log) = &self.log {
            log.reconfigure(&log_config);
            log.reopen();
        }
        Ok(changes)
    }
}

struct AdminControl(Arc<ServerState>);

impl Control for AdminControl {
    fn stats(&self) -> ProxyStats {
        let state = &*self.0;
        let router = state.proxy.router();
        let cache = state.proxy.cache();
        let frontend = state.frontend().as_ref().map(Frontend::stats).unwrap_or_default();
        let limit = &router.config.limit;
        ProxyStats {
            uptime_seconds: (state.local.now() - state.started_at).as_secs_f64(),
            is_draining: state.is_draining.load(Ordering::Relaxed),
            routes: router.routes.iter().map(|route| route.stats()).collect(),
            origins: router.origins.iter().map(|origin| origin.stats()).collect(),
            entries_limit: limit.entries.map(|entries| entries as u64),
            bytes_limit: limit.bytes.map(|bytes| bytes as u64),
            store: cache.stats().store(),
            shadow: cache.shadow_stats(),
            frontend,
            requests_refused: state.proxy.rate_refusals(),
            resident_bytes: own_resident_bytes(),
            log_dropped: state.log.as_ref().map_or(0, AccessLogWriter::dropped),
        }
    }

    fn keys(&self) -> KeyStats {
        let state = &*self.0;
        let router = state.proxy.router();
        router.keys.stats(state.local.now(), system_now(), &router.config.log.mask_query)
    }

    fn purge(&self, purge: &Purge) -> PurgeResult {
        self.0.proxy.purge_with_note(purge)
    }

    async fn warm(&self, url: Uri) -> WarmOutcome {
        self.0.proxy.warm(url).await
    }

    async fn reload(&self) -> Result<Vec<Change>, String> {
        // On the proxy's runtime: connections and files that a reload opens have to live there. The caller is the admin's thread.
        let reload = self.0.runtime.spawn(Arc::clone(&self.0).reload());
        reload.await.unwrap_or_else(|_| Err("the proxy is stopping".to_owned()))
    }

    fn config(&self) -> Value {
        self.0.proxy.router().config.shown()
    }
}

fn certificate(config: &Config) -> Option<CertificateFiles> {
    let tls = config.tls.as_ref()?;
    Some(CertificateFiles { certificates: tls.cert.clone(), key: tls.key.clone() })
}

/// For the body of a request, without `timeouts.total`.
const UPLOAD_TIMEOUT: Duration = Duration::from_hours(1);

/// Files that are not for connections of clients or to origins: listeners, runtimes, logs, certificates, the admin listener.
const OPEN_FILES_RESERVED: u64 = 64;

/// `[bounds] connections`, or as many as there are files for. Half of them are for clients, however many connections
/// origins may have.
fn clients_that_fit(config: &Config, open_files: u64) -> usize {
    let reserved = OPEN_FILES_RESERVED.min(open_files / 2);
    let open_files = usize::try_from(open_files - reserved).unwrap_or(usize::MAX);
    let origins: usize = config.origins.iter().map(|origin| origin.table.connections.0).sum();
    config.bounds.connections.0.min(open_files - origins.min(open_files / 2)).max(1)
}

fn frontend_settings(config: &Config) -> frontend::FrontendSettings {
    let Config { timeouts, bounds, .. } = config;
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let certificate = certificate(config);
    let listen = config.listen.clone();
    let (listen, listen_tls) =
        if certificate.is_some() { (Vec::new(), listen) } else { (listen, Vec::new()) };
    frontend::FrontendSettings {
        listen,
        listen_tls,
        listen_proxy_protocol: config.listen_proxy_protocol.clone(),
        trusted_proxies: config.trusted_proxies.clone(),
        client_prefix: bounds.client_prefix(),
        certificate,
        threads: config.threads.unwrap_or_else(cores),
        connections_max: bounds.connections.0,
        connections_per_client_max: bounds.connections_per_client(),
        head_timeout: timeouts.head.0,
        body_idle_timeout: timeouts.body.0,
        body_timeout: timeouts.total.0.map_or(UPLOAD_TIMEOUT, |time| time.0),
        keep_alive_timeout: timeouts.idle.0,
        write_stall_timeout: timeouts.write.0,
        pressure: ClientPressure::default(),
        total_timeout: timeouts.total.0.map(|time| time.0),
        head_bytes_max: bounds.head.0,
        headers_max: bounds.headers.0,
        body_bytes_max: bounds.body.0 as u64,
        streams_max: u32::try_from(bounds.streams.0).unwrap_or(u32::MAX),
        drain_timeout: timeouts.drain.0,
        body_file: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_files_for_origins() {
        let of_origin = |connections: usize| {
            let text = format!("[[origin]]\nurl = \"http://127.0.0.1:1\"\nconnections = {connections}\n");
            Config::parse("test.toml", &text).expect("a valid file")
        };
        for (connections, open_files, expected) in [
            (256, 1_048_576, 10_000),
            (256, 10_320, 10_000),
            (256, 10_319, 9_999),
            (256, 1_024, 704),
            (5_000, 1_024, 480),
            (256, 64, 16),
            (256, 0, 1),
        ] {
            assert_eq!(clients_that_fit(&of_origin(connections), open_files), expected, "{open_files} files");
        }
    }

    #[test]
    fn total_timeout_bounds_the_request_body() {
        for (line, expected) in [("", UPLOAD_TIMEOUT), ("total = \"10m\"", Duration::from_mins(10))] {
            let text =
                format!("[timeouts]\nbody = \"20s\"\n{line}\n[[origin]]\nurl = \"http://127.0.0.1:1\"\n");
            let settings = frontend_settings(&Config::parse("test.toml", &text).expect("a valid file"));
            assert_eq!(
                (settings.body_idle_timeout, settings.body_timeout),
                (Duration::from_secs(20), expected)
            );
        }
    }
}
