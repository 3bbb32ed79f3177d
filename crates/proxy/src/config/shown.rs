//! The active configuration for the admin listener: every setting, no secrets.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Map, Value, json};
use stockade_cache::{
    AfterWait, Breaker, EvictionOrder, Fetch, GhostTtl, HedgeAfter, Limit, Refresh, StoreMode, Strategy,
    Writer,
};

use super::{
    AccessLogFormat, ClientDirectives, Config, OriginConfig, OriginKind, RouteConfig, SetCookie,
    ShadowConfig, UnsafeInvalidation,
};
use stockade_http::upstream::HostHeader;

impl Config {
    /// Every setting under its name in the file, including defaults. Times have a unit, sizes are in bytes.
    #[must_use]
    pub fn shown(&self) -> Value {
        let Self {
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
        } = self;
        json!({
            "listen": listen,
            "listen_proxy_protocol": listen_proxy_protocol,
            "trusted_proxies": trusted_proxies.networks().map(|network| network.to_string()).collect::<Vec<_>>(),
            "threads": threads.map_or(json!("one for each core"), |threads| json!(threads)),
            "hosts": texts(hosts),
            "tls": tls.as_ref().map(|tls| json!({ "cert": tls.certificates, "key": tls.key })),
            "admin": admin.as_ref().map(|admin| json!({
                "listen": admin.listen,
                "token_file": admin.token_file,
                "hosts": admin.hosts,
                "purge_from": texts(&admin.purge_from),
            })),
            "cache": {
                "limit": limit_shown(limit),
                "shared": shared.as_ref().map(ToString::to_string),
            },
            "shadow": shadow.as_ref().map(shadow_shown),
            "snapshot": snapshot.as_ref().map(|snapshot| json!({
                "path": snapshot.path,
                "every": time(snapshot.every),
            })),
            "log": {
                "format": match log.as_ref().map(|log| log.format) {
                    None => "none",
                    Some(AccessLogFormat::Json) => "json",
                    Some(AccessLogFormat::Combined) => "combined",
                },
                "path": log.as_ref().and_then(|log| log.path.as_ref()),
                "mask_query": log.as_ref().map(|log| texts(&log.masked_query)),
            },
            "timeouts": {
                "head": time(timeouts.head),
                "body": time(timeouts.body),
                "write": time(timeouts.write),
                "idle": time(timeouts.idle),
                "total": time_or_none(timeouts.total),
                "drain": time(timeouts.drain),
                "shutdown_delay": time(timeouts.shutdown_delay),
            },
            "bounds": {
                "head_bytes": bounds.head_bytes,
                "headers": bounds.headers,
                "body_bytes": bounds.body_bytes,
                "connections": bounds.connections,
                "connections_per_client": bounds.connections_per_client,
                "requests_per_client": bounds.client_rate.map_or("none".to_owned(), |bound| bound.rate.to_string()),
                "burst_per_client": bounds.client_rate.map(|bound| bound.burst),
                "client_prefix": {
                    "ipv4": bounds.client_prefix.ipv4_bits,
                    "ipv6": bounds.client_prefix.ipv6_bits,
                },
                "streams": bounds.streams,
            },
            "origin": origins.iter().map(origin_shown).collect::<Vec<_>>(),
            "route": routes.iter().map(|route| self.route_shown(route)).collect::<Vec<_>>(),
        })
    }

    fn route_shown(&self, route: &RouteConfig) -> Value {
        let RouteConfig {
            name: _,
            host,
            path,
            origin,
            strategy,
            ttl,
            ttl_default,
            ttl_statuses,
            set_cookie,
            tag_headers,
            ignored_query,
            client_directives,
            unsafe_invalidation,
        } = route;
        json!({
            "host": host.as_ref().map(ToString::to_string),
            "path": path.to_string(),
            "origin": self.origins.get(*origin).map(|origin| origin.name.as_str()),
            "ttl": ttl.map(time),
            "default_ttl": ttl_default.map(time),
            "ttl_statuses": ttl_statuses.iter().map(StatusCode::as_u16).collect::<Vec<_>>(),
            "set_cookie": match set_cookie {
                SetCookie::Refuse => "refuse",
                SetCookie::Strip => "strip",
                SetCookie::Store => "store",
            },
            "negative_ttl": strategy.negative_ttl.map(time),
            "tag_headers": texts(tag_headers),
            "ignore_query": texts(ignored_query),
            "client_directives": match client_directives {
                ClientDirectives::Obey => "obey",
                ClientDirectives::Ignore => "ignore",
            },
            "invalidate_on_unsafe": match unsafe_invalidation {
                UnsafeInvalidation::Fallback => "fallback",
                UnsafeInvalidation::Remove => "remove",
                UnsafeInvalidation::None => "none",
            },
            "cache": strategy_shown(strategy),
        })
    }
}

