//! Cache poisoning: a client must not shape the responses of others.

use stockade_cache::Invalidation;
use stockade_proxy::{
    admin::{Purge, PurgeTarget},
    server::ProxyServer,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::serve::support::*;

/// An origin that returns the request head as the body.
async fn echo() -> Origin {
    Origin::responding(|received| good(received.head.as_bytes())).await
}

#[tokio::test]
async fn unkeyed_fields_do_not_reach_the_origin() {
    for evil in [
        "X-Forwarded-Host: evil",
        "X-Forwarded-Proto: evil",
        "X-Forwarded-Scheme: evil",
        "X-Forwarded-Port: 666",
        "X-Forwarded-Prefix: /evil",
        "Forwarded: host=evil",
        "X-Host: evil",
        "X-Original-URL: /evil",
        "X-Rewrite-URL: /evil",
        "X-Forwarded-Uri: /evil",
        "X-Script-Name: /evil",
        "X-Replaced-Path: /evil",
        "X-Envoy-Original-Path: /evil",
        "X-Http-Path-Override: /evil",
        "X-Scheme: evil",
        "X-ARR-SSL: evil",
        "CF-Visitor: evil",
        "CloudFront-Forwarded-Proto: evil",
        "Disguised-Host: evil",
        "Surrogate-Capability: evil",
        "X-Sendfile-Type: evil",
        "X-Now-Route-Matches: evil",
        "CF-Connecting-IP: evil",
        "X.Forwarded.Host: evil",
        "X-HTTP-Method-Override: EVIL",
        "X-Method-Override: EVIL",
        "X-Forwarded-For: evil",
        "X-Real-IP: 192.0.2.66, evil",
        "True-Client-IP: evil",
        "X-Client-IP: evil",
        "Proxy: evil",
        "X_Forwarded_Host: evil",
        "X_HTTP_Method_Override: EVIL",
        "X-Own_Field: evil",
        "Content-Type: evil/evil",
        "Range: bytes=666-",
        "If-None-Match: \"evil\"",
        "If-Match: \"evil\"",
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
        "If-Range: \"evil\"",
        "Expect: 100-continue",
        "Upgrade: evil",
        "Proxy-Authorization: evil",
        "Connection: evil, x-forwarded-host\r\nEvil: evil",
    ] {
        let origin = echo().await;
        let proxy = proxy(&origin).await;
        send(&proxy, "GET", "/", &[evil]).await;
        let hit = get(&proxy, "/").await;
        // Only the origin can evaluate `If-Match`.
        let is_forwarded = evil.starts_with("If-Match");
        assert_eq!((hit.outcome(), origin.count()), ("hit", 1 + usize::from(is_forwarded)), "{evil}");
        let head = hit.text().to_ascii_lowercase();
        for word in ["evil", "666", "1994", "expect"] {
            assert!(!head.contains(word), "{evil}: {head}");
        }
        assert!(head.contains("x-forwarded-host: a\r\n") && head.contains("x-forwarded-proto: http\r\n"));
    }
}

#[tokio::test]
async fn unsafe_methods_cannot_override_host_or_path() {
    let origin = echo().await;
    let proxy = proxy(&origin).await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let fields = [
            "X-Forwarded-Host: evil",
            "X-Forwarded-Port: 666",
            "X-Forwarded-For: evil",
            "Forwarded: host=evil",
            "X-Host: evil",
            "X-Original-URL: /evil",
            "X_Original_URL: /evil",
            "X-Real-IP: evil",
            "Client-IP: evil",
            "Proxy: http://evil",
            "X-HTTP-Method-Override: PATCH",
            "Content-Length: 0",
        ];
        let answer = send(&proxy, method, "/", &fields).await;
        let head = answer.text().to_ascii_lowercase();
        assert!(!head.contains("evil") && !head.contains("666"), "{head}");
        for header in ["x-forwarded-host: a", "x-forwarded-for: 127.0.0.1", "x-http-method-override: patch"] {
            assert!(head.contains(&format!("\r\n{header}\r\n")), "{header}: {head}");
        }
    }
}

