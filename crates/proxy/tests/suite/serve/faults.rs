//! Origin failures: truncated bodies are not stored, stored responses serve as fallback.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use stockade_proxy::{admin::BreakerStatus, server::ProxyServer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Semaphore,
};

use crate::serve::support::*;

/// The action of an origin after its bytes.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Close,
    Reset,
    Freeze,
}

async fn write_then(mut line: Connection, bytes: Vec<u8>, then: Ending) -> Option<Connection> {
    let _ = line.write_all(&bytes).await;
    match then {
        Ending::Close => {}
        Ending::Reset => line.get_ref().set_zero_linger().expect("a socket"),
        Ending::Freeze => while read_head(&mut line).await.is_some() {},
    }
    None
}

const SHORT: &str = "connections = 100\n[origin.timeouts]\nhead = \"60ms\"\nbody = \"60ms\"";

/// Truncated responses: the bytes and the end of the connection.
fn truncations() -> Vec<(Vec<u8>, Ending)> {
    let header = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60";
    let some = String::from_utf8(vec![b'x'; 100_000]).expect("text");
    let sized = format!("{header}\r\nContent-Length: 200000\r\n\r\n{some}").into_bytes();
    let chunked = format!("{header}\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n{some}\r\n");
    let garbage = format!("{chunked}zz\r\ngarbage").into_bytes();
    let within = format!("{chunked}ff\r\nxxxxxxxxxx").into_bytes();
    let endless = format!("{chunked}fffffffffffffffff\r\n").into_bytes();
    let closes = format!("{header}\r\n\r\n{some}").into_bytes();
    let chunked = chunked.into_bytes();
    let mut cuts = vec![(closes.clone(), Ending::Reset), (closes, Ending::Freeze)];
    for bytes in [sized, chunked, garbage, within, endless] {
        cuts.extend([Ending::Close, Ending::Reset, Ending::Freeze].map(|then| (bytes.clone(), then)));
    }
    cuts
}

#[tokio::test]
async fn truncated_body_is_reported_and_not_stored() {
    for (bytes, then) in truncations() {
        let label = format!("{:?} {then:?}", String::from_utf8_lossy(&bytes[bytes.len() - 12..]));
        let is_well = Arc::new(AtomicBool::new(false));
        let well = Arc::clone(&is_well);
        let origin = Origin::start(move |_, mut line| {
            let (bytes, is_well) = (bytes.clone(), well.load(SeqCst));
            async move {
                if !is_well {
                    return write_then(line, bytes, then).await;
                }
                line.write_all(&good(b"whole")).await.ok().map(|()| line)
            }
        })
        .await;
        let proxy = proxy_with(&origin.url(), "", SHORT).await;
        // Coalesced over HTTP/1.1, then alone over HTTP/2.
        let mut clients = send_concurrently(&proxy, 20, |_| request("GET", "/", &[])).await;
        for client in &mut clients {
            let head = client.head_to("GET").await.expect("a head");
            assert_eq!(head.status, 200, "{label}");
            let answer = client.rest(head, Vec::new()).await;
            assert!(!answer.is_whole, "{label}: {:?} {}", answer.head, answer.body.len());
            assert!(answer.body.iter().all(|byte| *byte == b'x') && answer.body.len() <= 100_010, "{label}");
        }
        with_timeout(proxy.proxy().cache().wait_idle()).await;
        let count = origin.count();
        let requests = Http2::connect(&proxy).await;
        let mut answer = requests.get("/").await;
        assert_eq!(answer.head.status, 200, "{label}");
        let reset = answer.rest(Vec::new()).await.expect_err("a reset");
        assert!(reset.is_reset(), "{label}: {reset}");
        assert_eq!(origin.count(), count + 1, "{label}: the failed load is repeated");
        with_timeout(proxy.proxy().cache().wait_idle()).await;
        is_well.store(true, SeqCst);
        let whole = get(&proxy, "/").await;
        whole.assert_body(b"whole");
        let hit = get(&proxy, "/").await;
        hit.assert_body(b"whole");
        assert_eq!((hit.outcome(), origin.count()), ("hit", count + 2), "{label}");
    }
}

