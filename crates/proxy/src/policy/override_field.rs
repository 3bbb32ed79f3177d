//! Request fields that tell an origin another URL, client or method than the request has.
//!
//! Proxies set them, frameworks believe them, and the cache key does not contain them: a client that sends one could store the response
//! of one URL under another ("Practical Web Cache Poisoning", Kettle, 2018), or make the response to a POST invalidate
//! another URL. Names are recognised by their words, since every product has its own; the tests list the products.

/// The part of the request that an origin may replace by a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Override {
    /// The host, the path, the scheme or another part of the URL; or how the response is made for a proxy.
    Target,
    /// The client's address.
    Address,
    /// The method. HTML forms, which cannot send PUT, use such fields with POST.
    Method,
    /// A variable of the program: CGI makes `HTTP_PROXY` of `Proxy` (CVE-2016-5385). Other characters than letters, digits and `-` are `_`
    /// for some servers, so `X_Forwarded.Host` would be `X-Forwarded-Host`; nginx drops them, too (`ignore_invalid_headers`).
    Variable,
}

/// `name` is in lower case.
#[must_use]
pub fn override_of(name: &str) -> Option<Override> {
    if is_ordinary(name) {
        return None;
    }
    if name == "proxy" || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Some(Override::Variable);
    }
    if is_control_of_a_proxy(name) {
        return Some(Override::Target);
    }
    let words = || name.split('-').filter(|word| !word.is_empty());
    let last = words().next_back()?;
    if words().any(|word| word.starts_with("forward")) {
        return if is_identity(last) { None } else { Some(Override::Target) };
    }
    if matches!(last, "addr" | "clientip" | "ip") {
        return Some(Override::Address);
    }
    let (mut has_part, mut has_method) = (false, false);
    for word in words() {
        match word {
            "method" => has_method = true,
            word if is_part(word) => has_part = true,
            word if is_qualifier(word) => {}
            _ => return None,
        }
    }
    match (has_part, has_method) {
        (_, true) => Some(Override::Method),
        (true, false) => Some(Override::Target),
        (false, false) => None,
    }
}

/// Fields of most requests, for speed; and `Max-Forwards`, which counts proxies.
fn is_ordinary(name: &str) -> bool {
    matches!(
        name,
        "accept"
            | "accept-encoding"
            | "accept-language"
            | "authorization"
            | "cache-control"
            | "connection"
            | "content-length"
            | "content-type"
            | "cookie"
            | "host"
            | "if-modified-since"
            | "if-none-match"
            | "max-forwards"
            | "origin"
            | "pragma"
            | "priority"
            | "range"
            | "referer"
            | "user-agent"
    ) || name.starts_with("sec-")
}

/// Fields by which a proxy asks for a response that is made for it: ESI tags (W3C Edge Architecture), a path on the disk
/// (Rack, Symfony), or the route of Next.js and of its hosts (its `INTERNAL_HEADERS`, CVE-2025-29927); and Cloudflare's
/// scheme.
fn is_control_of_a_proxy(name: &str) -> bool {
    matches!(
        name,
        "cf-visitor"
            | "script-name"
            | "server-name"
            | "surrogate-capability"
            | "x-accel-mapping"
            | "x-now-route-matches"
            | "x-script-name"
            | "x-sendfile-type"
            | "x-server-name"
    ) || name.starts_with("x-middleware-")
}

/// The end of `X-Forwarded-User` and the like, by which an authenticating proxy names the user (`OAuth2` Proxy, Envoy, Traefik).
fn is_identity(word: &str) -> bool {
    matches!(word, "cert" | "email" | "groups" | "info" | "roles" | "token" | "user" | "username")
}

/// A part of the URL, or of the connection that it names.
fn is_part(word: &str) -> bool {
    matches!(
        word,
        "address"
            | "command"
            | "destinationurl"
            | "fulluri"
            | "host"
            | "hostname"
            | "https"
            | "path"
            | "pathinfo"
            | "port"
            | "prefix"
            | "proto"
            | "protocol"
            | "querystring"
            | "scheme"
            | "ssl"
            | "string"
            | "subdomain"
            | "uri"
            | "url"
    )
}

