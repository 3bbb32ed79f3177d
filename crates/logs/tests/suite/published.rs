//! Faults that logs published by others showed. Each log here is our own, of the shape that its source has:
//! docs/results/logs/README.md lists the sources.

use super::{problem, read, try_read};

const COMMON: &str = "192.0.2.7 - - [31/Jan/2026:08:00:01 +0000] \"GET / HTTP/1.1\" 200 17\n";

/// The requests of a log whose format is not named, and the lines without a request.
#[track_caller]
fn unaided(log: &str, format: &str) -> (Vec<String>, u64) {
    let (requests, summary) = try_read(log, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((&*summary.format.to_string(), summary.bad_lines), (format, 0), "{summary:?}");
    (requests, summary.without_request)
}

// crowdsecurity/hub, .tests/envoy-logs: the names of Envoy Gateway.
#[test]
fn json_of_envoy_gateway_is_read() {
    let line = r#"{":authority":"www.example.org","bytes_sent":512,"duration":15,"method":"GET","response_code":200,"start_time":"2026-01-31T08:00:01.250Z","user-agent":"curl/8.5.0","x-envoy-origin-path":"/a?b","x-envoy-upstream-service-time":null}"#;
    let request = "@1769846401.250000000 read GET|www.example.org|/a?b 200 512B took=15ms";
    assert_eq!(unaided(line, "json").0, [request]);
    let upstream = line.replace("service-time\":null", "service-time\":\"14\"");
    assert_eq!(unaided(&upstream, "json").0, [request.replace("15ms", "14ms")]);
    assert_eq!(unaided(&format!("2026-01-31T08:00:02.5+00:00 stdout F {line}\n"), "json").0, [request]);
}

// log2timeline/plaso, test_data/azure_application_gateway_access.json, and Azure's documentation of Front Door.
#[test]
fn json_of_azure_is_read() {
    for (line, request) in [
        (
            r#"{"timeStamp":"2026-01-31T08:00:01+00:00","properties":{"httpMethod":"GET","requestUri":"/a","requestQuery":"b=1","originalRequestUriWithArgs":"/a?b=1","httpStatus":200,"sentBytes":466,"timeTaken":0.034,"serverResponseLatency":"0.028","originalHost":"www.example.org","host":"10.0.0.4"}}"#,
            "@1769846401 read GET|www.example.org|/a?b=1 200 466B took=28ms",
        ),
        (
            r#"{"time":"2026-01-31T08:00:01.25Z","properties":{"httpMethod":"GET","requestUri":"https://www.example.org:443/a","httpStatusCode":"200","responseBytes":"466","timeToFirstByte":"0.125","cacheStatus":"MISS"}}"#,
            "@1769846401.250000000 read GET|www.example.org|/a 200 466B took=125ms",
        ),
        (
            r#"{"time":"2026-01-31T08:00:02Z","properties":{"httpMethod":"GET","requestUri":"https://www.example.org:443/a","httpStatusCode":"200","responseBytes":"466","timeToFirstByte":"0.001","cacheStatus":"HIT"}}"#,
            "@1769846402 read GET|www.example.org|/a 200 466B",
        ),
    ] {
        assert_eq!(unaided(line, "json").0, [request]);
    }
}

// techdocs.akamai.com, DataStream 2: a stream may have `totalBytes` alone.
#[test]
fn size_of_akamai_may_be_the_total() {
    let line = r#"{"reqTimeSec":"1769846401.25","reqMethod":"GET","reqHost":"www.example.org","reqPath":"a","statusCode":"200","totalBytes":"1200"}"#;
    assert_eq!(unaided(line, "json").0, ["@1769846401.250000000 read GET|www.example.org|/a 200 1200B"]);
}

// panther-labs/panther, cloudflare_tests.yml: the older field is in nanoseconds, and a job may have the path alone.
#[test]
fn older_service_time_of_cloudflare_is_read() {
    for (url, time, took) in [
        (r#""ClientRequestURI":"/a?b""#, r#""OriginResponseTime":22000000"#, "/a?b 200 took=22ms"),
        (r#""ClientRequestPath":"/a""#, r#""OriginResponseTime":22000000"#, "/a 200 took=22ms"),
        (
            r#""ClientRequestPath":"/a","ClientRequestURI":"/a?b""#,
            r#""OriginResponseTime":22000000,"OriginResponseDurationMs":21"#,
            "/a?b 200 took=21ms",
        ),
        (r#""ClientRequestURI":"/a""#, r#""OriginResponseTime":0"#, "/a 200"),
    ] {
        let line = format!(
            r#"{{"EdgeStartTimestamp":1769846401,"ClientRequestMethod":"GET",{url},"EdgeResponseStatus":200,{time}}}"#
        );
        assert_eq!(unaided(&line, "json").0, [format!("@1769846401 read GET||{took}")]);
    }
}

// tstack/lnav, test/logfile_caddy_log.0: Caddy writes its messages, and the errors of requests that it logs, to the same place.
#[test]
fn messages_in_json_are_not_requests() {
    let access = r#"{"level":"info","ts":1769846401,"logger":"http.log.access","msg":"handled request","request":{"method":"GET","host":"www.example.org","uri":"/"},"duration":0.001,"size":0,"status":502}
"#;
    let error = access.replace("http.log.access", "http.log.error");
    let message = "{\"level\":\"info\",\"ts\":1769846400,\"msg\":\"using config from file\"}\n";
    let log = format!("{}{access}{error}{}", message.repeat(30), message.repeat(9));
    let request = "@1769846401 read GET|www.example.org|/ 502 0B took=1ms";
    assert_eq!(unaided(&log, "json"), (vec![request.to_owned()], 40));
    // `docker compose logs`, with and without times.
    let composed = |prefix: &str| format!("{prefix}{}", log.trim_end().replace('\n', &format!("\n{prefix}")));
    for prefix in ["caddy  | ", "caddy-1  | 2026-01-31T08:00:01.25Z "] {
        assert_eq!(unaided(&composed(prefix), "json"), (vec![request.to_owned()], 40));
    }
    // A pattern may look like them.
    let line = "www.example.org | GET / HTTP/1.1 | 200\n".repeat(9);
    let requests = read(&line, "$server_name | $request | $status");
    assert_eq!(requests, vec!["read GET|www.example.org|/ 200"; 9]);
    // A log with messages alone is refused.
    assert!(problem(message, "json").starts_with("the line has no method: log it as one of request_method"));
    assert_eq!(
        problem(&error, "json"),
        "`logger` is `http.log.error`: that of Caddy's requests is `http.log.access`"
    );
}

// crowdsecurity/hub, .tests/fastly-logs: the lines that Fastly sends to a syslog.
#[test]
fn json_may_follow_the_prefix_of_a_syslog() {
    let json = r#"{ "timestamp": "2026-01-31T08:00:01+0000", "host": "www.example.org", "url": "/a", "request_method": "GET", "response_state": "MISS", "response_status": 200, "response_body_size": 564 }"#;
    let request = "@1769846401 read GET|www.example.org|/a 200 564B";
    for prefix in [
        "2026-01-31T08:00:02.613304+00:00 192.0.2.1  ",
        "<134>1 2026-01-31T08:00:02Z cache-fra-1 fastly - - - ",
        "Jan 31 08:00:02 edge fastly[7]: ",
    ] {
        assert_eq!(unaided(&format!("{prefix}{json}\n"), "json").0, [request], "{prefix}");
    }
    // Without a time of its own, that of the prefix.
    let json = r#"2026-01-31T08:00:01Z edge nginx: {"request":"GET /a HTTP/1.1","status":200}"#;
    assert_eq!(unaided(json, "json").0, ["@1769846401 read GET||/a 200"]);
    // A request in the Common Log Format may end in a brace.
    let line = COMMON.replace('\n', " \"-\" {a}\n");
    assert_eq!(unaided(&line, "clf").0, ["@1769846401 read GET||/ 200 17B"]);
}

// crowdsecurity/hub, .tests/nginx-http-generic-bf, apache2-logs and litespeed-logs: a container's errors and requests are in one
// place.
#[test]
fn lines_of_error_logs_are_not_requests() {
    for line in [
        "2026/01/31 08:00:01 [error] 31#31: *46 \"/a\" is not found, request: \"GET / HTTP/1.1\"\n",
        "[Sat Jan 31 08:00:01.203277 2026] [core:error] [pid 7005:tid 1406] AH00126: Invalid URI\n",
        "[Sat Jan 31 08:00:01 2026] [notice] caught SIGTERM, shutting down\n",
        "2026-01-31 08:00:01.774649 [NOTICE] [1226033] [192.0.2.7:45164] Failed Login Attempt\n",
    ] {
        let log = COMMON.to_owned() + &line.repeat(9) + COMMON;
        assert_eq!(unaided(&log, "clf"), (vec!["@1769846401 read GET||/ 200 17B".to_owned(); 2], 9));
        assert_eq!(problem(line, "clf"), "the line is one of an error log: name the access log");
    }
}

// The start of nginx's image on Docker, as `docker logs` shows it.
#[test]
fn server_may_write_other_lines_before_its_requests() {
    let start = "/docker-entrypoint.sh: Configuration complete; ready for start up\n".repeat(40);
    let (requests, summary) = try_read(start.clone() + &COMMON.repeat(20), None).unwrap();
    assert_eq!((&*summary.format.to_string(), requests.len(), summary.bad_lines), ("clf", 20, 40));
    // After the first request, or without one, they are in another format.
    assert!(try_read(COMMON.to_owned() + &start, Some("clf")).is_err());
    assert!(try_read(&start, Some("clf")).is_err());
}

// tstack/lnav, test/logfile_haproxy.0; no7dw/haproxy_log_analysis_script; crowdsecurity/hub, .tests/haproxy-logs;
// epartington/rsa_nw_log_haproxy.
#[test]
fn messages_of_haproxy_are_not_requests() {
    let request = "Jan 31 08:00:01 lb haproxy[7]: 192.0.2.7:3 [31/Jan/2026:08:00:01.655] in app/s1 0/0/3/6/9 200 27 - - ---- 1/1/1/1/0 0/0 \"GET / HTTP/1.1\"\n";
    let messages = "Jan 31 08:00:00 lb haproxy[7]: Proxy in started.
Jan 31 08:00:00 lb haproxy[7]: Connect from 192.0.2.7:60188 to 192.0.2.1:443 (in/HTTP)
192.0.2.7:50033 [31/Jan/2026:08:00:02.123] in/lb: SSL handshake failure
Jan 31 08:00:02 lb haproxy[7]: 192.0.2.7:51365 [31/Jan/2026:08:00:02.123] pass app/s2 1/1/11103 186 -- 3/3/3/3/0 0/0
";
    let (requests, without) = unaided(&format!("{messages}{request}{messages}"), "haproxy");
    assert_eq!(
        (requests, without),
        (vec!["@1769846401.655000000 read GET||/ 200 27B took=6ms".to_owned()], 8)
    );
    assert!(try_read(messages, Some("haproxy")).is_err());
    // A request that was cut off does not count as a message.
    let (_, summary) = try_read(request.repeat(9) + &request[..130], None).unwrap();
    assert_eq!((summary.without_request, summary.bad_lines), (0, 1));
}

// crowdsecurity/hub, .tests/traefik_clf: five lines of 2021 and two of 2024.
#[test]
fn times_far_from_the_others_do_not_refuse_a_log() {
    let (requests, summary) =
        try_read(COMMON.repeat(5) + &COMMON.replace("2026", "2028").repeat(2), None).unwrap();
    assert_eq!((requests.len(), summary.bad_lines), (5, 2));
    // Most lines: it is another format, or no log at all.
    let years = (1_970..2_020).step_by(5).chain((2_030..2_080).step_by(5));
    let most: String = years.map(|year| COMMON.replace("2026", &year.to_string())).collect();
    let error = try_read(COMMON.repeat(5) + &most, None).expect_err("a refusal").to_string();
    assert!(error.contains("20 of 25 lines"), "{error}");
}

// tstack/lnav, test/logfile_w3c.1 (Oracle Web Cache); log2timeline/plaso, test_data/iis/iis10_edge_cases.log.
#[test]
fn spaces_align_the_columns_of_a_table() {
    let log =
        "#Fields: date time cs-method  cs-uri-stem s-port cs-username c-ip sc-status bytes cs(User-Agent)
2026-01-31   08:00:01    GET      /a      80   -         192.0.2.7  200      350   \"curl/8.5.0 (a b)\"
2026-01-31 08:00:02 GET /b 443  dom\\ada 192.0.2.7 404 0 -
";
    assert_eq!(
        unaided(log, "w3c").0,
        ["@1769846401 read GET||/a 200 350B", "@1769846402 read GET||/b 404 0B"]
    );
}

// matomo-org/matomo-log-analytics, tests/logs/iis_custom.log and netscaler.log.
#[test]
fn tables_of_other_servers_have_other_names_and_units() {
    let log = "#Software: IIS Advanced Logging Module
#Fields:   date-local time-local   cs-method cs-uri-stem cs(Host) sc-status TimeTakenMS
2026-01-31 08:00:01.250 GET /a \"www.example.org\" 200 109
";
    let (requests, summary) = try_read(log, None).unwrap();
    assert_eq!(requests, ["@1769846401.250000000 read GET|www.example.org|/a 200 took=109ms"]);
    assert_eq!(summary.times_without_offset, 1);
    // The unit of W3C is a second, that of IIS a millisecond.
    for (software, took) in [
        ("#Software: Netscaler Web Logging(NSWL)\n", "2s"),
        ("#Software: Microsoft Internet Information Services 10.0\n", "2ms"),
        ("", "2ms"),
    ] {
        let table = "#Fields: date time cs-method cs-uri-stem time-taken\n2026-01-31 08:00:01 GET /a 2\n";
        let requests = unaided(&format!("{software}{table}"), "w3c").0;
        assert_eq!(requests, [format!("@1769846401 read GET||/a took={took}")]);
    }
}

// crowdsecurity/hub, .tests/aws-cloudfront-logs: the lines alone, as they come from a stream or after `grep -v '^#'`.
#[test]
fn lines_of_cloudfront_need_no_header() {
    let log = include_str!("fixtures/cloudfront.log");
    let lines: String = log.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect();
    assert_eq!(unaided(&lines, "w3c").0, unaided(log, "w3c").0);
    // Those of 2018 have 26 columns.
    let older = lines.lines().next().unwrap().split('\t').take(26).collect::<Vec<_>>().join("\t");
    assert_eq!(unaided(&older, "w3c").0, unaided(log, "w3c").0[..1]);
    // A response that the edge made has no time of the origin.
    for (result, took) in [("Miss", true), ("Redirect", false), ("LambdaGeneratedResponse", false)] {
        let line = lines.lines().next().unwrap().replace("Miss", result);
        assert_eq!(unaided(&line, "w3c").0[0].contains("took="), took, "{result}");
    }
}

// matomo-org/matomo-log-analytics, tests/logs/s3.log (2012); nekrassov01/access-log-parser, testdata/sample_s3_all_match.log (2019).
#[test]
fn older_lines_of_s3_end_earlier() {
    let line = "79a5 photos [31/Jan/2026:08:00:01 +0000] 192.0.2.3 - 3E57 WEBSITE.GET.OBJECT a \"GET /a HTTP/1.1\" 200 - 368 368 10 9 \"-\" \"curl/8.5.0\"";
    let request = "@1769846401 read GET||/a 200 368B took=9ms";
    for after in ["", " -", " - s9lz="] {
        assert_eq!(unaided(&format!("{line}{after}"), "s3").0, [request], "{after}");
    }
    let with_host = format!("{line} - s9lz= SigV4 ECDHE-RSA-AES128-SHA AuthHeader photos.example.org");
    let request = request.replace("GET||", "GET|photos.example.org|");
    for after in ["", " TLSv1.2", " TLSv1.2 - -"] {
        assert_eq!(unaided(&format!("{with_host}{after}"), "s3").0, [&*request], "{after}");
    }
}

// elastic/integrations, packages/nginx_ingress_controller, test-ingest-raw.log.
#[test]
fn service_time_of_ingress_nginx_is_that_of_the_upstreams() {
    let before = COMMON.trim_end();
    for (after, took) in [
        ("[default-web-80] [] 10.0.0.5:80 59 0.120 200 529a007902362a5f51385a5fa7049884", " took=120ms"),
        (
            "[a-80] [] 10.0.0.5:80, 10.0.0.6:80 0, 1 0.500, 1.000 502, 200 3db73c6c673c4256ade033a6ce08c2ab",
            " took=1.5s",
        ),
        ("[] [] - - - - 4c7d2079340e68353c7d0dfff00b904b", ""),
        ("[] [] 0.120", ""),
    ] {
        let line = format!("{before} \"-\" \"curl/8.5.0 [en] (X11)\" 89 0.200 {after}\n");
        assert_eq!(read(&line, "clf"), [format!("@1769846401 read GET||/ 200 17B{took}")], "{after}");
    }
}

// elastic/integrations, packages/nginx, test-test-with-host.log; ossec/ossec-docs, lighttpd.rst and lotus_domino.rst.
#[test]
fn virtual_host_is_told_from_the_clients() {
    for (before, host) in [
        ("www.example.org 10.0.0.2, 10.0.0.1, 192.0.2.7 - -", "www.example.org"),
        ("www.example.org:80 \"10.5.102.222, 199.96.1.1\" 10.2.1.185 - -", "www.example.org"),
        // The clients of `$http_x_forwarded_for - $remote_user`.
        ("192.0.2.7, 10.0.0.1 - -", ""),
        ("unknown, 10.0.0.1 - -", ""),
        // lighttpd.
        ("192.0.2.7 www.example.org -", "www.example.org"),
        ("2001:db8::7 www.example.org ada", "www.example.org"),
        ("192.0.2.7 ada -", ""),
        ("192.0.2.7 ada@example.org -", ""),
        ("192.0.2.7 10.0.0.1 -", ""),
    ] {
        let line = COMMON.replace("192.0.2.7 - -", before);
        assert_eq!(read(&line, "clf"), [format!("@1769846401 read GET|{host}|/ 200 17B")], "{before}");
    }
}

// log2timeline/plaso, test_data/apache_access.log.
#[test]
fn request_may_have_marks_that_are_not_escaped() {
    let line = COMMON.replace("GET /", "GET /a?b=<script>alert(\"x\")</script>");
    assert_eq!(read(&line, "clf"), ["@1769846401 read GET||/a?b=<script>alert(\"x\")</script> 200 17B"]);
    // A later text in marks is not one of its parts.
    let other = COMMON.replace("200 17", "www.example.org 200 17 \"-\" 5 7");
    assert!(problem(&other, "clf").starts_with("the line has no status and size after its request"));
}

// elastic/integrations, packages/squid: requests that Squid refused, or answered without the origin.
#[test]
fn time_of_a_refused_request_is_not_that_of_the_origin() {
    for (result, took) in [
        ("TCP_DENIED/407 1661 GET http://a.example/ - NONE/-", ""),
        ("NONE/400 3900 GET http://a.example/ - HIER_NONE/-", ""),
        ("TCP_IMS_HIT/304 217 GET http://a.example/ - NONE/-", ""),
        ("TCP_MISS/200 900 GET http://a.example/ ada DIRECT/192.0.2.9", " took=4ms"),
        ("TCP_SWAPFAIL_MISS/200 900 GET http://a.example/ ada DIRECT/192.0.2.9", " took=4ms"),
    ] {
        let requests = unaided(&format!("1769846401.250      4 192.0.2.7 {result} text/html\n"), "squid").0;
        assert!(requests[0].ends_with(&format!("B{took}")), "{requests:?}");
    }
}

// elastic/integrations, packages/traefik, test-format-common.log: Traefik 1.
#[test]
fn referrer_may_be_a_dash_without_marks() {
    let line = COMMON.replace('\n', " - \"Android\" 13 \"host\" \"http://10.0.0.6\" 247ms\n");
    assert_eq!(read(&line, "clf"), ["@1769846401 read GET||/ 200 17B took=247ms"]);
    assert_eq!(super::vendors::agent_and_type(&line, None).0, "Android");
}