#[tokio::test]
async fn invalid_response_is_502_or_504_and_not_remembered() {
    let large = [b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'a'; 1 << 20], b"\r\n\r\n".to_vec()].concat();
    let cases: Vec<(Vec<u8>, Ending, u16)> = vec![
        (Vec::new(), Ending::Close, 502),
        (Vec::new(), Ending::Reset, 502),
        (Vec::new(), Ending::Freeze, 504),
        (b"HTTP/1.1 200 O".to_vec(), Ending::Close, 502),
        (b"SSH-2.0-garbage\r\n\r\n".to_vec(), Ending::Freeze, 502),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd".to_vec(),
            Ending::Freeze,
            502,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_vec(), Ending::Freeze, 502),
        (large, Ending::Freeze, 502),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_vec(),
            Ending::Freeze,
            502,
        ),
    ];
    for (bytes, then, status) in cases {
        let label = format!("{:?} {then:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(40)]));
        let origin = Origin::start(move |received, mut line| {
            let bytes = bytes.clone();
            async move {
                if received.number == 0 {
                    return write_then(line, bytes, then).await;
                }
                line.write_all(&good(b"whole")).await.ok().map(|()| line)
            }
        })
        .await;
        let proxy = proxy_with(&origin.url(), "", SHORT).await;
        let clients = send_concurrently(&proxy, 1, |_| request("GET", "/", &[])).await;
        for answer in answers(clients).await {
            assert_eq!((answer.status(), answer.outcome()), (status, "error"), "{label}");
            assert!(!answer.text().contains("127.0.0.1"), "{label}: {:?}", answer.text());
        }
        let whole = get(&proxy, "/").await;
        whole.assert_body(b"whole");
        assert_eq!((whole.outcome(), origin.count()), ("miss", 2), "{label}");
    }
}

#[tokio::test]
async fn bytes_beyond_content_length_are_not_a_response() {
    let origin = Origin::start(|received, mut line| async move {
        let smuggled = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\nevil";
        let answer = [good(received.target().as_bytes()), smuggled.as_bytes().to_vec()].concat();
        line.write_all(&answer).await.ok().map(|()| line)
    })
    .await;
    let proxy = proxy(&origin).await;
    for number in 0..50 {
        let target = format!("/{}", number % 25);
        get(&proxy, &target).await.assert_body(target.as_bytes());
    }
    assert_eq!(origin.count(), 25);
}

/// An origin with one good response that is stale at once; `later` makes all others.
async fn good_then(
    fields: &'static [&'static str],
    later: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
) -> Origin {
    Origin::responding(
        move |received| {
            if received.number == 0 { sized("200 OK", fields, b"good") } else { later(received) }
        },
    )
    .await
}

const STALE_AT_ONCE: &[&str] = &["Cache-Control: max-age=1, stale-if-error=600", "Age: 100", "ETag: \"1\""];

#[tokio::test]
async fn error_status_is_replaced_by_a_stale_response() {
    for status in ["500 A", "502 B", "503 C", "504 D", "408 E", "501 F", "520 G"] {
        for header in ["X: y", "Cache-Control: max-age=60", "Cache-Control: no-store", "Set-Cookie: a=b"] {
            let origin = good_then(STALE_AT_ONCE, move |_| sized(status, &[header], b"failed")).await;
            let proxy = proxy(&origin).await;
            assert_eq!(get(&proxy, "/").await.outcome(), "miss");
            for answer in answers(send_concurrently(&proxy, 10, |_| request("GET", "/", &[])).await).await {
                assert_eq!(
                    (answer.status(), answer.outcome()),
                    (200, "fallback"),
                    "{status} {header} {:?}",
                    answer.head
                );
                answer.assert_body(b"good");
                let cache_status = answer.field("cache-status").unwrap_or_default();
                let code = &status[..3];
                assert!(
                    cache_status.contains("hit; ttl=-")
                        || cache_status.contains(&format!("fwd=stale; fwd-status={code}")),
                    "{cache_status}"
                );
            }
        }
    }
}

