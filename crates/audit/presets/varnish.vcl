vcl 4.1;

backend default {
    .host = "{origin_host}";
    .port = "{origin_port}";
}
