//! Requests that reach the origin without a lookup: how many a client can cause, and what the breaker makes of them.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use stockade_proxy::server::ProxyServer;
use stockade_services::in_own_process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::serve::support::*;

/// Opens after half of five calls have failed, for an hour.
const FRAGILE: &str = "[cache]\nstrategy = \"breaker\"\n\
    breaker = { errors_rate = 0.5, period = \"1h\", min_calls = 5, open_for = \"1h\", probes = 1 }\n";

/// An origin whose `/private` responses are not shared; it fails while `is_failing`. HEAD has no body.
async fn origin(is_failing: &Arc<AtomicBool>) -> Origin {
    let is_failing = Arc::clone(is_failing);
    Origin::responding(move |received| {
        let path = received.target().split('?').next();
        let fields = match path.unwrap_or_default() {
            "/private" => ["Cache-Control: private"],
            "/stale" => ["Cache-Control: max-age=1, stale-if-error=600\r\nAge: 100"],
            _ => ["Cache-Control: max-age=60"],
        };
        let (status, body) = if is_failing.load(SeqCst) { ("503 Away", b"") } else { ("200 OK", b"") };
        sized(status, &fields[..usize::from(status == "200 OK")], body)
    })
    .await
}

/// A request for a name of its own, so that no failed key rests.
async fn fail(proxy: &ProxyServer, count: usize) {
    for number in 0..count {
        assert_eq!(get(proxy, &format!("/fail/{number}")).await.status(), 503);
    }
}

#[tokio::test]
async fn answers_have_the_version_of_the_proxy() {
    let origin = Origin::responding(|_| b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()).await;
    let proxy = proxy(&origin).await;
    for method in ["GET", "POST", "HEAD"] {
        let answer = Client::connect(&proxy).await.send(method, "/", &[]).await;
        assert!(answer.head.text.starts_with("HTTP/1.1 200 "), "{method}: {:?}", answer.head);
    }
}

#[tokio::test]
async fn ignored_client_directives_cause_no_load() {
    let origin = origin(&Arc::default()).await;
    let proxy = proxy_with(&origin.url(), "", "[[route]]\nclient_directives = \"ignore\"").await;
    for method in ["GET", "HEAD"] {
        assert_eq!(send(&proxy, "GET", "/", &["Cache-Control: no-store"]).await.status(), 200);
        for field in [
            "Cache-Control: no-store",
            "Cache-Control: no-cache",
            "Cache-Control: max-age=0",
            "Cache-Control: min-fresh=100",
            "Pragma: no-cache",
        ] {
            let answer = send(&proxy, method, "/", &[field]).await;
            assert_eq!((answer.outcome(), origin.count()), ("hit", 1), "{method} {field}");
        }
    }
    let answer = send(&proxy, "GET", "/other", &["Cache-Control: only-if-cached"]).await;
    assert_eq!((answer.status(), answer.outcome()), (200, "miss"));
}

#[tokio::test]
async fn obeyed_client_directives_reach_the_origin() {
    let origin = origin(&Arc::default()).await;
    for route in ["", "[[route]]\nclient_directives = \"obey\""] {
        let proxy = proxy_with(&origin.url(), "", route).await;
        get(&proxy, "/").await;
        for field in ["Cache-Control: no-store", "Cache-Control: no-cache", "Pragma: no-cache"] {
            let before = origin.count();
            send(&proxy, "GET", "/", &[field]).await;
            assert_eq!(origin.count(), before + 1, "{route} {field}");
        }
    }
}

/// Safe requests that cause one to the origin, although nothing is loaded for other requests.
const UNSHARED: [(&str, &str, &str); 5] = [
    ("GET", "/", "Cache-Control: no-store"),
    ("GET", "/stored", "If-Match: \"other\""),
    ("GET", "/private", "X: y"),
    ("HEAD", "/missing", "X: y"),
    ("PROPFIND", "/", "X: y"),
];

/// Stores what the request finds: a response that does not match, or that responses are not shared.
async fn prepare(proxy: &ProxyServer, target: &str) {
    if target.starts_with("/stored") || target.starts_with("/private") {
        get(proxy, target).await;
    }
}

#[tokio::test]
async fn open_breaker_refuses_requests_without_a_lookup() {
    let is_failing = Arc::default();
    let origin = origin(&is_failing).await;
    let proxy = proxy_with(&origin.url(), FRAGILE, "").await;
    for (method, target, field) in UNSHARED {
        prepare(&proxy, target).await;
        let before = origin.count();
        assert_eq!(send(&proxy, method, target, &[field]).await.status(), 200, "{method} {target}");
        assert_eq!(origin.count(), before + 1, "{method} {target}");
    }
    is_failing.store(true, SeqCst);
    fail(&proxy, 5).await;
    let count = origin.count();
    for (method, target, field) in UNSHARED {
        let answer = send(&proxy, method, target, &[field]).await;
        assert_eq!((answer.status(), answer.outcome()), (503, "error"), "{method} {target} {field}");
        assert!(answer.field("retry-after").is_some(), "{method} {target} {:?}", answer.head);
        assert_eq!(origin.count(), count, "{method} {target} {field}");
    }
    // The breaker is not asked for writes, nor for OPTIONS, which a browser sends before a write to another site.
    is_failing.store(false, SeqCst);
    for method in ["POST", "PUT", "DELETE", "UNKNOWN", "OPTIONS"] {
        let answer = send(&proxy, method, "/", &["Content-Length: 0"]).await;
        assert_eq!((answer.status(), answer.outcome()), (200, "bypass"), "{method}");
    }
}