#[tokio::test]
async fn stale_response_is_served_while_origin_is_down() {
    for then in [Ending::Close, Ending::Reset, Ending::Freeze] {
        let origin = Origin::start(move |received, mut line| async move {
            if received.number > 0 {
                return write_then(line, Vec::new(), then).await;
            }
            line.write_all(&sized("200 OK", STALE_AT_ONCE, b"good")).await.ok().map(|()| line)
        })
        .await;
        let proxy = proxy_with(&origin.url(), "", SHORT).await;
        assert_eq!(get(&proxy, "/").await.outcome(), "miss");
        let answer = get(&proxy, "/").await;
        answer.assert_body(b"good");
        assert_eq!(answer.outcome(), "fallback");
        assert!(answer.field("age").is_some_and(|age| age != "0"), "{:?}", answer.head);
    }
}

/// A page that takes longer than a waiter waits, and than a load with a stale response would have.
#[tokio::test]
async fn slow_page_is_answered_to_all_and_is_no_evidence() {
    let gate = Arc::new(Semaphore::new(0));
    let of_origin = Arc::clone(&gate);
    let origin = Origin::start(move |received, mut line| {
        let gate = Arc::clone(&of_origin);
        async move {
            if received.target().starts_with("/slow") {
                gate.acquire().await.ok()?.forget();
            }
            line.write_all(&good(b"page")).await.ok().map(|()| line)
        }
    })
    .await;
    let cache = "[cache]\nstrategy = \"breaker\"\nfetch = { coalesce = { wait_timeout = \"50ms\" } }\n\
                 breaker = { min_calls = 4, open_for = \"1h\" }\n";
    let proxy = proxy_with(&origin.url(), cache, "timeouts = { head = \"400ms\" }\nconnections = 100").await;
    let clients = send_concurrently(&proxy, 3, |_| request("GET", "/slow", &[])).await;
    // After `wait_timeout` each waiting request is sent.
    until(|| origin.count() == 3).await;
    gate.add_permits(3);
    for answer in answers(clients).await {
        assert_eq!((answer.status(), answer.text()), (200, "page"));
    }
    // Reports that take longer than they may, while other pages are answered.
    let clients =
        send_concurrently(&proxy, 20, |number| request("GET", &format!("/slow/{number}"), &[])).await;
    until(|| origin.count() == 23).await;
    let fast =
        || async { Client::connect(&proxy).await.send("GET", "/fast", &["Cache-Control: no-cache"]).await };
    assert_eq!(fast().await.status(), 200);
    assert!(answers(clients).await.iter().all(|answer| answer.status() == 504));
    assert_eq!(fast().await.status(), 200);
    assert_eq!(proxy.proxy().router().routes[0].breaker(), Some(BreakerStatus::Closed));
    drop(gate);
}

/// A request that the origin never answers delays the others of its page by `hedge_after`, and costs one more request.
#[tokio::test]
async fn unanswered_load_is_hedged_once() {
    for (case, silent, expected) in [("silent", 1, 200), ("silent for all", usize::MAX, 504)] {
        let origin = Origin::start(move |received, mut line| async move {
            if received.number < silent {
                pending::<()>().await;
            }
            line.write_all(&good(b"page")).await.ok().map(|()| line)
        })
        .await;
        let cache = "[cache]\nstrategy = \"swr\"\nload = { hedge_after = \"300ms\" }\n";
        let proxy = proxy_with(&origin.url(), cache, "timeouts = { head = \"500ms\" }").await;
        let clients = send_concurrently(&proxy, 20, |_| request("GET", "/", &[])).await;
        for answer in answers(clients).await {
            assert_eq!(answer.status(), expected, "{case}: {}", answer.text());
        }
        assert_eq!(origin.count(), 2, "{case}");
    }
}

