# Varnish with its built-in VCL; objects stay for conditional requests to the origin.
vcl 4.1;

backend default {
    .host = "{{host}}";
    .port = "{{origin_port}}";
}

sub vcl_backend_response {
    set beresp.keep = 10m;
}
