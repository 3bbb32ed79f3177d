//! What a reload cannot change.

use std::collections::BTreeMap;

use super::{Config, Kind, Origin};

/// A setting that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// As the file calls it: `listen`, `cache.limit`, `origin.app`, `route./news/*`.
    pub setting: String,
    /// Whether it takes a new start, because a reload leaves it as it is.
    pub needs_restart: bool,
}

/// Every setting in which `new` differs from `old`, in the file's order.
///
/// A reload takes up the routes, the origins, the names that are answered, certificates, and where the log is. What is
/// bound or divided up at the start needs a new one: listeners, threads, the memory, the bounds and timeouts that
/// connections live by.
#[must_use]
pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    let taken_up = new.clone().without_a_restart(old);
    // Every field: one that is added has to be thought of here.
    let Config { listen, threads, tls, admin, hosts, limit, shared, log, timeouts, bounds, origins, routes } =
        new;
    let mut differs = |setting: &str, is_different: bool, is_taken_up: bool| {
        if is_different {
            changes.push(Change { setting: setting.to_owned(), needs_restart: !is_taken_up });
        }
    };
    differs("listen", old.listen != *listen, taken_up.listen == *listen);
    differs("threads", old.threads != *threads, taken_up.threads == *threads);
    differs("hosts", old.hosts != *hosts, taken_up.hosts == *hosts);
    differs("tls", old.tls != *tls, taken_up.tls == *tls);
    // What is in the token's file is read again all the same.
    differs("admin", old.admin != *admin, taken_up.admin == *admin);
    differs("cache.limit", old.limit != *limit, taken_up.limit == *limit);
    differs("cache.shared", old.shared != *shared, taken_up.shared == *shared);
    differs("log", old.log != *log, taken_up.log == *log);
    differs("timeouts", old.timeouts != *timeouts, taken_up.timeouts == *timeouts);
    differs("bounds", old.bounds != *bounds, taken_up.bounds == *bounds);
    changes.extend(named(
        "origin",
        old.origins.iter().map(|origin| (origin.name.as_str(), origin)),
        origins.iter().map(|origin| (origin.name.as_str(), origin)),
        |old, new| old == new,
    ));
    // An origin may have another number in the other file.
    let origin =
        |config: &Config, number: usize| config.origins.get(number).map(|origin| origin.name.clone());
    changes.extend(named(
        "route",
        old.routes.iter().map(|route| (route.name.as_str(), route)),
        routes.iter().map(|route| (route.name.as_str(), route)),
        |before, after| {
            origin(old, before.origin) == origin(new, after.origin) && before.says_the_same(after)
        },
    ));
    changes
}

impl Config {
    /// What of it can be in force without a new start, and the rest as it was at the last one.
    #[must_use]
    pub fn without_a_restart(self, started: &Self) -> Self {
        let Self { tls, log, hosts, origins, routes, .. } = self;
        // Other certificates are taken up; whether there are any is the listener's.
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

impl Origin {
    /// Whether it is asked over HTTP.
    #[must_use]
    pub fn is_http(&self) -> bool {
        matches!(self.kind, Kind::Http(_))
    }
}