fn texts(list: &[impl ToString]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

/// Exact, in the file's format.
fn time(time: Duration) -> String {
    match (time.as_secs(), time.subsec_nanos()) {
        (0, 0) => "0s".to_owned(),
        (seconds, 0) => format!("{seconds}s"),
        (_, nanos) if nanos % 1_000_000 == 0 => format!("{}ms", time.as_millis()),
        _ => format!("{}ns", time.as_nanos()),
    }
}

fn time_or_none(until: Option<Duration>) -> String {
    until.map_or("none".to_owned(), time)
}

fn shadow_shown(shadow: &ShadowConfig) -> Value {
    let ShadowConfig { sizes, policies, ttls, keys_max } = shadow;
    json!({
        "sizes": texts(sizes),
        "policies": policies.as_ref().map_or(json!("all others"), |policies| {
            json!(policies.iter().map(|policy| policy.name).collect::<Vec<_>>())
        }),
        "ttls": ttls.iter().map(|ttl| match ttl {
            GhostTtl::Same => "1x".to_owned(),
            GhostTtl::Fixed(ttl) => time(*ttl),
            GhostTtl::Times(times) => format!("{times}x"),
        }).collect::<Vec<_>>(),
        "keys": keys_max,
    })
}

fn limit_shown(limit: &Limit) -> Value {
    let Limit { entries, bytes, max_object, policy, reclaim, order } = limit;
    json!({
        "entries": entries,
        "bytes": bytes,
        "max_object": max_object,
        "policy": policy.name,
        "reclaim": reclaim,
        "order": match order {
            EvictionOrder::PerShard => "per-shard",
            EvictionOrder::Global => "global",
        },
    })
}

fn origin_shown(origin: &OriginConfig) -> Value {
    let mut shown = Map::new();
    shown.insert("name".to_owned(), json!(origin.name));
    let settings = match &origin.kind {
        OriginKind::Documents { source, connections } => {
            json!({ "url": source.to_string(), "connections": connections })
        }
        OriginKind::Http(http) => json!({
            "urls": texts(&http.urls),
            "connections": http.connections,
            "waiting": http.waiting,
            "head_bytes": http.head_bytes,
            "headers": http.headers,
            "timeouts": {
                "connect": time(http.timeouts.connect),
                "head": time(http.timeouts.head),
                "body": time(http.timeouts.body),
                "idle": time(http.timeouts.idle),
                "max_age": time(http.timeouts.max_age),
            },
            "http2": http.is_http2,
            "ca": http.ca,
            "host_header": match http.host_header {
                HostHeader::Client => "client",
                HostHeader::Origin => "origin",
            },
            "health": {
                "failures": http.health.failures,
                "rest": time(http.health.rest),
                "probe": http.health.probe.as_ref().map(|probe| json!({
                    "path": probe.path,
                    "every": time(probe.every),
                    "timeout": time(probe.timeout),
                    "successes": probe.successes,
                })),
            },
        }),
    };
    if let Value::Object(settings) = settings {
        shown.extend(settings);
    }
    shown.into()
}

fn strategy_shown(strategy: &Strategy) -> Value {
    // The limit belongs to all routes, the negative ttl to the route.
    let Strategy {
        fetch,
        load,
        store,
        refresh,
        ttl,
        jitter,
        swr,
        sie,
        negative_ttl: _,
        throttle,
        breaker,
        writer,
        limit: _,
    } = strategy;
    json!({
        "fetch": match fetch {
            Fetch::Independent => json!("independent"),
            Fetch::Coalesce { wait_timeout, then, .. } => {
                let then = match then {
                    AfterWait::Error => "error",
                    AfterWait::Load => "load",
                };
                json!({ "coalesce": { "wait_timeout": time(*wait_timeout), "then": then } })
            }
        },
        "load": {
            "deadline": time(load.deadline),
            "soft_timeout": time_or_none(load.soft_timeout),
            "hedge_after": match load.hedge_after {
                None => "none".to_owned(),
                Some(HedgeAfter::Time(after)) => time(after),
                Some(_) => "learned".to_owned(),
            },
            "max_concurrent": load.max_concurrent,
            "queue": load.queue,
        },
        "store": match store {
            StoreMode::Sync => "sync",
            StoreMode::Async => "async",
            StoreMode::LockedAsync => "locked-async",
        },
        "refresh": match refresh {
            Refresh::None => json!("none"),
            Refresh::Early { at } => json!({ "early": { "at": at } }),
            Refresh::XFetch { beta } => json!({ "xfetch": { "beta": beta } }),
        },
        "ttl": time_or_none(*ttl),
        "jitter": jitter,
        "swr": time(*swr),
        "sie": time(*sie),
        "throttle": time(*throttle),
        "breaker": breaker.as_ref().map_or(json!("none"), breaker_shown),
        "writer": match writer {
            Writer::Direct => json!("direct"),
            Writer::Mailbox { cost, call_timeout, capacity } => json!({ "mailbox": {
                "cost": time(*cost),
                "call_timeout": time(*call_timeout),
                "capacity": capacity,
            } }),
        },
    })
}

fn breaker_shown(breaker: &Breaker) -> Value {
    let Breaker { errors_rate, period, min_calls, open_for, wait, probes, ramp } = breaker;
    json!({
        "errors_rate": errors_rate,
        "period": time(*period),
        "min_calls": min_calls,
        "open_for": time(*open_for),
        "wait": time(*wait),
        "probes": probes,
        "ramp": time(*ramp),
    })
}
