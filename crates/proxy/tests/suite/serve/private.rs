//! Responses for one client only.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use stockade_proxy::server::ProxyServer;
use tokio::{io::AsyncWriteExt, sync::Semaphore};

use crate::serve::support::*;

/// An origin that consumes a permit for each response.
async fn gated(
    gate: &Arc<Semaphore>,
    answer: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
) -> Origin {
    let gate = Arc::clone(gate);
    Origin::start(move |received, mut line| {
        let (gate, bytes) = (Arc::clone(&gate), answer(&received));
        async move {
            gate.acquire().await.ok()?.forget();
            line.write_all(&bytes).await.ok().map(|()| line)
        }
    })
    .await
}

fn waiters(proxy: &ProxyServer) -> u64 {
    proxy.proxy().router().routes[0].stats().requests.waiters
}

fn with_cookie(user: usize) -> String {
    request("GET", "/", &[&format!("Cookie: user={user}")])
}

#[tokio::test]
async fn response_without_freshness_is_not_shared() {
    for header in [
        "Content-Type: text/html",
        "ETag: \"1\"",
        "Cache-Control: must-revalidate",
        "Cache-Control: no-cache",
        "Cache-Control: max-age=0",
        "Cache-Control: public",
        "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
        // Modified in the future: the heuristic freshness is zero.
        "Last-Modified: Fri, 01 Jan 2100 00:00:00 GMT",
    ] {
        let gate = Arc::new(Semaphore::new(0));
        let fails = Arc::new(AtomicBool::new(false));
        let is_failing = Arc::clone(&fails);
        let origin = gated(&gate, move |received| {
            if is_failing.load(SeqCst) {
                return sized("503 Away", &["X: y"], b"away");
            }
            sized("200 OK", &[header], received.field("cookie").unwrap_or_default().as_bytes())
        })
        .await;
        let cache = "[cache]\nstrategy = \"breaker\"\nswr = \"1m\"\n";
        let proxy = proxy_with(&origin.url(), cache, "connections = 100").await;
        let first = send_concurrently(&proxy, 1, with_cookie).await;
        until(|| origin.count() == 1).await;
        let others = send_concurrently(&proxy, 20, |number| with_cookie(number + 1)).await;
        until(|| waiters(&proxy) == 20).await;
        gate.add_permits(1_000);
        let all = answers(first).await.into_iter().chain(answers(others).await);
        for (number, answer) in all.enumerate() {
            answer.assert_body(format!("user={number}").as_bytes());
            assert_eq!(answer.outcome(), "miss", "{header}");
        }
        assert_eq!(origin.count(), 21, "{header}");
        // It does not serve as a fallback.
        fails.store(true, SeqCst);
        let answer = send(&proxy, "GET", "/", &["Cookie: user=99"]).await;
        assert_eq!(answer.status(), 503, "{header} {:?}", answer.text());
        answer.assert_body(b"away");
    }
}

#[tokio::test]
async fn response_with_freshness_is_shared_with_waiters() {
    for (route, header) in [
        ("", "Cache-Control: max-age=60"),
        ("", "Cache-Control: max-age=0, stale-while-revalidate=60"),
        ("", "Cache-Control: max-age=10\r\nAge: 60"),
        ("", "Cache-Control: public\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT"),
        ("[[route]]\ndefault_ttl = \"1m\"\n", "X: y"),
        ("[[route]]\nttl = \"1m\"\n", "X: y"),
    ] {
        let gate = Arc::new(Semaphore::new(0));
        let origin = gated(&gate, move |received| {
            sized("200 OK", &[header], received.field("cookie").unwrap_or_default().as_bytes())
        })
        .await;
        let proxy = proxy_with(&origin.url(), route, "").await;
        let first = send_concurrently(&proxy, 1, with_cookie).await;
        until(|| origin.count() == 1).await;
        let others = send_concurrently(&proxy, 20, |number| with_cookie(number + 1)).await;
        until(|| waiters(&proxy) == 20).await;
        gate.add_permits(1_000);
        for answer in answers(first).await.into_iter().chain(answers(others).await) {
            answer.assert_body(b"user=0");
        }
        assert_eq!(origin.count(), 1, "{route} {header}");
    }
}

