//! Remedies in the words of each server's configuration.

use std::borrow::Cow;

use crate::answer::Mark;

/// By server, then in the order of the questions, for nginx 1.22, Varnish 7.1, `HAProxy` 2.6, Squid 5 and Traffic Server 9.2. Each was
/// compared with the documentation or the source of its version; `docs/results/audit/explained.md` has the reasons. Each that is not in
/// `NOT_TRIED` improved the answer in an audit, most of them in `docs/results/audit/remedied`.
const REMEDIES: &[(&str, &str, &str)] = &[
    ("nginx", "herd.cold", NGINX_LOCK),
    (
        "nginx",
        "herd.expired",
        "proxy_cache_use_stale updating; proxy_cache_background_update on; # old pages are served for any time",
    ),
    ("nginx", "herd.uncacheable", "proxy_cache_bypass for such paths: proxy_cache_lock makes users wait"),
    ("nginx", "herd.slow", "proxy_cache_lock on; proxy_cache_lock_timeout 60s; proxy_cache_lock_age 5s;"),
    ("nginx", "herd.leader-stalls", "proxy_cache_lock_age 5s;"),
    ("nginx", "herd.leader-reset", NGINX_LOCK),
    ("nginx", "herd.leader-cancelled", "proxy_ignore_client_abort on; proxy_cache_lock on;"),
    ("nginx", "outage.errors", NGINX_REFRESH),
    ("nginx", "outage.reset", NGINX_STALE),
    ("nginx", "outage.silence", NGINX_REFRESH),
    ("nginx", "outage.slow", NGINX_REFRESH),
    ("nginx", "outage.flapping", NGINX_STALE),
    (
        "nginx",
        "freshness.clock",
        "proxy_ignore_headers Expires; # pages whose only lifetime is Expires are then not stored",
    ),
    (
        "nginx",
        "freshness.age-of-origin",
        "proxy_no_cache $upstream_http_age; # such pages are then not stored",
    ),
    (
        "nginx",
        "freshness.validation",
        "proxy_cache_revalidate on; the fields of a 304 then do not replace those of the stored page",
    ),
    ("nginx", "freshness.stale-while-revalidate", NGINX_REFRESH),
    ("nginx", "privacy.authorization", NGINX_NO_AUTHORIZATION),
    ("nginx", "privacy.private", NGINX_CACHE_CONTROL),
    ("nginx", "privacy.no-store", NGINX_CACHE_CONTROL),
    ("nginx", "privacy.zero-lifetime", NGINX_CACHE_CONTROL),
    ("nginx", "privacy.cookies", "proxy_cache_bypass $http_cookie; proxy_no_cache $http_cookie;"),
    ("nginx", "privacy.set-cookie", "remove Set-Cookie from proxy_ignore_headers"),
    ("nginx", "privacy.qualified", "remove Cache-Control and Set-Cookie from proxy_ignore_headers"),
    ("nginx", "privacy.many-users", NGINX_NO_AUTHORIZATION),
    ("nginx", "variants.vary", NGINX_VARY),
    ("nginx", "variants.vary-star", NGINX_VARY),
    ("nginx", "variants.encodings", NGINX_VARY),
    ("nginx", "variants.many", NGINX_VARY),
    ("nginx", "variants.304-fields", "proxy_cache_revalidate off;"),
    ("nginx", "integrity.chunked-cut", "proxy_http_version 1.1; proxy_set_header Connection \"\";"),
    ("nginx", "integrity.two-lengths", "nginx 1.23.0 or later, which refuses the response"),
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
        "purge.post",
        "ngx_cache_purge (Debian: libnginx-mod-http-cache-purge), and an origin that sends PURGE after a change",
    ),
    (
        "nginx",
        "limits.long-field",
        "proxy_buffer_size 16k; proxy_buffers 8 16k; large_client_header_buffers 4 16k;",
    ),
    ("nginx", "limits.long-url", "large_client_header_buffers 4 16k;"),
    ("nginx", "keys.query", NGINX_KEY),
    ("nginx", "keys.slashes", NGINX_KEY),
    ("nginx", "keys.long", NGINX_KEY),
    ("nginx", "keys.host", NGINX_KEY),
    (
        "nginx",
        "keys.unkeyed",
        "proxy_set_header X-Forwarded-Host \"\"; # and the same for each of the others",
    ),
    ("nginx", "keys.methods", "proxy_cache_methods GET HEAD;"),
    ("varnish", "herd.expired", "set beresp.grace = 1h; in vcl_backend_response"),
    (
        "varnish",
        "herd.uncacheable",
        "set beresp.uncacheable = true; set beresp.ttl = 2m; in vcl_backend_response (hit-for-miss)",
    ),
    (
        "varnish",
        "herd.leader-stalls",
        "set bereq.first_byte_timeout = 5s; in vcl_backend_fetch, and if (bereq.method == \"GET\" && bereq.retries == 0) { return (retry); } in vcl_backend_error",
    ),
    (
        "varnish",
        "herd.leader-reset",
        "set beresp.do_stream = false; in vcl_backend_response, and if (bereq.method == \"GET\" && bereq.retries == 0) { return (retry); } in vcl_backend_error",
    ),
    ("varnish", "outage.errors", VARNISH_ABANDON),
    (
        "varnish",
        "outage.must-revalidate",
        "if (beresp.http.Cache-Control ~ \"(must|proxy)-revalidate\") { set beresp.grace = 0s; } in vcl_backend_response",
    ),
    ("varnish", "outage.flapping", VARNISH_ABANDON),
    ("varnish", "freshness.max-age", VARNISH_GRACE),
    ("varnish", "freshness.s-maxage", VARNISH_GRACE),
    ("varnish", "freshness.expires", VARNISH_GRACE),
    (
        "varnish",
        "freshness.expires-0",
        "if (beresp.http.Expires == \"0\" && beresp.http.Cache-Control !~ \"max-?age=\") { set beresp.uncacheable = true; } in vcl_backend_response",
    ),
    ("varnish", "freshness.clock", VARNISH_GRACE),
    ("varnish", "freshness.age-of-origin", VARNISH_GRACE),
    ("varnish", "freshness.heuristic", VARNISH_TTL),
    ("varnish", "freshness.no-lifetime", VARNISH_TTL),
    (
        "varnish",
        "privacy.authorization",
        "do not return (hash) in vcl_recv for requests with Authorization: the built-in VCL passes them",
    ),
    (
        "varnish",
        "privacy.cookies",
        "do not return (hash) in vcl_recv for requests with Cookie: the built-in VCL passes them",
    ),
    (
        "varnish",
        "integrity.two-lengths",
        "import std; std.collect(beresp.http.Content-Length); if (beresp.http.Content-Length ~ \",\") { return (error(502)); } in vcl_backend_response",
    ),
    (
        "varnish",
        "integrity.post-retry",
        "set bereq.http.Connection = \"close\"; in vcl_backend_fetch: no connection is used twice",
    ),
    (
        "varnish",
        "purge.post",
        "if (bereq.method ~ \"^(POST|PUT|DELETE|PATCH)$\" && beresp.status < 400) { ban(\"req.http.host == \" + bereq.http.host + \" && req.url == \" + bereq.url); } in vcl_backend_response",
    ),
    ("varnish", "limits.long-field", "varnishd -p http_req_hdr_len=16k -p http_resp_hdr_len=16k"),
    ("varnish", "limits.many-fields", "varnishd -p http_max_hdr=256"),
    (
        "varnish",
        "keys.unkeyed",
        "unset req.http.X-Forwarded-Host; in vcl_recv, and the same for each of the others",
    ),
    ("haproxy", "herd.cold", HAPROXY_LOADS_EACH),
    ("haproxy", "herd.expired", HAPROXY_LOADS_EACH),
    ("haproxy", "herd.refresh", HAPROXY_LOADS_EACH),
    ("haproxy", "herd.slow", HAPROXY_LOADS_EACH),
    ("haproxy", "herd.leader-reset", HAPROXY_LOADS_EACH),
    ("haproxy", "herd.leader-cancelled", HAPROXY_LOADS_EACH),
    ("haproxy", "outage.errors", HAPROXY_NO_STALE),
    ("haproxy", "outage.reset", HAPROXY_NO_STALE),
    ("haproxy", "outage.silence", HAPROXY_NO_STALE),
    ("haproxy", "outage.slow", HAPROXY_NO_STALE),
    (
        "haproxy",
        "outage.flapping",
        "retries 1; retry-on conn-failure empty-response 503; http-request disable-l7-retry if METH_POST",
    ),
    ("haproxy", "freshness.clock", HAPROXY_MAX_AGE),
    (
        "haproxy",
        "freshness.age-of-origin",
        "http-response cache-store pages if !{ res.hdr(age) -m int gt 0 }",
    ),
    ("haproxy", "freshness.heuristic", HAPROXY_MAX_AGE),
    ("haproxy", "freshness.stale-while-revalidate", HAPROXY_NO_STALE),
    (
        "haproxy",
        "privacy.cookies",
        "http-request cache-use pages unless METH_GET { req.hdr(cookie) -m found }; cache-store then stores no such page",
    ),
    ("haproxy", "privacy.set-cookie", "http-response cache-store pages if !{ res.hdr(set-cookie) -m found }"),
    (
        "haproxy",
        "privacy.qualified",
        "http-response cache-store pages if !{ res.fhdr(cache-control) -m sub -i private= no-cache= }",
    ),
    ("haproxy", "variants.vary", HAPROXY_VARY),
    (
        "haproxy",
        "variants.encodings",
        "process-vary on; http-request set-header Accept-Encoding identity if !{ req.hdr(accept-encoding) -m found } before cache-use",
    ),
    ("haproxy", "variants.many", HAPROXY_VARY),
    (
        "haproxy",
        "integrity.post-retry",
        "http-request disable-l7-retry if METH_POST, or retry-on without empty-response",
    ),
    (
        "haproxy",
        "integrity.connection-fields",
        "http-request del-header NAME, and http-response del-header NAME before cache-store",
    ),
    ("haproxy", "limits.large", "total-max-size 256 and max-object-size 67108864 in the cache section"),
    ("haproxy", "limits.long-field", "tune.bufsize 32768"),
    ("haproxy", "limits.many-fields", "tune.http.maxhdr 256"),
    (
        "haproxy",
        "keys.unkeyed",
        "http-request del-header X-Forwarded-Host before cache-use, and the same for each of the others",
    ),
    ("squid", "herd.cold", SQUID_COALESCING),
    ("squid", "herd.expired", SQUID_COALESCING),
    ("squid", "herd.refresh", SQUID_COALESCING),
    ("squid", "herd.slow", SQUID_COALESCING),
    ("squid", "herd.leader-cancelled", SQUID_COALESCING),
    ("squid", "outage.errors", SQUID_PATTERN),
    ("squid", "outage.reset", SQUID_PATTERN),
    ("squid", "outage.silence", "read_timeout 2 seconds; refresh_pattern . 0 10% 4320"),
    ("squid", "freshness.heuristic", SQUID_PATTERN),
    ("squid", "privacy.authorization", "login=PASSTHRU in the line cache_peer"),
    ("squid", "privacy.cookies", "acl cookies req_header Cookie . and cache deny cookies"),
    ("squid", "variants.if-range", "acl if_range req_header If-Range . and cache deny if_range"),
    ("squid", "integrity.error-stored", "negative_ttl 0 seconds"),
    ("squid", "limits.large", "maximum_object_size 64 MB; maximum_object_size_in_memory 64 MB"),
    ("squid", "restart.restart", "cache_dir ufs /var/spool/squid 256 16 256, and squid -z once before"),
    (
        "squid",
        "keys.unkeyed",
        "request_header_access X-Forwarded-Host deny all, and the same for each of the others",
    ),
    ("trafficserver", "herd.cold", TRAFFIC_COALESCING),
    ("trafficserver", "herd.expired", TRAFFIC_COALESCING),
    ("trafficserver", "herd.refresh", TRAFFIC_COALESCING),
    ("trafficserver", "herd.slow", TRAFFIC_COALESCING),
    ("trafficserver", "herd.leader-cancelled", TRAFFIC_COALESCING),
    ("trafficserver", "outage.reset", "CONFIG proxy.config.http.connect_attempts_max_retries INT 0"),
    (
        "trafficserver",
        "outage.silence",
        "CONFIG proxy.config.http.transaction_no_activity_timeout_out INT 2; a new page that takes longer gets status 504",
    ),
    (
        "trafficserver",
        "outage.stale-limit",
        "CONFIG proxy.config.http.cache.max_stale_age INT 0; no old page is served then",
    ),
    (
        "trafficserver",
        "privacy.authorization",
        "header_rewrite.so with the rule: cond %{READ_RESPONSE_HDR_HOOK} [AND] cond %{CLIENT-HEADER:Authorization} /./ set-header Cache-Control private",
    ),
    ("trafficserver", "privacy.cookies", "CONFIG proxy.config.http.cache.cache_responses_to_cookies INT 0"),
    ("trafficserver", "variants.many", "CONFIG proxy.config.cache.limits.http.max_alts INT 200"),
    ("trafficserver", "variants.if-range", "CONFIG proxy.config.http.cache.range.lookup INT 0"),
    ("trafficserver", "integrity.error-stored", "CONFIG proxy.config.http.negative_caching_enabled INT 0"),
    (
        "trafficserver",
        "integrity.connection-fields",
        "header_rewrite.so with the rules: cond %{READ_RESPONSE_HDR_HOOK} rm-header NAME, and cond %{SEND_REQUEST_HDR_HOOK} rm-header NAME",
    ),
    (
        "trafficserver",
        "keys.unkeyed",
        "header_rewrite.so with the rule: cond %{READ_REQUEST_HDR_HOOK} rm-header X-Forwarded-Host, and the same for each of the others",
    ),
];

