//! Settings of the frontend: addresses, bounds, timeouts.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use super::{client::ClientPrefix, tls::CertificateFiles};
use crate::{body_file::BodyFile, trusted_proxies::TrustedProxies};

/// Each duration bounds one wait, and restarts when that wait ends.
#[derive(Clone, Debug)]
pub struct FrontendSettings {
    /// Addresses for plain HTTP/1.1 and for HTTP/2 with prior knowledge; port 0 is any free port.
    pub listen: Vec<SocketAddr>,
    /// Addresses for TLS; needs `certificate`.
    pub listen_tls: Vec<SocketAddr>,
    /// Addresses where each connection begins with a header of the PROXY protocol; with TLS after it if there is a `certificate`.
    /// Only `trusted_proxies` may connect there.
    pub listen_proxy_protocol: Vec<SocketAddr>,
    /// The bounds of clients do not apply to their connections.
    pub trusted_proxies: TrustedProxies,
    /// The bits of an address that identify a client.
    pub client_prefix: ClientPrefix,
    pub certificate: Option<CertificateFiles>,
    pub threads: NonZeroUsize,
    /// Over all threads.
    pub connections_max: usize,
    /// Of one [network](super::ClientNetwork).
    pub connections_per_client_max: usize,
    /// From the start of a connection, or from the first byte of a later head, to the end of that head.
    pub head_timeout: Duration,
    /// In which a client sends 16 KiB of a request body that is waited for, or the rest of it.
    pub body_idle_timeout: Duration,
    /// For a whole request body.
    pub body_timeout: Duration,
    /// From the end of a response to the first byte of the next request.
    pub keep_alive_timeout: Duration,
    /// In which a client takes 64 KiB of its response, or all that waits for it.
    pub write_stall_timeout: Duration,
    /// Shortens `write_stall_timeout`.
    pub pressure: ClientPressure,
    /// From the head of a request to the end of its response; `None`: no bound.
    pub total_timeout: Option<Duration>,
    /// The largest head of a request; at least 8,192.
    pub head_bytes_max: usize,
    /// The most fields of a request's head.
    pub headers_max: usize,
    pub body_bytes_max: u64,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams_max: u32,
    /// How long a drain waits for requests in flight.
    pub drain_timeout: Duration,
    /// Has large bodies, which plain HTTP/1.1 sends without a copy.
    pub body_file: Option<Arc<BodyFile>>,
}

impl Default for FrontendSettings {
    /// A free port of the loopback, one thread; nginx's timeouts where nginx has the same one, and 10 s for a head.
    fn default() -> Self {
        Self {
            listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            listen_tls: Vec::new(),
            listen_proxy_protocol: Vec::new(),
            trusted_proxies: TrustedProxies::default(),
            client_prefix: ClientPrefix::default(),
            certificate: None,
            threads: NonZeroUsize::MIN,
            connections_max: 10_000,
            connections_per_client_max: usize::MAX,
            head_timeout: Duration::from_secs(10),
            body_idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_mins(5),
            keep_alive_timeout: Duration::from_secs(75),
            write_stall_timeout: Duration::from_secs(30),
            pressure: ClientPressure::default(),
            total_timeout: None,
            head_bytes_max: 32 * 1_024,
            headers_max: 100,
            body_bytes_max: 16 * 1_024 * 1_024,
            streams_max: 100,
            drain_timeout: Duration::from_secs(30),
            body_file: None,
        }
    }
}

/// The fill of the bounds on memory and connections that slow clients hold, from 0 to 1: that of the fuller bound.
#[derive(Clone)]
pub struct ClientPressure(Arc<dyn Fn() -> f64 + Send + Sync>);

impl ClientPressure {
    #[must_use]
    pub fn new(pressure: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(pressure))
    }
}

impl Default for ClientPressure {
    /// Always 0.
    fn default() -> Self {
        Self::new(|| 0.0)
    }
}

impl fmt::Debug for ClientPressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientPressure").field(&(self.0)()).finish()
    }
}

impl FrontendSettings {
    /// The lower bound of [`Self::stall_timeout`], and the interval at which waits for clients are checked.
    pub(super) const STALL_CHECK: Duration = Duration::from_secs(1);

    /// The stall timeout now: the whole one up to a pressure of a half, and then shorter, down to a second. OpenBSD's pf
    /// adapts its timeouts in the same way.
    pub(super) fn stall_timeout(&self) -> Duration {
        let whole = self.write_stall_timeout;
        let share = 2.0 * (1.0 - (self.pressure.0)());
        if share < 1.0 { whole.mul_f64(share.max(0.0)).max(whole.min(Self::STALL_CHECK)) } else { whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_shortens_the_stall_timeout() {
        for (pressure, whole_ms, expected_ms) in [
            (0.0, 30_000, 30_000),
            (0.5, 30_000, 30_000),
            (0.75, 30_000, 15_000),
            (1.0, 30_000, 1_000),
            (7.0, 30_000, 1_000),
            (1.0, 200, 200),
        ] {
            let write_stall_timeout = Duration::from_millis(whole_ms);
            let pressure = ClientPressure::new(move || pressure);
            let settings = FrontendSettings { write_stall_timeout, pressure, ..FrontendSettings::default() };
            assert_eq!(settings.stall_timeout(), Duration::from_millis(expected_ms));
        }
    }
}
