//! The logs of servers and services, in the layouts that their vendors document. No format is named.

use stockade_logs::{FORMATS, LogReader};

use super::try_read;

/// A log of a vendor, and what it says.
struct Fixture {
    log: &'static str,
    format: &'static str,
    /// Comments and blank lines are among them.
    lines: u64,
    requests: &'static [&'static str],
}

macro_rules! log {
    ($name:literal) => {
        include_str!(concat!("fixtures/", $name))
    };
}

const FIXTURES: &[Fixture] = &[
    // <https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html>
    Fixture {
        log: log!("cloudfront.log"),
        format: "w3c",
        lines: 8,
        requests: &[
            "@1769893351 read GET|shop.example.org|/product/42.html?size=m&color=blue 200 4187B took=213ms",
            // The time of a hit is not that of the origin.
            "@1769893351 read GET|shop.example.org|/product/42.html?size=m&color=blue 200 4187B",
            "@1769893353 write POST|shop.example.org|/cart 303 391B took=87ms",
            "@1769893360 read GET|shop.example.org|/gone 404 912B took=51ms",
        ],
    },
    // <https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/real-time-logs.html>: seconds, and the stem has the query
    Fixture {
        log: log!("cloudfront-real-time.log"),
        format: "w3c",
        lines: 3,
        requests: &[
            "@1769893351.250000000 read GET|shop.example.org|/product/42.html?size=m 200 4187B took=213ms",
            "@1769893352.001000000 read GET|shop.example.org|/product/42.html?size=m 200 4187B",
            "@1769893353.100000000 write POST|shop.example.org|/cart 303 391B took=1.087s",
        ],
    },
    // The first page, "standard logging (v2)": JSON with the same names, all values as strings
    Fixture {
        log: log!("cloudfront.json.log"),
        format: "json",
        lines: 3,
        requests: &[
            "@1769893351 read GET|shop.example.org|/product/42.html?size=m&color=blue 200 4187B took=213ms",
            "@1769893351 read GET|shop.example.org|/product/42.html?size=m&color=blue 200 4187B",
            "@1769893353.100000000 write POST|shop.example.org|/cart 303 391B took=87ms",
        ],
    },
    // <https://learn.microsoft.com/windows/win32/http/w3c-logging>
    Fixture {
        log: log!("iis.log"),
        format: "w3c",
        lines: 12,
        requests: &[
            "@1769846401 read GET||/catalog/item.aspx?id=17 200 15123B took=46ms",
            "@1769846402 read GET||/style.css 304 211B took=3ms",
            "@1769851800 read GET|www.example.org|/catalog/item.aspx?id=18 200 15200B took=1.25s",
            "@1769851807 write POST|www.example.org|/login 302 180B took=90ms",
        ],
    },
    // <https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage>
    Fixture {
        log: log!("envoy.log"),
        format: "envoy",
        lines: 3,
        requests: &[
            "@1769846401.250000000 read GET|api.example.org|/api/items?page=2 200 1234B took=11ms",
            "@1769846401.300000000 write POST|api.example.org|/api/orders 201 88B took=44ms",
            "@1769846403 read GET|api.example.org|/api/slow 503 81B took=3ms",
        ],
    },
    // <https://istio.io/latest/docs/tasks/observability/logs/access-log/>
    Fixture {
        log: log!("istio.log"),
        format: "envoy",
        lines: 2,
        requests: &[
            "@1769846401.250000000 read GET|bookinfo.example.org|/productpage 200 5183B took=28ms",
            "@1769846402 read GET|reviews:9080|/reviews/0 503 152B took=1ms",
        ],
    },
    // <https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html>
    Fixture {
        log: log!("alb.log"),
        format: "alb",
        lines: 3,
        requests: &[
            "@1769846401.186641000 read GET|www.example.org|/catalog?id=17 200 5366B took=48ms",
            "@1769846402.250000000 read GET|www.example.org|/ 503 366B",
            "@1769846403.000001000 write POST|www.example.org|/orders 201 120B took=250ms",
        ],
    },
    // <https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/access-log-collection.html>
    Fixture {
        log: log!("elb.log"),
        format: "elb",
        lines: 3,
        requests: &[
            "@1769846401.945958000 read GET|www.example.org|/catalog?id=17 200 29B took=1.048ms",
            "@1769846402 read GET|www.example.org|/slow 504 0B",
            "@1769846403.500000000 read HEAD|www.example.org|/ 200 57B took=20.015ms",
        ],
    },
    // <https://docs.aws.amazon.com/AmazonS3/latest/userguide/LogFormat.html>
    Fixture {
        log: log!("s3.log"),
        format: "s3",
        lines: 3,
        requests: &[
            "@1769846401 read GET|photos.s3.eu-central-1.amazonaws.com|/cats/1.jpg?x-id=GetObject 200 2662992B took=10ms",
            "@1769846402 read GET||/photos/cats/2.jpg 404 242B took=9ms",
            "@1769846404 write PUT|photos.s3.eu-central-1.amazonaws.com|/cats/3.jpg 200 took=28ms",
        ],
    },
    // <https://docs.haproxy.org/3.0/configuration.html#8.2.3>, with and without the prefixes of RFC 3164 and RFC 5424
    Fixture {
        log: log!("haproxy.log"),
        format: "haproxy",
        lines: 3,
        requests: &[
            "@1769846401.655000000 read GET||/index.html 200 2750B took=69ms",
            "@1769846401.700000000 read GET||/logo.png?v=3 304 180B took=10ms",
            "@1769846402.001000000 write POST||/orders 503 217B",
        ],
    },
    // <https://wiki.squid-cache.org/Features/LogFormat#squid-native-accesslog-format-in-detail>
    Fixture {
        log: log!("squid.log"),
        format: "squid",
        lines: 4,
        requests: &[
            "@1769846401.123000000 read GET||http://www.example.org/a.css 200 15123B took=45ms",
            "@1769846401.200000000 read GET||http://www.example.org/a.css 200 15130B",
            "@1769846402.500000000 write CONNECT||www.example.net:443 200 39B took=1.25s",
            "@1769846403 read GET||http://www.example.org/b.css 304 260B took=17ms",
        ],
    },
    // <https://github.com/NginxProxyManager/nginx-proxy-manager>, docker/rootfs/etc/nginx/conf.d/include/log-proxy.conf
    Fixture {
        log: log!("nginx-proxy-manager.log"),
        format: "nginx-proxy-manager",
        lines: 4,
        requests: &[
            "@1769846401 read GET|app.example.org|/dashboard?tab=1 200 5120B",
            "@1769846402 read GET|app.example.org|/logo.png 200 912B",
            "@1769846402 read GET|app.example.org|/a 200 77B",
            "@1769846403 read GET|app.example.org|/robots.txt 404 150B",
        ],
    },
    // <https://istio.io/latest/docs/tasks/observability/logs/access-log/>: times in milliseconds
    Fixture {
        log: log!("envoy.json.log"),
        format: "json",
        lines: 2,
        requests: &[
            "@1769846401.250000000 read GET|bookinfo.example.org|/productpage?u=1 200 5183B took=28ms",
            "@1769846402 write POST|bookinfo.example.org|/orders 201 88B took=1.25s",
        ],
    },
    // <https://developers.cloudflare.com/logs/logpush/logpush-job/datasets/zone/http_requests/>: a time in each of three forms
    Fixture {
        log: log!("cloudflare.json.log"),
        format: "json",
        lines: 3,
        requests: &[
            "@1769846401 read GET|www.example.org|/img/a.png?v=2 200 69045B took=84ms",
            "@1769846402.250000000 read GET|www.example.org|/img/a.png?v=2 200 69045B",
            "@1769846403 write POST|www.example.org|/login 302 812B took=130ms",
        ],
    },
    // <https://cloud.google.com/load-balancing/docs/https/https-logging-monitoring>
    Fixture {
        log: log!("google.json.log"),
        format: "json",
        lines: 2,
        requests: &[
            "@1769846401.250000000 read GET|www.example.org|/catalog?id=17 200 15123B took=123.456ms",
            "@1769846403 read GET|www.example.org|/catalog?id=17 200 15130B",
        ],
    },
    // <https://www.fastly.com/documentation/guides/integrations/streaming-logs/>: the default of new endpoints, and the older
    // form whose `request` is a method
    Fixture {
        log: log!("fastly.json.log"),
        format: "json",
        lines: 3,
        requests: &[
            "@1769846401 read GET|www.example.org|/catalog?id=17 200 15123B",
            "@1769846402 read GET|www.example.org|/catalog?id=17 200 15123B",
            "@1769846403 read HEAD|www.example.org|/ 200 took=48.25ms",
        ],
    },
    // <https://techdocs.akamai.com/datastream2/docs/data-set-parameters>
    Fixture {
        log: log!("akamai.json.log"),
        format: "json",
        lines: 2,
        requests: &[
            "@1769846401.250000000 read GET|www.example.org|/catalog/item?id=17 200 15123B took=84ms",
            "@1769846402 read GET|www.example.org|/catalog/item?id=17 200 15123B",
        ],
    },
    // <https://doc.traefik.io/traefik/observability/access-logs/>: nanoseconds
    Fixture {
        log: log!("traefik.json.log"),
        format: "json",
        lines: 1,
        requests: &[
            "@1769846401.250000000 read GET|app.example.org|/dashboard?tab=1 200 5120B took=30.125ms",
        ],
    },
    // The same page: milliseconds
    Fixture {
        log: log!("traefik.log"),
        format: "clf",
        lines: 2,
        requests: &[
            "@1769846401 read GET||/dashboard?tab=1 200 5120B took=31ms",
            "@1769846402 read GET||/missing 404 19B took=0ns",
        ],
    },
    // <https://caddyserver.com/docs/caddyfile/directives/log#console>
    Fixture {
        log: log!("caddy-console.log"),
        format: "json",
        lines: 2,
        requests: &[
            "@1769846401.250000000 read GET|www.example.org|/index.html?a=1 200 10900B ttl=60s took=929.675µs",
            "@1769846402 read HEAD|www.example.org|/ 502 0B took=1.5s",
        ],
    },
];

