//! Statuses, bodies and headers; conditions, ranges and HEAD.

use std::io::{Read, Write};

use crate::http::support::{connect, get, request, start};

#[test]
fn status_determines_the_body() {
    let stages: Vec<_> = [200, 201, 204, 304, 404, 406, 500, 599]
        .iter()
        .map(|status| {
            format!(r#"{{"route": "/{status}", "body": "b", "stages": [{{"at": 0, "status": {status}}}]}}"#)
        })
        .collect();
    let origin = start(&format!("[{}]", stages.join(",")));
    for (status, text) in [
        (200, "b"),
        (201, "Error 201"),
        (204, ""),
        (304, ""),
        (404, "Not found"),
        (406, "Recipe not set at /406, please POST a recipe for this route to /_admin/add_recipe"),
        (500, "Error 500"),
        (599, "Error 599"),
    ] {
        let reply = get(origin.address, &format!("/{status}?n=1"));
        assert_eq!((reply.status, reply.text()), (status, text));
        assert_eq!(reply.header("cache-control"), "max-age=0, private, must-revalidate");
        let head = request(origin.address, "HEAD", &format!("/{status}"), "", "").unwrap();
        let length = if [204, 304].contains(&status) { String::new() } else { text.len().to_string() };
        assert_eq!((head.status, head.header("content-length")), (status, length.as_str()), "HEAD");
    }
    // Up to the end of the connection, there is nothing but the head.
    for status in [204, 304] {
        for method in ["GET", "HEAD"] {
            let text = read_all(
                origin.address,
                &format!("{method} /{status} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
            );
            assert!(text.ends_with("\r\n\r\n") && !text.contains("content-length"), "{text}");
        }
    }
}

/// Sends these bytes, and reads to the end of the connection.
fn read_all(address: std::net::SocketAddr, bytes: &str) -> String {
    let mut tcp = connect(address).unwrap();
    tcp.write_all(bytes.as_bytes()).unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn valid_forms_of_requests_are_served() {
    let origin = start(r#"{"route": "/x", "body": "b", "stages": [{"at": 0}]}"#);
    for request in [
        "GET /x HTTP/1.0\r\n\r\n",
        "GET http://elsewhere/x?q HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ] {
        let text = read_all(origin.address, request);
        assert!(text.contains(" 200 OK\r\n") && text.ends_with("\r\n\r\nb"), "{request}: {text}");
    }
    let expecting = "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nb";
    let text = read_all(origin.address, expecting);
    assert!(text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{text}");
    for malformed in
        ["GET /x\r\n\r\n", "GET /x HTTP/1.1\r\nContent-Length: x\r\n\r\n", "\u{16}\u{3}\u{1}\r\n\r\n"]
    {
        let text = read_all(origin.address, malformed);
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{malformed}: {text}");
    }
}

#[test]
fn exact_route_wins_then_the_longest_prefix() {
    let routes = ["/", "/*", "/news*", "/news/uk*", "/news/uk", "/sport"];
    let recipe =
        |route: &&str| format!(r#"{{"route": "{route}", "body": "{route}", "stages": [{{"at": 0}}]}}"#);
    let origin = start(&format!("[{}]", routes.iter().map(recipe).collect::<Vec<_>>().join(",")));
    for (path, route) in [
        ("/", "/"),
        ("/?q", "/"),
        ("/a", "/*"),
        ("/news", "/news*"),
        ("/newsflash", "/news*"),
        ("/news/u", "/news*"),
        ("/news/uk", "/news/uk"),
        ("/news/uk?q=/sport", "/news/uk"),
        ("/news/uk/1", "/news/uk*"),
        ("/sport", "/sport"),
        ("/sport/1", "/*"),
    ] {
        assert_eq!(get(origin.address, path).text(), route, "{path}");
    }
}

#[test]
fn get_post_and_head_are_the_only_methods() {
    let origin = start(r#"{"body": "{\"a\":1}", "stages": [{"at": 0}]}"#);
    let address = origin.address;
    let post = request(address, "POST", "/x", "", "some body").unwrap();
    assert_eq!((post.status, post.text()), (200, r#"{"a":1}"#));
    assert_eq!(post.header("content-type"), "application/json; charset=utf-8");
    let head = request(address, "HEAD", "/x", "", "").unwrap();
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "7", 0));
    for method in ["PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        let reply = request(address, method, "/x", "", "").unwrap();
        assert_eq!((reply.status, reply.text()), (404, "not found"), "{method}");
    }
}

#[test]
fn headers_of_the_recipe_are_sent_with_every_status() {
    let headers = r#"{"Cache-Control": "public, max-age=30", "Content-Type": "text/csv", "Vary": "accept",
                      "connection": "keepalive", "content-length": "3"}"#;
    let recipe = |route, status| {
        format!(
            r#"{{"route": "{route}", "body": "body", "headers": {headers}, "stages": [{{"at": 0, "status": {status}}}]}}"#
        )
    };
    let origin = start(&format!("[{}, {}]", recipe("/fine", 200), recipe("/bad", 503)));
    for (path, text) in [("/fine", "body"), ("/bad", "Error 503")] {
        let reply = get(origin.address, path);
        assert_eq!(reply.text(), text);
        assert_eq!(
            [reply.header("cache-control"), reply.header("content-type"), reply.header("vary")],
            ["public, max-age=30", "text/csv", "accept"]
        );
    }
}

#[test]
fn conditions_follow_rfc_9110() {
    let modified = "Tue, 15 Nov 1994 12:45:26 GMT";
    let origin = start(&format!(
        r#"[{{"route": "/given", "body": "0123456789", "stages": [{{"at": 0}}],
              "headers": {{"etag": "\"a\"", "last-modified": "{modified}", "vary": "accept"}}}},
            {{"route": "/weak", "body": "b", "stages": [{{"at": 0}}], "headers": {{"etag": "W/\"a\""}}}},
            {{"route": "/none", "body": "b", "stages": [{{"at": 0}}]}},
            {{"route": "/unchanged", "body": "b", "etag": true, "stages": [{{"at": 0, "status": 304}}]}},
            {{"route": "/down", "body": "b", "stages": [{{"at": 0, "status": 500}}], "headers": {{"etag": "\"a\""}}}}]"#
    ));
    let address = origin.address;
    for (path, condition, status) in [
        ("/given", "If-None-Match: \"a\"", 304),
        ("/given", "If-None-Match: \"b\", W/\"a\"", 304),
        ("/given", "If-None-Match: *", 304),
        ("/given", "If-None-Match: \"b\"", 200),
        // A tag takes precedence over a date.
        ("/given", "If-None-Match: \"b\"\r\nIf-Modified-Since: Tue, 15 Nov 1994 12:45:26 GMT", 200),
        ("/given", "If-Modified-Since: Tue, 15 Nov 1994 12:45:26 GMT", 304),
        ("/given", "If-Modified-Since: Tue, 15 Nov 1994 12:45:25 GMT", 200),
        ("/given", "If-Modified-Since: yesterday", 200),
        ("/given", "If-Match: \"a\"", 200),
        ("/given", "If-Match: \"b\"", 412),
        ("/given", "If-Unmodified-Since: Tue, 15 Nov 1994 12:45:25 GMT", 412),
        ("/given", "If-Unmodified-Since: Tue, 15 Nov 1994 12:45:26 GMT", 200),
        ("/weak", "If-None-Match: \"a\"", 304),
        ("/weak", "If-Match: W/\"a\"", 412),
        ("/none", "If-None-Match: \"a\"", 200),
        ("/none", "If-Match: \"a\"", 412),
        ("/down", "If-None-Match: \"a\"", 500),
    ] {
        for method in ["GET", "HEAD"] {
            let reply = request(address, method, path, &format!("{condition}\r\n"), "").unwrap();
            assert_eq!(reply.status, status, "{method} {path} {condition}");
            if status == 304 && path == "/given" {
                assert_eq!([reply.header("etag"), reply.header("vary")], ["\"a\"", "accept"]);
            }
        }
        let post = request(address, "POST", path, &format!("{condition}\r\n"), "").unwrap();
        assert!([200, 500].contains(&post.status), "conditions do not apply to POST: {}", post.status);
    }
    let unchanged = get(address, "/unchanged");
    assert!(
        unchanged.status == 304 && unchanged.header("etag").len() > 2,
        "a 304 of a stage carries the tag, too"
    );
    let down = get(address, "/down");
    assert_eq!(
        (down.header("etag"), down.header("accept-ranges")),
        ("", ""),
        "an error's text is not the content"
    );
}

#[test]
fn single_range_is_served() {
    let origin = start(
        r#"{"body": "0123456789", "stages": [{"at": 0}],
            "headers": {"etag": "\"a\"", "last-modified": "Tue, 15 Nov 1994 12:45:26 GMT"}}"#,
    );
    let address = origin.address;
    for (requested, status, range, text) in [
        ("bytes=0-3", 206, "bytes 0-3/10", "0123"),
        ("bytes=8-", 206, "bytes 8-9/10", "89"),
        ("bytes=-2", 206, "bytes 8-9/10", "89"),
        ("bytes=-99", 206, "bytes 0-9/10", "0123456789"),
        ("bytes=5-99", 206, "bytes 5-9/10", "56789"),
        ("bytes=10-", 416, "bytes */10", "Error 416"),
        ("bytes=0-1,4-5", 200, "", "0123456789"),
        ("bytes=99999999999999999999-", 416, "bytes */10", "Error 416"),
        ("bytes=0-99999999999999999999", 206, "bytes 0-9/10", "0123456789"),
        ("bytes=-0", 416, "bytes */10", "Error 416"),
        ("Bytes=9-9", 206, "bytes 9-9/10", "9"),
        ("bytes=3-2", 200, "", "0123456789"),
        ("bytes=+1-2", 200, "", "0123456789"),
        ("bytes=-", 200, "", "0123456789"),
        ("bytes=x", 200, "", "0123456789"),
        ("lines=0-1", 200, "", "0123456789"),
        ("bytes=0-3\r\nIf-Range: \"a\"", 206, "bytes 0-3/10", "0123"),
        ("bytes=0-3\r\nIf-Range: \"b\"", 200, "", "0123456789"),
        ("bytes=0-3\r\nIf-Range: W/\"a\"", 200, "", "0123456789"),
        ("bytes=0-3\r\nIf-Range: Tue, 15 Nov 1994 12:45:26 GMT", 206, "bytes 0-3/10", "0123"),
        ("bytes=0-3\r\nIf-Range: Tue, 15 Nov 1994 12:45:25 GMT", 200, "", "0123456789"),
        ("bytes=0-3\r\nIf-Range: nonsense", 200, "", "0123456789"),
    ] {
        let reply = request(address, "GET", "/", &format!("Range: {requested}\r\n"), "").unwrap();
        assert_eq!(
            (reply.status, reply.header("content-range"), reply.text()),
            (status, range, text),
            "{requested}"
        );
    }
    let empty = start(r#"{"body": "", "stages": [{"at": 0}]}"#);
    for requested in ["bytes=0-0", "bytes=-1", "bytes=0-"] {
        let reply = request(empty.address, "GET", "/", &format!("Range: {requested}\r\n"), "").unwrap();
        assert_eq!((reply.status, reply.header("content-range")), (416, "bytes */0"));
    }
    let head = request(address, "HEAD", "/", "Range: bytes=0-3\r\n", "").unwrap();
    assert_eq!((head.status, head.header("content-length")), (200, "10"), "ranges apply to GET alone");
}
