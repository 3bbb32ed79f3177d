//! A connection to one server whose replies are bounded. The driver connects to the nodes of a cluster through it, too.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisError,
    RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::Connect,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use stockade_model::time::{Live, Runtime, before};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Handle,
    task::AbortHandle,
};
use tokio_rustls::TlsConnector;

use super::{reply_bound::BoundedStream, url::RedisUrl};

/// How to connect to a server.
#[derive(Clone)]
pub(super) struct ServerSettings {
    pub(super) value_bytes_max: u64,
    /// `None`: the connection is not encrypted.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// The settings for nodes of clusters. The driver passes nothing on to [`Connect`], so that the clusters of a process share the largest
/// bounds.
static OF_CLUSTERS: Mutex<ClusterSettings> =
    Mutex::new(ClusterSettings { value_bytes_max: 0, timeout: Duration::ZERO });

#[derive(Clone, Copy)]
struct ClusterSettings {
    value_bytes_max: u64,
    timeout: Duration,
}

/// Clones share it. The connection closes with the last one.
#[derive(Clone)]
pub(super) struct BoundedConnection {
    pub(super) driver: MultiplexedConnection,
    _task: Arc<AbortOnDrop>,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

impl ServerSettings {
    pub(super) fn of(url: &RedisUrl) -> Result<Self, RedisError> {
        let tls = if url.is_tls() { Some(tls_config(url.ca.as_deref())?) } else { None };
        Ok(Self { value_bytes_max: url.value_bytes_max, tls })
    }
}

/// Before the driver connects to a cluster.
pub(super) fn set_cluster_bounds(url: &RedisUrl) {
    let mut settings = OF_CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner);
    settings.value_bytes_max = settings.value_bytes_max.max(url.value_bytes_max);
    settings.timeout = settings.timeout.max(url.timeout);
}

/// `ca` is in PEM; `None`: the certificates of the system.
fn tls_config(ca: Option<&[u8]>) -> Result<Arc<ClientConfig>, RedisError> {
    let mut roots = RootCertStore::empty();
    if let Some(ca) = ca {
        for certificate in CertificateDer::pem_slice_iter(ca) {
            roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

impl BoundedConnection {
    /// Connects, for as long as the caller waits.
    pub(super) async fn open(
        server: &ConnectionInfo,
        settings: &ServerSettings,
        config: AsyncConnectionConfig,
    ) -> Result<Self, RedisError> {
        let stream = open_stream(server.addr(), settings.tls.as_ref()).await?;
        let stream = BoundedStream::new(stream, settings.value_bytes_max);
        let (driver, task) =
            MultiplexedConnection::new_with_config(server.redis_settings(), stream, config).await?;
        let task = Handle::current().spawn(task);
        Ok(Self { driver, _task: Arc::new(AbortOnDrop(task.abort_handle())) })
    }
}

async fn open_stream(
    address: &ConnectionAddr,
    tls: Option<&Arc<ClientConfig>>,
) -> io::Result<Box<dyn Stream>> {
    match (address, tls) {
        (ConnectionAddr::Tcp(host, port), _) => Ok(Box::new(open_tcp(host, *port).await?)),
        (ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            let tcp = open_tcp(host, *port).await?;
            Ok(Box::new(TlsConnector::from(Arc::clone(tls)).connect(name, tcp).await?))
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

async fn open_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect((host, port)).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

impl ConnectionLike for BoundedConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.driver.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.driver.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.driver.get_db()
    }
}

impl Connect for BoundedConnection {
    fn connect_with_config<'a, T>(server: T, config: AsyncConnectionConfig) -> RedisFuture<'a, Self>
    where
        T: IntoConnectionInfo + Send + 'a,
    {
        Box::pin(async move {
            let server = server.into_connection_info()?;
            let ClusterSettings { value_bytes_max, timeout } =
                *OF_CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner);
            let tls = match server.addr() {
                ConnectionAddr::TcpTls { .. } => Some(tls_config(None)?),
                _ => None,
            };
            let settings = ServerSettings { value_bytes_max, tls };
            let live = Live::new();
            let opened = Self::open(&server, &settings, config);
            before(&live, live.now() + timeout, opened)
                .await
                .unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
        })
    }
}