const NGINX_CACHE_CONTROL: &str = "remove Cache-Control from proxy_ignore_headers";
const NGINX_KEY: &str = "proxy_cache_key $scheme$host$request_uri;";
const NGINX_LOCK: &str = "proxy_cache_lock on;";
const NGINX_NO_AUTHORIZATION: &str =
    "proxy_cache_bypass $http_authorization; proxy_no_cache $http_authorization;";
/// Without `updating`, which would serve the old page for longer than `stale-while-revalidate` says.
const NGINX_REFRESH: &str = "proxy_cache_background_update on;";
const NGINX_STALE: &str = "proxy_cache_use_stale error timeout http_500 http_502 http_503 http_504; for any time, and for must-revalidate pages, too";
const NGINX_VARY: &str = "remove Vary from proxy_ignore_headers";
const VARNISH_ABANDON: &str = "if (beresp.status >= 500 && bereq.is_bgfetch) { return (abandon); } and set beresp.grace = std.duration(regsub(beresp.http.Cache-Control, \".*stale-if-error=([0-9]+).*\", \"\\1s\"), 0s); for pages with stale-if-error, in vcl_backend_response";
const VARNISH_GRACE: &str = "if (beresp.http.Cache-Control !~ \"stale-\") { set beresp.grace = 0s; } in vcl_backend_response; users then wait for the refresh of such pages";
const VARNISH_TTL: &str = "varnishd -p default_ttl=0";
const HAPROXY_LOADS_EACH: &str =
    "HAProxy's cache does not coalesce: put Varnish, nginx or stockade proxy behind it";
