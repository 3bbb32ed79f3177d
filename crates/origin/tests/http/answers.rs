//! Statuses, bodies and heads; conditions, ranges and HEAD.

use std::io::{Read, Write};

use crate::support::{ask, connect, get, serving};

#[test]
fn a_body_is_told_by_its_status() {
    let stages: Vec<_> = [200, 201, 204, 304, 404, 406, 500, 599]
        .iter()
        .map(|status| {
            format!(r#"{{"route": "/{status}", "body": "b", "stages": [{{"at": 0, "status": {status}}}]}}"#)
        })
        .collect();
    let origin = serving(&format!("[{}]", stages.join(",")));
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
        let head = ask(origin.address, "HEAD", &format!("/{status}"), "", "").unwrap();
        let length = if [204, 304].contains(&status) { String::new() } else { text.len().to_string() };
        assert_eq!((head.status, head.header("content-length")), (status, length.as_str()), "HEAD");
    }
    // To the end of the connection: nothing that is none of the answer.
    for status in [204, 304] {
        for method in ["GET", "HEAD"] {
            let text = everything(
                origin.address,
                &format!("{method} /{status} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
            );
            assert!(text.ends_with("\r\n\r\n") && !text.contains("content-length"), "{text}");
        }
    }
}

/// All that a server says to these bytes.
fn everything(address: std::net::SocketAddr, bytes: &str) -> String {
    let mut tcp = connect(address).unwrap();
    tcp.write_all(bytes.as_bytes()).unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn requests_may_be_of_any_form() {
    let origin = serving(r#"{"route": "/x", "body": "b", "stages": [{"at": 0}]}"#);
    for request in [
        "GET /x HTTP/1.0\r\n\r\n",
        "GET http://elsewhere/x?q HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ] {
        let text = everything(origin.address, request);
        assert!(text.contains(" 200 OK\r\n") && text.ends_with("\r\n\r\nb"), "{request}: {text}");
    }
    let expects = "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nb";
    let text = everything(origin.address, expects);
    assert!(text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{text}");
    for malformed in
        ["GET /x\r\n\r\n", "GET /x HTTP/1.1\r\nContent-Length: x\r\n\r\n", "\u{16}\u{3}\u{1}\r\n\r\n"]
    {
        let text = everything(origin.address, malformed);
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{malformed}: {text}");
    }
}

#[test]
fn the_longest_route_is_met_and_an_exact_one_first() {
    let routes = ["/", "/*", "/news*", "/news/uk*", "/news/uk", "/sport"];
    let recipe =
        |route: &&str| format!(r#"{{"route": "{route}", "body": "{route}", "stages": [{{"at": 0}}]}}"#);
    let origin = serving(&format!("[{}]", routes.iter().map(recipe).collect::<Vec<_>>().join(",")));
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
fn get_post_and_head_are_served_and_nothing_else() {
    let origin = serving(r#"{"body": "{\"a\":1}", "stages": [{"at": 0}]}"#);
    let at = origin.address;
    let post = ask(at, "POST", "/x", "", "some body").unwrap();
    assert_eq!((post.status, post.text()), (200, r#"{"a":1}"#));
    assert_eq!(post.header("content-type"), "application/json; charset=utf-8");
    let head = ask(at, "HEAD", "/x", "", "").unwrap();
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "7", 0));
    for method in ["PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        let reply = ask(at, method, "/x", "", "").unwrap();
        assert_eq!((reply.status, reply.text()), (404, "not found"), "{method}");
    }
}

#[test]
fn headers_of_the_recipe_go_out_on_every_status() {
    let headers = r#"{"Cache-Control": "public, max-age=30", "Content-Type": "text/csv", "Vary": "accept",
                      "connection": "keepalive", "content-length": "3"}"#;
    let recipe = |route, status| {
        format!(
            r#"{{"route": "{route}", "body": "body", "headers": {headers}, "stages": [{{"at": 0, "status": {status}}}]}}"#
        )
    };
    let origin = serving(&format!("[{}, {}]", recipe("/fine", 200), recipe("/bad", 503)));
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
fn conditions_are_answered_as_rfc_9110_has_it() {
    let modified = "Tue, 15 Nov 1994 12:45:26 GMT";
    let origin = serving(&format!(
        r#"[{{"route": "/given", "body": "0123456789", "stages": [{{"at": 0}}],
              "headers": {{"etag": "\"a\"", "last-modified": "{modified}", "vary": "accept"}}}},
            {{"route": "/weak", "body": "b", "stages": [{{"at": 0}}], "headers": {{"etag": "W/\"a\""}}}},
            {{"route": "/none", "body": "b", "stages": [{{"at": 0}}]}},
            {{"route": "/unchanged", "body": "b", "etag": true, "stages": [{{"at": 0, "status": 304}}]}},
            {{"route": "/down", "body": "b", "stages": [{{"at": 0, "status": 500}}], "headers": {{"etag": "\"a\""}}}}]"#
    ));
    let at = origin.address;
    for (path, condition, status) in [
        ("/given", "If-None-Match: \"a\"", 304),
        ("/given", "If-None-Match: \"b\", W/\"a\"", 304),
        ("/given", "If-None-Match: *", 304),
        ("/given", "If-None-Match: \"b\"", 200),
        // The tag is asked first, and then no date.
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
            let reply = ask(at, method, path, &format!("{condition}\r\n"), "").unwrap();
            assert_eq!(reply.status, status, "{method} {path} {condition}");
            if status == 304 && path == "/given" {
                assert_eq!([reply.header("etag"), reply.header("vary")], ["\"a\"", "accept"]);
            }
        }
        let post = ask(at, "POST", path, &format!("{condition}\r\n"), "").unwrap();
        assert!([200, 500].contains(&post.status), "a POST has no conditions here: {}", post.status);
    }
    let unchanged = get(at, "/unchanged");
    assert!(
        unchanged.status == 304 && unchanged.header("etag").len() > 2,
        "a stage's own 304 has the tag, too"
    );
    let down = get(at, "/down");
    assert_eq!(
        (down.header("etag"), down.header("accept-ranges")),
        ("", ""),
        "an error's text is nothing of the content"
    );
}

#[test]
fn a_range_is_cut_out_of_the_body() {
    let origin = serving(
        r#"{"body": "0123456789", "stages": [{"at": 0}],
            "headers": {"etag": "\"a\"", "last-modified": "Tue, 15 Nov 1994 12:45:26 GMT"}}"#,
    );
    let at = origin.address;
    for (asked, status, range, text) in [
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
        let reply = ask(at, "GET", "/", &format!("Range: {asked}\r\n"), "").unwrap();
        assert_eq!(
            (reply.status, reply.header("content-range"), reply.text()),
            (status, range, text),
            "{asked}"
        );
    }
    let empty = serving(r#"{"body": "", "stages": [{"at": 0}]}"#);
    for asked in ["bytes=0-0", "bytes=-1", "bytes=0-"] {
        let reply = ask(empty.address, "GET", "/", &format!("Range: {asked}\r\n"), "").unwrap();
        assert_eq!((reply.status, reply.header("content-range")), (416, "bytes */0"));
    }
    let head = ask(at, "HEAD", "/", "Range: bytes=0-3\r\n", "").unwrap();
    assert_eq!((head.status, head.header("content-length")), (200, "10"), "a range is for GET alone");
}