#[tokio::test]
async fn forwarded_for_is_the_peer_address() {
    let origin = Origin::responding(|received| {
        let address = received.field("x-forwarded-for").unwrap_or_default();
        sized("200 OK", &["Cache-Control: max-age=60", "Vary: X-Forwarded-For"], address.as_bytes())
    })
    .await;
    let proxy = proxy(&origin).await;
    for (field, did) in [
        ("X: y", "miss"),
        ("X-Forwarded-For: 192.0.2.1", "hit"),
        ("X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 127.0.0.1", "hit"),
    ] {
        let answer = send(&proxy, "GET", "/", &[field]).await;
        answer.assert_body(b"127.0.0.1");
        assert_eq!(answer.outcome(), did, "{field}");
    }
    let head = origin.requests()[0].head.to_ascii_lowercase();
    assert_eq!(head.matches("x-forwarded-for:").count(), 1, "{head}");
}

#[tokio::test]
async fn cookies_of_http2_are_one_line_for_the_origin() {
    let origin = echo().await;
    let proxy = proxy(&origin).await;
    let requests = Http2::connect(&proxy).await;
    let mut stream =
        requests.get_with("/", &[("cookie", "a=1"), ("cookie", "b=2; c=3"), ("cookie", "d=4")]).await;
    let head = String::from_utf8(stream.rest(Vec::new()).await.expect("a body")).expect("text");
    assert!(head.contains("\r\ncookie: a=1; b=2; c=3; d=4\r\n"), "{head}");
    assert_eq!(head.matches("cookie").count(), 1, "{head}");
}

#[tokio::test]
async fn equivalent_urls_share_one_entry() {
    let origin = echo().await;
    let proxy = proxy(&origin).await;
    let first = send(&proxy, "GET", "/b%2f/%7Ec?q=%7e", &[]).await;
    assert!(first.text().starts_with("GET /b%2F/~c?q=%7e HTTP/1.1\r\n"), "{}", first.text());
    for (target, host) in [
        ("/b%2F/~c?q=%7e", "a"),
        ("/x/../b%2f/./%7ec?q=%7e", "A"),
        ("/b%2f/%7ec?q=%7e", "a:80"),
        ("http://a/b%2f/~c?q=%7e", "a"),
        ("http://a:80/b%2f/~c?q=%7e", "a:80"),
        ("/b%2f/~c?q=%7e", "a:080"),
        ("/b%2f/~c?q=%7e", "a."),
        ("http://A.:80/b%2f/~c?q=%7e", "a.:80"),
    ] {
        let hit = send(&proxy, "GET", target, &[&format!("Host: {host}")]).await;
        assert_eq!(hit.status(), 200, "{target} {host} {:?}", hit.text());
        hit.assert_body(&first.body);
        assert_eq!(hit.outcome(), "hit", "{target} {host}");
    }
    assert_eq!(origin.count(), 1);
    // Different resources.
    for (target, host) in [
        ("/b//~c?q=%7e", "a"),
        ("/b%2f/~c?q=~", "a"),
        ("/B%2f/~c?q=%7e", "a"),
        ("/b%2f/~c", "a"),
        ("/b%2f/~c?", "a"),
        ("/b%2f/~c?q=%7e", "a:81"),
        ("/b%2f/~c?q=%7e", "b"),
        ("//evil/b%2f/~c?q=%7e", "a"),
        ("/%2e%2e//evil/", "a"),
    ] {
        let before = origin.count();
        let other = send(&proxy, "GET", target, &[&format!("Host: {host}")]).await;
        assert_eq!((other.outcome(), origin.count()), ("miss", before + 1), "{target} {host}");
        assert!(other.text().contains(&format!("\r\nhost: {host}\r\n")), "{}", other.text());
    }
    let evil = send(&proxy, "GET", "//evil/", &[]).await;
    assert!(evil.text().starts_with("GET //evil/ HTTP/1.1\r\n"), "{}", evil.text());
}

#[tokio::test]
async fn purge_reaches_every_spelling_of_an_authority() {
    let origin = echo().await;
    let proxy = proxy(&origin).await;
    let spellings = ["a", "A", "a:80", "a:080", "a.", "A.:80"];
    for purged in spellings {
        for host in spellings {
            let host = format!("Host: {host}");
            let stored = send(&proxy, "GET", "/", &[&host]).await;
            assert!(stored.text().contains("\r\nhost: a\r\n"), "{}", stored.text());
            let target = PurgeTarget::Url(format!("http://{purged}/").parse().expect("a URL"));
            let count = proxy.proxy().purge(&Purge { target, mode: Invalidation::Hard });
            assert_eq!(count, 1, "{purged} {host}");
            assert_eq!(send(&proxy, "GET", "/", &[&host]).await.outcome(), "miss", "{purged} {host}");
        }
    }
}

