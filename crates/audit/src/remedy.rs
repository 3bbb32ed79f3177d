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
    // Integrity, purges and limits.
    ("nginx", "integrity.chunked-cut", "proxy_http_version 1.1; proxy_set_header Connection \"\";"),
    ("nginx", "integrity.error-stored", "proxy_cache_valid without `any`, 500 and 503"),
    ("nginx", "integrity.gone", "proxy_cache_use_stale without http_404"),
    ("nginx", "integrity.post-retry", "proxy_next_upstream without non_idempotent"),
    (
        "nginx",
        "integrity.connection-fields",
        "proxy_hide_header NAME; proxy_set_header NAME \"\"; for each field that `Connection` may name",
    ),
    (
        "nginx",
        "limits.long-field",
        "proxy_buffer_size 16k; proxy_buffers 8 16k; large_client_header_buffers 4 16k;",
    ),
    ("nginx", "limits.long-url", "large_client_header_buffers 4 16k;"),
    (
        "varnish",
        "purge.post",
        "ban(\"req.url == \" + bereq.url); in vcl_backend_response if bereq.method is POST, PUT or DELETE",
    ),
    ("varnish", "limits.many-fields", "varnishd -p http_max_hdr=256"),
    ("varnish", "limits.long-field", "varnishd -p http_req_hdr_len=16k -p http_resp_hdr_len=16k"),
    (
        "haproxy",
        "integrity.connection-fields",
        "http-request del-header NAME, and http-response del-header NAME before cache-store",
    ),
    (
        "haproxy",
        "integrity.post-retry",
        "http-request disable-l7-retry if METH_POST, or retry-on without empty-response",
    ),
    ("haproxy", "limits.large", "total-max-size 256 and max-object-size 67108864 in the cache section"),
    ("haproxy", "limits.many-fields", "tune.http.maxhdr 256"),
    ("haproxy", "limits.long-field", "tune.bufsize 32768"),
    ("squid", "integrity.error-stored", "negative_ttl 0 seconds"),
    ("squid", "limits.large", "maximum_object_size 64 MB; maximum_object_size_in_memory 64 MB"),
    ("trafficserver", "integrity.error-stored", "CONFIG proxy.config.http.negative_caching_enabled INT 0"),
];

/// The remedy for an answer that is not the best, if the server is known to have one.
pub(crate) fn remedy(server: Option<&str>, question: &str, mark: Mark) -> Option<&'static str> {
    let is_needed = matches!(mark, Mark::Weak | Mark::Wrong);
    let is_it = |(name, id, _): &&(&str, &str, &str)| Some(*name) == server && *id == question;
    REMEDIES.iter().filter(|_| is_needed).find(is_it).map(|(_, _, remedy)| *remedy)
}
