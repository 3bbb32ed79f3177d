//! Opens connections: resolves a name, tries its addresses, negotiates TLS.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::tls::HandshakeFailure;
use rustls::{ClientConfig, pki_types::ServerName};
use stockade_model::time::{Runtime, Time, before};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::{
    clock::UpstreamClock,
    error::{UpstreamError, is_out_of_descriptors},
    health::{Health, HealthSettings},
    pool::close_idle_connection,
    settings::OriginUrl,
    socket::OriginSocket,
};

/// Further addresses of a name are ignored.
const ADDRESSES_MAX: usize = 16;
/// Without a free file descriptor an idle connection is closed, and connecting is tried again after a pause, in which it closes.
const DESCRIPTOR_RETRIES: u32 = 10;
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(10);

/// Connects to one endpoint.
#[derive(Debug)]
pub(super) struct OriginConnector {
    pub(super) url: OriginUrl,
    pub(super) clock: UpstreamClock,
    /// `None`: plain text.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) timeout: Duration,
    pub(super) health: HealthSettings,
    /// Health of the addresses that the name last resolved to.
    pub(super) addresses: Mutex<BTreeMap<SocketAddr, Health>>,
}

impl OriginConnector {
    /// A connection, and whether TLS negotiated HTTP/2.
    pub(super) async fn connect(&self, deadline: Time) -> Result<(OriginSocket, bool), UpstreamError> {
        let tcp = self.tcp(deadline).await?;
        // On failure requests are only slower.
        let _ = tcp.set_nodelay(true);
        let Some(config) = &self.tls else {
            return Ok((OriginSocket::plain(tcp, self.clock.clone()), false));
        };
        let failed = |reason: String| UpstreamError::Tls { at: self.name(), reason: reason.into() };
        let name = ServerName::try_from(self.url.host.to_string());
        let name = name.map_err(|_| failed("the host name cannot appear in a certificate".to_owned()))?;
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name, tcp);
        let tls = before(&self.clock, deadline, handshake).await.ok_or_else(|| self.timeout_error())?;
        let tls = tls.map_err(|error| failed(HandshakeFailure::explain(&error, "`ca`")))?;
        let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((OriginSocket::encrypted(tls, self.clock.clone()), is_http2))
    }

    async fn tcp(&self, deadline: Time) -> Result<TcpStream, UpstreamError> {
        let found =
            before(&self.clock, deadline, self.resolve()).await.ok_or_else(|| self.timeout_error())??;
        self.connect_first(self.candidates(found), deadline).await
    }

    /// The first address that accepts. Each gets an equal part of the remaining time.
    async fn connect_first(
        &self,
        addresses: Vec<SocketAddr>,
        deadline: Time,
    ) -> Result<TcpStream, UpstreamError> {
        let mut failed = self.timeout_error();
        let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        for address in addresses {
            let now = self.clock.now();
            let until = now + (deadline - now) / left.max(1);
            left -= 1;
            let error = match before(&self.clock, until, self.connect_to(address)).await {
                Some(Ok(tcp)) => {
                    self.update_health(address, |health| health.succeed(&self.health));
                    return Ok(tcp);
                }
                Some(Err(error)) => UpstreamError::unconnected(&error, &address.to_string()),
                None => UpstreamError::ConnectTimeout { at: address.to_string().into(), after: self.timeout },
            };
            let now = self.clock.now();
            self.update_health(address, |health| health.fail(now, &self.health));
            failed = error;
        }
        Err(failed)
    }

    /// Connects. If no file descriptor is free, closes an idle connection and tries again.
    async fn connect_to(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let mut retries_left = DESCRIPTOR_RETRIES;
        loop {
            match TcpStream::connect(address).await {
                Err(error)
                    if retries_left > 0 && is_out_of_descriptors(&error) && close_idle_connection() =>
                {
                    retries_left -= 1;
                    self.clock.sleep_until(self.clock.now() + DESCRIPTOR_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, UpstreamError> {
        let host = &self.url.host;
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.url.port)]);
        }
        let unknown = |reason: &str| UpstreamError::Dns { host: Arc::clone(host), reason: reason.into() };
        let found =
            lookup_host((&**host, self.url.port)).await.map_err(|error| unknown(&error.to_string()))?;
        let found: Vec<_> = found.take(ADDRESSES_MAX).collect();
        if found.is_empty() {
            return Err(unknown("the name has no addresses"));
        }
        Ok(found)
    }

    /// Unhealthy ones last.
    fn candidates(&self, mut found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let now = self.clock.now();
        let mut known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        // Forgets addresses that the name no longer has, which bounds the map.
        known.retain(|address, _| found.contains(address));
        found.sort_by_key(|address| known.get(address).is_some_and(|health| health.is_resting(now)));
        found
    }

    fn update_health(&self, address: SocketAddr, update: impl FnOnce(&mut Health)) {
        let mut known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < ADDRESSES_MAX || known.contains_key(&address) {
            update(known.entry(address).or_default());
        }
    }

    /// For error messages.
    pub(super) fn name(&self) -> Arc<str> {
        self.url.authority.as_str().into()
    }

    pub(super) fn timeout_error(&self) -> UpstreamError {
        UpstreamError::ConnectTimeout { at: self.name(), after: self.timeout }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    fn connector(timeout: Duration) -> OriginConnector {
        let failures = NonZeroU32::new(1).expect("not zero");
        let health = HealthSettings { failures, rest: Duration::from_mins(10), probe: None };
        OriginConnector {
            url: "http://name.example".parse().expect("an URL"),
            clock: UpstreamClock::new(),
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
    async fn addresses_are_tried_in_turn_and_failed_ones_come_last() {
        let (listening, good) = listener().await;
        let refusing = listener().await.1;
        // This listener's queue is full, so connecting to it hangs.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let deaf = socket.listen(0).expect("a listener");
        let silent = deaf.local_addr().expect("an address");
        let _queued = TcpStream::connect(silent).await.expect("a place in the queue");

        let timeout = Duration::from_millis(90);
        let connector = connector(timeout);
        let deadline = || connector.clock.now() + timeout;
        let found = vec![refusing, silent, good];
        assert_eq!(connector.candidates(found.clone()), found);
        let tcp = connector.connect_first(found.clone(), deadline()).await.expect("the third");
        assert_eq!(tcp.peer_addr().expect("a peer"), good);
        // Failed addresses come last, so that no request waits for them.
        assert_eq!(connector.candidates(found), [good, refusing, silent]);
        drop(listening);
        let error = connector
            .connect_first(vec![good, refusing, silent], deadline())
            .await
            .expect_err("no endpoint accepts");
        assert!(
            matches!(&error, UpstreamError::ConnectTimeout { at, .. } if **at == *silent.to_string()),
            "{error:?}"
        );
        // Addresses that the name no longer has are forgotten.
        connector.candidates(vec![good]);
        assert_eq!(connector.addresses.lock().expect("no panic").len(), 1);
    }
}
