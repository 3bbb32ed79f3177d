//! Connections: a name, its addresses in turn, TLS.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::{ClientConfig, pki_types::ServerName};
use stockade_model::time::{Runtime, Time, before};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::{
    clock::Clock,
    error::UpstreamError,
    health::{Health, HealthSettings},
    settings::OriginUrl,
    tls,
    wire::Wire,
};

/// So many addresses of a name are tried.
const ADDRESSES_MAX: usize = 16;

/// Makes connections to a place.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) url: OriginUrl,
    pub(super) clock: Clock,
    /// None: no TLS.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) timeout: Duration,
    pub(super) health: HealthSettings,
    /// What is known of the addresses that its name had last.
    pub(super) addresses: Mutex<BTreeMap<SocketAddr, Health>>,
}

impl Connector {
    /// A connection, and whether HTTP/2 was settled with TLS.
    pub(super) async fn connect(&self, deadline: Time) -> Result<(Wire, bool), UpstreamError> {
        let tcp = self.tcp(deadline).await?;
        // It only ever makes requests later.
        let _ = tcp.set_nodelay(true);
        let Some(config) = &self.tls else { return Ok((Wire::plain(tcp, self.clock.clone()), false)) };
        let failed = |reason: String| UpstreamError::Tls { at: self.name(), reason: reason.into() };
        let name = ServerName::try_from(self.url.host.to_string());
        let name = name.map_err(|_| failed("no certificate could have such a name".to_owned()))?;
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name, tcp);
        let tls = before(&self.clock, deadline, handshake).await.ok_or_else(|| self.late())?;
        let tls = tls.map_err(|error| failed(tls::explain(&error)))?;
        let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Wire::encrypted(tls, self.clock.clone()), is_http2))
    }

    /// The first of its addresses that takes it. Each is given a fair part of the time that is left.
    async fn tcp(&self, deadline: Time) -> Result<TcpStream, UpstreamError> {
        let addresses = before(&self.clock, deadline, self.look_up()).await.ok_or_else(|| self.late())??;
        let mut failed = self.late();
        let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        for address in addresses {
            let now = self.clock.now();
            let until = now + (deadline - now) / left.max(1);
            left -= 1;
            let error = match before(&self.clock, until, TcpStream::connect(address)).await {
                Some(Ok(tcp)) => {
                    self.learn(address, |health| health.succeed(&self.health));
                    return Ok(tcp);
                }
                Some(Err(error)) => UpstreamError::unconnected(&error, &address.to_string()),
                None => UpstreamError::ConnectTimeout { at: address.to_string().into(), after: self.timeout },
            };
            let now = self.clock.now();
            self.learn(address, |health| health.fail(now, &self.health));
            failed = error;
        }
        Err(failed)
    }

    /// Its addresses, as they are now: those that rest last.
    async fn look_up(&self) -> Result<Vec<SocketAddr>, UpstreamError> {
        let host = &self.url.host;
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.url.port)]);
        }
        let unknown = |reason: &str| UpstreamError::Dns { host: Arc::clone(host), reason: reason.into() };
        let found =
            lookup_host((&**host, self.url.port)).await.map_err(|error| unknown(&error.to_string()))?;
        let found: Vec<_> = found.take(ADDRESSES_MAX).collect();
        if found.is_empty() {
            return Err(unknown("it has none"));
        }
        Ok(self.in_order(found))
    }

    fn in_order(&self, mut found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let now = self.clock.now();
        let mut known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        // What a name has no more is forgotten: there are never more than it may have.
        known.retain(|address, _| found.contains(address));
        found.sort_by_key(|address| known.get(address).is_some_and(|health| health.is_resting(now)));
        found
    }

    fn learn(&self, address: SocketAddr, learn: impl FnOnce(&mut Health)) {
        let mut known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < ADDRESSES_MAX || known.contains_key(&address) {
            learn(known.entry(address).or_default());
        }
    }

    /// What errors call it.
    pub(super) fn name(&self) -> Arc<str> {
        self.url.authority.as_str().into()
    }

    pub(super) fn late(&self) -> UpstreamError {
        UpstreamError::ConnectTimeout { at: self.name(), after: self.timeout }
    }
}
