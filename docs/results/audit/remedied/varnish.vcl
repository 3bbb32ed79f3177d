vcl 4.1;
import std;

# The stock configuration with the remedies of ../varnish.md that go together. One is left out: with
# first_byte_timeout = 5s a page that takes longer is an error. The audit adds the arguments in this line:
# varnishd -p default_ttl=0 -p http_max_hdr=256

backend default {
    .host = "{origin_host}";
    .port = "{origin_port}";
}

sub vcl_recv {
    unset req.http.X-Forwarded-Host;
    unset req.http.X-Forwarded-Proto;
    unset req.http.X-Forwarded-Port;
    unset req.http.X-Host;
    unset req.http.X-Original-Url;
    unset req.http.X-Rewrite-Url;
    unset req.http.X-Http-Method-Override;
    unset req.http.Forwarded;
}

sub vcl_backend_fetch {
    set bereq.http.Connection = "close";
}

sub vcl_backend_response {
    if (beresp.status >= 500 && bereq.is_bgfetch) {
        return (abandon);
    }
    if (beresp.http.Cache-Control ~ "(must|proxy)-revalidate" || beresp.http.Cache-Control !~ "stale-") {
        set beresp.grace = 0s;
    } elsif (beresp.http.Cache-Control ~ "stale-if-error=[0-9]") {
        set beresp.grace = std.duration(regsub(beresp.http.Cache-Control, ".*stale-if-error=([0-9]+).*", "\1s"), 0s);
    }
    if (beresp.http.Expires == "0" && beresp.http.Cache-Control !~ "max-?age=") {
        set beresp.uncacheable = true;
    }
    if (bereq.method ~ "^(POST|PUT|DELETE|PATCH)$" && beresp.status < 400) {
        ban("req.http.host == " + bereq.http.host + " && req.url == " + bereq.url);
    }
    std.collect(beresp.http.Content-Length);
    if (beresp.http.Content-Length ~ ",") {
        return (error(502));
    }
    set beresp.do_stream = false;
}

sub vcl_backend_error {
    if (bereq.retries == 0 && bereq.method == "GET" && !bereq.is_bgfetch) {
        return (retry);
    }
}
