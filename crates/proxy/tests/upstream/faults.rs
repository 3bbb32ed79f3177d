//! Whatever an origin does wrong has a name.

use std::time::Duration;

use stockade_proxy::upstream::{Settings, UpstreamError};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket, TcpStream},
};

use crate::support::*;

/// What a server does after its bytes.
#[derive(Clone, Copy, Debug)]
enum Then {
    Close,
    Reset,
    Hang,
    /// The same bytes again and again.
    Repeat,
}

async fn fault(mut tcp: TcpStream, bytes: Vec<u8>, then: Then) {
    if read_head(&mut tcp).await.is_none() {
        return;
    }
    let _ = tcp.write_all(&bytes).await;
    match then {
        Then::Close => {}
        Then::Reset => tcp.set_zero_linger().expect("a socket"),
        Then::Hang => read_to_end(&mut tcp).await,
        Then::Repeat => while tcp.write_all(&bytes).await.is_ok() {},
    }
}

/// Where it showed (`head` or `body`), and what.
async fn meet(bytes: &[u8], then: Then) -> (&'static str, UpstreamError) {
    let bytes = bytes.to_vec();
    let stub = Stub::start(move |_, tcp| fault(tcp, bytes.clone(), then)).await;
    let settings = Settings { head_timeout: SHORT, idle_timeout: SHORT, ..stub.settings() };
    let upstream = upstream(settings);
    let met = match soon(upstream.send(get("/"))).await {
        Err(error) => ("head", error),
        Ok(answer) => ("body", whole(answer).await.expect_err("a fault")),
    };
    assert_eq!(stub.accepted(), 1, "it asks once");
    // Nothing is kept of what broke.
    until(|| upstream.state().busy == 0).await;
    assert_eq!(upstream.state().idle, 0);
    met
}

#[tokio::test]
async fn every_fault_has_its_name() {
    let large = [b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'a'; 65 << 10], b"\r\n\r\n".to_vec()].concat();
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(101)).into_bytes();
    let cases: [(&[u8], Then, &str, &str); 22] = [
        (b"", Then::Close, "head", "Closed"),
        (b"", Then::Reset, "head", "Reset"),
        (b"", Then::Hang, "head", "HeadTimeout"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", Then::Close, "head", "Truncated"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", Then::Hang, "head", "HeadTimeout"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", Then::Hang, "head", "HeadTimeout"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", Then::Repeat, "head", "HeadTimeout"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Then::Hang, "head", "NotHttp"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Then::Hang, "head", "NotHttp"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", Then::Hang, "head", "NotHttp"),
        (b"HTTP/1.1 200 OK\r\nA b: c\r\n\r\n", Then::Hang, "head", "NotHttp"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            Then::Hang,
            "head",
            "NotHttp",
        ),
        (&large, Then::Hang, "head", "HeadTooLarge"),
        (&large[..large.len() - 4], Then::Hang, "head", "HeadTooLarge"),
        (&many, Then::Hang, "head", "HeadTooLarge"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", Then::Close, "body", "Truncated"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", Then::Reset, "body", "Reset"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", Then::Hang, "body", "IdleTimeout"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            Then::Close,
            "body",
            "Truncated",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", Then::Close, "body", "Truncated"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nhello\r\n",
            Then::Hang,
            "body",
            "NotHttp",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", Then::Reset, "body", "Reset"),
    ];
    for (bytes, then, place, name) in cases {
        let (met_at, error) = meet(bytes, then).await;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let variant = format!("{error:?}");
        let variant = variant.split([' ', '{']).next().unwrap_or_default();
        assert_eq!((met_at, variant), (place, name), "{text:?} {then:?}: {error}");
        assert!(error.is_origins(), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_comes_bit_by_bit_in_time_is_whole() {
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
async fn a_slow_body_is_whole_as_long_as_it_moves() {
    // Longer than the idle timeout together.
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
    let settings = Settings { idle_timeout: SHORT, ..stub.settings() };
    assert_eq!(fetch(&upstream(settings), "/").await.expect("an answer"), "aaaaaaaa");
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let upstream = upstream(settings(&format!("http://{address}")));
    let error = soon(upstream.send(get("/"))).await.expect_err("nobody");
    assert!(matches!(&error, UpstreamError::Refused { at } if **at == *address.to_string()), "{error:?}");
    assert_eq!((upstream.state().idle, upstream.state().busy, upstream.state().waiting), (0, 0, 0));
}

#[tokio::test]
async fn nobody_answers_the_call() {
    // Its queue has room for one: the calls of all others are dropped.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(0).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let _queued = TcpStream::connect(address).await.expect("a place in the queue");
    let upstream = upstream(Settings { connect_timeout: SHORT, ..settings(&format!("http://{address}")) });
    let error = soon(upstream.send(get("/"))).await.expect_err("nobody");
    assert!(matches!(error, UpstreamError::ConnectTimeout { after: SHORT, .. }), "{error:?}");
    assert_eq!(error.status(), 504);
}

#[tokio::test]
async fn a_name_without_an_address() {
    let upstream = upstream(settings("http://a..b"));
    let error = soon(upstream.send(get("/"))).await.expect_err("nobody");
    assert!(matches!(&error, UpstreamError::Dns { host, .. } if &**host == "a..b"), "{error:?}");
}

#[tokio::test]
async fn the_queue_is_bounded_in_number_and_time() {
    let stub = Stub::start(|_, mut tcp| async move { read_to_end(&mut tcp).await }).await;
    let settings = Settings {
        connections_max: 2,
        waiting_max: 3,
        queue_timeout: Duration::from_millis(80),
        ..stub.settings()
    };
    let upstream = upstream(settings);
    let ask = || {
        let upstream = upstream.clone();
        tokio::runtime::Handle::current().spawn(async move { upstream.send(get("/")).await.map(drop) })
    };
    let busy = [ask(), ask()];
    until(|| stub.accepted() == 2).await;
    let waiting = [ask(), ask(), ask()];
    until(|| upstream.state().waiting == 3).await;
    let error = upstream.send(get("/")).await.expect_err("no room");
    assert!(matches!(error, UpstreamError::Overloaded { waiting: 3 }), "{error:?}");
    assert_eq!((error.status().as_u16(), error.is_origins()), (503, false));
    // Who goes leaves its place to others.
    waiting[0].abort();
    until(|| upstream.state().waiting == 2).await;
    for waiting in waiting.into_iter().skip(1) {
        let error = soon(waiting).await.expect("no panic").expect_err("too late");
        assert!(matches!(error, UpstreamError::QueueTimeout { .. }), "{error:?}");
    }
    assert_eq!((upstream.state().waiting, upstream.state().busy), (0, 2));
    busy.iter().for_each(tokio::task::JoinHandle::abort);
    until(|| upstream.state().busy == 0).await;
    assert_eq!(stub.peak(), 2);
}
