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

    async fn tcp(&self, deadline: Time) -> Result<TcpStream, UpstreamError> {
        let found = before(&self.clock, deadline, self.look_up()).await.ok_or_else(|| self.late())??;
        self.first_of(self.in_order(found), deadline).await
    }

    /// The first address that takes it. Each is given a fair part of the time that is left.
    async fn first_of(&self, addresses: Vec<SocketAddr>, deadline: Time) -> Result<TcpStream, UpstreamError> {
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

    /// Its addresses, as they are now.
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
        Ok(found)
    }

    /// Those that rest last.
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    fn connector(timeout: Duration) -> Connector {
        let failures = NonZeroU32::new(1).expect("not zero");
        let health = HealthSettings { failures, rest: Duration::from_mins(10), probe: None };
        Connector {
            url: "http://name.example".parse().expect("an URL"),
            clock: Clock::new(),
            tls: None,
            timeout,
            health,
            addresses: Mutex::default(),
        }
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        (listener, address)
    }

    #[tokio::test]
    async fn the_addresses_of_a_name_are_tried_in_turn_and_remembered() {
        let (listening, good) = listener().await;
        let refusing = listener().await.1;
        // Nobody takes calls there: its queue has room for one.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let deaf = socket.listen(0).expect("a listener");
        let silent = deaf.local_addr().expect("an address");
        let _queued = TcpStream::connect(silent).await.expect("a place in the queue");

        let timeout = Duration::from_millis(90);
        let connector = connector(timeout);
        let deadline = || connector.clock.now() + timeout;
        let found = vec![refusing, silent, good];
        assert_eq!(connector.in_order(found.clone()), found);
        let tcp = connector.first_of(found.clone(), deadline()).await.expect("the third");
        assert_eq!(tcp.peer_addr().expect("a peer"), good);
        // Those that failed rest: they are last from now on, and nobody waits for them.
        assert_eq!(connector.in_order(found), [good, refusing, silent]);
        drop(listening);
        let error = connector.first_of(vec![good, refusing, silent], deadline()).await.expect_err("nobody");
        assert!(
            matches!(&error, UpstreamError::ConnectTimeout { at, .. } if **at == *silent.to_string()),
            "{error:?}"
        );
        // What the name has no more is forgotten.
        connector.in_order(vec![good]);
        assert_eq!(connector.addresses.lock().expect("no panic").len(), 1);
    }
}
