//! Changed settings, and which of them a reload cannot apply.

use std::collections::BTreeMap;

use super::{Config, OriginConfig, OriginKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name in the file: `listen`, `cache.limit`, `origin.app`, `route./news/*`.
    pub setting: String,
    /// A reload does not apply it.
    pub needs_restart: bool,
}

/// The changed settings, in the file's order.
///
/// A reload applies routes, origins, hosts, certificates and the log's file. Listeners, threads, the cache limit, bounds
/// and timeouts need a restart.
#[must_use]
pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    let reloadable = new.clone().reloadable(old);
    // Exhaustive, so that a new field is not forgotten.
    let Config {
        listen,
        listen_proxy_protocol,
        trusted_proxies,
        threads,
        tls,
        admin,
        hosts,
        limit,
        shared,
        shadow,
        snapshot,
        log,
        timeouts,
        bounds,
        origins,
        routes,
    } = new;
    let mut differs = |setting: &str, is_different: bool, is_reloadable: bool| {
        if is_different {
            changes.push(Change { setting: setting.to_owned(), needs_restart: !is_reloadable });
        }
    };
    differs("listen", old.listen != *listen, reloadable.listen == *listen);
    differs(
        "listen_proxy_protocol",
        old.listen_proxy_protocol != *listen_proxy_protocol,
        reloadable.listen_proxy_protocol == *listen_proxy_protocol,
    );
    differs(
        "trusted_proxies",
        old.trusted_proxies != *trusted_proxies,
        reloadable.trusted_proxies == *trusted_proxies,
    );
    differs("threads", old.threads != *threads, reloadable.threads == *threads);
    differs("hosts", old.hosts != *hosts, reloadable.hosts == *hosts);
    differs("tls", old.tls != *tls, reloadable.tls == *tls);
    // A reload reads the token file in any case.
    differs("admin", old.admin != *admin, reloadable.admin == *admin);
    differs("cache.limit", old.limit != *limit, reloadable.limit == *limit);
    differs("cache.shared", old.shared != *shared, reloadable.shared == *shared);
    differs("shadow", old.shadow != *shadow, reloadable.shadow == *shadow);
    differs("snapshot", old.snapshot != *snapshot, reloadable.snapshot == *snapshot);
    differs("log", old.log != *log, reloadable.log == *log);
    differs("timeouts", old.timeouts != *timeouts, reloadable.timeouts == *timeouts);
    differs("bounds", old.bounds != *bounds, reloadable.bounds == *bounds);
    changes.extend(named(
        "origin",
        old.origins.iter().map(|origin| (origin.name.as_str(), origin)),
        origins.iter().map(|origin| (origin.name.as_str(), origin)),
        |old, new| old == new,
    ));
    // Indices of origins may differ between the files.
    let origin =
        |config: &Config, number: usize| config.origins.get(number).map(|origin| origin.name.clone());
    changes.extend(named(
        "route",
        old.routes.iter().map(|route| (route.name.as_str(), route)),
        routes.iter().map(|route| (route.name.as_str(), route)),
        |before, after| origin(old, before.origin) == origin(new, after.origin) && before.is_same(after),
    ));
    changes
}

impl Config {
    /// This configuration where a reload can apply it, and `started` where not.
    #[must_use]
    pub fn reloadable(self, started: &Self) -> Self {
        let Self { tls, log, hosts, origins, routes, .. } = self;
        // A listener cannot switch between TLS and plain text.
        let tls = if tls.is_some() == started.tls.is_some() { tls } else { started.tls.clone() };
        let log = if log.is_some() == started.log.is_some() { log } else { started.log.clone() };
        Self { tls, hosts, log, origins, routes, ..started.clone() }
    }
}

fn named<'a, T: 'a>(
    kind: &str,
    old: impl Iterator<Item = (&'a str, &'a T)>,
    new: impl Iterator<Item = (&'a str, &'a T)>,
    is_same: impl Fn(&T, &T) -> bool,
) -> Vec<Change> {
    let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) = (old.collect(), new.collect());
    let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    let differs = |name: &&str| match (old.get(name), new.get(name)) {
        (Some(old), Some(new)) => !is_same(old, new),
        _ => true,
    };
    let change = |name| Change { setting: format!("{kind}.{name}"), needs_restart: false };
    names.into_iter().filter(differs).map(change).collect()
}

impl OriginConfig {
    #[must_use]
    pub fn is_http(&self) -> bool {
        matches!(self.kind, OriginKind::Http(_))
    }
}
