//! Stored responses: revalidation, ranges, HEAD, reload.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use stockade_cache::Invalidation;
use stockade_proxy::admin::{Purge, PurgeTarget};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Semaphore,
};

use crate::serve::support::*;

/// Stale on arrival, with an entity tag.
const STALE: &[&str] = &["Cache-Control: max-age=1", "Age: 100", "ETag: \"1\"", "Content-Type: text/x"];

/// An origin with one good response; then 304 with `later` for conditional requests and `new` for others.
async fn validated(first: &'static [&'static str], later: &'static [&'static str]) -> Origin {
    Origin::responding(move |received| {
        match received.field("if-none-match").or(received.field("if-modified-since")) {
            _ if received.number == 0 => sized("200 OK", first, b"good"),
            Some(_) => format!("HTTP/1.1 304 Not Modified\r\n{}\r\n", lines(later)).into_bytes(),
            None => sized("200 OK", &["Cache-Control: max-age=60", "ETag: \"2\""], b"new"),
        }
    })
    .await
}

#[tokio::test]
async fn validated_response_is_fresh_again() {
    const MODIFIED: &[&str] =
        &["Cache-Control: max-age=1", "Age: 100", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT", "X: old"];
    for first in [STALE, MODIFIED] {
        let origin = validated(first, &["Cache-Control: max-age=60", "X: new", "Content-Length: 99"]).await;
        let proxy = proxy(&origin).await;
        get(&proxy, "/").await.assert_body(b"good");
        // Coalesced requests with client conditions, which the proxy evaluates itself.
        let request_for = |number: usize| {
            let own =
                ["X: y", "If-None-Match: \"1\"", "If-None-Match: \"other\"", "Range: bytes=1-2"][number % 4];
            request("GET", "/", &[own])
        };
        for (number, answer) in
            answers(send_concurrently(&proxy, 40, request_for).await).await.into_iter().enumerate()
        {
            assert_eq!(answer.field("x"), Some("new"), "{:?}", answer.head);
            match (number % 4, first == STALE) {
                (1, true) => assert_eq!(answer.status(), 304),
                (3, _) => {
                    assert_eq!(answer.status(), 206);
                    answer.assert_body(b"oo");
                }
                _ => answer.assert_body(b"good"),
            }
        }
        assert_eq!(origin.count(), 2);
        let hit = get(&proxy, "/").await;
        hit.assert_body(b"good");
        assert_eq!((hit.outcome(), hit.field("content-length")), ("hit", Some("4")));
    }
}

#[tokio::test]
async fn mismatched_304_is_discarded() {
    for later in [&["ETag: \"other\""][..], &["ETag: \"1\"", "Vary: Who"]] {
        let origin = validated(STALE, Box::leak(later.to_vec().into_boxed_slice())).await;
        let proxy = proxy(&origin).await;
        get(&proxy, "/").await.assert_body(b"good");
        get(&proxy, "/").await.assert_body(b"new");
        let hit = get(&proxy, "/").await;
        hit.assert_body(b"new");
        assert_eq!((hit.outcome(), origin.count()), ("hit", 3));
    }
}

#[tokio::test]
async fn validation_may_turn_a_response_private() {
    for later in [
        &["Cache-Control: private, max-age=60", "You: 1"][..],
        &["Cache-Control: no-store", "You: 1"],
        &["Cache-Control: max-age=60", "Set-Cookie: you=1"],
    ] {
        let is_cookie = later[1].starts_with("Set-Cookie");
        let gate = Arc::new(Semaphore::new(1));
        let held = Arc::clone(&gate);
        let validations = Arc::new(AtomicUsize::new(0));
        let origin = Origin::start(move |received, mut line| {
            let (gate, validations) = (Arc::clone(&held), Arc::clone(&validations));
            async move {
                gate.acquire().await.ok()?.forget();
                let bytes = if received.number == 0 {
                    sized("200 OK", STALE, b"good")
                } else if received.field("if-none-match").is_some() {
                    let own = later[1].replace('1', &validations.fetch_add(1, SeqCst).to_string());
                    format!("HTTP/1.1 304 Not Modified\r\n{}\r\n{own}\r\n\r\n", later[0]).into_bytes()
                } else {
                    sized("200 OK", &[later[0], &format!("You: {}", received.number + 1_000)], b"own")
                };
                line.write_all(&bytes).await.ok().map(|()| line)
            }
        })
        .await;
        let proxy = proxy(&origin).await;
        get(&proxy, "/").await.assert_body(b"good");
        let clients = send_concurrently(&proxy, 30, |_| request("GET", "/", &[])).await;
        until(|| origin.count() == 2).await;
        gate.add_permits(1_000);
        let mut own = Vec::new();
        for answer in answers(clients).await {
            assert!(answer.is_whole && (answer.body == b"good" || answer.body == b"own"), "{answer:?}");
            assert_eq!(answer.status(), 200);
            own.extend(answer.field(if is_cookie { "set-cookie" } else { "you" }).map(str::to_owned));
        }
        let all = own.len();
        own.sort();
        own.dedup();
        assert_eq!(own.len(), all, "{later:?}: a client has the field of another");
        if is_cookie {
            assert_eq!((origin.count(), all), (2, 1), "only the field is private");
            let hit = get(&proxy, "/").await;
            hit.assert_body(b"good");
            assert_eq!((hit.outcome(), hit.field("set-cookie")), ("hit", None));
        } else {
            assert_eq!(all, 30, "{later:?}");
            assert_ne!(get(&proxy, "/").await.outcome(), "hit");
        }
    }
}

#[tokio::test]
async fn client_conditions_are_evaluated_by_the_proxy() {
    const FIELDS: &[&str] =
        &["Cache-Control: max-age=60", "ETag: \"1\"", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"];
    let conditions = [
        ("If-None-Match: \"1\"", 304),
        ("If-None-Match: W/\"1\"", 304),
        ("If-None-Match: *", 304),
        ("If-None-Match: \"0\", \"1\"", 304),
        ("If-None-Match: \"0\"", 200),
        ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", 304),
        ("If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT", 200),
        ("If-Modified-Since: garbage", 200),
        ("If-Match: \"1\"", 200),
    ];
    let origin = Origin::responding(|_| sized("200 OK", FIELDS, b"good")).await;
    let proxy = proxy(&origin).await;
    for (number, (field, status)) in conditions.into_iter().enumerate() {
        for outcome in ["miss", "hit"] {
            for method in ["GET", "HEAD"] {
                if outcome == "miss" && method == "HEAD" {
                    continue;
                }
                let answer = send(&proxy, method, &format!("/{number}"), &[field]).await;
                assert_eq!((answer.status(), answer.outcome()), (status, outcome), "{method} {field}");
                answer.assert_body(if status == 200 && method == "GET" { b"good" } else { b"" });
                assert_eq!(answer.field("etag"), Some("\"1\""));
            }
        }
    }
    for received in origin.requests() {
        assert!(
            received.field("if-none-match").or(received.field("if-modified-since")).is_none(),
            "{}",
            received.head
        );
    }
}

#[tokio::test]
async fn ranges_are_served_from_stored_and_streaming_bodies() {
    let body = content(100_000);
    let gate = Arc::new(Semaphore::new(0));
    let (held, all) = (Arc::clone(&gate), body.clone());
    let origin = Origin::start(move |_, mut line| {
        let (gate, body) = (Arc::clone(&held), all.clone());
        async move {
            let answer = sized("200 OK", &["Cache-Control: max-age=60", "ETag: \"1\""], &body);
            let (first, second) = answer.split_at(answer.len() - body.len() / 2);
            line.write_all(first).await.ok()?;
            gate.acquire().await.ok()?.forget();
            line.write_all(second).await.ok().map(|()| line)
        }
    })
    .await;
    let proxy = proxy(&origin).await;
    let part = |from: usize, to: usize| format!("bytes {from}-{to}/100000");
    // A range of the first half is served before the second half arrives.
    let mut early = Client::connect(&proxy).await;
    let early = early.send("GET", "/", &["Range: bytes=10-1000"]).await;
    assert_eq!((early.status(), early.field("content-range")), (206, Some(&*part(10, 1_000))));
    early.assert_body(&body[10..=1_000]);
    let mut across = Client::connect(&proxy).await;
    across.write(request("GET", "/", &["Range: bytes=49990-50009"])).await;
    let mut last = Client::connect(&proxy).await;
    last.write(request("GET", "/", &["Range: bytes=-5"])).await;
    let mut none = Client::connect(&proxy).await;
    let none = none.send("GET", "/", &["Range: bytes=100000-"]).await;
    assert_eq!((none.status(), none.field("content-range")), (416, Some("bytes */100000")));
    assert_eq!((origin.count(), origin.in_progress()), (1, 1));
    gate.add_permits(1);
    let head = across.head_to("GET").await.expect("an answer");
    across.rest(head, Vec::new()).await.assert_body(&body[49_990..50_010]);
    let head = last.head_to("GET").await.expect("an answer");
    last.rest(head, Vec::new()).await.assert_body(&body[99_995..]);
    with_timeout(proxy.proxy().cache().wait_idle()).await;
    for (range, from, to) in
        [("0-0", 0, 0), ("99999-", 99_999, 99_999), ("-7", 99_993, 99_999), ("5-999999", 5, 99_999)]
    {
        let answer = send(&proxy, "GET", "/", &[&format!("Range: bytes={range}")]).await;
        assert_eq!((answer.status(), answer.outcome()), (206, "hit"), "{range}");
        assert_eq!(answer.field("content-range"), Some(&*part(from, to)));
        answer.assert_body(&body[from..=to]);
    }
    for (fields, status) in [
        (["Range: bytes=0-9", "If-Range: \"1\""], 206),
        (["Range: bytes=0-9", "If-Range: \"0\""], 200),
        (["Range: bytes=0-9", "If-Range: W/\"1\""], 200),
        (["Range: bytes=0-9", "If-None-Match: \"1\""], 304),
        (["Range: lines=0-9", "X: y"], 200),
        (["Range: bytes=9-0", "X: y"], 200),
        (["Range: bytes=100000-", "X: y"], 416),
    ] {
        let answer = send(&proxy, "GET", "/", &fields).await;
        assert_eq!((answer.status(), answer.outcome()), (status, "hit"), "{fields:?}");
        match status {
            206 => answer.assert_body(&body[..10]),
            200 => answer.assert_body(&body),
            _ => assert!(answer.is_whole && answer.body.is_empty()),
        }
    }
    let several = send(&proxy, "GET", "/", &["Range: bytes=0-9, 50-59, -3"]).await;
    assert_eq!(several.status(), 206);
    let kind = several.field("content-type").expect("a type").to_owned();
    let boundary =
        kind.strip_prefix("multipart/byteranges; boundary=").expect("several").trim_matches('"').to_owned();
    let mut expected = Vec::new();
    for (from, to) in [(0, 9), (50, 59), (99_997, 99_999)] {
        assert!(several.is_whole);
        expected
            .extend(format!("\r\n--{boundary}\r\nContent-Range: {}\r\n\r\n", part(from, to)).into_bytes());
        expected.extend(&body[from..=to]);
    }
    expected.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
    let plain = |bytes: &[u8]| bytes.to_ascii_lowercase();
    let trimmed = plain(&several.body);
    let expected = plain(&expected);
    let trimmed = trimmed.strip_prefix(b"\r\n").unwrap_or(&trimmed);
    assert!(trimmed == expected.strip_prefix(b"\r\n").expect("it begins so"), "{}", trimmed.escape_ascii());
    assert_eq!(origin.count(), 1);
}

#[tokio::test]
async fn head_uses_fresh_entries_and_never_stores() {
    let origin = Origin::responding(|received| {
        let fields = match received.target() {
            "/fresh" => &["Cache-Control: max-age=60", "ETag: \"1\""][..],
            _ => STALE,
        };
        let answer = sized("200 OK", fields, b"good");
        if received.method() == "HEAD" { answer[..answer.len() - 4].to_vec() } else { answer }
    })
    .await;
    let proxy = proxy(&origin).await;
    let mut client = Client::connect(&proxy).await;
    // One connection, so that stray body bytes would break the next response.
    for (target, did, count) in [("/fresh", "bypass", 1), ("/fresh", "bypass", 2), ("/stale", "bypass", 3)] {
        let answer = client.send("HEAD", target, &[]).await;
        assert_eq!((answer.status(), answer.outcome(), origin.count()), (200, did, count));
        assert_eq!(answer.field("content-length"), Some("4"));
    }
    client.send("GET", "/fresh", &[]).await.assert_body(b"good");
    client.send("GET", "/stale", &[]).await.assert_body(b"good");
    with_timeout(proxy.proxy().cache().wait_idle()).await;
    let answer = client.send("HEAD", "/fresh", &[]).await;
    assert_eq!((answer.outcome(), answer.field("content-length"), origin.count()), ("hit", Some("4"), 5));
    let answer = client.send("HEAD", "/stale", &[]).await;
    assert_eq!((answer.outcome(), answer.field("content-length"), origin.count()), ("bypass", Some("4"), 6));
    client.send("GET", "/fresh", &[]).await.assert_body(b"good");
    assert_eq!(origin.count(), 6);
}

/// RFC 9111, 4.2.3: the time from the request to the response counts as age.
#[tokio::test]
async fn late_response_to_head_freshens_for_the_rest_of_its_lifetime() {
    let origin = Origin::start(|received, mut line| async move {
        let answer = if received.method() == "HEAD" {
            elapse(Duration::from_millis(1_100)).await;
            b"HTTP/1.1 200 OK\r\nCache-Control: max-age=1\r\nETag: \"1\"\r\nContent-Length: 4\r\n\r\n"
                .to_vec()
        } else {
            sized("200 OK", STALE, b"good")
        };
        line.write_all(&answer).await.ok().map(|()| line)
    })
    .await;
    let proxy = proxy(&origin).await;
    get(&proxy, "/").await.assert_body(b"good");
    assert_eq!(send(&proxy, "HEAD", "/", &[]).await.status(), 200);
    assert_ne!(get(&proxy, "/").await.outcome(), "hit");
}

#[tokio::test]
async fn staleness_counts_from_the_age_of_the_response() {
    // Stale for 99 s on arrival, beyond the windows of 10 s.
    let origin = Origin::responding(|received| {
        let header = "Cache-Control: max-age=1, stale-while-revalidate=10, stale-if-error=10";
        if received.number > 0 {
            return sized("503 Away", &[], b"away");
        }
        sized("200 OK", &[header, "Age: 100", "ETag: \"1\""], b"body")
    })
    .await;
    let proxy = proxy(&origin).await;
    assert_eq!(get(&proxy, "/").await.status(), 200);
    let hasty = send(&proxy, "GET", "/", &["Cache-Control: max-stale=98"]).await;
    assert_eq!((hasty.status(), origin.count()), (503, 2));
    let patient = send(&proxy, "GET", "/", &["Cache-Control: max-stale=500"]).await;
    assert_eq!((patient.status(), patient.outcome(), origin.count()), (200, "stale", 2));
    let header = patient.field("cache-status").unwrap_or_default();
    assert!(header.contains("ttl=-99") || header.contains("ttl=-10"), "{header}");
    assert_eq!(get(&proxy, "/").await.status(), 503);
}

#[tokio::test]
async fn oversized_or_slow_upload_is_a_client_error() {
    let origin = Origin::start(|_, mut line| async move {
        let mut all = Vec::new();
        line.read_to_end(&mut all).await.ok().and(None)
    })
    .await;
    let bounds = "[bounds]\nbody = \"1KiB\"\n[timeouts]\nbody = \"100ms\"\n";
    let proxy = proxy_with(&origin.url(), bounds, "").await;
    let body = "x".repeat(1_025);
    for (status, sent) in [
        (413, format!("Content-Length: 1025\r\n\r\n{body}")),
        (413, format!("Transfer-Encoding: chunked\r\n\r\n401\r\n{body}\r\n0\r\n\r\n")),
        (408, "Content-Length: 10\r\n\r\nhalf".to_owned()),
    ] {
        let mut client = Client::connect(&proxy).await;
        client.write(format!("POST / HTTP/1.1\r\nHost: a\r\n{sent}")).await;
        assert_eq!(client.head_to("POST").await.expect("an answer").status, status, "{sent}");
    }
}

#[tokio::test]
async fn reload_keeps_entries() {
    let one = Origin::responding(|received| good(format!("one {}", received.target()).as_bytes())).await;
    let other = Origin::responding(|received| good(format!("other {}", received.target()).as_bytes())).await;
    let proxy = proxy(&one).await;
    get(&proxy, "/kept").await.assert_body(b"one /kept");
    // Clients send requests during the reloads.
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let clients = futures_util::future::join_all((0..20).map(|number: usize| {
        let (stop, proxy) = (Arc::clone(&stop), &proxy);
        async move {
            let mut client = Client::connect(proxy).await;
            let mut requests = 0;
            while !stop.load(SeqCst) {
                client.send("GET", "/kept", &[]).await.assert_body(b"one /kept");
                let answer = client.send("GET", &format!("/{number}/{requests}"), &[]).await;
                assert_eq!(answer.status(), 200);
                requests += 1;
            }
            requests
        }
    }));
    let reloads = async {
        for round in 0..20 {
            let url = if round % 2 == 0 { other.url() } else { one.url() };
            proxy.proxy().reload(config(&url, "", "")).await.expect("a valid configuration");
            let answer = get(&proxy, &format!("/round{round}")).await;
            assert!(
                answer.text().starts_with(if round % 2 == 0 { "other" } else { "one" }),
                "{}",
                answer.text()
            );
        }
        stop.store(true, SeqCst);
    };
    let (requests, ()) = futures_util::future::join(clients, reloads).await;
    assert!(requests.iter().sum::<usize>() > 20);
    let hit = get(&proxy, "/kept").await;
    hit.assert_body(b"one /kept");
    assert_eq!(hit.outcome(), "hit");
}

#[tokio::test]
async fn unchanged_routes_keep_their_state_when_origins_are_reordered() {
    let origin = Origin::responding(|received| good(received.target().as_bytes())).await;
    let route = "[[route]]\npath = \"/*\"\norigin = \"a\"\n";
    let other = "[[origin]]\nname = \"b\"\nurl = \"http://127.0.0.1:9\"\n";
    let proxy = proxy_with(&origin.url(), route, other).await;
    get(&proxy, "/").await.assert_body(b"/");
    let before = proxy.proxy().router();
    let swapped = config(&origin.url(), &format!("{route}{other}"), "");
    assert_ne!(swapped.routes[0].origin, before.config.routes[0].origin);
    for config in [swapped, before.config.clone()] {
        proxy.proxy().reload(config).await.expect("a valid configuration");
        let now = proxy.proxy().router();
        assert!(Arc::ptr_eq(&now.routes[0], &before.routes[0]));
        assert_eq!((now.routes[0].stats().requests.loads, get(&proxy, "/").await.outcome()), (1, "hit"));
    }
    assert_eq!(get(&proxy, "/new").await.outcome(), "miss");
}

#[tokio::test]
async fn hop_by_hop_fields_are_not_forwarded() {
    let origin = Origin::responding(|_| {
        let about = "Connection: x-own, keep-alive\r\nX-Own: a\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c";
        let header = "Cache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\nX-Kept: b";
        format!("HTTP/1.1 200 OK\r\n{about}\r\n{header}\r\n\r\n4\r\nbody\r\n0\r\n\r\n").into_bytes()
    })
    .await;
    let proxy = proxy(&origin).await;
    let fields = [
        "Connection: X-Mine, TE",
        "X-Mine: a",
        "Proxy-Connection: keep-alive",
        "Keep-Alive: 5",
        "TE: trailers",
        "Upgrade: h2c",
        "X-Kept: b",
        "Content-Length: 0",
    ];
    for (method, did) in [("POST", "bypass"), ("GET", "miss"), ("GET", "hit")] {
        let answer = send(&proxy, method, "/", &fields).await;
        answer.assert_body(b"body");
        assert_eq!((answer.outcome(), answer.field("x-kept")), (did, Some("b")));
        for name in ["x-own", "keep-alive", "upgrade"] {
            assert_eq!(answer.field(name), None, "{method} {did} {:?}", answer.head);
        }
    }
    for received in origin.requests() {
        assert_eq!(received.field("x-kept"), Some("b"));
        for name in ["connection", "x-mine", "proxy-connection", "keep-alive", "te", "upgrade"] {
            assert_eq!(received.field(name), None, "{}", received.head);
        }
    }
}

/// A field that the cache itself reads, and one that tells clients about the origin.
#[tokio::test]
async fn hidden_fields_reach_no_client_and_the_cache_still_reads_them() {
    let origin = Origin::responding(|_| {
        let hidden = ["Cache-Control: max-age=60", "X-Powered-By: PHP", "Surrogate-Key: news"];
        sized("200 OK", &hidden, b"page")
    })
    .await;
    let route = "[[route]]\nhide_headers = [\"X-Powered-By\", \"Surrogate-Key\"]";
    let proxy = proxy_with(&origin.url(), "", route).await;
    for (method, fields, outcome) in [
        ("GET", &[][..], "miss"),
        ("GET", &[], "hit"),
        ("HEAD", &[], "hit"),
        ("GET", &["Cache-Control: no-store"], "bypass"),
    ] {
        let answer = send(&proxy, method, "/", fields).await;
        let shown = (answer.outcome(), answer.field("x-powered-by"), answer.field("surrogate-key"));
        assert_eq!(shown, (outcome, None, None), "{method} {fields:?}");
        assert_eq!(answer.field("cache-control"), Some("max-age=60"));
    }
    let purge = Purge { target: PurgeTarget::Tag("news".into()), mode: Invalidation::Hard };
    assert_eq!(proxy.proxy().purge(&purge), 1);
}