/// Pages that have never been stored, asked for while the breaker is open; the origin is well again.
#[tokio::test]
async fn request_waits_for_the_probes_that_are_near() {
    let fails = Arc::new(AtomicBool::new(true));
    let is_failing = Arc::clone(&fails);
    let origin = Origin::responding(move |received| {
        if is_failing.load(SeqCst) {
            sized("503 Away", &[], b"failed")
        } else {
            good(received.target().as_bytes())
        }
    })
    .await;
    let proxy = proxy_with(&origin.url(), "[cache]\nstrategy = \"breaker\"\n", "connections = 200").await;
    let number = |of: &str, number: usize| request("GET", &format!("/{of}{number}"), &[]);
    let failed = answers(send_concurrently(&proxy, 20, |index| number("bad", index)).await).await;
    assert!(failed.iter().all(|answer| answer.status() == 503));
    fails.store(false, SeqCst);
    // Two hundred at once: the first are probes, the others follow on the ramp.
    for (index, answer) in
        answers(send_concurrently(&proxy, 200, |index| number("page", index)).await).await.iter().enumerate()
    {
        assert_eq!((answer.status(), answer.text()), (200, &*format!("/page{index}")));
    }
}

#[tokio::test]
async fn must_revalidate_forbids_stale_responses() {
    for header in ["max-age=1, must-revalidate", "max-age=1, proxy-revalidate", "s-maxage=1", "no-cache"] {
        let fields: &'static [&'static str] = Box::leak(
            vec![&*format!("Cache-Control: {header}").leak(), "Age: 1", "ETag: \"1\""].into_boxed_slice(),
        );
        let origin = good_then(fields, |_| sized("503 Away", &["X: y"], b"failed")).await;
        let proxy = proxy(&origin).await;
        assert_eq!(get(&proxy, "/").await.status(), 200);
        let answer = get(&proxy, "/").await;
        answer.assert_body(b"failed");
        assert_eq!((answer.status(), origin.count()), (503, 2), "{header}");
    }
}

#[tokio::test]
async fn error_without_stale_response_reaches_all_waiters() {
    for header in ["X: y", "Retry-After: 7", "Cache-Control: no-store", "Set-Cookie: own=1"] {
        let gate = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&gate);
        let origin = Origin::start(move |_, mut line| {
            let gate = Arc::clone(&held);
            async move {
                gate.acquire().await.ok()?.forget();
                line.write_all(&sized("503 Away", &[header], b"back at nine")).await.ok().map(|()| line)
            }
        })
        .await;
        let proxy = proxy(&origin).await;
        let clients = send_concurrently(&proxy, 50, |_| request("GET", "/", &[])).await;
        until(|| origin.count() == 1).await;
        gate.add_permits(1_000);
        let mut cookies = 0;
        for answer in answers(clients).await {
            assert_eq!(answer.status(), 503, "{header}: {:?}", answer.head);
            cookies += usize::from(answer.field("set-cookie").is_some());
            if header.starts_with('X') || header.starts_with("Retry") {
                answer.assert_body(b"back at nine");
                let (name, value) = header.split_once(": ").expect("a field");
                assert_eq!(answer.field(name), Some(value));
            }
        }
        assert!(cookies <= origin.count(), "{cookies} cookies of {}", origin.count());
        assert!(origin.count() < 50, "{header}: {} of 50 requests reached a failing origin", origin.count());
        // The error is not stored.
        let before = origin.count();
        assert_eq!(get(&proxy, "/").await.status(), 503);
        assert_eq!(origin.count(), before + 1, "{header}");
    }
}

#[tokio::test]
async fn large_error_response_reaches_the_client() {
    let body = content(300_000);
    let large = body.clone();
    let origin = Origin::responding(move |_| sized("500 Oh", &["X: y"], &large)).await;
    let proxy = proxy(&origin).await;
    let answer = get(&proxy, "/").await;
    assert_eq!(answer.status(), 500, "{:?}", answer.head);
    answer.assert_body(&body);
}

