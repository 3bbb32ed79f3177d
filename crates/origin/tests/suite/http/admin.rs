//! The admin pages. Their texts are those of the real `OriginSimulator`, without its faults.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};
use stockade_origin::{Origin, OriginOptions};

use crate::http::support::{
    add_recipes, connect, current_count, get, options, page, receive, request, start, start_with_admin,
};

const SLOW: &str =
    r#"{"route": "/slow", "body": "{\"a\":1}", "stages": [{"at": 0, "status": 503, "latency": "5ms"}]}"#;

#[test]
fn origin_without_recipes_names_the_remedy() {
    let origin = Origin::start(&OriginOptions::default()).unwrap();
    let address = origin.address;
    let reply = get(address, "/any/path?and=query");
    assert_eq!(reply.status, 406);
    assert_eq!(
        reply.text(),
        "Recipe not set at /any/path, please POST a recipe for this route to /_admin/add_recipe"
    );
    assert_eq!(reply.header("cache-control"), "max-age=0, private, must-revalidate");
    let current = get(address, "/_admin/current_recipe");
    assert_eq!(current.text(), r#""Recipe not set, please POST a recipe to /_admin/add_recipe""#);
    assert_eq!(current.header("content-type"), "application/json; charset=utf-8");
    let status = get(address, "/_admin/status");
    assert_eq!((status.status, status.text()), (200, "ok!"));
    assert_eq!(status.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!([page(address, "routes"), page(address, "routes_status")], ["", ""]);
}

#[test]
fn recipes_merge_by_route_and_are_returned() {
    let origin = Origin::start(&OriginOptions::default()).unwrap();
    let address = origin.address;
    let reply = add_recipes(address, SLOW);
    assert_eq!(reply.status, 201);
    assert_eq!(reply.header("content-type"), "application/json; charset=utf-8");
    let slow = json!({
        "origin": null, "body": "{\"a\":1}", "random_content": null, "headers": {}, "route": "/slow",
        "stages": [{"at": 0, "status": 503, "latency": "5ms"}],
    });
    assert_eq!(reply.json(), json!([slow]));
    let more = r#"[{"random_content": "1kb", "stages": [{"at": "1h"}]},
                   {"route": "/news*", "body": "b", "stages": [{"at": 0, "latency": "1ms..9ms"}]}]"#;
    assert_eq!(add_recipes(address, more).json().as_array().unwrap().len(), 3);
    assert_eq!(page(address, "routes"), "/*\n/news*\n/slow");
    assert_eq!(page(address, "routes_status"), "/* 406 0\n/news* 200 1..9\n/slow 503 5");
    // Its output is valid input.
    let current = page(address, "current_recipe");
    assert_eq!(add_recipes(address, &current).text(), current);
    // A recipe replaces its own route alone.
    add_recipes(address, &SLOW.replace("503", "200"));
    assert_eq!(page(address, "routes_status"), "/* 406 0\n/news* 200 1..9\n/slow 200 5");
    assert_eq!(get(address, "/slow").text(), r#"{"a":1}"#);
}

#[test]
fn invalid_recipe_changes_nothing() {
    let origin = start(SLOW);
    let address = origin.address;
    let invalid = r#"[{"body": "fine", "stages": []},
 {"route": "/slow", "body": "b", "stages": [{"at": 0, "latency": "5"}]}]"#;
    for (text, line_and_column, message) in [
        (invalid, "2:66", "`5` has no unit: write `5ms` or `5s`"),
        (r#"{"body": "b", "stages": [}"#, "1:26", ""),
        (r#"{"body": "b", "stagse": []}"#, "1:15", "did you mean `stages`?"),
        ("", "1:1", ""),
        (r#"{"body": "b", "stages": [{"at": 0}, {"at": "0s", "status": 500}]}"#, "", ""),
    ] {
        let reply = add_recipes(address, text);
        assert_eq!(reply.status, 400, "{text}");
        assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
        let error = reply.text();
        assert!(error.starts_with(&format!("recipe:{line_and_column}")), "{text}: {error}");
        assert!(error.contains(message) && error.lines().count() == 1, "{text}: {error}");
        assert_eq!(page(address, "routes_status"), "/slow 503 5");
    }
    let not_utf8 =
        request(address, "POST", "/_admin/add_recipe", "Content-Length: 2\r\n\r\n\u{fffd}", "").unwrap();
    assert_eq!(not_utf8.status, 400);
}

#[test]
fn failed_fetch_changes_nothing() {
    let origin = start(SLOW);
    let address = origin.address;
    // A port without a listener.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unreachable = format!(r#"{{"route": "/far", "origin": "http://{free}/", "stages": [{{"at": 0}}]}}"#);
    let reply = add_recipes(address, &unreachable);
    assert_eq!(reply.status, 502);
    assert!(
        reply.text().contains(&format!("cannot fetch http://{free}/ for route `/far`: ")),
        "{}",
        reply.text()
    );
    assert!(reply.text().contains("refused"), "{}", reply.text());
    let secret = unreachable.replace("http://", "http://ada:secret@").replace("/\",", "/x?token=secret\",");
    let text = add_recipes(address, &secret).text().to_owned();
    assert!(text.contains(&format!("http://{free}/x?... ")) && !text.contains("secret"), "{text}");
    let failing =
        format!(r#"{{"route": "/far", "origin": "http://{address}/slow", "stages": [{{"at": 0}}]}}"#);
    assert!(
        add_recipes(address, &failing).text().contains("the server answers 503"),
        "{}",
        add_recipes(address, &failing).text()
    );
    assert_eq!(page(address, "routes"), "/slow");
}

#[test]
fn counters_are_by_route_and_status_without_admin_pages() {
    let origin = start(&format!(r#"[{SLOW}, {{"route": "/a*", "body": "b", "stages": [{{"at": 0}}]}}]"#));
    let address = origin.address;
    for path in ["/slow", "/a", "/abc", "/slow", "/nowhere"] {
        get(address, path);
    }
    request(address, "DELETE", "/a", "", "").unwrap();
    let count = current_count(address);
    assert_eq!(count["total_requests"], 6);
    assert_eq!([&count["200"], &count["503"], &count["404"], &count["406"]], [2, 2, 1, 1]);
    assert_eq!(
        count["routes"],
        json!({"/a*": {"200": 2, "404": 1}, "/slow": {"503": 2}, "none": {"406": 1}})
    );
    assert_eq!(count["concurrent_requests"], json!({"now": 0, "max": 1}));
    let metrics = page(address, "metrics");
    for line in [
        r#"stockade_origin_requests_total{route="/a*",status="200"} 2"#,
        r#"stockade_origin_requests_total{route="/slow",status="503"} 2"#,
        r#"stockade_origin_abandoned_total{route="/slow"} 0"#,
        "stockade_origin_concurrent_requests_max 1",
        "# TYPE stockade_origin_requests_total counter",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    assert_eq!(page(address, "clear_current_count"), r#"{"cleared": "yes"}"#);
    let count = current_count(address);
    assert_eq!((&count["total_requests"], &count["200"]), (&json!(0), &Value::Null));
}

#[test]
fn restart_returns_to_the_first_recipes() {
    let origin = start(SLOW);
    let address = origin.address;
    add_recipes(address, r#"{"body": "b", "stages": [{"at": 0}]}"#);
    add_recipes(address, &SLOW.replace("503", "500"));
    assert_eq!(page(address, "restart"), "ok!");
    assert_eq!(page(address, "routes_status"), "/slow 503 5");
}

#[test]
fn unknown_pages_and_wrong_methods_are_rejected() {
    let origin = start(SLOW);
    let address = origin.address;
    let reply = get(address, "/_admin/route_status");
    assert_eq!(
        (reply.status, reply.text()),
        (404, "there is no page /_admin/route_status: did you mean `routes_status`?\n")
    );
    let reply = get(address, "/_admin/add_recipe");
    assert_eq!((reply.status, reply.header("allow")), (405, "POST"));
    assert_eq!(request(address, "POST", "/_admin/status", "", "x").unwrap().status, 405);
    assert_eq!(request(address, "HEAD", "/_admin/status", "", "").unwrap().header("content-length"), "3");
    assert_eq!(request(address, "POST", "/_admin/start", "", "").unwrap().text(), "ok!");
    assert_eq!(get(address, "/_admin/certificate").status, 404);
}

#[test]
fn other_sites_are_refused() {
    let admin_hosts = vec!["Load-1.example".to_owned()];
    let origin = Origin::start(&OriginOptions { admin_hosts, ..options(SLOW) }).unwrap();
    let address = origin.address;
    let status = |host: &str, headers: &str| {
        let mut tcp = connect(address).unwrap();
        let request = format!("GET /_admin/restart HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
        tcp.write_all(request.as_bytes()).unwrap();
        receive(&tcp, "GET").unwrap().status
    };
    let own = address.to_string();
    for (host, headers, expected) in [
        // Over plain HTTP a browser sends nothing but the host with a GET: as a script does.
        (own.as_str(), "", 200),
        ("localhost", "", 200),
        ("[::1]:8080", "", 200),
        ("load-1.example:9000", "", 200),
        ("origin:8080", "", 403),
        ("evil.example:8080", "", 403),
        ("127.0.0.1.evil.example", "", 403),
        ("localhost@evil.example", "", 403),
        ("", "", 403),
        (&own, "Host: evil.example\r\n", 403),
        (&own, "Sec-Fetch-Site: none\r\n", 200),
        (&own, &format!("Origin: http://{own}\r\nSec-Fetch-Site: same-origin\r\n"), 200),
        ("localhost:8080", "Sec-Fetch-Site: same-origin\r\n", 200),
        ("[::1]:8080", "Sec-Fetch-Site: same-origin\r\n", 200),
        (&own, "Origin: http://evil.example\r\n", 403),
        (&own, "Origin: null\r\n", 403),
        (&own, "Sec-Fetch-Site: cross-site\r\n", 403),
        (&own, "Sec-Fetch-Site: same-site\r\n", 403),
        // DNS rebinding: a foreign name that resolves to this address.
        ("evil.example:8080", "Sec-Fetch-Site: same-origin\r\n", 403),
        ("evil.example", "Origin: http://evil.example\r\n", 403),
        ("load-1.example", "Origin: http://load-1.example\r\nSec-Fetch-Site: same-origin\r\n", 200),
        ("load-1.example", "Origin: http://evil.example\r\n", 403),
    ] {
        assert_eq!(status(host, headers), expected, "{host} {headers}");
    }
    let status = |head: &str| {
        let mut tcp = connect(address).unwrap();
        tcp.write_all(head.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(tcp).read_line(&mut line).unwrap();
        line
    };
    let absolute = "GET http://evil.example/_admin/restart HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(status(absolute), "HTTP/1.1 403 Forbidden\r\n");
    assert_eq!(status("GET /_admin/restart HTTP/1.1\r\n\r\n"), "HTTP/1.1 403 Forbidden\r\n");
    assert_eq!(status("GET /_admin/restart HTTP/1.0\r\n\r\n"), "HTTP/1.0 200 OK\r\n");
}

#[test]
fn admin_listener_takes_the_pages_from_the_public_one() {
    let (origin, admin) = start_with_admin(r#"{"body": "mine", "stages": [{"at": 0}]}"#);
    assert_eq!(get(origin.address, "/_admin/status").text(), "mine");
    assert_eq!(page(admin, "status"), "ok!");
    assert_eq!(get(admin, "/anything").status, 404);
}