/// A word that a name of a part has in addition: whose part it is, what happened to it, or the product that sets it.
fn is_qualifier(word: &str) -> bool {
    matches!(
        word,
        "ajax"
            | "amzn"
            | "appservice"
            | "arr"
            | "azure"
            | "base"
            | "cf"
            | "client"
            | "cloudfront"
            | "context"
            | "default"
            | "disguised"
            | "end"
            | "envoy"
            | "fastly"
            | "from"
            | "front"
            | "http"
            | "info"
            | "invoke"
            | "lb"
            | "matched"
            | "ms"
            | "name"
            | "nfsn"
            | "ning"
            | "offloaded"
            | "orchestra"
            | "orig"
            | "original"
            | "originally"
            | "originating"
            | "override"
            | "proxy"
            | "query"
            | "raw"
            | "real"
            | "remapped"
            | "remote"
            | "replaced"
            | "request"
            | "rest"
            | "rewrite"
            | "script"
            | "secure"
            | "server"
            | "translated"
            | "unencoded"
            | "was"
            | "waws"
            | "www"
            | "x"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Products by the fields that they read or set, from their source or documentation.
    const TARGETS: &[(&str, &str)] = &[
        ("RFC 7239", "forwarded"),
        (
            "Symfony and Laravel, trusted proxies; Spring, ForwardedHeaderFilter; Werkzeug, ProxyFix; ASP.NET Core",
            "x-forwarded-host x-forwarded-proto x-forwarded-port x-forwarded-prefix x-forwarded-for",
        ),
        ("Rack and Rails", "x-forwarded-scheme x-forwarded-ssl x-sendfile-type x-accel-mapping"),
        (
            "Django, SECURE_PROXY_SSL_HEADER",
            "x-forwarded-protocol x-forwarded-ssl front-end-https x-url-scheme",
        ),
        (
            "Zend, Symfony before CVE-2018-14773, Yii, IIS",
            "x-original-url x-rewrite-url unencoded-url request-uri orig-path-info x-original-http-command",
        ),
        ("ASP.NET Core", "x-original-host x-original-proto x-original-prefix"),
        (
            "IIS, ARR; Azure",
            "x-arr-ssl disguised-host was-default-hostname x-waws-unencoded-url x-appservice-proto x-ms-original-url",
        ),
        ("Flask behind a prefix", "x-script-name x-scheme x-forwarded-server"),
        ("ingress-nginx, oauth2-proxy, Traefik", "x-original-uri x-scheme x-forwarded-uri x-replaced-path"),
        ("Envoy, Istio, Kong", "x-envoy-original-path x-envoy-original-host x-forwarded-path"),
        ("CloudFront, API Gateway", "cloudfront-forwarded-proto x-amzn-remapped-host"),
        (
            "Cloudflare, Fastly, Fly",
            "cf-visitor fastly-ssl fastly-orig-host fly-forwarded-proto fly-forwarded-port fly-forwarded-ssl",
        ),
        (
            "Next.js and Vercel",
            "x-matched-path x-invoke-path x-now-route-matches x-middleware-subrequest x-middleware-rewrite x-vercel-forwarded-for",
        ),
        ("W3C Edge Architecture", "surrogate-capability"),
        (
            "Param Miner's list of headers",
            "x-host x-forwarded x-forward-proto x-forward-for x-forwarder-for x-http-host-override x-http-path-override \
             x-http-destinationurl x-proxy-url proxy-url proxy-host proxy-port proxy-request-fulluri base-url http-url http-host url uri path \
             x-cf-url x-server-name x-server-port server-name server-port server-port-secure server-protocol script-name path-info \
             context-path path-base path-translated query-string querystring host-name hostname port protocol x-remote-protocol x-ning-request-uri \
             x-nfsn-https x-orchestra-scheme x-ssl ssl ssl-offloaded x-https https https-from-lb x-subdomain x-client-host remote-host \
             x-original-remote-host x-originally-forwarded-proto forwarded-proto forwarded-for-ip www-address client-address",
        ),
    ];

    #[test]
    fn fields_that_name_another_url_are_recognised() {
        for (product, names) in TARGETS {
            for name in names.split_whitespace() {
                assert_eq!(override_of(name), Some(Override::Target), "{product}: {name}");
            }
        }
        assert_eq!(override_of("proxy"), Some(Override::Variable));
        for name in ["x_forwarded_host", "x-forwarded_host", "x.forwarded.host", "x!host", "request_uri"] {
            assert_eq!(override_of(name), Some(Override::Variable), "{name}");
        }
    }

    #[test]
    fn fields_that_name_another_client_or_method_are_recognised() {
        for name in [
            "cf-connecting-ip",
            "client-ip",
            "do-connecting-ip",
            "fastly-client-ip",
            "fly-client-ip",
            "incap-client-ip",
            "real-ip",
            "remote-addr",
            "true-client-ip",
            "x-appengine-user-ip",
            "x-azure-clientip",
            "x-client-ip",
            "x-cluster-client-ip",
            "x-ip",
            "x-kaltura-remote-addr",
            "x-originating-ip",
            "x-original-remote-addr",
            "x-real-ip",
            "x-remote-addr",
            "x-remote-ip",
        ] {
            assert_eq!(override_of(name), Some(Override::Address), "{name}");
        }
        // Rails and Rack, Symfony, Spring, Express, ASP.NET.
        for name in [
            "request-method",
            "x-ajax-real-method",
            "x-http-method",
            "x-http-method-override",
            "x-method-override",
            "x-original-method",
            "x-rest-method",
        ] {
            assert_eq!(override_of(name), Some(Override::Method), "{name}");
        }
    }

    #[test]
    fn fields_of_applications_are_forwarded() {
        for name in [
            "accept",
            "access-control-request-headers",
            "access-control-request-method",
            "apollo-require-preflight",
            "authorization",
            "cf-ipcountry",
            "client-hints",
            "cloudfront-viewer-country",
            "content-disposition",
            "content-md5",
            "cookie",
            "depth",
            "destination",
            "dnt",
            "dpop",
            "forbidden",
            "from",
            "host",
            "hx-current-url",
            "hx-request",
            "idempotency-key",
            "if-range",
            "last-event-id",
            "max-forwards",
            "next-router-state-tree",
            "next-url",
            "origin",
            "overwrite",
            "referer",
            "rsc",
            "save-data",
            "sec-websocket-protocol",
            "soapaction",
            "te",
            "traceparent",
            "turbo-frame",
            "upgrade-insecure-requests",
            "x-amz-content-sha256",
            "x-amz-date",
            "x-amzn-trace-id",
            "x-api-key",
            "x-api-version",
            "x-b3-traceid",
            "x-callback-url",
            "x-client-data",
            "x-client-version",
            "x-csrf-token",
            "x-device-type",
            "x-forwarded-access-token",
            "x-forwarded-client-cert",
            "x-forwarded-email",
            "x-forwarded-user",
            "x-inertia",
            "x-original-filename",
            "x-proto-version",
            "x-request-id",
            "x-request-start",
            "x-requested-with",
            "x-shopify-topic",
            "x-upload-content-type",
            "x-wp-nonce",
        ] {
            assert_eq!(override_of(name), None, "{name}");
        }
    }
}