#[tokio::test]
async fn large_chunked_error_response_reaches_the_client() {
    let body = content(80 << 10);
    for status in ["404 Not Found", "403 Forbidden", "500 Oh", "503 Away"] {
        let all = body.clone();
        let origin = Origin::responding(move |_| {
            let head = format!("HTTP/1.1 {status}\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n");
            let mut bytes = head.into_bytes();
            for piece in all.chunks(7_000) {
                bytes.extend([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
            }
            bytes.extend(b"0\r\n\r\n");
            bytes
        })
        .await;
        let proxy = proxy(&origin).await;
        for number in 1..3 {
            let answer = get(&proxy, "/").await;
            assert_eq!(answer.status().to_string(), status[..3]);
            answer.assert_body(&body);
            assert_eq!((answer.field("x"), origin.count()), (Some("y"), number), "{status}");
        }
    }
}

#[tokio::test]
async fn negative_ttl_applies_to_404_without_max_age() {
    let origin = Origin::responding(|received| {
        let fields: &[&str] =
            if received.target() == "/declared" { &["Cache-Control: max-age=0"] } else { &[] };
        sized("404 Not Found", fields, b"nothing")
    })
    .await;
    let proxy = proxy_with(&origin.url(), "", "[[route]]\nnegative_ttl = \"1m\"").await;
    for (target, count) in [("/", 1), ("/declared", 4)] {
        for number in 0..3 {
            let answer = get(&proxy, target).await;
            answer.assert_body(b"nothing");
            assert_eq!(answer.status(), 404);
            if target == "/" {
                assert_eq!(answer.outcome(), if number == 0 { "miss" } else { "negative" });
            }
        }
        assert_eq!(origin.count(), count, "{target}");
    }
}

#[tokio::test]
async fn open_breaker_sends_probes_only_and_closes_after_recovery() {
    let failing = Arc::new(AtomicBool::new(true));
    let is_failing = Arc::clone(&failing);
    let origin = Origin::responding(move |received| {
        if is_failing.load(SeqCst) {
            sized("503 Away", &["X: y"], b"failed")
        } else {
            good(received.target().as_bytes())
        }
    })
    .await;
    let cache = "[cache]\nstrategy = \"breaker\"\nbreaker = { errors_rate = 0.5, period = \"10s\", min_calls = 5, open_for = \"80ms\", probes = 1 }\n";
    let proxy = proxy_with(&origin.url(), cache, "").await;
    for number in 0..100 {
        let answer = get(&proxy, &format!("/{number}")).await;
        assert_eq!(answer.status(), 503);
        if number >= 5 && origin.count() == 5 {
            assert!(answer.field("retry-after").is_some(), "{:?}", answer.head);
        }
    }
    let count = origin.count();
    assert!((5..20).contains(&count), "{count} requests reached a failing origin");
    failing.store(false, SeqCst);
    // Probes among the requests close the breaker.
    with_timeout(async {
        let mut number = 0;
        while get(&proxy, &format!("/back{number}")).await.status() != 200 {
            number += 1;
        }
    })
    .await;
}

/// Sends a request from one of the loopback networks.
async fn get_from(network: u8, proxy: &ProxyServer, target: &str) -> u16 {
    with_timeout(proxy.proxy().cache().wait_idle()).await;
    let mut client = Client::connect_from([127, 0, network, 1], proxy).await;
    client.send("GET", target, &[]).await.status()
}

#[tokio::test]
async fn failing_urls_of_one_client_do_not_close_the_route_for_others() {
    let origin = Origin::responding(|received| {
        if received.target().starts_with("/bad") {
            sized("503 Away", &[], b"failed")
        } else {
            good(received.target().as_bytes())
        }
    })
    .await;
    // Many URLs, or one; each with a breaker that is closed at first.
    for url in ["many", "one"] {
        let cache = "[cache]\nstrategy = \"breaker\"\nthrottle = \"0s\"\nbreaker = { open_for = \"5s\" }\n";
        let proxy = proxy_with(&origin.url(), cache, "").await;
        let bad = |number| if url == "one" { "/bad".to_owned() } else { format!("/bad{number}") };
        let before = origin.count();
        for number in 0..40 {
            assert_eq!(get_from(1, &proxy, &bad(number)).await, 503);
        }
        assert_eq!(origin.count() - before, 20, "{url}: then the breaker is open");
        for number in 0..40 {
            assert_eq!(get_from(2, &proxy, &format!("/{url}{number}")).await, 200, "{url}: {number}");
            assert_eq!(get_from(1, &proxy, &bad(100 + number)).await, 503);
        }
    }
}

#[tokio::test]
async fn dead_origin_receives_min_calls_and_four_trials() {
    let origin = Origin::responding(|_| sized("503 Away", &[], b"failed")).await;
    let cache = "[cache]\nstrategy = \"breaker\"\nthrottle = \"0s\"\nbreaker = { open_for = \"1h\" }\n";
    let proxy = proxy_with(&origin.url(), cache, "").await;
    for number in 0..40 {
        assert_eq!(get_from(1, &proxy, &format!("/{number}")).await, 503);
    }
    assert_eq!(origin.count(), 20);
    for number in 40..140 {
        assert_eq!(get_from(number, &proxy, &format!("/{number}")).await, 503);
    }
    assert_eq!(origin.count(), 24);
}

#[tokio::test]
async fn error_response_hides_the_origin_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let proxy = proxy_with(&format!("http://{address}"), "", "").await;
    let answer = get(&proxy, "/").await;
    assert_eq!((answer.status(), answer.outcome()), (502, "error"), "{:?}", answer.head);
    assert!(!answer.text().contains(&address) && !answer.text().contains("127.0.0.1"), "{}", answer.text());
}

/// HTTP/1.0 has no chunks: the end of the connection is the end of the body, so a cut one ends in a reset.
#[tokio::test]
async fn cut_body_of_http_1_0_ends_in_a_reset() {
    for (end, is_whole) in [("0\r\n\r\n", true), ("", false), ("zz\r\n", false)] {
        for fields in ["Cache-Control: max-age=60", "Cache-Control: no-store"] {
            let origin = Origin::start(move |_, line| {
                let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\nTransfer-Encoding: chunked\r\n\r\n");
                write_then(line, format!("{head}5\r\nhello\r\n{end}").into_bytes(), Ending::Close)
            })
            .await;
            let proxy = proxy(&origin).await;
            let mut client = Client::connect(&proxy).await;
            client.write("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
            let head = client.head_to("GET").await.expect("an answer");
            let mut body = Vec::new();
            let end = with_timeout(client.0.read_to_end(&mut body)).await;
            assert_eq!((head.status, head.field("transfer-encoding")), (200, None));
            assert_eq!(
                (String::from_utf8_lossy(&body).as_ref(), end.is_ok()),
                ("hello", is_whole),
                "{fields}"
            );
        }
    }
}

/// RFC 9112, 6.3: after an unknown final coding the body ends with the connection. The field is one of the connection.
#[tokio::test]
async fn body_in_an_unknown_transfer_coding_ends_with_the_connection() {
    let origin = Origin::start(|received, line| {
        let coding = &received.target()[1..];
        let head =
            format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: {coding}\r\n\r\n");
        write_then(line, format!("{head}hello").into_bytes(), Ending::Close)
    })
    .await;
    let proxy = proxy(&origin).await;
    for outcome in ["miss", "hit"] {
        let answer = get(&proxy, "/unknown").await;
        assert_eq!((answer.status(), answer.outcome()), (200, outcome));
        let coding = answer.field("transfer-encoding");
        assert!(coding.is_none_or(|coding| coding == "chunked"), "{:?}", answer.head);
        answer.assert_body(b"hello");
    }
    for refused in ["gzip", "chunked,chunked", "xchunked"] {
        assert_eq!(get(&proxy, &format!("/{refused}")).await.status(), 502, "{refused}");
    }
}

#[tokio::test]
async fn equal_lengths_reach_the_client_as_one() {
    for (lines, expected) in [
        ("Content-Length: 5, 5\r\n", Some("5")),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Some("5")),
        ("Content-Length: 5, 4\r\n", None),
    ] {
        let origin = Origin::responding(move |received| {
            let body = if received.method() == "HEAD" { "" } else { "hello" };
            format!("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n{lines}\r\n{body}").into_bytes()
        })
        .await;
        let proxy = proxy(&origin).await;
        for method in ["GET", "HEAD"] {
            let answer = send(&proxy, method, "/", &[]).await;
            assert_eq!(answer.status(), if expected.is_some() { 200 } else { 502 }, "{method} {lines}");
            let found = answer.head.text.to_ascii_lowercase().matches("content-length").count();
            assert!(
                expected.is_none() || found == 1 && answer.field("content-length") == expected,
                "{:?}",
                answer.head
            );
        }
    }
}

/// The origin answers before it has read the body, and closes: what is on its way then turns the close into a reset.
#[tokio::test]
async fn early_response_of_the_origin_reaches_the_client() {
    let origin = Origin::start(|_, line| {
        let answer = sized("413 Content Too Large", &["Connection: close"], b"too large");
        write_then(line, answer, Ending::Close)
    })
    .await;
    let proxy = proxy(&origin).await;
    for length in [100_000, 20 << 20] {
        let mut client = Client::connect(&proxy).await;
        client.write(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")).await;
        // The proxy closes before all is written.
        let (mut read, mut write) = tokio::io::split(client.0.into_inner());
        let body = content(length);
        let sending = async {
            let _ = write.write_all(&body).await;
            pending::<()>().await;
        };
        let mut reader = tokio::io::BufReader::new(&mut read);
        let mut head = String::new();
        let reading = tokio::io::AsyncBufReadExt::read_line(&mut reader, &mut head);
        tokio::select! {
            () = with_timeout(sending) => {}
            read = with_timeout(reading) => drop(read.expect("an answer")),
        }
        assert!(head.starts_with("HTTP/1.1 413 "), "{length}: {head}");
    }
}

/// Trailers reach clients that take them, and no stored response.
#[tokio::test]
async fn trailers_are_passed_on_and_not_stored() {
    let origin = Origin::responding(|received| {
        let lifetime = if received.target().starts_with("/stored") { "max-age=60" } else { "no-store" };
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: {lifetime}\r\nTrailer: X-T, Set-Cookie\r\n");
        let trailers = "X-T: 1\r\nSet-Cookie: evil\r\n";
        format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n").into_bytes()
    })
    .await;
    let proxy = proxy(&origin).await;
    for (path, fields, has_trailers) in [
        ("/passed", &["Connection: TE, close", "TE: trailers"][..], true),
        ("/passed", &["Connection: close"], false),
        ("/stored", &["Connection: TE, close", "TE: trailers"], false),
        ("/stored", &["Connection: TE, close", "TE: trailers"], false),
    ] {
        for method in ["GET", "POST"] {
            if method == "POST" && path == "/stored" {
                continue;
            }
            let mut client = Client::connect(&proxy).await;
            client.write(request(method, path, fields)).await;
            let mut text = String::new();
            with_timeout(client.0.read_to_string(&mut text)).await.expect("text");
            let text = text.to_ascii_lowercase();
            assert!(text.contains("hello"), "{text}");
            assert_eq!(text.contains("\r\ntrailer: x-t\r\n"), has_trailers, "{path} {method}: {text}");
            assert_eq!(text.ends_with("0\r\nx-t: 1\r\n\r\n"), has_trailers, "{path} {method}: {text}");
            assert!(!text.contains("evil"), "{text}");
        }
    }
    let mut stream = Http2::connect(&proxy).await.get_with("/passed", &[("te", "trailers")]).await;
    assert_eq!(stream.rest(Vec::new()).await.expect("all"), b"hello");
    let trailers = stream.trailers().await.expect("trailers");
    assert_eq!((trailers.len(), trailers["x-t"].as_bytes()), (1, &b"1"[..]));
}
