//! Origin faults and their errors.

use std::time::Duration;

use stockade_http::upstream::{Requester, UpstreamError, UpstreamSettings};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket, TcpStream},
};

use crate::upstream::support::*;

/// The action of a server after its bytes.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Close,
    Reset,
    Hang,
    /// Sends the bytes in a loop.
    Repeat,
}

async fn fault(mut tcp: TcpStream, bytes: Vec<u8>, then: Ending) {
    if read_head(&mut tcp).await.is_none() {
        return;
    }
    let _ = tcp.write_all(&bytes).await;
    match then {
        Ending::Close => {}
        Ending::Reset => tcp.set_zero_linger().expect("a socket"),
        Ending::Hang => read_to_end(&mut tcp).await,
        Ending::Repeat => while tcp.write_all(&bytes).await.is_ok() {},
    }
}

/// Returns the error and its phase, `head` or `body`.
async fn provoke(bytes: &[u8], then: Ending) -> (&'static str, UpstreamError) {
    let bytes = bytes.to_vec();
    let stub = Stub::start(move |_, tcp| fault(tcp, bytes.clone(), then)).await;
    let settings = UpstreamSettings { head_timeout: SHORT, idle_timeout: SHORT, ..stub.settings() };
    let upstream = upstream(settings);
    let result = match with_timeout(upstream.send(get("/"))).await {
        Err(error) => ("head", error),
        Ok(answer) => ("body", whole(answer).await.expect_err("a fault")),
    };
    assert_eq!(stub.accepted(), 1, "no retry");
    // The connection does not return to the pool.
    until(|| upstream.status().busy == 0).await;
    assert_eq!(upstream.status().idle, 0);
    result
}

#[tokio::test]
async fn each_fault_maps_to_its_error() {
    let large = [b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'a'; 65 << 10], b"\r\n\r\n".to_vec()].concat();
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(101)).into_bytes();
    let cases: [(&[u8], Ending, &str, &str); 27] = [
        (b"", Ending::Close, "head", "Closed"),
        (b"", Ending::Reset, "head", "Reset"),
        (b"", Ending::Hang, "head", "HeadTimeout"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", Ending::Close, "head", "Truncated"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", Ending::Hang, "head", "HeadTimeout"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", Ending::Hang, "head", "HeadTimeout"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", Ending::Repeat, "head", "HeadTimeout"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Ending::Hang, "head", "NotHttp"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Ending::Hang, "head", "NotHttp"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            Ending::Hang,
            "head",
            "NotHttp",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Ending::Hang,
            "head",
            "NotHttp",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Ending::Close,
            "head",
            "NotHttp",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\nhello",
            Ending::Close,
            "head",
            "NotHttp",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nhello", Ending::Close, "head", "NotHttp"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Ending::Hang,
            "head",
            "NotHttp",
        ),
        (b"HTTP/1.1 200 OK\r\nA b: c\r\n\r\n", Ending::Hang, "head", "NotHttp"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            Ending::Hang,
            "head",
            "NotHttp",
        ),
        (&large, Ending::Hang, "head", "HeadTooLarge"),
        (&large[..large.len() - 4], Ending::Hang, "head", "HeadTooLarge"),
        (&many, Ending::Hang, "head", "HeadTooLarge"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", Ending::Close, "body", "Truncated"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", Ending::Reset, "body", "Reset"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", Ending::Hang, "body", "IdleTimeout"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            Ending::Close,
            "body",
            "Truncated",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            Ending::Close,
            "body",
            "Truncated",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nhello\r\n",
            Ending::Hang,
            "body",
            "NotHttp",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", Ending::Reset, "body", "Reset"),
    ];
    for (bytes, then, place, name) in cases {
        let (phase, error) = provoke(bytes, then).await;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let variant = format!("{error:?}");
        let variant = variant.split([' ', '{']).next().unwrap_or_default();
        assert_eq!((phase, variant), (place, name), "{text:?} {then:?}: {error}");
        assert!(error.is_origin_fault(), "{error}");
    }
}

#[tokio::test]
async fn response_in_single_bytes_is_complete() {
    let stub = Stub::start(|_, mut tcp| async move {
        let _ = read_head(&mut tcp).await;
        for byte in HELLO {
            tcp.write_all(&[*byte]).await.expect("a reader");
            stockade_model::time::yield_now().await;
        }
        read_to_end(&mut tcp).await;
    })
    .await;
    assert_eq!(fetch(&stub.upstream(), "/").await.expect("an answer"), "hello");
}

