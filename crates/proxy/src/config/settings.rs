//! The configuration in force: each setting once, with its name in the file and what a reload does with it.

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroUsize};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use stockade_cache::{Limit, Strategy};
use stockade_http::trusted_proxies::TrustedProxies;

use super::{
    AdminConfig, ClientBounds, ClientTimeouts, HostPattern, LogConfig, OriginConfig, RouteConfig, RouteTable,
    ShadowConfig, SharedTierUrl, SnapshotConfig, TlsFiles,
};

/// Declares [`Config`], and what follows from each setting.
macro_rules! settings {
    (
        settings { $($(#[$what:meta])* $field:ident: $type:ty = $name:literal, $applied:ident;)* }
        lists { $($(#[$list_what:meta])* $list:ident: Vec<$item:ty> = $list_name:literal;)* }
    ) => {
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $($(#[$what])* pub $field: $type,)*
            $($(#[$list_what])* pub $list: Vec<$item>,)*
        }

        /// Each setting by its name in the file, and what a reload does with it.
        pub const RELOADS: &[(&str, Reload)] =
            &[$(($name, settings!(@reload $applied)),)* $(($list_name, Reload::Applied),)*];

        impl Config {
            /// Every setting under its name in the file, including defaults, without secrets.
            #[must_use]
            pub fn shown(&self) -> Value {
                let mut shown = json!({});
                $(show(&mut shown, $name, &self.$field);)*
                $(show(&mut shown, $list_name, &self.$list);)*
                shown
            }

            /// This configuration where a reload can apply it, and `started` where not.
            #[must_use]
            pub fn reloadable(self, started: &Self) -> Self {
                Self { $($field: $applied(self.$field, &started.$field),)* $($list: self.$list,)* }
            }
        }

        /// The changed settings, in the file's order.
        #[must_use]
        pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
            let mut changes = Vec::new();
            let reloadable = new.clone().reloadable(old);
            $(if old.$field != new.$field {
                let needs_restart = reloadable.$field != new.$field;
                changes.push(Change { setting: $name.to_owned(), needs_restart });
            })*
            $(changes.extend(by_name($list_name, &old.$list, &new.$list, |item: &$item| &item.name));)*
            changes
        }
    };
    (@reload at_restart) => { Reload::NeedsRestart };
    (@reload at_reload) => { Reload::Applied };
    (@reload at_reload_if_kept) => { Reload::AppliedIfKept };
}

settings! {
    settings {
        /// At least one, here or in `listen_proxy_protocol`.
        listen: Vec<SocketAddr> = "listen", at_restart;
        /// Addresses where each connection begins with a header of the PROXY protocol.
        listen_proxy_protocol: Vec<SocketAddr> = "listen_proxy_protocol", at_restart;
        /// Load balancers and CDNs that name the client of a request.
        trusted_proxies: TrustedProxies = "trusted_proxies", at_restart;
        /// `None`: one per core.
        threads: Option<NonZeroUsize> = "threads", at_restart;
        /// Empty: all hosts.
        hosts: Vec<HostPattern> = "hosts", at_reload;
        // A listener cannot switch between TLS and plain text.
        tls: Option<TlsFiles> = "tls", at_reload_if_kept;
        /// `None`: no admin listener. A reload reads the token file in any case.
        admin: Option<AdminConfig> = "admin", at_restart;
        /// For all routes together.
        limit: Limit = "cache.limit", at_restart;
        /// The tier that several proxies share.
        shared: Option<SharedTierUrl> = "cache.shared", at_restart;
        /// `None`: there are no ghosts.
        shadow: Option<ShadowConfig> = "shadow", at_restart;
        /// `None`: a restart begins with an empty cache.
        snapshot: Option<SnapshotConfig> = "snapshot", at_restart;
        log: LogConfig = "log", at_reload_if_kept;
        timeouts: ClientTimeouts = "timeouts", at_restart;
        bounds: ClientBounds = "bounds", at_restart;
    }
    lists {
        /// At least one.
        origins: Vec<OriginConfig> = "origin";
        /// In the order of [`Config::route`].
        routes: Vec<RouteConfig> = "route";
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name in the file: `listen`, `cache.limit`, `origin.app`, `route./news/*`.
    pub setting: String,
    /// A reload does not apply it.
    pub needs_restart: bool,
}

/// The effect of a reload on a changed setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    NeedsRestart,
    Applied,
    /// Applied, unless the change switches the setting on or off: that needs a restart.
    AppliedIfKept,
}

fn at_restart<T: Clone>(_: T, started: &T) -> T {
    started.clone()
}

fn at_reload<T>(new: T, _: &T) -> T {
    new
}

/// A reload applies it, but switches nothing on or off.
fn at_reload_if_kept<T: Switch + Clone>(new: T, started: &T) -> T {
    if new.is_on() == started.is_on() { new } else { started.clone() }
}

/// A setting that may be off.
trait Switch {
    fn is_on(&self) -> bool;
}

impl<T> Switch for Option<T> {
    fn is_on(&self) -> bool {
        self.is_some()
    }
}

impl Switch for LogConfig {
    fn is_on(&self) -> bool {
        self.is_on()
    }
}

/// Adds a setting under its name, `TABLE.KEY` or `KEY`.
fn show(shown: &mut Value, name: &str, setting: &impl Serialize) {
    let setting = serde_json::to_value(setting).expect("names of settings are strings");
    match name.split_once('.') {
        Some((table, key)) => shown[table][key] = setting,
        None => shown[name] = setting,
    }
}

fn by_name<T: PartialEq>(kind: &str, old: &[T], new: &[T], name: impl Fn(&T) -> &String) -> Vec<Change> {
    let mut items: BTreeMap<&str, [Option<&T>; 2]> = BTreeMap::new();
    for (side, list) in [old, new].into_iter().enumerate() {
        list.iter().for_each(|item| items.entry(name(item)).or_default()[side] = Some(item));
    }
    let changed = items.into_iter().filter(|(_, [old, new])| old != new);
    changed.map(|(name, _)| Change { setting: format!("{kind}.{name}"), needs_restart: false }).collect()
}

/// As in the file, with the strategy in force as its cache block.
impl Serialize for RouteConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            #[serde(flatten)]
            table: &'a RouteTable,
            cache: &'a Strategy,
        }
        Shown { table: &self.table, cache: &self.strategy }.serialize(to)
    }
}
