//! A connection is not reused if the origin may take bytes on it for another request, or has sent what none has asked for.

use std::{
    convert::Infallible,
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc,
    thread,
};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{Full, channel::Channel};
use stockade_http::upstream::Upstream;

use crate::upstream::support::*;

const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

fn with_content(method: &Method, content: &'static str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri("/");
    request.body(Full::new(Bytes::from_static(content.as_bytes()))).expect("a request")
}

#[tokio::test]
async fn connection_ends_after_content_that_the_method_gives_no_meaning() {
    let extension = |name: &str| Method::from_bytes(name.as_bytes()).expect("a method");
    for (method, is_kept) in [
        (Method::GET, false),
        (Method::HEAD, false),
        (Method::OPTIONS, false),
        (Method::DELETE, false),
        (Method::TRACE, false),
        (extension("PROPFIND"), false),
        (extension("PURGE"), false),
        (extension("post"), false),
        (Method::POST, true),
        (Method::PUT, true),
        (Method::PATCH, true),
    ] {
        let stub = Stub::start(|_, mut tcp| async move {
            while let Some(head) = read_head(&mut tcp).await {
                let is_last = head.contains("\r\nconnection: close\r\n");
                let mut content = [0; 5];
                let has_content = head.contains("content-length: 5\r\n");
                if has_content && tokio::io::AsyncReadExt::read_exact(&mut tcp, &mut content).await.is_err() {
                    return;
                }
                let body = if head.starts_with("HEAD") {
                    ""
                } else if is_last {
                    "close"
                } else {
                    "keep!"
                };
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}");
                if tokio::io::AsyncWriteExt::write_all(&mut tcp, answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        })
        .await;
        let upstream = stub.upstream();
        let answer = with_timeout(upstream.send(with_content(&method, "12345"))).await.expect("an answer");
        let body = whole(answer).await.expect("all");
        let expected = if is_kept { "keep!" } else { "close" };
        assert!(method == Method::HEAD || body == expected, "{method}: {body:?}");
        if !is_kept {
            until(|| upstream.status().idle + upstream.status().busy == 0).await;
        }
        // Without content each connection is kept, but after a HEAD.
        for _ in 0..3 {
            whole(with_timeout(upstream.send(with_content(&method, ""))).await.expect("an answer"))
                .await
                .expect("all");
        }
        let later = if method == Method::HEAD { 3 } else { usize::from(!is_kept) };
        assert_eq!(stub.accepted(), 1 + later, "{method}");
    }
}

#[tokio::test]
async fn connection_ends_with_a_response_before_the_end_of_the_request() {
    let stub = Stub::start(|_, mut tcp| async move {
        let _ = serve_once(&mut tcp, HELLO).await;
        read_to_end(&mut tcp).await;
    })
    .await;
    let upstream = stub.upstream();
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    let answer = with_timeout(upstream.send(Request::post("/").body(body).expect("a request")));
    assert_eq!(whole(answer.await.expect("an answer")).await.expect("all"), "hello");
    // The client sends on; the origin may take this for a request.
    let rest = Bytes::from_static(b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(sender.send_data(rest).await);
    drop(sender);
    until(|| upstream.status().idle + upstream.status().busy == 0).await;
    assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
    assert_eq!(stub.accepted(), 2);
}

#[tokio::test]
async fn bytes_after_a_response_answer_no_request() {
    let head = "HTTP/1.1 200 OK\r\n";
    for (method, answer) in [
        (Method::GET, format!("{head}Content-Length: 5\r\n\r\nhello{EVIL}")),
        (Method::GET, format!("{head}Content-Length: 0\r\n\r\n{EVIL}")),
        (Method::GET, format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{EVIL}")),
        (Method::GET, format!("HTTP/1.1 204 No Content\r\nContent-Length: {}\r\n\r\n{EVIL}", EVIL.len())),
        (Method::GET, format!("HTTP/1.1 304 Not Modified\r\nContent-Length: {}\r\n\r\n{EVIL}", EVIL.len())),
        (Method::HEAD, format!("{head}Content-Length: {}\r\n\r\n{EVIL}", EVIL.len())),
        (Method::HEAD, format!("{head}Transfer-Encoding: chunked\r\n\r\n{EVIL}")),
    ] {
        let stub = Stub::answering(answer.as_str()).await;
        let upstream = stub.upstream();
        for n in 1..=20 {
            let answer = with_timeout(upstream.send(with_content(&method, ""))).await.expect("an answer");
            let body = whole(answer).await.expect("all");
            assert!(body == "hello" || body.is_empty(), "{method} {head:?}: {body:?}");
            // A connection that has sent more than its response is not used again.
            assert_eq!(stub.accepted(), n, "{method}");
        }
    }
}

#[tokio::test]
async fn connection_ends_after_a_204_or_304_that_announces_content() {
    for status in ["204 No Content", "304 Not Modified"] {
        for (fields, connections) in [
            ("", 1),
            ("Content-Length: 0\r\n", 1),
            ("Content-Length: 5\r\n", 3),
            ("Transfer-Encoding: chunked\r\n", 3),
        ] {
            let stub = Stub::answering(format!("HTTP/1.1 {status}\r\n{fields}\r\n")).await;
            let upstream = stub.upstream();
            for _ in 0..3 {
                fetch(&upstream, "/").await.expect("an answer");
            }
            assert_eq!(stub.accepted(), connections, "{status} {fields}");
        }
    }
}

/// As Gunicorn does it: the content that an application writes for a HEAD follows its head. Here it looks like a response, and waits for
/// the request of another user.
#[tokio::test]
async fn content_after_a_head_response_reaches_no_later_request() {
    let stub = Stub::start(|_, mut tcp| async move {
        let mut after_head = false;
        while let Some(head) = read_head(&mut tcp).await {
            let is_head = head.starts_with("HEAD ");
            let answer: &[u8] = match (is_head, after_head) {
                (true, _) => b"HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n",
                (false, true) => EVIL.as_bytes(),
                (false, false) => HELLO,
            };
            after_head = is_head;
            if tokio::io::AsyncWriteExt::write_all(&mut tcp, answer).await.is_err() {
                return;
            }
        }
    })
    .await;
    let upstream = stub.upstream();
    for _ in 0..3 {
        let answer = with_timeout(upstream.send(with_content(&Method::HEAD, ""))).await.expect("an answer");
        drop(answer);
        assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
    }
}

/// An origin in a thread of its own. After the first response of its first connection it does `act`, while the proxy's
/// runtime stands still: only the kernel knows. Further connections answer. Sends the heads that it receives.
fn behind_the_runtime(
    act: impl FnOnce(std::net::TcpStream) + Send + 'static,
) -> (Upstream, mpsc::Receiver<String>, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (heads, received) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let read_head = |tcp: &mut std::net::TcpStream| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            match tcp.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return None,
            }
        }
        String::from_utf8(head).ok()
    };
    thread::spawn(move || {
        let (mut first, _) = listener.accept().expect("a connection");
        read_head(&mut first).expect("a request");
        first.write_all(HELLO).expect("an open connection");
        // Until the response has been read, which the test asks for.
        act(first);
        done.send(()).expect("a test");
        for tcp in listener.incoming() {
            let mut tcp = tcp.expect("a connection");
            while let Some(head) = read_head(&mut tcp) {
                let _ = heads.send(head);
                if tcp.write_all(HELLO).is_err() {
                    break;
                }
            }
        }
    });
    (upstream(settings(&url)), received, is_done)
}

#[tokio::test]
async fn idle_connection_is_checked_before_its_use() {
    for (method, content) in
        [(Method::GET, ""), (Method::POST, ""), (Method::POST, "content"), (Method::PATCH, "content")]
    {
        for sends in ["", EVIL] {
            let (go, may_act) = mpsc::channel::<()>();
            let (kept, keeps) = mpsc::channel::<()>();
            let (upstream, heads, is_done) = behind_the_runtime(move |mut tcp| {
                may_act.recv().expect("a test");
                if sends.is_empty() {
                    drop(tcp);
                } else {
                    tcp.write_all(sends.as_bytes()).expect("an open connection");
                    thread::spawn(move || keeps.recv().map(|()| drop(tcp)));
                }
            });
            assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
            assert_eq!(upstream.status().idle, 1);
            go.send(()).expect("an origin");
            is_done.recv().expect("an origin");
            let answer =
                with_timeout(upstream.send(with_content(&method, content))).await.expect("an answer");
            assert_eq!(whole(answer).await.expect("all"), "hello", "{method} {sends}");
            let head = heads.recv().expect("a head");
            assert!(head.starts_with(method.as_str()), "{head}");
            drop(kept);
        }
    }
}
