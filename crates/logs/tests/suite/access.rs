//! Access logs in the Common Log Format, in JSON and as HTTP Archives.

use super::{problem, read, try_read};

const TIME: &str = "[17/May/2015:10:05:03 +0000]";

#[test]
fn common_and_combined_lines_are_read() {
    for (line, request) in [
        (r#"1.2.3.4 - - TIME "GET /a?b HTTP/1.1" 200 17"#, "read GET||/a?b 200 17B"),
        (r#"1.2.3.4 - ada TIME "HEAD /a HTTP/2.0" 304 -"#, "read HEAD||/a 304"),
        (
            r#"1.2.3.4 - - TIME "POST /a HTTP/1.1" 201 0 "http://x/" "curl/8 \"[x]\"""#,
            "write POST||/a 201 0B",
        ),
        (r#"1.2.3.4 - - TIME "DELETE /a HTTP/1.1" 204 0"#, "write DELETE||/a 204 0B"),
        (r#"h:443 1.2.3.4 - ada l TIME "GET /a HTTP/1.1" 200 1"#, "read GET|h|/a 200 1B"),
        (r#"h:443 1.2.3.4 - ada TIME "GET /a HTTP/1.1" 200 1"#, "read GET|h|/a 200 1B"),
        (r#"[::1]:443 1.2.3.4 - - TIME "GET /a HTTP/1.1" 200 1"#, "read GET|[::1]|/a 200 1B"),
        (r#"h 1.2.3.4 - ada TIME "GET /a HTTP/1.1" 200 1"#, "read GET|h|/a 200 1B"),
        (r#"h 2001:db8::1 - - TIME "GET /a HTTP/1.1" 200 1"#, "read GET|h|/a 200 1B"),
        (r#"1.2.3.4 5.6.7.8 - - TIME "GET /a HTTP/1.1" 200 1"#, "read GET||/a 200 1B"),
        (r#"::1 - - TIME "GET /a HTTP/1.1" 200 1"#, "read GET||/a 200 1B"),
        (r#"1.2.3.4:80 - ada lovelace TIME "GET /a HTTP/1.1" 200 1"#, "read GET||/a 200 1B"),
        (r#"- - - TIME "GET /a HTTP/1.1" 000 -"#, "read GET||/a"),
        (r#"1.2.3.4 - - TIME "GET http://h/a HTTP/1.1" 200 1"#, "read GET|h|/a 200 1B"),
        (r#"1.2.3.4 - - TIME "GET /\x22\xC3\xA9 HTTP/1.1" 200 1"#, "read GET||/\"é 200 1B"),
        (
            r#"1 - - TIME "GET /a HTTP/1.1" 200 1 "-" "-" 12 "r" "http://s" 30ms"#,
            "read GET||/a 200 1B took=30ms",
        ),
        // The proxy of this project.
        (
            r#"1.2.3.4:5 - - TIME "GET /a HTTP/1.1" 200 9 "-" "curl" hit 0.051 - - "h" "/*" "stockade; hit" whole "-""#,
            "read GET||/a 200 9B",
        ),
    ] {
        let line = line.replace("TIME", TIME);
        assert_eq!(read(&line, "clf"), [format!("@1431857103 {request}")], "{line}");
    }
}

#[test]
fn forms_of_an_object_give_one_key() {
    for line in [
        r#"{"ts":1,"method":"GET","host":"example.org","url":"/a"}"#,
        r#"{"ts":1,"method":"GET","host":"Example.ORG:443","url":"/a"}"#,
        r#"{"ts":1,"method":"GET","url":"http://EXAMPLE.org:80/a"}"#,
        r#"{"ts":1,"method":"GET","url":"https://example.org:443/a"}"#,
        r#"{"ts":1,"method":"GET","host":"other","url":"HTTP://ada@example.org/a"}"#,
    ] {
        assert_eq!(read(line, "json"), ["@1 read GET|example.org|/a"], "{line}");
    }
    let line = r#"{"ts":1,"method":"GET","url":"http://[2001:DB8:0::1]:80?a"}"#;
    assert_eq!(read(line, "json"), ["@1 read GET|[2001:db8::1]|/?a"]);
}

#[test]
fn bytes_that_are_not_text_are_replaced() {
    let line = [b"a - - ", TIME.as_bytes(), b" \"GET /\xff HTTP/1.1\" 200 17\n"].concat();
    assert_eq!(read(line, "clf"), ["@1431857103 read GET||/\u{fffd} 200 17B"]);
}

#[test]
fn lines_without_a_request_are_counted() {
    let line = |request: &str| format!("a - - {TIME} \"{request}\" 400 0\n");
    let log = ["-", "", r"\x16\x03\x01", "GET /", "get / HTTP/1.1", "GET / HTTP/1.1"].map(line).concat();
    let (requests, summary) = try_read(log, Some("clf")).unwrap();
    assert_eq!(requests, ["@1431857103 read GET||/ 400 0B"]);
    assert_eq!((summary.lines, summary.without_request, summary.bad_lines), (6, 5, 0));
    let json = r#"{"ts":1,"method":"GET","url":"-"}"#;
    assert_eq!(try_read(json, Some("json")).unwrap().1.without_request, 1);
}

#[test]
fn json_of_each_server_is_read() {
    for (line, request) in [
        (
            // nginx
            r#"{"msec":"1431857103.123","request_method":"GET","http_host":"h","request_uri":"/a?b","uri":"/i","status":"200","body_bytes_sent":"17","request_time":"0.5","upstream_response_time":"0.010, 0.020","upstream_http_cache_control":"max-age=60"}"#,
            "@1431857103.123000000 read GET|h|/a?b 200 17B ttl=60s took=30ms",
        ),
        (
            // nginx: a hit of its cache has no upstream.
            r#"{"time_local":"17/May/2015:10:05:03 +0000","request":"GET /a?b HTTP/1.1","status":"200","upstream_response_time":"-","request_time":"0.001"}"#,
            "@1431857103 read GET||/a?b 200",
        ),
        (
            // Caddy
            r#"{"level":"info","ts":1431857103.5,"request":{"method":"GET","host":"h","uri":"/a","headers":{"Accept":["*/*"]}},"bytes_read":0,"duration":0.000929675,"size":17,"status":200,"resp_headers":{"Server":["Caddy"],"Cache-Control":["max-age=60"]}}"#,
            "@1431857103.500000000 read GET|h|/a 200 17B ttl=60s took=929.675µs",
        ),
        (
            // Traefik
            r#"{"DownstreamContentSize":17,"DownstreamStatus":200,"Duration":3000000,"OriginDuration":2000000,"OriginStatus":200,"RequestHost":"h","RequestMethod":"POST","RequestPath":"/a","StartUTC":"2015-05-17T10:05:03.5Z","time":"2015-05-17T10:05:09Z"}"#,
            "@1431857103.500000000 write POST|h|/a 200 17B took=2ms",
        ),
        (
            // Elastic Common Schema
            r#"{"@timestamp":"2015-05-17T10:05:03.000Z","http":{"request":{"method":"GET"},"response":{"status_code":200,"body":{"bytes":17}}},"url":{"original":"/a","domain":"h"},"event":{"duration":5000000},"host":{"name":"n"}}"#,
            "@1431857103 read GET|h|/a 200 17B took=5ms",
        ),
        (
            // The proxy of this project.
            r#"{"time":"2015-05-17T10:05:03.042Z","peer":"192.0.2.7:4711","method":"GET","host":"h","url":"/a","version":"HTTP/1.1","status":200,"bytes":17,"ms":9.5,"cache":"miss","cache_status":"x","route":"/*","origin_status":200,"origin_ms":2.125}"#,
            "@1431857103.042000000 read GET|h|/a 200 17B took=2.125ms",
        ),
        (r#"{"method":"GET","url":"http://h/a","max_age":5}"#, "read GET|h|/a ttl=5s"),
        (r#"{"ts":1,"method":"GET","url":"/","duration":1e-7,"size":null}"#, "@1 read GET||/ took=100ns"),
        ("{\"ts\":1,\"method\":\"GET\",\"url\":\"/\\u00e9\\\"\"}", "@1 read GET||/é\""),
    ] {
        assert_eq!(read(line, "json"), [request], "{line}");
    }
}

#[test]
fn impossible_values_of_a_line_are_named() {
    for (line, message) in [
        (r#"{"method":"GET","url":"/","size":-1}"#, "`size`: the size is not a number of bytes"),
        (
            r#"{"method":"GET","url":"/","bytes":"9999999999999999"}"#,
            "`bytes`: the size is larger than 1 PiB",
        ),
        (
            r#"{"ts":"soon","method":"GET","url":"/"}"#,
            "`ts` is not a time, but `\"soon\"`: log it as RFC 3339 with an offset (2015-05-17T10:05:03Z), or as seconds since 1970",
        ),
        (
            r#"{"ts":1,"url":"/"}"#,
            "the line has no method: log it as one of request_method, RequestMethod, request.method, http.request.method, method",
        ),
    ] {
        assert_eq!(problem(line, "json"), message, "{line}");
    }
    let line = format!("a - - {TIME} \"GET / HTTP/1.1\" 200 9999999999999999");
    assert_eq!(problem(line, "clf"), "the size is larger than 1 PiB");
}

#[test]
fn archives_of_browsers_are_read() {
    let har = r#"{
  "log": {
    "version": "1.2", "creator": {"name": "x", "version": "1"}, "pages": [],
    "entries": [
      {"startedDateTime": "2015-05-17T10:05:03.500Z", "time": 12.5,
       "request": {"method": "GET", "url": "https://h/a", "headers": [], "bodySize": -1},
       "response": {"status": 200, "headers": [{"name": "Cache-Control", "value": "max-age=60"}],
         "content": {"size": 400, "mimeType": "text/html", "text": "<html>"}, "bodySize": 170}},
      {"startedDateTime": "2015-05-17T10:05:02Z", "time": null,
       "request": {"method": "POST", "url": "https://h/b"},
       "response": {"status": 0, "content": {"size": 30}, "bodySize": -1}},
      {"request": {"method": "", "url": ""}, "response": {}}
    ]
  }
}"#;
    let (requests, summary) = try_read(har, Some("har")).unwrap();
    assert_eq!(
        requests,
        [
            "@1431857103.500000000 read GET||https://h/a 200 170B ttl=60s took=12.5ms",
            "@1431857102 write POST||https://h/b 30B",
        ]
    );
    assert_eq!((summary.lines, summary.without_request, summary.time_reversals), (3, 1, 1));
    assert_eq!(summary.bytes_read, har.len() as u64);
    assert_eq!(
        read(format!("\u{feff}{}", har.replace("\"\", \"url\": \"\"", "\"GET\", \"url\": \"/\"")), "har")
            .len(),
        3
    );
}

#[test]
fn damaged_archive_is_one_bad_entry() {
    let entry = r#"{"request":{"method":"GET","url":"https://h/a"}}"#;
    let whole = format!(r#"{{"log":{{"entries":[{}"#, [entry; 20].join(","));
    let (requests, summary) = try_read(&whole, Some("har")).unwrap();
    assert_eq!((requests.len(), summary.bad_lines), (20, 1));
    assert!(
        summary.first_bad[0].message.starts_with("the document is not an HTTP Archive from here on: EOF")
    );
    for (text, message) in [
        ("{}", "the document is not an HTTP Archive from here on: `log` is missing at line 1 column 2"),
        (
            "[]",
            "the document is not an HTTP Archive from here on: invalid type: sequence, expected an object with `log` at line 1 column 1",
        ),
        (
            r#"{"log":{"entries":[{"startedDateTime":"soon","request":{"method":"GET","url":"/"}}]}}"#,
            "`startedDateTime` is not RFC 3339",
        ),
        (
            r#"{"log":{"entries":[{"request":{"method":"GET","url":"/"},"response":{"bodySize":1e30}}]}}"#,
            "the size is larger than 1 PiB",
        ),
    ] {
        assert_eq!(problem(text, "har"), message, "{text}");
    }
}