/// Sends a request with content on a connection of its own; returns the status of the response.
async fn send_content(
    proxy: &ProxyServer,
    method: &str,
    target: &str,
    fields: &[&str],
    content: &str,
) -> u16 {
    let mut client = Client::connect(proxy).await;
    client.write(request(method, target, fields) + content).await;
    client.head_to(method).await.expect("an answer").status
}

/// Many origins leave content unread that they do not expect, as Python's `http.server` does, and take it for the next request
/// on the connection. Here each request is answered so.
#[tokio::test]
async fn content_that_an_origin_ignores_answers_no_other_client() {
    let origin = Origin::responding(|received| good(received.target().as_bytes())).await;
    let proxy = proxy(&origin).await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let length = format!("Content-Length: {}", smuggled.len());
    let (sized, chunked) = ([length.as_str()], ["Transfer-Encoding: chunked"]);
    let chunks = format!("{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len());
    let http2 = Http2::connect(&proxy).await;
    for (number, method) in
        ["GET", "OPTIONS", "DELETE", "PROPFIND", "QUERY", "UNKNOWN", "get"].into_iter().enumerate()
    {
        for (kind, fields, content) in [
            ("sized", &[sized[0]][..], smuggled),
            ("no-store", &[sized[0], "Cache-Control: no-store"], smuggled),
            ("chunked", &chunked, chunks.as_str()),
            ("expects", &[sized[0], "Expect: 100-continue"], smuggled),
            ("http2", &[], smuggled),
        ] {
            let target = format!("/{number}/{kind}");
            let status = if kind == "http2" {
                http2.send_content(method, &target, smuggled).await.head.status.as_u16()
            } else {
                send_content(&proxy, method, &target, fields, content).await
            };
            assert_eq!(status, 200, "{method} {kind}");
            for victim in 0..2 {
                let own = format!("{target}/victim");
                let answer = get(&proxy, &own).await;
                assert_eq!(answer.text(), own, "{method} {kind}: user {victim}");
            }
            // The response to content is not stored.
            let is_same_key = ["GET", "OPTIONS"].contains(&method);
            assert!(!is_same_key || get(&proxy, &target).await.outcome() == "miss", "{method} {kind}");
        }
    }
    for received in origin.requests() {
        let is_with_content = received.field("content-length").is_some_and(|length| length != "0")
            || received.field("transfer-encoding").is_some();
        assert_eq!(received.field("connection"), is_with_content.then_some("close"), "{received:?}");
        assert_eq!(received.field("expect"), None, "{received:?}");
    }
}

#[tokio::test]
async fn get_with_empty_content_is_looked_up() {
    let origin = echo().await;
    let proxy = proxy(&origin).await;
    get(&proxy, "/").await;
    let http2 = Http2::connect(&proxy).await;
    for (fields, content) in [("Content-Length: 0", ""), ("Transfer-Encoding: chunked", "0\r\n\r\n")] {
        let mut client = Client::connect(&proxy).await;
        client.write(request("GET", "/", &[fields]) + content).await;
        assert_eq!(client.head_to("GET").await.expect("an answer").outcome(), "hit", "{fields}");
    }
    let answer = http2.send_content("GET", "/", "").await;
    assert!(
        answer.head.headers["cache-status"].to_str().expect("text").contains("hit"),
        "{answer:?}",
        answer = answer.head
    );
    assert_eq!(origin.count(), 1);
}

/// An origin that reads sized and chunked bodies and reports their length and whether they match [`content`].
async fn uploads() -> Origin {
    Origin::start(|received, mut line| async move {
        let mut bytes = Vec::new();
        if let Some(length) = received.field("content-length") {
            bytes = vec![0; length.parse().ok()?];
            line.read_exact(&mut bytes).await.ok()?;
        } else if received.field("transfer-encoding").is_some() {
            let mut client = Client(line);
            let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
            bytes = client.rest(Head::read(text, false), Vec::new()).await.body;
            line = client.0;
        }
        let (status, location) = match received.target() {
            "/failed" => ("500 No", "/"),
            "/other" => ("200 OK", "http://b/"),
            "/elsewhere" => ("201 Created", "/"),
            _ => ("200 OK", "/nowhere"),
        };
        let same = if bytes == content(bytes.len()) { "same" } else { "other" };
        let text = format!("{} {} {same} {}", received.method(), bytes.len(), received.number);
        let fields = ["Cache-Control: max-age=60", "Vary: Accept-Language", &format!("Location: {location}")];
        line.write_all(&sized(status, &fields, text.as_bytes())).await.ok()?;
        Some(line)
    })
    .await
}

#[tokio::test]
async fn successful_unsafe_request_invalidates_its_url() {
    for (method, target, is_outdated) in [
        ("POST", "/", true),
        ("PUT", "/", true),
        ("DELETE", "/", true),
        ("PATCH", "/", true),
        ("POST", "/elsewhere", true),
        ("POST", "/failed", false),
        ("POST", "/other", false),
        ("OPTIONS", "/", false),
    ] {
        let origin = uploads().await;
        let proxy = proxy(&origin).await;
        let languages = ["de", "en", "fr"].map(|language| format!("Accept-Language: {language}"));
        for language in &languages {
            assert_eq!(send(&proxy, "GET", "/", &[language]).await.outcome(), "miss");
        }
        for language in &languages {
            assert_eq!(send(&proxy, "GET", "/", &[language]).await.outcome(), "hit");
        }
        let answer = send(&proxy, method, target, &["Content-Length: 0"]).await;
        assert!(answer.text().starts_with(method), "{:?}", answer.text());
        for language in &languages {
            let did = send(&proxy, "GET", "/", &[language]).await;
            assert_eq!(
                did.outcome(),
                if is_outdated { "miss" } else { "hit" },
                "{method} {target} {language}"
            );
        }
    }
}

#[tokio::test]
async fn invalidated_location_uses_the_key_of_its_own_route() {
    let origin = Origin::responding(|received| match received.method() {
        "POST" => sized("201 Created", &["Location: /a/y?utm_source=x"], b"made"),
        _ => good(received.target().as_bytes()),
    })
    .await;
    let routes = "[[route]]\npath = \"/*\"\n[[route]]\npath = \"/a/*\"\nignore_query = [\"utm_*\"]\n";
    let proxy = proxy_with(&origin.url(), routes, "").await;
    assert_eq!(get(&proxy, "/a/y?utm_source=z").await.outcome(), "miss");
    assert_eq!(get(&proxy, "/a/y").await.outcome(), "hit");
    send(&proxy, "POST", "/b", &["Content-Length: 0"]).await.assert_body(b"made");
    assert_eq!(get(&proxy, "/a/y").await.outcome(), "miss");
}

#[tokio::test]
async fn uploads_are_streamed() {
    let origin = uploads().await;
    let proxy = proxy(&origin).await;
    let body = content(10 << 20);
    let mut client = Client::connect(&proxy).await;
    let length = body.len();
    client.write(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")).await;
    client.write(&body).await;
    let head = client.head_to("POST").await.expect("an answer");
    let answer = client.rest(head, Vec::new()).await;
    assert!(answer.text().starts_with(&format!("POST {length} same")), "{:?}", answer.text());
    client.write("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for piece in body.chunks(100_000) {
        client.write([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await;
    }
    client.write("0\r\n\r\n").await;
    let head = client.head_to("PUT").await.expect("an answer");
    let answer = client.rest(head, Vec::new()).await;
    assert!(answer.text().starts_with(&format!("PUT {length} same")), "{:?}", answer.text());
    // `100 Continue` arrives before the body is sent.
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16\r\nExpect: 100-continue\r\n\r\n").await;
    let header = with_timeout(read_head(&mut client.0)).await.expect("an interim answer");
    assert!(header.starts_with("HTTP/1.1 100 "), "{header}");
    client.write(&body[..16]).await;
    let head = client.head_to("POST").await.expect("an answer");
    let answer = client.rest(head, Vec::new()).await;
    assert!(answer.text().starts_with("POST 16 same"), "{:?}", answer.text());
}

#[tokio::test]
async fn unread_upload_is_not_buffered() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let held = std::sync::Arc::clone(&gate);
    let origin = Origin::start(move |received, mut line| {
        let gate = std::sync::Arc::clone(&held);
        async move {
            gate.acquire().await.ok()?.forget();
            let mut bytes = vec![0; received.field("content-length")?.parse().ok()?];
            line.read_exact(&mut bytes).await.ok()?;
            let same = bytes == content(bytes.len());
            line.write_all(&sized("200 OK", &[], if same { b"same" } else { b"other" })).await.ok()?;
            Some(line)
        }
    })
    .await;
    let proxy = proxy(&origin).await;
    let body = content(60 << 20);
    let mut client = Client::connect(&proxy).await;
    client.write(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len())).await;
    // The beginning is buffered before the request is forwarded.
    let (mut sent, mut still) = (100_000, 0);
    client.write(&body[..sent]).await;
    until(|| origin.count() == 1).await;
    // Socket buffers fill, and the proxy takes no more.
    with_timeout(async {
        while still < 20_000 && sent < body.len() {
            match client.0.get_ref().try_write(&body[sent..(sent + 65_536).min(body.len())]) {
                Ok(bytes) => (sent, still) = (sent + bytes, 0),
                Err(_) => still += 1,
            }
            stockade_model::time::yield_now().await;
        }
    })
    .await;
    assert!(sent < 32 << 20, "{} MiB are nowhere", sent >> 20);
    gate.add_permits(1);
    client.write(&body[sent..]).await;
    let head = client.head_to("POST").await.expect("an answer");
    client.rest(head, Vec::new()).await.assert_body(b"same");
}

/// RFC 9110, 7.6.2.
#[tokio::test]
async fn options_is_forwarded_as_often_as_it_may() {
    let origin = echo().await;
    let proxy = proxy(&origin).await;
    let last = send(&proxy, "OPTIONS", "/", &["Max-Forwards: 0"]).await;
    assert_eq!((last.status(), last.field("cache-status")), (200, Some("stockade; detail=bypass")));
    assert_eq!(origin.count(), 0, "the proxy is the last recipient");
    send(&proxy, "OPTIONS", "/", &["Max-Forwards: 2"]).await;
    assert_eq!(origin.requests()[0].field("max-forwards"), Some("1"));
    send(&proxy, "OPTIONS", "/", &["Max-Forwards: x"]).await;
    assert_eq!(origin.requests()[1].field("max-forwards"), Some("x"));
}

#[tokio::test]
async fn request_that_has_been_here_is_not_forwarded() {
    let origin = echo().await;
    let proxy = proxy(&origin).await;
    get(&proxy, "/").await;
    let via = format!("Via: {}", origin.requests()[0].field("via").expect("the path of the request"));
    for method in ["GET", "HEAD", "POST"] {
        let refused = send(&proxy, method, "/", &[&via]).await;
        assert_eq!((refused.status(), refused.field("cache-status")), (508, Some("stockade; detail=error")));
    }
    assert_eq!(origin.count(), 1);
}

/// Origins that send these mean a private response.
#[tokio::test]
async fn odd_forms_of_private_are_not_stored() {
    for fields in ["private=1, max-age=60", "no-cache=x, max-age=60", "\"no-store\", max-age=60"] {
        let field = format!("Cache-Control: {fields}");
        let origin = Origin::responding(move |_| sized("200 OK", &[&field], b"mine")).await;
        let proxy = proxy(&origin).await;
        get(&proxy, "/").await;
        assert_ne!(get(&proxy, "/").await.outcome(), "hit", "{fields}");
        assert_eq!(origin.count(), 2, "{fields}");
    }
}

/// RFC 9110, 15: a status above 599 is invalid.
#[tokio::test]
async fn invalid_statuses_are_not_stored() {
    let origin = Origin::responding(|_| sized("600 What", &["Cache-Control: max-age=60"], b"")).await;
    let proxy = proxy(&origin).await;
    assert_eq!(get(&proxy, "/").await.status(), 600);
    get(&proxy, "/").await;
    assert_eq!(origin.count(), 2);
}
