//! Settings of the frontend: addresses, bounds, timeouts.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    time::Duration,
};

use super::tls::CertificateFiles;

/// Each duration bounds one wait, and restarts when that wait ends.
#[derive(Clone, Debug)]
pub struct FrontendSettings {
    /// Addresses for plain HTTP/1.1 and for HTTP/2 with prior knowledge; port 0 is any free port.
    pub listen: Vec<SocketAddr>,
    /// Addresses for TLS; needs `certificate`.
    pub listen_tls: Vec<SocketAddr>,
    pub certificate: Option<CertificateFiles>,
    pub threads: NonZeroUsize,
    /// Over all threads.
    pub connections_max: usize,
    /// From the start of a connection, or from the first byte of a later head, to the end of that head.
    pub head_timeout: Duration,
    /// While the handler waits for the next part of a request body.
    pub body_idle_timeout: Duration,
    /// For a whole request body.
    pub body_timeout: Duration,
    /// From the end of a response to the first byte of the next request.
    pub keep_alive_timeout: Duration,
    /// While a client does not read its response.
    pub write_stall_timeout: Duration,
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
}

impl Default for FrontendSettings {
    /// A free port of the loopback, one thread; nginx's timeouts where nginx has the same one, and 10 s for a head.
    fn default() -> Self {
        Self {
            listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            listen_tls: Vec::new(),
            certificate: None,
            threads: NonZeroUsize::MIN,
            connections_max: 10_000,
            head_timeout: Duration::from_secs(10),
            body_idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_mins(5),
            keep_alive_timeout: Duration::from_secs(75),
            write_stall_timeout: Duration::from_secs(30),
            total_timeout: None,
            head_bytes_max: 32 * 1_024,
            headers_max: 100,
            body_bytes_max: 16 * 1_024 * 1_024,
            streams_max: 100,
            drain_timeout: Duration::from_secs(30),
        }
    }
}
