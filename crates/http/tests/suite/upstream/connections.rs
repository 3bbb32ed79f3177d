//! The connection pool: reuse, limits, retries, close.

use std::{sync::mpsc, thread};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty, Full};
use std::sync::Arc;
use stockade_http::upstream::{UpstreamError, UpstreamSettings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

use crate::upstream::support::*;

#[tokio::test]
async fn sequential_requests_share_one_connection() {
    for answer in [
        HELLO,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let stub = Stub::answering(answer).await;
        let upstream = stub.upstream();
        for _ in 0..100 {
            assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
        }
        assert_eq!(stub.accepted(), 1, "{}", String::from_utf8_lossy(answer));
        assert_eq!((upstream.status().idle, upstream.status().busy), (1, 0));
    }
}

#[tokio::test]
async fn bodiless_response_returns_its_connection_with_the_head() {
    for (method, answer) in [
        (Method::GET, &b"HTTP/1.1 204 No Content\r\n\r\n"[..]),
        (Method::GET, b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        (Method::GET, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (Method::DELETE, b"HTTP/1.1 204 No Content\r\n\r\n"),
    ] {
        let stub = Stub::answering(answer).await;
        let upstream = stub.upstream();
        let request = || Request::builder().method(&method).uri("/").body(Empty::new()).expect("a request");
        let first = with_timeout(upstream.send(request())).await.expect("an answer");
        assert!(first.body().is_end_stream());
        // The first response is not dropped yet.
        let second = with_timeout(upstream.send(request())).await.expect("an answer");
        assert_eq!(stub.accepted(), 1);
        drop((first, second));
    }
}

#[tokio::test]
async fn last_byte_of_a_body_returns_the_connection() {
    let stub = Stub::answering(HELLO).await;
    let upstream = stub.upstream();
    let answer = with_timeout(upstream.send(get("/"))).await.expect("an answer");
    let mut body = answer.into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    let mut read = 0;
    while read < 5 {
        read += with_timeout(body.frame())
            .await
            .expect("a frame")
            .expect("bytes")
            .into_data()
            .expect("data")
            .len();
    }
    assert!(body.is_end_stream());
    assert_eq!((upstream.status().idle, upstream.status().busy), (1, 0));
    drop(body);
    assert_eq!(upstream.status().idle, 1);
}

#[tokio::test]
async fn connection_close_ends_the_connection() {
    let stub = Stub::start(|_, mut tcp| async move {
        let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
        let _ = serve_once(&mut tcp, answer).await;
        read_to_end(&mut tcp).await;
    })
    .await;
    let upstream = stub.upstream();
    for _ in 0..3 {
        assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
    }
    assert_eq!(stub.accepted(), 3);
    until(|| upstream.status().busy + upstream.status().idle == 0).await;
}

#[tokio::test]
async fn dropped_body_or_request_closes_its_connection() {
    let closed = Arc::new(Notify::new());
    let notifier = Arc::clone(&closed);
    let stub = Stub::start(move |_, mut tcp| {
        let notifier = Arc::clone(&notifier);
        async move {
            let _ = serve_once(&mut tcp, b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nhello").await;
            read_to_end(&mut tcp).await;
            notifier.notify_one();
        }
    })
    .await;
    let upstream = stub.upstream();
    let mut answer = with_timeout(upstream.send(get("/"))).await.expect("an answer");
    with_timeout(answer.body_mut().frame()).await.expect("a frame").expect("bytes");
    drop(answer);
    with_timeout(closed.notified()).await;
    until(|| upstream.status().busy + upstream.status().idle == 0).await;
    // An aborted request closes it as well.
    let asking = tokio::runtime::Handle::current().spawn({
        let upstream = upstream.clone();
        async move { upstream.send(get("/")).await.map(drop) }
    });
    until(|| stub.accepted() == 2).await;
    asking.abort();
    drop(asking.await);
    with_timeout(closed.notified()).await;
    until(|| upstream.status().busy + upstream.status().idle == 0).await;
}

#[tokio::test]
async fn idle_connection_is_closed_after_keep_alive() {
    let closed = Arc::new(Notify::new());
    let notifier = Arc::clone(&closed);
    let stub = Stub::start(move |_, mut tcp| {
        let notifier = Arc::clone(&notifier);
        async move {
            let _ = serve_once(&mut tcp, HELLO).await;
            read_to_end(&mut tcp).await;
            notifier.notify_one();
        }
    })
    .await;
    let upstream = upstream(UpstreamSettings { keep_alive: SHORT, ..stub.settings() });
    fetch(&upstream, "/").await.expect("an answer");
    assert_eq!(upstream.status().idle, 1);
    with_timeout(closed.notified()).await;
    until(|| upstream.status().idle + upstream.status().busy == 0).await;
    // The drop of the last upstream handle closes idle connections.
    fetch(&stub.upstream(), "/").await.expect("an answer");
    with_timeout(closed.notified()).await;
}

#[tokio::test]
async fn connection_that_the_origin_closed_is_not_reused() {
    let stub = Stub::start(|_, mut tcp| async move {
        let _ = serve_once(&mut tcp, HELLO).await;
    })
    .await;
    let upstream = stub.upstream();
    for n in 1..=3 {
        let post = Request::post("/").body(Empty::new()).expect("a request");
        assert_eq!(
            whole(with_timeout(upstream.send(post)).await.expect("an answer")).await.expect("all"),
            "hello"
        );
        until(|| upstream.status().idle == 0).await;
        assert_eq!(stub.accepted(), n);
    }
}

/// The first connection closes on its second request; the other connections answer.
async fn closing_on_reuse() -> Stub {
    Stub::start(|n, mut tcp| async move {
        if n == 0 {
            let _ = serve_once(&mut tcp, HELLO).await;
            let _ = read_head(&mut tcp).await;
            let mut rest = [0; 4];
            // Unread bytes would turn the close into a reset.
            drop(tcp.try_read(&mut rest));
            return;
        }
        while serve_once(&mut tcp, HELLO).await.is_some() {}
    })
    .await
}

#[tokio::test]
async fn only_idempotent_requests_whose_content_is_kept_are_retried() {
    const LONG: &[u8] = &[b'a'; (64 << 10) + 1];
    for (method, body, is_safe) in [
        (Method::GET, &b""[..], true),
        (Method::HEAD, b"", true),
        (Method::PUT, b"", true),
        (Method::DELETE, b"", true),
        (Method::POST, b"", false),
        (Method::PATCH, b"", false),
        (Method::POST, b"body", false),
        (Method::PUT, b"body", true),
        (Method::DELETE, b"body", true),
        (Method::PUT, &LONG[1..], true),
        // It goes on a new connection.
        (Method::PUT, LONG, true),
        (Method::POST, LONG, true),
    ] {
        let bytes = body.len();
        let stub = closing_on_reuse().await;
        let upstream = stub.upstream();
        fetch(&upstream, "/").await.expect("an answer");
        let request = Request::builder().method(&method).uri("/").body(Full::new(Bytes::from_static(body)));
        let answer = with_timeout(upstream.send(request.expect("a request"))).await;
        match answer {
            Ok(answer) => {
                assert!(is_safe, "{method} {bytes}");
                drop(answer);
            }
            Err(error) => {
                assert!(!is_safe, "{method} {bytes}: {error}");
                assert!(
                    matches!(error, UpstreamError::Closed { .. } | UpstreamError::Reset { .. }),
                    "{method} {bytes}: {error:?}"
                );
            }
        }
        assert_eq!(stub.accepted(), 1 + usize::from(is_safe), "{method} {bytes}");
    }
}

#[tokio::test]
async fn request_is_not_retried_after_the_first_response_byte() {
    let stub = Stub::start(|_, mut tcp| async move {
        let _ = serve_once(&mut tcp, HELLO).await;
        let _ = serve_once(&mut tcp, b"HTTP/1.1 ").await;
    })
    .await;
    let upstream = stub.upstream();
    fetch(&upstream, "/").await.expect("an answer");
    let error = fetch(&upstream, "/").await.expect_err("a truncated head");
    assert!(matches!(error, UpstreamError::Truncated), "{error:?}");
    assert_eq!(stub.accepted(), 1);
}

#[tokio::test]
async fn thousand_concurrent_requests_share_eight_connections() {
    let stub = Stub::answering(HELLO).await;
    let upstream =
        upstream(UpstreamSettings { connections_max: 8, queue_timeout: HANG_GUARD, ..stub.settings() });
    let requests = (0..1_000).map(|_| fetch(&upstream, "/"));
    for answer in with_timeout(join_all(requests)).await {
        assert_eq!(answer.expect("an answer"), "hello");
    }
    assert_eq!((stub.accepted(), stub.peak()), (8, 8));
    let state = upstream.status();
    assert_eq!((state.idle, state.busy, state.waiting), (8, 0, 0));
}

#[tokio::test]
async fn connections_max_holds_while_connections_break() {
    // The third request of each connection fails: truncated or closed without a response.
    let stub = Stub::start(|n, mut tcp| async move {
        for _ in 0..2 {
            if serve_once(&mut tcp, HELLO).await.is_none() {
                return;
            }
        }
        let part: &[u8] =
            if n.is_multiple_of(2) { b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel" } else { b"" };
        let _ = serve_once(&mut tcp, part).await;
    })
    .await;
    let upstream =
        upstream(UpstreamSettings { connections_max: 8, queue_timeout: HANG_GUARD, ..stub.settings() });
    let requests = (0..1_000).map(|_| fetch(&upstream, "/"));
    let answers = with_timeout(join_all(requests)).await;
    let whole = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!((600..1_000).contains(&whole), "{whole}");
    assert!(stub.peak() <= 8, "{}", stub.peak());
    until(|| upstream.status().busy == 0).await;
    assert_eq!(upstream.status().waiting, 0);
}

#[test]
fn two_runtimes_share_one_pool() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let servers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let servers = servers.expect("a runtime");
    let stub = servers.block_on(Stub::answering(HELLO));
    let upstream = stub.upstream();
    // The first runtime opens the connection and runs until the second has used it.
    let (done, is_done) = mpsc::channel::<()>();
    let (made, is_made) = mpsc::channel();
    let first = thread::spawn({
        let upstream = upstream.clone();
        move || {
            let runtime = runtime();
            runtime.block_on(async {
                fetch(&upstream, "/").await.expect("an answer");
                made.send(()).expect("the other");
                let waiting = tokio::task::spawn_blocking(move || is_done.recv().is_ok());
                assert!(waiting.await.expect("no panic"));
            });
        }
    });
    is_made.recv().expect("the first");
    let second = runtime();
    second.block_on(async {
        for _ in 0..50 {
            fetch(&upstream, "/").await.expect("an answer");
        }
        // One connection of the first runtime, and at most one more if its return was slow.
        assert!(stub.accepted() <= 2, "{}", stub.accepted());
    });
    done.send(()).expect("the first");
    first.join().expect("no panic");
    // The connections of the first runtime ended with it.
    second.block_on(async {
        for _ in 0..50 {
            fetch(&upstream, "/").await.expect("an answer");
        }
        let state = upstream.status();
        assert_eq!((state.idle, state.busy), (1, 0), "{state:?}");
    });
}

#[tokio::test]
async fn unsolicited_bytes_close_an_idle_connection() {
    let stub = Stub::start(|_, mut tcp| async move {
        let _ = serve_once(&mut tcp, &[HELLO, HELLO].concat()).await;
        let mut byte = [0];
        let _ = tcp.read(&mut byte).await;
        let _ = tcp.write_all(HELLO).await;
    })
    .await;
    let upstream = stub.upstream();
    assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
    until(|| upstream.status().idle + upstream.status().busy == 0).await;
}
