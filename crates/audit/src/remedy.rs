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
    // Privacy, variants and keys: also `header_rewrite` of Traffic Server, and `cache` and `request_header_access` of Squid.
    (
        "nginx",
        "privacy.authorization",
        "proxy_cache_bypass $http_authorization; proxy_no_cache $http_authorization;",
    ),
    (
        "nginx",
        "privacy.many-users",
        "proxy_cache_bypass $http_authorization; proxy_no_cache $http_authorization;",
    ),
    ("nginx", "privacy.cookies", "proxy_cache_bypass $http_cookie; proxy_no_cache $http_cookie;"),
    ("nginx", "privacy.private", "remove Cache-Control from proxy_ignore_headers"),
    ("nginx", "privacy.no-store", "remove Cache-Control from proxy_ignore_headers"),
    ("nginx", "privacy.zero-lifetime", "remove Cache-Control from proxy_ignore_headers"),
    ("nginx", "privacy.qualified", "remove Cache-Control and Set-Cookie from proxy_ignore_headers"),
    ("nginx", "privacy.set-cookie", "remove Set-Cookie from proxy_ignore_headers"),
    ("nginx", "variants.vary", "remove Vary from proxy_ignore_headers"),
    ("nginx", "variants.vary-star", "remove Vary from proxy_ignore_headers"),
    ("nginx", "variants.encodings", "remove Vary from proxy_ignore_headers"),
    ("nginx", "variants.many", "remove Vary from proxy_ignore_headers"),
    ("nginx", "variants.304-fields", "proxy_cache_revalidate off;"),
    ("nginx", "keys.query", "proxy_cache_key $scheme$host$request_uri;"),
    ("nginx", "keys.slashes", "proxy_cache_key $scheme$host$request_uri;"),
    ("nginx", "keys.long", "proxy_cache_key $scheme$host$request_uri;"),
    ("nginx", "keys.host", "proxy_cache_key $scheme$host$request_uri;"),
    ("nginx", "keys.unkeyed", "proxy_set_header X-Forwarded-Host \"\"; and the same for each of the others"),
    ("nginx", "keys.methods", "proxy_cache_methods GET HEAD;"),
    (
        "varnish",
        "privacy.authorization",
        "no return (hash) in vcl_recv for requests with Authorization: the built-in VCL passes them",
    ),
    (
        "varnish",
        "privacy.cookies",
        "no return (hash) in vcl_recv for requests with Cookie: the built-in VCL passes them",
    ),
    (
        "varnish",
        "keys.unkeyed",
        "unset req.http.X-Forwarded-Host; in vcl_recv, and the same for each of the others",
    ),
    (
        "haproxy",
        "privacy.cookies",
        "http-request set-var(txn.cookie) req.hdr(cookie); http-request cache-use pages if !{ var(txn.cookie) -m found }; http-response cache-store pages if !{ var(txn.cookie) -m found }",
    ),
    ("haproxy", "privacy.set-cookie", "http-response cache-store pages if !{ res.hdr(set-cookie) -m found }"),
    (
        "haproxy",
        "privacy.qualified",
        "http-response cache-store pages if !{ res.fhdr(cache-control) -m sub private= }",
    ),
    (
        "haproxy",
        "variants.encodings",
        "process-vary on; http-request set-header Accept-Encoding identity if !{ req.hdr(accept-encoding) -m found } before cache-use",
    ),
    (
        "haproxy",
        "variants.vary",
        "process-vary on is for Accept-Encoding and Referer: HAProxy stores no page that varies by another field",
    ),
    (
        "haproxy",
        "variants.many",
        "process-vary on is for Accept-Encoding and Referer: HAProxy stores no page that varies by another field",
    ),
    (
        "haproxy",
        "keys.unkeyed",
        "http-request del-header X-Forwarded-Host before cache-use, and the same for each of the others",
    ),
    ("squid", "privacy.cookies", "acl cookies req_header Cookie . and cache deny cookies"),
    (
        "squid",
        "keys.unkeyed",
        "request_header_access X-Forwarded-Host deny all, and the same for each of the others",
    ),
    (
        "trafficserver",
        "privacy.authorization",
        "header_rewrite.so with the rule: cond %{READ_RESPONSE_HDR_HOOK} [AND] cond %{CLIENT-HEADER:Authorization} /./ set-header Cache-Control private",
    ),
    ("trafficserver", "privacy.cookies", "CONFIG proxy.config.http.cache.cache_responses_to_cookies INT 0"),
    ("trafficserver", "variants.many", "CONFIG proxy.config.cache.limits.http.max_alts INT 200"),
    (
        "trafficserver",
        "keys.unkeyed",
        "header_rewrite.so with the rule: cond %{READ_REQUEST_HDR_HOOK} rm-header X-Forwarded-Host, and the same for each of the others",
    ),
];

/// The remedy for an answer that is not the best, if the server is known to have one.
pub(crate) fn remedy(server: Option<&str>, question: &str, mark: Mark) -> Option<&'static str> {
    let is_needed = matches!(mark, Mark::Weak | Mark::Wrong);
    let is_it = |(name, id, _): &&(&str, &str, &str)| Some(*name) == server && *id == question;
    REMEDIES.iter().filter(|_| is_needed).find(is_it).map(|(_, _, remedy)| *remedy)
}
