//! Patterns of nginx, Apache and Varnish.

use stockade_logs::Format;

use super::{problem, read, try_read};

const NGINX: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;
const APACHE: &str = r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i""#;
const LINE: &str =
    r#"1.2.3.4 - ada [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 17 "http://x/" "curl/8 \"x\" y""#;

#[test]
fn patterns_of_the_combined_format_read_its_lines() {
    for pattern in [NGINX, APACHE] {
        assert_eq!(read(LINE, pattern), ["@1431857103 read GET||/a?b 200 17B"], "{pattern}");
        assert_eq!(pattern.parse::<Format>().unwrap().to_string(), pattern);
    }
}

#[test]
fn variables_of_nginx_are_read() {
    for (pattern, line, request) in [
        (
            r#"$msec "$request" $status"#,
            r#"1431857103.123 "GET / HTTP/1.1" 200"#,
            "@1431857103.123000000 read GET||/ 200",
        ),
        (
            "$time_iso8601|$request_method|$request_uri",
            "2015-05-17T12:05:03+02:00|POST|/a?b",
            "@1431857103 write POST||/a?b",
        ),
        ("$host $uri$is_args$args", "h /a?b", "read GET|h|/a?b"),
        ("$host $uri$is_args$args", "h /a", "read GET|h|/a"),
        ("$uri?$args $status", "/a?b 200", "read GET||/a?b 200"),
        ("$uri $args", "/a -", "read GET||/a"),
        ("$uri \"$args\"", "/a \"b=c\"", "read GET||/a?b=c"),
        ("$scheme://$host$request_uri $status", "https://h:8/a/b 200", "read GET|h:8|/a/b 200"),
        // What the client sent, and the host that answered.
        ("$uri $request_uri $server_name $host", "/index.php /a s h", "read GET|h|/a"),
        ("$request_uri $uri $host $server_name", "/a /index.php h s", "read GET|h|/a"),
        ("$request_uri $bytes_sent $body_bytes_sent", "/a 170 17", "read GET||/a 17B"),
        ("$request_uri $request_time $upstream_response_time", "/a 0.5 0.003", "read GET||/a took=3ms"),
        ("$request_uri $request_time $upstream_response_time", "/a 0.5 -", "read GET||/a"),
        ("$request_uri $request_time", "/a 0.5", "read GET||/a took=500ms"),
        (
            "$upstream_addr $upstream_response_time $request_uri",
            "a:1, b:2 0.1, 0.2 /a",
            "read GET||/a took=300ms",
        ),
        (
            "$upstream_addr $upstream_response_time $request_uri",
            "a:1 : b:2 0.1 : 0.2 /a",
            "read GET||/a took=300ms",
        ),
        (
            r#"$request_uri "$upstream_http_cache_control""#,
            r#"/a "public, max-age=60""#,
            "read GET||/a ttl=60s",
        ),
        (
            r#"$request_uri "$sent_http_cache_control" $sent_http_content_type"#,
            r#"/a "no-store" text/html"#,
            "read GET||/a not-shareable",
        ),
        ("${request_uri}x $status", "/ax 200", "read GET||/a 200"),
        ("[$time_local] $request_uri", "[17/May/2015:10:05:03 +0000] /a", "@1431857103 read GET||/a"),
        ("$time_local $request_uri", "17/May/2015:10:05:03 +0000 /a", "@1431857103 read GET||/a"),
        (r#"$request_uri "$http_user_agent" $status"#, r#"/a "x \" y" 200"#, "read GET||/a 200"),
        (r#""$http_x" "$request_uri""#, r#""\x22" "/a\x22""#, "read GET||/a\""),
        ("$request_uri costs 1$ $status", "/a costs 1$ 200", "read GET||/a 200"),
    ] {
        assert_eq!(read(line, pattern), [request], "{pattern}");
    }
}

#[test]
fn directives_of_apache_and_varnish_are_read() {
    for (pattern, line, request) in [
        (
            r#"%v:%p %h %t "%r" %s %O"#,
            r#"h:443 1.2.3.4 [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 17"#,
            "@1431857103 read GET|h|/a 200 17B",
        ),
        ("%m %U%q %>s %B %D", "GET /a?b 200 17 1500", "read GET||/a?b 200 17B took=1.5ms"),
        ("%m %U %q", "GET /a ?b", "read GET||/a?b"),
        ("%U %T", "/a 2", "read GET||/a took=2s"),
        ("%U %{ms}T %D", "/a 9 1500", "read GET||/a took=1.5ms"),
        ("%U %{us}T", "/a 9", "read GET||/a took=9µs"),
        ("%{sec}t %U", "1431857103 /a", "@1431857103 read GET||/a"),
        ("%{begin:msec}t %U", "1431857103123 /a", "@1431857103.123000000 read GET||/a"),
        ("%{usec}t %U", "1431857103123456 /a", "@1431857103.123456000 read GET||/a"),
        ("%{%d/%b/%Y:%H:%M:%S %z}t %U", "17/May/2015:12:05:03 +0200 /a", "@1431857103 read GET||/a"),
        ("%{%Y-%m-%d %H:%M:%S}t %U", "2015-05-17 10:05:03 /a", "@1431857103 read GET||/a"),
        ("%{%Y-%m-%dT%H:%M:%S%z}t %U", "2015-05-17T10:05:03+0000 /a", "@1431857103 read GET||/a"),
        (r#"%{Host}i %V %v "%r""#, r#"a b c "GET / HTTP/1.0""#, "read GET|a|/"),
        (r#"%U "%{Cache-Control}o" %{X}e"#, r#"/a "s-maxage=5" z"#, "read GET||/a ttl=5s"),
        ("100%% %!200,304{Referer}i %^FB %{UNIQUE_ID}^ti %U", "100% r 1 2 /a", "read GET||/a"),
        // varnishncsa
        (
            r#"%h %l %u %t "%r" %s %b "%{Referer}i" "%{User-agent}i" %{Varnish:time_firstbyte}x %{Varnish:handling}x"#,
            r#"1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET http://h/a HTTP/1.1" 200 17 "-" "x" 0.000123 hit"#,
            "@1431857103 read GET|h|/a 200 17B took=123µs",
        ),
    ] {
        assert_eq!(read(line, pattern), [request], "{pattern}");
    }
}

#[test]
fn lines_without_a_request_are_counted() {
    let lines =
        ["-", "", r"\x16\x03", "GET /"].map(|request| LINE.replace("GET /a?b HTTP/1.1", request)).join("\n");
    let (requests, summary) = try_read(lines, Some(NGINX)).unwrap();
    assert_eq!((requests.len(), summary.without_request), (0, 4));
    assert_eq!(try_read("- 200", Some("$request_uri $status")).unwrap().1.without_request, 1);
}

#[test]
fn line_with_another_form_is_bad() {
    for (pattern, line, message) in [
        (NGINX, "x", "the line does not go on as the pattern does after `$remote_addr`"),
        (NGINX, "a - b c", "the line does not go on as the pattern does after `$remote_user`"),
        ("<$request_uri>", "/a", "the line does not start as the pattern does"),
        ("$request_uri $body_bytes_sent", "/a -1", "the size is not a number of bytes"),
        (
            "$time_local $request_uri",
            "17/May/2015 10:05 /a",
            "the time is not like 17/May/2015:10:05:03 +0000",
        ),
        ("$msec $request_uri", "x /a", "the time is not a number"),
        ("$time_iso8601 $request_uri", "x /a", "the time is not RFC 3339"),
        ("%{%Y}t %U", "x /a", "the time does not have its format"),
    ] {
        assert_eq!(problem(line, pattern), message, "{pattern}");
    }
}

#[test]
fn wrong_pattern_is_refused() {
    let no_request = "the pattern has neither a request nor a URL: add `$request` or `$request_uri` (nginx), `%r` or `%U` (Apache, Varnish)";
    for (pattern, message) in [
        ("$status", no_request),
        ("%s", no_request),
        (
            "$status$request",
            "`$status` and `$request` have nothing between them: their values cannot be told apart",
        ),
        ("%s%r", "`%s` and `%r` have nothing between them: their values cannot be told apart"),
        ("%r %", "`%` is not a directive of Apache: write `%%` for a percent sign"),
        ("%r %{a", "`%{a` is not a directive of Apache: write `%%` for a percent sign"),
        ("%r 5%, or more", "`%, or more` is not a directive of Apache: write `%%` for a percent sign"),
    ] {
        assert_eq!(pattern.parse::<Format>().unwrap_err().to_string(), message, "{pattern}");
    }
}
