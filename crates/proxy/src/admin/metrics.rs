//! `/metrics`: the statistics in the text format of Prometheus.
//!
//! The names are those of `Builder::metrics` of the cache, with the label `route` in place of `cache`. The origins of a proxy
//! are `upstream`s here: `stockade_origin_*` are metrics of `stockade origin`.

use stockade_cache::{GhostCounts, GhostStats, RequestStats, ShadowStats, StoreStats};
use stockade_http::frontend::FrontendStats;
use stockade_model::outcome::Outcomes;
use stockade_record::telemetry::prometheus::Text;

use super::stats::{OriginStats, ProxyStats, RouteStats, ServerStats};

pub(super) use stockade_record::telemetry::prometheus::CONTENT_TYPE;

pub(super) fn text(stats: &ProxyStats) -> String {
    let mut text = Text::default();
    let routes: Vec<_> = stats.routes.iter().map(|route| ([("route", route.name.as_str())], route)).collect();
    let outcomes: Vec<_> = routes.iter().map(|(labels, route)| (&labels[..], &route.outcomes)).collect();
    let requests: Vec<_> = routes.iter().map(|(labels, route)| (&labels[..], &route.requests)).collect();
    let routes: Vec<_> = routes.iter().map(|(labels, route)| (&labels[..], *route)).collect();
    text.snapshots(Outcomes::METRICS, &outcomes);
    text.histograms(RouteStats::HISTOGRAMS, &routes);
    text.snapshots(RequestStats::METRICS, &requests);
    text.snapshots(RouteStats::METRICS, &routes);
    text.snapshots(StoreStats::METRICS, &[(&[], &stats.store)]);

    if let Some(shadow) = &stats.shadow {
        let ghosts: Vec<_> =
            shadow.ghosts.iter().map(|ghost| ([("ghost", ghost.name.as_str())], ghost)).collect();
        let counts: Vec<_> = ghosts.iter().map(|(labels, ghost)| (&labels[..], &ghost.total)).collect();
        let ghosts: Vec<_> = ghosts.iter().map(|(labels, ghost)| (&labels[..], *ghost)).collect();
        text.snapshots(ShadowStats::METRICS, &[(&[], shadow)]);
        text.snapshots(GhostCounts::METRICS, &counts);
        text.snapshots(GhostStats::METRICS, &ghosts);
    }
    let origins: Vec<_> =
        stats.origins.iter().map(|origin| ([("origin", origin.name.as_str())], origin)).collect();
    let servers: Vec<_> = origins
        .iter()
        .flat_map(|([origin], stats)| {
            stats.servers.iter().map(|server| ([*origin, ("server", server.address.as_str())], server))
        })
        .collect();
    let origins: Vec<_> = origins.iter().map(|(labels, origin)| (&labels[..], *origin)).collect();
    let servers: Vec<_> = servers.iter().map(|(labels, server)| (&labels[..], *server)).collect();
    text.snapshots(OriginStats::METRICS, &origins);
    text.snapshots(ServerStats::METRICS, &servers);
    text.snapshots(FrontendStats::METRICS, &[(&[], &stats.frontend)]);
    text.snapshots(ProxyStats::METRICS, &[(&[], stats)]);
    text.finish()
}
