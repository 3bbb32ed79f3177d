//! Remedies in the words of each server's configuration.

use crate::answer::Mark;

/// By server and question. Sources: the documentation of `ngx_http_proxy_module`, of `HAProxy` 2.6 (section 6, Cache), of Varnish 7.1
/// (built-in VCL, grace), of Squid 5 (`collapsed_forwarding`) and of Traffic Server 9.2 (`proxy.config.http.cache`).
const REMEDIES: &[(&str, &str, &str)] = &[
    ("nginx", "herd.cold", "proxy_cache_lock on;"),
    (
        "nginx",
        "herd.expired",
        "proxy_cache_use_stale updating; proxy_cache_background_update on; proxy_cache_lock on;",
    ),
    ("nginx", "herd.slow", "proxy_cache_lock on; proxy_cache_lock_timeout 60s; proxy_cache_lock_age 60s;"),
    (
        "nginx",
        "herd.uncacheable",
        "proxy_cache_bypass or proxy_no_cache for such paths: proxy_cache_lock makes users wait",
    ),
    ("nginx", "herd.leader-stalls", "proxy_cache_lock_age 2s; proxy_read_timeout 5s;"),
    ("nginx", "herd.leader-reset", "proxy_cache_lock on;"),
    ("nginx", "herd.leader-cancelled", "proxy_ignore_client_abort on; proxy_cache_lock on;"),
    ("varnish", "herd.leader-stalls", "set bereq.first_byte_timeout = 5s; in vcl_backend_fetch"),
    ("varnish", "herd.expired", "set beresp.grace = 1h; in vcl_backend_response"),
    (
        "varnish",
        "herd.uncacheable",
        "set beresp.uncacheable = true; set beresp.ttl = 2m; in vcl_backend_response (hit-for-miss)",
    ),
    (
        "haproxy",
        "herd.cold",
        "HAProxy's cache does not coalesce: put Varnish, nginx or stockade proxy behind it",
    ),
    (
        "haproxy",
        "herd.expired",
        "HAProxy's cache does not coalesce: put Varnish, nginx or stockade proxy behind it",
    ),
    (
        "haproxy",
        "herd.slow",
        "HAProxy's cache does not coalesce: put Varnish, nginx or stockade proxy behind it",
    ),
    ("squid", "herd.cold", "collapsed_forwarding on"),
    ("squid", "herd.expired", "collapsed_forwarding on"),
    ("squid", "herd.slow", "collapsed_forwarding on"),
    ("squid", "herd.leader-cancelled", "collapsed_forwarding on; quick_abort_min -1 KB"),
    (
        "trafficserver",
        "herd.cold",
        "CONFIG proxy.config.http.cache.open_write_fail_action INT 5; CONFIG proxy.config.cache.enable_read_while_writer INT 1",
    ),
    ("trafficserver", "herd.expired", "CONFIG proxy.config.http.cache.open_write_fail_action INT 5"),
];

/// The remedy for an answer that is not the best, if the server is known to have one.
pub(crate) fn remedy(server: Option<&str>, question: &str, mark: Mark) -> Option<&'static str> {
    let is_needed = matches!(mark, Mark::Weak | Mark::Wrong);
    let is_it = |(name, id, _): &&(&str, &str, &str)| Some(*name) == server && *id == question;
    REMEDIES.iter().filter(|_| is_needed).find(is_it).map(|(_, _, remedy)| *remedy)
}