#[tokio::test]
async fn own_ttl_of_a_route_does_not_apply_to_a_path_that_the_origin_may_take_for_another() {
    for setting in ["ttl", "default_ttl"] {
        let origin = Origin::responding(|received| {
            sized("200 OK", &["X: y"], received.field("cookie").unwrap_or_default().as_bytes())
        })
        .await;
        let route = format!("[[route]]\npath = \"/static/*\"\n{setting} = \"1m\"\n");
        let proxy = proxy_with(&origin.url(), &route, "").await;
        for (path, shared_loads) in [
            ("/static/a", 1),
            ("/static/a%2fb", 1),
            ("/static/..%2faccount", 2),
            ("/static/..%5caccount", 2),
            ("/static/..;/account", 2),
            ("/static/..%00/account", 2),
            ("/static/.%0a./account", 2),
            ("/static/..%c0%afaccount", 2),
            ("/static/%ef%bc%8e%ef%bc%8e/account", 2),
            ("/static/..%25252faccount", 2),
            ("/static/..%2525252faccount", 2),
            ("/static/..%23/account", 2),
            ("/static/caf%C3%A9%20(1).html", 1),
        ] {
            let before = origin.count();
            for user in ["user=1", "user=2"] {
                let answer = send(&proxy, "GET", path, &[&format!("Cookie: {user}")]).await;
                let expected = if shared_loads == 1 { "user=1" } else { user };
                assert_eq!(answer.text(), expected, "{setting} {path}");
            }
            assert_eq!(origin.count() - before, shared_loads, "{setting} {path}");
        }
    }
}

#[tokio::test]
async fn declared_lifetime_applies_to_a_path_that_the_origin_may_take_for_another() {
    let path = "/static/..%00/account";
    for (field, loads) in
        [("Cache-Control: max-age=60", 1), ("Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT", 2)]
    {
        let origin = Origin::responding(move |received| {
            sized("200 OK", &[field], received.number.to_string().as_bytes())
        })
        .await;
        let proxy = proxy_with(&origin.url(), "[[route]]\npath = \"/static/*\"\nttl = \"1h\"\n", "").await;
        for _ in 0..2 {
            assert_eq!(get(&proxy, path).await.status(), 200);
        }
        assert_eq!(origin.count(), loads, "{field}");
    }
}

#[tokio::test]
async fn error_that_the_leader_caused_is_for_the_leader() {
    const WAITERS: usize = 10;
    // The errors of large headers, of a blocked address, and of all clients.
    for (status, is_for_all, loads) in
        [("400 Bad Request", false, 2), ("403 Forbidden", false, 2), ("403 Forbidden", true, 3)]
    {
        let gate = Arc::new(Semaphore::new(0));
        let origin = gated(&gate, move |received| {
            if is_for_all || received.field("x-evil").is_some() {
                sized(status, &["X: y"], b"no")
            } else {
                good(b"well")
            }
        })
        .await;
        let proxy = proxy(&origin).await;
        let leader = send_concurrently(&proxy, 1, |_| request("GET", "/", &["X-Evil: 1"])).await;
        until(|| origin.count() == 1).await;
        let others = send_concurrently(&proxy, WAITERS, |_| request("GET", "/", &[])).await;
        // Each further leader was one of the waiters.
        let mut waits = 0;
        for leaders in 0..loads {
            waits += WAITERS - leaders;
            until(|| waiters(&proxy) == waits as u64).await;
            gate.add_permits(1);
        }
        answers(leader).await[0].assert_body(b"no");
        for answer in answers(others).await {
            answer.assert_body(if is_for_all { b"no" } else { b"well" });
        }
        assert_eq!(origin.count(), loads, "{status} {is_for_all}");
    }
}