const HAPROXY_MAX_AGE: &str = "http-response cache-store pages if { res.fhdr(cache-control) -m sub -i max-age= s-maxage= }; http-response cache-store pages unless METH_GET, which removes changed pages";
const HAPROXY_NO_STALE: &str =
    "HAProxy's cache serves no old pages: put Varnish, nginx or stockade proxy behind it";
const HAPROXY_VARY: &str =
    "process-vary on is for Accept-Encoding and Referer: HAProxy stores no page that varies by another field";
/// Its audit: `privacy.zero-lifetime`, `privacy.many-users` and `variants.vary-appears` become wrong.
const SQUID_COALESCING: &str = "collapsed_forwarding on, if no page has max-age=0 or Vary: requests at the same time share such pages, too";
/// Any line ends the limit of 0 seconds for old pages that Squid 5 has without one.
const SQUID_PATTERN: &str = "refresh_pattern . 0 10% 4320";
const TRAFFIC_COALESCING: &str = "CONFIG proxy.config.http.cache.open_write_fail_action INT 5; CONFIG proxy.config.http.cache.max_open_read_retries INT 60; uncacheable pages are then loaded one after another";

/// The remedies that no audit has tried: with the defaults of these servers most of these answers are good. By server.
const NOT_TRIED: &[(&str, &[&str])] = &[
    (
        "nginx",
        &[
            "outage.reset",
            "outage.slow",
            "privacy.private",
            "privacy.no-store",
            "privacy.zero-lifetime",
            "privacy.set-cookie",
            "privacy.qualified",
            "variants.vary",
            "variants.vary-star",
            "variants.encodings",
            "variants.many",
            "integrity.two-lengths",
            "integrity.error-stored",
            "integrity.gone",
            "integrity.post-retry",
            "purge.post",
            "limits.long-url",
            "keys.query",
            "keys.slashes",
            "keys.long",
            "keys.host",
            "keys.methods",
        ],
    ),
    (
        "varnish",
        &[
            "herd.expired",
            "herd.uncacheable",
            "outage.flapping",
            "privacy.authorization",
            "privacy.cookies",
            "limits.long-field",
        ],
    ),
    ("haproxy", &["integrity.post-retry", "limits.long-field", "limits.many-fields"]),
    ("squid", &["integrity.error-stored", "restart.restart"]),
    ("trafficserver", &["integrity.error-stored"]),
];