#[tokio::test]
async fn idle_timeout_does_not_bound_the_whole_body() {
    // The body takes twice the idle timeout in total.
    let clock = stockade_model::time::Live::new();
    let stub = Stub::start(move |_, mut tcp| {
        let clock = clock.clone();
        async move {
            use stockade_model::time::Runtime;
            let _ = serve_once(&mut tcp, b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n").await;
            for _ in 0..8 {
                clock.sleep_until(clock.now() + SHORT / 4).await;
                tcp.write_all(b"a").await.expect("a reader");
            }
            read_to_end(&mut tcp).await;
        }
    })
    .await;
    let settings = UpstreamSettings { idle_timeout: SHORT, ..stub.settings() };
    assert_eq!(fetch(&upstream(settings), "/").await.expect("an answer"), "aaaaaaaa");
}

#[tokio::test]
async fn port_without_listener_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let upstream = upstream(settings(&format!("http://{address}")));
    let error = with_timeout(upstream.send(get("/"))).await.expect_err("a connect error");
    assert!(matches!(&error, UpstreamError::Refused { at } if **at == *address.to_string()), "{error:?}");
    assert_eq!((upstream.status().idle, upstream.status().busy, upstream.status().waiting), (0, 0, 0));
}

#[tokio::test]
async fn unanswered_connect_times_out() {
    // The accept queue has one place; the kernel drops further SYN packets.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(0).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let _queued = TcpStream::connect(address).await.expect("a place in the queue");
    let upstream =
        upstream(UpstreamSettings { connect_timeout: SHORT, ..settings(&format!("http://{address}")) });
    let error = with_timeout(upstream.send(get("/"))).await.expect_err("a connect error");
    assert!(matches!(error, UpstreamError::ConnectTimeout { after: SHORT, .. }), "{error:?}");
    assert_eq!(error.status(), 504);
}

#[tokio::test]
async fn unresolvable_name_is_a_dns_error() {
    let upstream = upstream(settings("http://a..b"));
    let error = with_timeout(upstream.send(get("/"))).await.expect_err("a connect error");
    assert!(matches!(&error, UpstreamError::Dns { host, .. } if &**host == "a..b"), "{error:?}");
}

#[tokio::test]
async fn wait_queue_is_bounded_in_number_and_time() {
    let stub = Stub::start(|_, mut tcp| async move { read_to_end(&mut tcp).await }).await;
    let settings = UpstreamSettings {
        connections_max: 2,
        waiting_max: 3,
        queue_timeout: Duration::from_millis(80),
        ..stub.settings()
    };
    let upstream = upstream(settings);
    let request = || {
        let upstream = upstream.clone();
        tokio::runtime::Handle::current().spawn(async move { upstream.send(get("/")).await.map(drop) })
    };
    let busy = [request(), request()];
    until(|| stub.accepted() == 2).await;
    let waiting = [request(), request(), request()];
    until(|| upstream.status().waiting == 3).await;
    let error = upstream.send(get("/")).await.expect_err("a full queue");
    assert!(matches!(error, UpstreamError::Overloaded { waiting: 3 }), "{error:?}");
    assert_eq!((error.status().as_u16(), error.is_origin_fault()), (503, false));
    // An aborted request leaves the queue.
    waiting[0].abort();
    until(|| upstream.status().waiting == 2).await;
    for waiting in waiting.into_iter().skip(1) {
        let error = with_timeout(waiting).await.expect("no panic").expect_err("a timeout");
        assert!(matches!(error, UpstreamError::QueueTimeout { .. }), "{error:?}");
    }
    assert_eq!((upstream.status().waiting, upstream.status().busy), (0, 2));
    busy.iter().for_each(tokio::task::JoinHandle::abort);
    until(|| upstream.status().busy == 0).await;
    assert_eq!(stub.peak(), 2);
}

#[tokio::test]
async fn waiting_request_is_given_up_when_its_response_is_not_awaited() {
    let stub = Stub::start(|_, mut tcp| async move { read_to_end(&mut tcp).await }).await;
    let hour = Duration::from_hours(1);
    let settings =
        UpstreamSettings { connections_max: 1, queue_timeout: hour, head_timeout: hour, ..stub.settings() };
    let upstream = upstream(settings);
    let busy = tokio::runtime::Handle::current().spawn({
        let upstream = upstream.clone();
        async move { upstream.send(get("/")).await.map(drop) }
    });
    until(|| stub.accepted() == 1).await;
    let requester = Requester { others: &|| None, ..Requester::UNBOUNDED };
    let error = with_timeout(upstream.send_for(&requester, get("/"))).await.expect_err("nobody waits");
    assert!(matches!(error, UpstreamError::Abandoned), "{error:?}");
    assert_eq!((error.status().as_u16(), error.is_origin_fault()), (503, false));
    assert_eq!(upstream.status().waiting, 0);
    busy.abort();
}
