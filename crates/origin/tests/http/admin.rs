//! The texts of the admin pages, as they were observed of `OriginSimulator` but for its faults.

use serde_json::{Value, json};
use stockade_origin::{Options, Origin};

use crate::support::{add, ask, get, page, serving, with_admin};

const SLOW: &str =
    r#"{"route": "/slow", "body": "{\"a\":1}", "stages": [{"at": 0, "status": 503, "latency": "5ms"}]}"#;

#[test]
fn a_fresh_one_is_empty_and_says_what_to_do() {
    let origin = Origin::start(&Options::default()).unwrap();
    let at = origin.address;
    let reply = get(at, "/any/path?and=query");
    assert_eq!(reply.status, 406);
    assert_eq!(
        reply.text(),
        "Recipe not set at /any/path, please POST a recipe for this route to /_admin/add_recipe"
    );
    assert_eq!(reply.header("cache-control"), "max-age=0, private, must-revalidate");
    let current = get(at, "/_admin/current_recipe");
    assert_eq!(current.text(), r#""Recipe not set, please POST a recipe to /_admin/add_recipe""#);
    assert_eq!(current.header("content-type"), "application/json; charset=utf-8");
    let status = get(at, "/_admin/status");
    assert_eq!((status.status, status.text()), (200, "ok!"));
    assert_eq!(status.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!([page(at, "routes"), page(at, "routes_status")], ["", ""]);
}

#[test]
fn recipes_merge_by_route_and_are_told_as_they_are() {
    let origin = Origin::start(&Options::default()).unwrap();
    let at = origin.address;
    let reply = add(at, SLOW);
    assert_eq!(reply.status, 201);
    assert_eq!(reply.header("content-type"), "application/json; charset=utf-8");
    let slow = json!({
        "origin": null, "body": "{\"a\":1}", "random_content": null, "headers": {}, "route": "/slow",
        "stages": [{"at": 0, "status": 503, "latency": "5ms"}],
    });
    assert_eq!(reply.json(), json!([slow]));
    let more = r#"[{"random_content": "1kb", "stages": [{"at": "1h"}]},
                   {"route": "/news*", "body": "b", "stages": [{"at": 0, "latency": "1ms..9ms"}]}]"#;
    assert_eq!(add(at, more).json().as_array().unwrap().len(), 3);
    assert_eq!(page(at, "routes"), "/*\n/news*\n/slow");
    assert_eq!(page(at, "routes_status"), "/* 406 0\n/news* 200 1..9\n/slow 503 5");
    // What it tells can be told to it.
    let told = page(at, "current_recipe");
    assert_eq!(add(at, &told).text(), told);
    // One route anew, the others stay.
    add(at, &SLOW.replace("503", "200"));
    assert_eq!(page(at, "routes_status"), "/* 406 0\n/news* 200 1..9\n/slow 200 5");
    assert_eq!(get(at, "/slow").text(), r#"{"a":1}"#);
}

#[test]
fn a_bad_recipe_is_refused_whole_and_those_in_force_stay() {
    let origin = serving(SLOW);
    let at = origin.address;
    let bad = r#"[{"body": "fine", "stages": []},
 {"route": "/slow", "body": "b", "stages": [{"at": 0, "latency": "5"}]}]"#;
    for (bad, line_and_column, what) in [
        (bad, "2:66", "`5` has no unit: write `5ms` or `5s`"),
        (r#"{"body": "b", "stages": [}"#, "1:26", ""),
        (r#"{"body": "b", "stagse": []}"#, "1:15", "did you mean `stages`?"),
        ("", "1:1", ""),
        (r#"{"body": "b", "stages": [{"at": 0}, {"at": "0s", "status": 500}]}"#, "", ""),
    ] {
        let reply = add(at, bad);
        assert_eq!(reply.status, 400, "{bad}");
        assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
        let text = reply.text();
        assert!(text.starts_with(&format!("recipe:{line_and_column}")), "{bad}: {text}");
        assert!(text.contains(what) && text.lines().count() == 1, "{bad}: {text}");
        assert_eq!(page(at, "routes_status"), "/slow 503 5");
    }
    let not_text = ask(at, "POST", "/_admin/add_recipe", "Content-Length: 2\r\n\r\n\u{fffd}", "").unwrap();
    assert_eq!(not_text.status, 400);
}

#[test]
fn what_cannot_be_fetched_is_told_and_nothing_changes() {
    let origin = serving(SLOW);
    let at = origin.address;
    // Nobody listens there: the port was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = format!(r#"{{"route": "/far", "origin": "http://{free}/", "stages": [{{"at": 0}}]}}"#);
    let reply = add(at, &gone);
    assert_eq!(reply.status, 502);
    assert!(
        reply.text().contains(&format!("cannot fetch http://{free}/ for route `/far`: ")),
        "{}",
        reply.text()
    );
    assert!(reply.text().contains("refused"), "{}", reply.text());
    let secret = gone.replace("http://", "http://ada:secret@").replace("/\",", "/x?token=secret\",");
    let text = add(at, &secret).text().to_owned();
    assert!(text.contains(&format!("http://{free}/x?... ")) && !text.contains("secret"), "{text}");
    let failing = format!(r#"{{"route": "/far", "origin": "http://{at}/slow", "stages": [{{"at": 0}}]}}"#);
    assert!(add(at, &failing).text().contains("it answers 503"), "{}", add(at, &failing).text());
    assert_eq!(page(at, "routes"), "/slow");
}

#[test]
fn counts_are_by_route_and_status_and_leave_the_admin_out() {
    let origin = serving(&format!(r#"[{SLOW}, {{"route": "/a*", "body": "b", "stages": [{{"at": 0}}]}}]"#));
    let at = origin.address;
    for path in ["/slow", "/a", "/abc", "/slow", "/nowhere"] {
        get(at, path);
    }
    ask(at, "DELETE", "/a", "", "").unwrap();
    let count: Value = serde_json::from_str(&page(at, "current_count")).unwrap();
    assert_eq!(count["total_requests"], 6);
    assert_eq!([&count["200"], &count["503"], &count["404"], &count["406"]], [2, 2, 1, 1]);
    assert_eq!(
        count["routes"],
        json!({"/a*": {"200": 2, "404": 1}, "/slow": {"503": 2}, "none": {"406": 1}})
    );
    assert_eq!(count["concurrent_requests"], json!({"now": 0, "max": 1}));
    let metrics = page(at, "metrics");
    for line in [
        r#"stockade_origin_requests_total{route="/a*",status="200"} 2"#,
        r#"stockade_origin_requests_total{route="/slow",status="503"} 2"#,
        r#"stockade_origin_abandoned_total{route="/slow"} 0"#,
        "stockade_origin_concurrent_requests_max 1",
        "# TYPE stockade_origin_requests_total counter",
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line} in\n{metrics}");
    }
    assert_eq!(page(at, "clear_current_count"), r#"{"cleared": "yes"}"#);
    let count: Value = serde_json::from_str(&page(at, "current_count")).unwrap();
    assert_eq!((&count["total_requests"], &count["200"]), (&json!(0), &Value::Null));
}

#[test]
fn a_restart_comes_back_to_what_it_was_started_with() {
    let origin = serving(SLOW);
    let at = origin.address;
    add(at, r#"{"body": "b", "stages": [{"at": 0}]}"#);
    add(at, &SLOW.replace("503", "500"));
    assert_eq!(page(at, "restart"), "ok!");
    assert_eq!(page(at, "routes_status"), "/slow 503 5");
}

#[test]
fn pages_that_are_none_and_methods_that_do_not_fit_say_so() {
    let origin = serving(SLOW);
    let at = origin.address;
    let reply = get(at, "/_admin/route_status");
    assert_eq!(
        (reply.status, reply.text()),
        (404, "there is no /_admin/route_status: did you mean `routes_status`?\n")
    );
    let reply = get(at, "/_admin/add_recipe");
    assert_eq!((reply.status, reply.header("allow")), (405, "POST"));
    assert_eq!(ask(at, "POST", "/_admin/status", "", "x").unwrap().status, 405);
    assert_eq!(ask(at, "HEAD", "/_admin/status", "", "").unwrap().header("content-length"), "3");
    assert_eq!(ask(at, "POST", "/_admin/start", "", "").unwrap().text(), "ok!");
    assert_eq!(get(at, "/_admin/certificate").status, 404);
}

#[test]
fn no_page_of_another_site_is_let_in() {
    let origin = serving(SLOW);
    let at = origin.address;
    let asked = |host: &str, headers: &str| {
        let mut tcp = crate::support::connect(at).unwrap();
        let request = format!("GET /_admin/restart HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
        std::io::Write::write_all(&mut tcp, request.as_bytes()).unwrap();
        crate::support::receive(&tcp, "GET").unwrap().status
    };
    let own = at.to_string();
    for (host, headers, status) in [
        // No browser: whatever it calls us.
        (own.as_str(), "", 200),
        ("origin:8080", "", 200),
        (&own, "Sec-Fetch-Site: none\r\n", 200),
        (&own, &format!("Origin: http://{own}\r\nSec-Fetch-Site: same-origin\r\n"), 200),
        ("localhost:8080", "Sec-Fetch-Site: same-origin\r\n", 200),
        ("[::1]:8080", "Sec-Fetch-Site: same-origin\r\n", 200),
        (&own, "Origin: http://evil.example\r\n", 403),
        (&own, "Origin: null\r\n", 403),
        (&own, "Sec-Fetch-Site: cross-site\r\n", 403),
        (&own, "Sec-Fetch-Site: same-site\r\n", 403),
        // A name that was bound to our address a moment ago.
        ("evil.example:8080", "Sec-Fetch-Site: same-origin\r\n", 403),
        ("evil.example", "Origin: http://evil.example\r\n", 403),
    ] {
        assert_eq!(asked(host, headers), status, "{host} {headers}");
    }
}

#[test]
fn with_a_listener_of_its_own_the_admin_is_nowhere_else() {
    let (origin, admin) = with_admin(r#"{"body": "mine", "stages": [{"at": 0}]}"#);
    assert_eq!(get(origin.address, "/_admin/status").text(), "mine");
    assert_eq!(page(admin, "status"), "ok!");
    assert_eq!(get(admin, "/anything").status, 404);
}