/// The remedy for an answer that is not the best, if the server is known to have one.
pub(crate) fn remedy(server: Option<&str>, question: &str, mark: Mark) -> Option<Cow<'static, str>> {
    let is_needed = matches!(mark, Mark::Weak | Mark::Wrong);
    let is_it = |(name, id, _): &&(&str, &str, &str)| Some(*name) == server && *id == question;
    let (server, id, remedy) = REMEDIES.iter().filter(|_| is_needed).find(is_it)?;
    let is_tried = !NOT_TRIED.iter().any(|(name, ids)| name == server && ids.contains(id));
    Some(if is_tried { (*remedy).into() } else { format!("{remedy} (not tried)").into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_by_server_and_question() {
        let place = |id: &str| crate::questions().position(|question| question.id == id).expect("a question");
        let servers = ["nginx", "varnish", "haproxy", "squid", "trafficserver"];
        let keys: Vec<_> = REMEDIES
            .iter()
            .map(|(server, id, _)| (servers.iter().position(|name| name == server), place(id)))
            .collect();
        assert!(keys.iter().all(|(server, _)| server.is_some()));
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
    }

    #[test]
    fn remedies_that_were_not_tried_say_so() {
        for (server, ids) in NOT_TRIED {
            for id in *ids {
                let remedy = remedy(Some(server), id, Mark::Weak).unwrap_or_else(|| panic!("{server} {id}"));
                assert!(remedy.ends_with(" (not tried)"), "{remedy}");
            }
        }
        assert_eq!(remedy(Some("nginx"), "herd.cold", Mark::Weak).as_deref(), Some(NGINX_LOCK));
        assert_eq!(remedy(Some("nginx"), "herd.cold", Mark::Best), None);
    }
}