#[tokio::test]
async fn failures_without_a_lookup_open_the_breaker() {
    for (method, target, field) in UNSHARED {
        let is_failing = Arc::default();
        let origin = origin(&is_failing).await;
        let proxy = proxy_with(&origin.url(), FRAGILE, "").await;
        // One key alone would not open it for the others.
        let targets: Vec<_> = (0..20).map(|number| format!("{target}?{number}")).collect();
        for target in &targets {
            prepare(&proxy, target).await;
        }
        is_failing.store(true, SeqCst);
        let before = origin.count();
        for target in &targets {
            assert_eq!(send(&proxy, method, target, &[field]).await.status(), 503, "{method} {target}");
        }
        assert!(origin.count() <= before + 5, "{method} {target} {field}: {}", origin.count() - before);
        assert!(get(&proxy, "/load").await.field("retry-after").is_some(), "{method} {target} {field}");
    }
}

#[test]
fn failures_for_want_of_descriptors_are_no_evidence() {
    in_own_process(
        "serve::bypass::failures_for_want_of_descriptors_are_no_evidence",
        "ulimit -n 100",
        run_with_100_descriptors,
    );
}

#[tokio::main(flavor = "current_thread")]
async fn run_with_100_descriptors() {
    let origin = origin(&Arc::default()).await;
    let proxy = proxy_with(&origin.url(), FRAGILE, "[[route]]\nclient_directives = \"obey\"").await;
    let mut client = Client::connect(&proxy).await;
    let answer = client.send("GET", "/", &["Cache-Control: only-if-cached"]).await;
    assert_eq!(answer.status(), 504, "the proxy has accepted the connection, and none to the origin is open");
    let taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    for number in 0..40 {
        // Loads, and requests that are not loads.
        let method = if number % 2 == 0 { "GET" } else { "PROPFIND" };
        let answer = client.send(method, &format!("/{number}"), &[]).await;
        assert_eq!(answer.status(), 503, "{answer:?}");
        assert!(answer.field("cache-status").expect("a field").contains("fwd="), "it was tried: {answer:?}");
    }
    assert_eq!(origin.count(), 0);
    drop(taken);
    assert_eq!(client.send("GET", "/later", &[]).await.outcome(), "miss");
}

#[tokio::test]
async fn failed_unsafe_requests_are_no_evidence() {
    let is_failing = Arc::new(AtomicBool::new(true));
    let origin = origin(&is_failing).await;
    let proxy = proxy_with(&origin.url(), FRAGILE, "").await;
    for _ in 0..20 {
        assert_eq!(send(&proxy, "POST", "/", &["Content-Length: 0"]).await.status(), 503);
    }
    is_failing.store(false, SeqCst);
    assert_eq!(get(&proxy, "/").await.outcome(), "miss");
}

#[tokio::test]
async fn head_of_a_stale_response_is_answered_while_the_origin_fails() {
    let is_failing = Arc::default();
    let origin = origin(&is_failing).await;
    let proxy = proxy_with(&origin.url(), FRAGILE, "").await;
    get(&proxy, "/stale").await;
    is_failing.store(true, SeqCst);
    // The origin fails, and then the breaker refuses.
    for failures in [0, 5] {
        fail(&proxy, failures).await;
        let count = origin.count() + usize::from(failures == 0);
        let answer = send(&proxy, "HEAD", "/stale", &[]).await;
        assert_eq!((answer.status(), answer.outcome(), origin.count()), (200, "fallback", count));
    }
    let count = origin.count();
    // It asks for a validation, which is impossible.
    let answer = send(&proxy, "HEAD", "/stale", &["Cache-Control: no-cache"]).await;
    assert_eq!((answer.status(), origin.count()), (503, count));
}

#[tokio::test]
async fn slow_request_body_holds_no_place_of_a_probe() {
    // More than is read before the request is forwarded.
    const SLOW_BYTES: usize = 100_000;
    let is_failing = Arc::new(AtomicBool::new(true));
    let fails = Arc::clone(&is_failing);
    let origin = Origin::start(move |received, mut line| {
        let fails = fails.load(SeqCst);
        async move {
            if received.target() == "/slow" {
                line.read_exact(&mut vec![0; SLOW_BYTES]).await.ok()?;
            }
            let answer = if fails { sized("503 Away", &[], b"") } else { good(b"good") };
            line.write_all(&answer).await.ok().map(|()| line)
        }
    })
    .await;
    let soon = FRAGILE.replace("open_for = \"1h\"", "open_for = \"1ms\"");
    let proxy = proxy_with(&origin.url(), &soon, "").await;
    fail(&proxy, 5).await;
    is_failing.store(false, SeqCst);
    elapse(Duration::from_millis(5)).await;
    let mut slow = Client::connect(&proxy).await;
    let length = format!("Content-Length: {SLOW_BYTES}");
    slow.write(request("GET", "/slow", &["Cache-Control: no-store", &length])).await;
    slow.write(content(SLOW_BYTES - 1)).await;
    until(|| origin.in_progress() == 1).await;
    get(&proxy, "/").await.assert_body(b"good");
}

/// RFC 9110, 8.6: `Content-Length` of a response to HEAD is that of GET, or is left out.
#[tokio::test]
async fn head_has_no_length_that_the_origin_did_not_state() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let origin = Origin::responding(|received| match received.target() {
        "/chunked" => CHUNKED.into(),
        _ => b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n".to_vec(),
    })
    .await;
    let proxy = proxy(&origin).await;
    let http2 = Http2::connect(&proxy).await;
    for (path, length) in [("/chunked", None), ("/sized", Some("7"))] {
        assert_eq!(send(&proxy, "HEAD", path, &[]).await.field("content-length"), length, "{path}");
        let answer = http2.send("HEAD", path, &[]).await;
        let found = answer.head.headers.get("content-length").map(|length| length.to_str().expect("text"));
        assert_eq!(found, length, "{path} over HTTP/2");
    }
}
