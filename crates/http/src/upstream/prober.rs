//! Health probes, independent of client requests.

use std::{
    future::Future,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Uri, uri::PathAndQuery};
use http_body_util::Empty;
use stockade_model::time::{Runtime, Time, before};

use super::{
    HealthProbe, HealthSettings, HostHeader, Upstream, UpstreamSettings, UpstreamShared, clock::UpstreamClock,
};

struct EndpointProber {
    shared: Weak<UpstreamShared>,
    endpoint: usize,
    /// A pool of its own, so that probes open new connections and never queue.
    upstream: Upstream,
    probe: HealthProbe,
    clock: UpstreamClock,
}

impl Upstream {
    /// Runs the probes of [`HealthSettings::probe`] for every endpoint, each over one additional connection. Run it once per
    /// origin. It ends at once without probes, and otherwise after the last clone has been dropped.
    pub fn probes(&self) -> impl Future<Output = ()> + Send + 'static {
        let probers = self.shared.settings.health.probe.iter().flat_map(|probe| {
            let endpoint = |endpoint| self.prober(endpoint, probe.clone());
            (0..self.shared.connectors.len()).map(endpoint)
        });
        let probers: Vec<_> = probers.map(EndpointProber::run).collect();
        async move { drop(join_all(probers).await) }
    }

    fn prober(&self, endpoint: usize, probe: HealthProbe) -> EndpointProber {
        let UpstreamShared { settings, clock, connectors, .. } = &*self.shared;
        let settings = UpstreamSettings {
            urls: vec![connectors[endpoint].url.clone()],
            connections_max: 1,
            waiting_max: 0,
            // A new connection each time: a kept one may work although the endpoint accepts no more.
            keep_alive: Duration::ZERO,
            head_timeout: probe.timeout,
            host_header: HostHeader::Origin,
            health: HealthSettings::default(),
            ..settings.clone()
        };
        let tls = connectors[endpoint].tls.as_ref();
        let upstream = Self::with(settings, tls, clock.clone());
        EndpointProber {
            shared: Arc::downgrade(&self.shared),
            endpoint,
            upstream,
            probe,
            clock: clock.clone(),
        }
    }
}

impl EndpointProber {
    async fn run(self) {
        let Self { shared, endpoint, upstream, probe, clock } = self;
        // Validated with the settings.
        let Ok(path) = probe.path.parse::<PathAndQuery>() else { return };
        let mut next = Time::ZERO;
        loop {
            clock.sleep_until(next).await;
            let is_healthy = before(&clock, clock.now() + probe.timeout, is_healthy(&upstream, &path)).await;
            let Some(shared) = shared.upgrade() else { return };
            match is_healthy {
                Some(true) => shared.pool.succeed(endpoint),
                Some(false) | None => shared.pool.fail(endpoint),
            }
            next = clock.now() + probe.every;
        }
    }
}

async fn is_healthy(upstream: &Upstream, path: &PathAndQuery) -> bool {
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = Uri::from(path.clone());
    // The body is dropped, which closes the connection.
    upstream
        .send(request)
        .await
        .is_ok_and(|answer| answer.status().is_success() || answer.status().is_redirection())
}
