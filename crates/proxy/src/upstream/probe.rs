//! Asks places whether they work, whatever clients ask for.

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

use super::{Desk, HealthSettings, HostHeader, Probe, Settings, Upstream, clock::Clock};

/// One place and who asks it.
struct Prober {
    desk: Weak<Desk>,
    place: usize,
    /// Of its own: it has to connect, and waits for nobody.
    asks: Upstream,
    probe: Probe,
    clock: Clock,
}

impl Upstream {
    /// Asks every place every so often, as [`HealthSettings::probe`] says, each by one more connection at a time. Run it
    /// once an origin, beside its requests; it ends where there are no probes, and after the last clone has gone.
    pub fn probes(&self) -> impl Future<Output = ()> + Send + 'static {
        let probers = self.desk.settings.health.probe.iter().flat_map(|probe| {
            let place = |place| self.prober(place, probe.clone());
            (0..self.desk.connectors.len()).map(place)
        });
        let probers: Vec<_> = probers.map(Prober::run).collect();
        async move { drop(join_all(probers).await) }
    }

    fn prober(&self, place: usize, probe: Probe) -> Prober {
        let Desk { settings, clock, connectors, .. } = &*self.desk;
        let settings = Settings {
            urls: vec![connectors[place].url.clone()],
            connections_max: 1,
            waiting_max: 0,
            // One that is kept may work although nobody new gets in.
            keep_alive: Duration::ZERO,
            head_timeout: probe.timeout,
            host_header: HostHeader::Origin,
            health: HealthSettings::default(),
            ..settings.clone()
        };
        let tls = connectors[place].tls.as_ref();
        let asks = Self::with(settings, tls, clock.clone());
        Prober { desk: Arc::downgrade(&self.desk), place, asks, probe, clock: clock.clone() }
    }
}

impl Prober {
    async fn run(self) {
        let Self { desk, place, asks, probe, clock } = self;
        // It was read when the settings were.
        let Ok(path) = probe.path.parse::<PathAndQuery>() else { return };
        let mut next = Time::ZERO;
        loop {
            clock.sleep_until(next).await;
            let is_healthy = before(&clock, clock.now() + probe.timeout, is_healthy(&asks, &path)).await;
            let Some(desk) = desk.upgrade() else { return };
            match is_healthy {
                Some(true) => desk.pool.succeed(place),
                Some(false) | None => desk.pool.fail(place),
            }
            next = clock.now() + probe.every;
        }
    }
}

async fn is_healthy(asks: &Upstream, path: &PathAndQuery) -> bool {
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = Uri::from(path.clone());
    // What it says is of no interest: dropped, the connection is closed.
    asks.send(request)
        .await
        .is_ok_and(|answer| answer.status().is_success() || answer.status().is_redirection())
}