#[test]
fn logs_of_vendors_are_read_unaided() {
    for Fixture { log, format, lines, requests } in FIXTURES {
        let (found, summary) = try_read(log, None).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!(found, *requests, "{format}");
        assert_eq!((&*summary.format.to_string(), summary.lines), (*format, *lines));
        assert_eq!((summary.bad_lines, summary.without_request), (0, 0), "{format}");
        let known = |part: &str| found.iter().filter(|request| request.contains(part)).count() as u64;
        assert_eq!((summary.known.times, summary.known.service_times), (known("@"), known(" took=")));
        assert_eq!(summary.known.statuses, requests.len() as u64);
        // The same, named.
        assert_eq!(try_read(log, Some(format)).unwrap().0, found, "{format}");
        assert!(FORMATS.iter().any(|known| known.name == *format), "{format}");
    }
}

/// Of each log the agent and the type of the first request, where the format has them.
#[test]
fn user_agents_and_content_types_are_read() {
    const CHROME: &str = "Mozilla/5.0%20(X11;%20Linux%20x86_64)";
    const GOOGLEBOT: &str = "Mozilla/5.0%20(compatible;%20Googlebot/2.1;%20+http://www.google.com/bot.html)";
    for (log, agent, content_type) in [
        (log!("cloudfront.log"), CHROME, "text/html"),
        (log!("cloudfront-real-time.log"), GOOGLEBOT, "text/html"),
        (log!("cloudfront.json.log"), CHROME, "text/html"),
        (log!("iis.log"), "Mozilla/5.0+(Windows+NT+10.0)", ""),
        (log!("envoy.log"), "Mozilla/5.0 (X11; Linux x86_64)", ""),
        (log!("istio.log"), "curl/8.5.0", ""),
        (log!("alb.log"), "Mozilla/5.0 (X11; Linux x86_64)", ""),
        (log!("elb.log"), "curl/8.5.0", ""),
        (log!("s3.log"), "Mozilla/5.0 (X11)", ""),
        (log!("haproxy.log"), "", ""),
        (log!("squid.log"), "", "text/css"),
        (log!("nginx-proxy-manager.log"), "Mozilla/5.0 (X11)", ""),
        (log!("envoy.json.log"), "curl/8.5.0", ""),
        (log!("google.json.log"), "Mozilla/5.0 (X11)", ""),
        (log!("fastly.json.log"), "curl/8.5.0", ""),
        (log!("akamai.json.log"), "Mozilla%2f5.0", "text/html"),
        (log!("caddy-console.log"), "curl/8.5.0", "text/html; charset=utf-8"),
        (log!("traefik.log"), "Mozilla/5.0 (X11)", ""),
    ] {
        assert_eq!(agent_and_type(log, None), (agent.to_owned(), content_type.to_owned()), "{log}");
    }
    let line = r#"192.0.2.7 - - [31/Jan/2026:08:00:01 +0000] "GET / HTTP/1.1" 200 17"#;
    for (after, agent) in [
        ("", ""),
        (r#" "-" "-""#, ""),
        (r#" "https://example.org/\"a\"" "Mozilla/5.0 (\"X11\")" 12"#, r#"Mozilla/5.0 (\"X11\")"#),
        (r#" "https://example.org/" "curl"#, ""),
        (r#" "curl/8.5.0""#, ""),
    ] {
        assert_eq!(agent_and_type(&format!("{line}{after}\n"), None).0, agent, "{after}");
    }
    for (pattern, line) in [
        (
            r#""$request" $status "$http_user_agent" "$sent_http_content_type""#,
            r#""GET / HTTP/1.1" 200 "curl/8.5.0" "text/css""#,
        ),
        (r#""%r" %s "%{User-Agent}i" "%{Content-Type}o""#, r#""GET / HTTP/1.1" 200 "curl/8.5.0" "text/css""#),
        ("csv:url=0,user_agent=1,content_type=2", "/,curl/8.5.0,text/css"),
        (
            "json",
            r#"{"time":1,"request":{"method":"GET","uri":"/","headers":{"User-Agent":["curl/8.5.0"]}},"resp_headers":{"Content-Type":["text/css"]}}"#,
        ),
        (
            "har",
            r#"{"log":{"entries":[{"request":{"method":"GET","url":"https://example.org/","headers":[{"name":"user-agent","value":"curl/8.5.0"}]},"response":{"content":{"mimeType":"text/css"}}}]}}"#,
        ),
    ] {
        let found = agent_and_type(line, Some(pattern));
        assert_eq!(found, ("curl/8.5.0".to_owned(), "text/css".to_owned()), "{pattern}");
    }
}

pub fn agent_and_type(log: &str, format: Option<&str>) -> (String, String) {
    let format = format.map(|format| format.parse().expect("a format"));
    let mut found = None;
    let text = |text: Option<&[u8]>| String::from_utf8_lossy(text.unwrap_or_default()).into_owned();
    LogReader::from_reader("log", log.as_bytes(), format)
        .and_then(|reader| {
            reader.for_each(|request| {
                found.get_or_insert((text(request.user_agent), text(request.content_type)));
            })
        })
        .expect("readable");
    found.expect("a request")
}

/// The lines of requests, cut off after a third, are bad, and the others are read as before.
#[test]
fn lines_that_were_cut_are_counted() {
    for Fixture { log, format, lines, requests } in FIXTURES {
        for part in [3, 4, 6] {
            let cut: String = log
                .lines()
                .rfind(|line| !line.starts_with('#'))
                .map(|line| line.chars().take(line.len() / part).collect())
                .unwrap();
            let (found, summary) = try_read(log.repeat(9) + &cut, Some(format)).unwrap();
            assert_eq!(found.len(), requests.len() * 9, "{format} {cut}");
            assert_eq!((summary.lines, summary.bad_lines), (lines * 9 + 1, 1), "{format} {cut}");
        }
    }
}

/// Words that were swapped, lost or repeated are read or refused, without a panic.
#[test]
fn lines_with_other_columns_do_not_panic() {
    for Fixture { log, format, .. } in FIXTURES {
        for line in log.lines() {
            for separator in [' ', '\t', ',', '"'] {
                let words: Vec<_> = line.split(separator).collect();
                for at in 0..words.len() {
                    let mut others = words.clone();
                    others.remove(at);
                    let less = others.join(&separator.to_string());
                    others.insert(others.len() - at, "-1 \u{fffd}\0");
                    others.rotate_left(at);
                    let other = others.join(&separator.to_string());
                    for line in [less, other, words[..at].join(" ")] {
                        let _ = try_read(format!("{log}{line}\n"), Some(format));
                        let _ = try_read(&line, None);
                    }
                }
            }
        }
    }
}

#[test]
fn table_without_its_header_is_refused() {
    let log = log!("iis.log");
    let rows: String = log.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect();
    let error = try_read(&rows, Some("w3c")).unwrap_err().to_string();
    assert!(
        error.starts_with("log:1: no `#Fields` line with a `cs-uri-stem` comes before the line"),
        "{error}"
    );
}

#[test]
fn unit_of_a_duration_belongs_to_the_format() {
    for (line, took) in [
        (r#"{"ts":1,"method":"GET","url":"/","duration":2}"#, "took=2s"),
        (r#"{"start_time":1,"method":"GET","path":"/","response_code":200,"duration":2}"#, "took=2ms"),
        (r#"{"start_time":1,"method":"GET","path":"/","status":200,"duration":2}"#, "took=2s"),
        (r#"{"ts":1,"method":"GET","url":"/","duration":"1.5ms"}"#, "took=1.5ms"),
    ] {
        let (requests, _) = try_read(line, Some("json")).unwrap();
        assert!(requests[0].ends_with(took), "{requests:?} {took}");
    }
}

#[test]
fn times_without_offset_are_counted() {
    let (_, summary) = try_read(log!("haproxy.log"), None).unwrap();
    assert_eq!(summary.times_without_offset, 3);
    let line = r#"{"timestamp":"2026-01-31 08:00:01","method":"GET","url":"/"}"#;
    let (requests, summary) = try_read(line, None).unwrap();
    assert_eq!((&*requests[0], summary.times_without_offset), ("@1769846401 read GET||/", 1));
    // The W3C format is in UTC.
    assert_eq!(try_read(log!("iis.log"), None).unwrap().1.times_without_offset, 0);
}

/// <https://docs.docker.com/engine/logging/drivers/json-file/>,
/// <https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md>
#[test]
fn wrappers_of_containers_are_taken_off() {
    let (requests, summary) = try_read(log!("docker.json.log"), None).unwrap();
    assert_eq!(
        requests,
        [
            "@1769846401 read GET||/index.html 200 5120B",
            "@1769846402 write POST||/login 302 0B",
            "@1769846403 read GET||/a.css 304",
        ]
    );
    assert_eq!((&*summary.format.to_string(), summary.lines), ("clf", 5));
    assert_eq!((summary.without_request, summary.bad_lines), (2, 0));
    assert_eq!(try_read(log!("docker.json.log"), Some("clf")).unwrap().0, requests);

    let (requests, summary) = try_read(log!("cri.log"), None).unwrap();
    assert_eq!(
        requests,
        [
            "@1769846401.250000000 read GET|www.example.org|/index.html 200 5120B took=12.5ms",
            "@1769846403 read GET|www.example.org|/a.css 200 912B took=1ms",
        ]
    );
    assert_eq!((&*summary.format.to_string(), summary.lines), ("json", 4));
    assert_eq!((summary.without_request, summary.bad_lines), (1, 0));
    // The wrapper of any format.
    for Fixture { log, format, requests, .. } in FIXTURES {
        let wrapped: String = log
            .split_inclusive('\n')
            .map(|line| "2026-01-31T08:00:01Z stdout F ".to_owned() + line)
            .collect();
        let (found, summary) = try_read(wrapped, None).unwrap();
        assert_eq!(found, *requests, "{format}");
        assert_eq!((&*summary.format.to_string(), summary.bad_lines), (*format, 0));
    }
    // A line of another program after the first request, and one that was cut off.
    let log = log!("docker.json.log");
    let of_requests: String = log.split_inclusive('\n').skip(2).collect();
    let others = "{\"log\":\"hello\\n\",\"stream\":\"stdout\",\"time\":\"\"}\n{\"log\":\"a\n";
    let (found, summary) = try_read(of_requests.repeat(9) + others, None).unwrap();
    assert_eq!((found.len(), summary.lines, summary.bad_lines), (27, 29, 2));
}

#[test]
fn messages_of_caddy_are_not_requests() {
    let log = log!("caddy-console.log").to_owned()
        + "2026/01/31 08:00:03.000\tINFO\ttls\tfinished cleaning storage units\t{\"storage\": \"/data\"}\n";
    let (requests, summary) = try_read(log, None).unwrap();
    assert_eq!((requests.len(), summary.without_request, summary.bad_lines), (2, 1, 0));
}