#[tokio::test]
async fn error_for_anonymous_requests_is_not_shared_with_users() {
    // After an error that the leader may have caused, anonymous requests load again, each once at most: the response to a
    // user may have shown that responses are not shared.
    for (status, again_max) in
        [("302 Found", 0), ("401 Unauthorized", 5), ("403 Forbidden", 5), ("404 Not Found", 0)]
    {
        let gate = Arc::new(Semaphore::new(0));
        let origin = gated(&gate, move |received| {
            match received.field("cookie").or(received.field("authorization")) {
                Some(user) => sized("200 OK", &["Cache-Control: private"], user.as_bytes()),
                None => sized(status, &["Location: /login"], b"log in"),
            }
        })
        .await;
        let proxy = proxy(&origin).await;
        let anonymous = |_: usize| request("GET", "/", &[]);
        let first = send_concurrently(&proxy, 1, anonymous).await;
        until(|| origin.count() == 1).await;
        let others = send_concurrently(&proxy, 5, anonymous).await;
        let users = send_concurrently(&proxy, 5, with_cookie).await;
        let authorized =
            send_concurrently(&proxy, 1, |_| request("GET", "/", &["Authorization: Basic eA=="])).await;
        until(|| waiters(&proxy) == 11).await;
        gate.add_permits(1_000);
        for answer in answers(first).await.into_iter().chain(answers(others).await) {
            assert_eq!(answer.status().to_string(), status[..3]);
            answer.assert_body(b"log in");
        }
        for (user, answer) in answers(users).await.into_iter().enumerate() {
            answer.assert_body(format!("user={user}").as_bytes());
        }
        answers(authorized).await[0].assert_body(b"Basic eA==");
        assert!((7..=7 + again_max).contains(&origin.count()), "{status}: {}", origin.count());
    }
}

#[tokio::test]
async fn range_and_conditions_are_forwarded_for_private_responses() {
    for (header, field) in [
        ("Cache-Control: private, max-age=60", "X: y"),
        ("Cache-Control: no-store", "X: y"),
        ("Cache-Control: max-age=60\r\nSet-Cookie: a=b", "X: y"),
        ("X: y", "X: y"),
        ("Cache-Control: max-age=60", "Authorization: Basic eA=="),
    ] {
        let body = content(1_000);
        let all = body.clone();
        let origin = Origin::responding(move |received| {
            let fields = |range| [header, "ETag: \"1\"", range];
            match (received.field("if-none-match"), received.field("if-match"), received.field("range")) {
                (Some("\"1\""), ..) => {
                    format!("HTTP/1.1 304 Not Modified\r\n{}\r\n", lines(&fields("X: y"))).into_bytes()
                }
                (_, Some("\"0\""), _) => sized("412 Another", &fields("X: y"), b""),
                (.., Some("bytes=10-19")) if received.field("if-range") != Some("\"0\"") => {
                    sized("206 Part", &fields("Content-Range: bytes 10-19/1000"), &all[10..20])
                }
                (.., Some("bytes=1000-")) => sized("416 No", &fields("Content-Range: bytes */1000"), b""),
                _ => sized("200 OK", &fields("X: y"), &all),
            }
        })
        .await;
        let proxy = proxy(&origin).await;
        send(&proxy, "GET", "/", &[field]).await.assert_body(&body);
        for (number, (fields, status, part)) in [
            (["Range: bytes=10-19", "X: y"], 206, &body[10..20]),
            (["Range: bytes=10-19", "If-Range: \"1\""], 206, &body[10..20]),
            (["Range: bytes=10-19", "If-Range: \"0\""], 200, &body[..]),
            (["Range: bytes=1000-", "X: y"], 416, &body[..0]),
            (["If-None-Match: \"1\"", "X: y"], 304, &body[..0]),
            (["If-None-Match: \"0\"", "X: y"], 200, &body[..]),
            (["If-Match: \"0\"", "X: y"], 412, &body[..0]),
            (["X: y", "X: y"], 200, &body[..]),
        ]
        .into_iter()
        .enumerate()
        {
            let answer = send(&proxy, "GET", "/", &[field, fields[0], fields[1]]).await;
            assert_eq!((answer.status(), answer.outcome()), (status, "miss"), "{header} {field} {fields:?}");
            answer.assert_body(part);
            assert_eq!(origin.count(), number + 2, "{header} {field} {fields:?}");
        }
    }
}

#[tokio::test]
async fn connection_field_cannot_remove_set_cookie_or_vary() {
    for (named, header) in [("set-cookie", "Set-Cookie: you=1"), ("vary", "Vary: User")] {
        let origin = Origin::responding(move |received| {
            let fields = ["Cache-Control: max-age=60", header, &format!("Connection: {named}")];
            sized("200 OK", &fields, received.field("user").unwrap_or_default().as_bytes())
        })
        .await;
        let proxy = proxy(&origin).await;
        for user in ["x", "y"] {
            send(&proxy, "GET", "/", &[&format!("User: {user}")]).await.assert_body(user.as_bytes());
        }
    }
}
