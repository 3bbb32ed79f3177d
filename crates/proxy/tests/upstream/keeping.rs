//! Connections are kept, shared, handed on, and closed.

use std::{sync::mpsc, thread};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty, Full};
use std::sync::Arc;
use stockade_proxy::upstream::{Settings, UpstreamError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

use crate::support::*;

#[tokio::test]
async fn one_after_the_other_needs_one_connection() {
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
        assert_eq!((upstream.state().idle, upstream.state().busy), (1, 0));
    }
}

#[tokio::test]
async fn what_has_no_body_gives_its_connection_back_with_its_head() {
    for (method, answer) in [
        (Method::GET, &b"HTTP/1.1 204 No Content\r\n\r\n"[..]),
        (Method::GET, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        (Method::GET, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (Method::HEAD, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
    ] {
        let stub = Stub::answering(answer).await;
        let upstream = stub.upstream();
        let request = || Request::builder().method(&method).uri("/").body(Empty::new()).expect("a request");
        let first = soon(upstream.send(request())).await.expect("an answer");
        assert!(first.body().is_end_stream());
        // The first answer is still held.
        let second = soon(upstream.send(request())).await.expect("an answer");
        assert_eq!(stub.accepted(), 1);
        drop((first, second));
    }
}

#[tokio::test]
async fn the_last_byte_gives_the_connection_back_although_nobody_asks_for_more() {
    let stub = Stub::answering(HELLO).await;
    let upstream = stub.upstream();
    let answer = soon(upstream.send(get("/"))).await.expect("an answer");
    let mut body = answer.into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    let mut read = 0;
    while read < 5 {
        read += soon(body.frame()).await.expect("a frame").expect("bytes").into_data().expect("data").len();
    }
    assert!(body.is_end_stream());
    assert_eq!((upstream.state().idle, upstream.state().busy), (1, 0));
    drop(body);
    assert_eq!(upstream.state().idle, 1);
}

#[tokio::test]
async fn an_answer_that_says_close_is_the_last_of_its_connection() {
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
    until(|| upstream.state().busy + upstream.state().idle == 0).await;
}

#[tokio::test]
async fn a_dropped_body_closes_its_connection() {
    let closed = Arc::new(Notify::new());
    let tell = Arc::clone(&closed);
    let stub = Stub::start(move |_, mut tcp| {
        let tell = Arc::clone(&tell);
        async move {
            let _ = serve_once(&mut tcp, b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nhello").await;
            read_to_end(&mut tcp).await;
            tell.notify_one();
        }
    })
    .await;
    let upstream = stub.upstream();
    let mut answer = soon(upstream.send(get("/"))).await.expect("an answer");
    soon(answer.body_mut().frame()).await.expect("a frame").expect("bytes");
    drop(answer);
    soon(closed.notified()).await;
    until(|| upstream.state().busy + upstream.state().idle == 0).await;
    // So does a request that nobody waits for any more.
    let asking = tokio::runtime::Handle::current().spawn({
        let upstream = upstream.clone();
        async move { upstream.send(get("/")).await.map(drop) }
    });
    until(|| stub.accepted() == 2).await;
    asking.abort();
    drop(asking.await);
    soon(closed.notified()).await;
    until(|| upstream.state().busy + upstream.state().idle == 0).await;
}

#[tokio::test]
async fn what_rests_for_too_long_is_closed() {
    let closed = Arc::new(Notify::new());
    let tell = Arc::clone(&closed);
    let stub = Stub::start(move |_, mut tcp| {
        let tell = Arc::clone(&tell);
        async move {
            let _ = serve_once(&mut tcp, HELLO).await;
            read_to_end(&mut tcp).await;
            tell.notify_one();
        }
    })
    .await;
    let upstream = upstream(Settings { keep_alive: SHORT, ..stub.settings() });
    fetch(&upstream, "/").await.expect("an answer");
    assert_eq!(upstream.state().idle, 1);
    soon(closed.notified()).await;
    until(|| upstream.state().idle + upstream.state().busy == 0).await;
    // And so is all that rests when nobody can ask any more.
    fetch(&stub.upstream(), "/").await.expect("an answer");
    soon(closed.notified()).await;
}

#[tokio::test]
async fn what_the_origin_closes_at_rest_is_not_used() {
    let stub = Stub::start(|_, mut tcp| async move {
        let _ = serve_once(&mut tcp, HELLO).await;
    })
    .await;
    let upstream = stub.upstream();
    for n in 1..=3 {
        let post = Request::post("/").body(Empty::new()).expect("a request");
        assert_eq!(whole(soon(upstream.send(post)).await.expect("an answer")).await.expect("all"), "hello");
        until(|| upstream.state().idle == 0).await;
        assert_eq!(stub.accepted(), n);
    }
}

/// The first connection answers once, takes one more request and closes; the others answer.
async fn fickle() -> Stub {
    Stub::start(|n, mut tcp| async move {
        if n == 0 {
            let _ = serve_once(&mut tcp, HELLO).await;
            let _ = read_head(&mut tcp).await;
            let mut rest = [0; 4];
            // The body of it, so that it is closed and not reset.
            drop(tcp.try_read(&mut rest));
            return;
        }
        while serve_once(&mut tcp, HELLO).await.is_some() {}
    })
    .await
}

#[tokio::test]
async fn a_request_is_sent_again_only_if_that_is_safe() {
    for (method, body, is_safe) in [
        (Method::GET, "", true),
        (Method::HEAD, "", true),
        (Method::PUT, "", true),
        (Method::DELETE, "", true),
        (Method::POST, "", false),
        (Method::PATCH, "", false),
        (Method::POST, "body", false),
        // It may be repeated, but its body is gone.
        (Method::PUT, "body", false),
    ] {
        let stub = fickle().await;
        let upstream = stub.upstream();
        fetch(&upstream, "/").await.expect("an answer");
        let request = Request::builder().method(&method).uri("/").body(Full::new(Bytes::from(body)));
        let answer = soon(upstream.send(request.expect("a request"))).await;
        match answer {
            Ok(answer) => {
                assert!(is_safe, "{method} {body}");
                drop(answer);
            }
            Err(error) => {
                assert!(!is_safe, "{method} {body}: {error}");
                assert!(
                    matches!(error, UpstreamError::Closed { .. } | UpstreamError::Reset { .. }),
                    "{method} {body}: {error:?}"
                );
            }
        }
        assert_eq!(stub.accepted(), 1 + usize::from(is_safe), "{method} {body}");
    }
}

#[tokio::test]
async fn what_has_begun_to_answer_is_not_asked_again() {
    let stub = Stub::start(|_, mut tcp| async move {
        let _ = serve_once(&mut tcp, HELLO).await;
        let _ = serve_once(&mut tcp, b"HTTP/1.1 ").await;
    })
    .await;
    let upstream = stub.upstream();
    fetch(&upstream, "/").await.expect("an answer");
    let error = fetch(&upstream, "/").await.expect_err("half of one");
    assert!(matches!(error, UpstreamError::Truncated), "{error:?}");
    assert_eq!(stub.accepted(), 1);
}

#[tokio::test]
async fn a_thousand_at_once_share_eight_connections() {
    let stub = Stub::answering(HELLO).await;
    let upstream = upstream(Settings { connections_max: 8, queue_timeout: PATIENCE, ..stub.settings() });
    let asks = (0..1_000).map(|_| fetch(&upstream, "/"));
    for answer in soon(join_all(asks)).await {
        assert_eq!(answer.expect("an answer"), "hello");
    }
    assert_eq!((stub.accepted(), stub.peak()), (8, 8));
    let state = upstream.state();
    assert_eq!((state.idle, state.busy, state.waiting), (8, 0, 0));
}

#[tokio::test]
async fn there_are_never_more_connections_than_may_be_although_they_break() {
    // Every third request of a connection breaks off, in another way each time.
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
    let upstream = upstream(Settings { connections_max: 8, queue_timeout: PATIENCE, ..stub.settings() });
    let asks = (0..1_000).map(|_| fetch(&upstream, "/"));
    let answers = soon(join_all(asks)).await;
    let whole = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!((600..1_000).contains(&whole), "{whole}");
    assert!(stub.peak() <= 8, "{}", stub.peak());
    until(|| upstream.state().busy == 0).await;
    assert_eq!(upstream.state().waiting, 0);
}

#[test]
fn two_runtimes_share_one_pool() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let servers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let servers = servers.expect("a runtime");
    let stub = servers.block_on(Stub::answering(HELLO));
    let upstream = stub.upstream();
    // One that connects, and lives on as long as the other uses what it made.
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
        // One is somebody else's; what is its slow end may have been overtaken once.
        assert!(stub.accepted() <= 2, "{}", stub.accepted());
    });
    done.send(()).expect("the first");
    first.join().expect("no panic");
    // Its connections have gone with it: nobody is given one.
    second.block_on(async {
        for _ in 0..50 {
            fetch(&upstream, "/").await.expect("an answer");
        }
        let state = upstream.state();
        assert_eq!((state.idle, state.busy), (1, 0), "{state:?}");
    });
}

#[tokio::test]
async fn bytes_that_nobody_asked_for_end_a_connection() {
    let stub = Stub::start(|_, mut tcp| async move {
        let _ = serve_once(&mut tcp, &[HELLO, HELLO].concat()).await;
        let mut byte = [0];
        let _ = tcp.read(&mut byte).await;
        let _ = tcp.write_all(HELLO).await;
    })
    .await;
    let upstream = stub.upstream();
    assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
    until(|| upstream.state().idle + upstream.state().busy == 0).await;
}
