# Varnish 6 and 7: coalesces requests, serves stale objects during a refresh and while the origin fails.
vcl 4.1;

backend default {
    .host = "127.0.0.1";
    .port = "9080";
    .first_byte_timeout = 5s;
}

sub vcl_backend_response {
    # Stale objects are served for so long, with one refresh in the background.
    set beresp.grace = 6h;
    # A failed refresh in the background keeps the stale object.
    if (beresp.status >= 500 && bereq.is_bgfetch) {
        return (abandon);
    }
}

sub vcl_deliver {
    # Stockade reads it, and `Age` beside `max-age` for stale objects.
    if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT";
    } else {
        set resp.http.X-Cache = "MISS";
    }
}
