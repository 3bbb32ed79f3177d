//! Requests to the origin: head, body, stalls.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, header::CONTENT_LENGTH};
use http_body::{Body, Frame};
use http_body_util::{Empty, Full, StreamBody, channel::Channel};
use stockade_http::upstream::{HostHeader, UpstreamError, UpstreamSettings};
use tokio::{io::AsyncReadExt, net::TcpSocket, sync::mpsc};

use crate::upstream::support::*;

/// A server that sends each request head to the channel.
async fn recording_stub() -> (Stub, mpsc::UnboundedReceiver<String>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let stub = Stub::start(move |_, mut tcp| {
        let sender = sender.clone();
        async move {
            while let Some(head) = serve_once(&mut tcp, HELLO).await {
                let _ = sender.send(head);
            }
        }
    })
    .await;
    (stub, receiver)
}

#[tokio::test]
async fn request_has_the_base_path_and_the_configured_host() {
    let (stub, mut heads) = recording_stub().await;
    let own = stub.address.to_string();
    for (base, host, uri, clients, path, expected) in [
        ("", HostHeader::Client, "/a?b", Some("client.example"), "/a?b", "client.example"),
        ("", HostHeader::Client, "http://client.example/a", Some("other"), "/a", "client.example"),
        ("", HostHeader::Client, "/a", None, "/a", own.as_str()),
        ("/base/", HostHeader::Origin, "/a/../b", Some("client.example"), "/base/a/../b", own.as_str()),
        ("/base", HostHeader::Origin, "/", None, "/base/", own.as_str()),
    ] {
        let upstream =
            upstream(UpstreamSettings { host_header: host, ..settings(&format!("{}{base}", stub.url())) });
        let mut request = Request::get(uri).version(http::Version::HTTP_2);
        if let Some(clients) = clients {
            request = request.header("Host", clients);
        }
        let answer =
            with_timeout(upstream.send(request.body(Empty::<Bytes>::new()).expect("a request"))).await;
        answer.expect("an answer");
        let head = with_timeout(heads.recv()).await.expect("a head").to_lowercase();
        assert!(head.starts_with(&format!("get {path} http/1.1\r\n")), "{head}");
        assert!(head.contains(&format!("host: {expected}\r\n")), "{head}");
        assert_eq!(head.matches("host:").count(), 1, "{head}");
        assert!(!head.contains("content-length") && !head.contains("transfer-encoding"), "{head}");
    }
}

/// Reads a request body, sized or chunked, as the bytes on the wire.
async fn read_wire_body(head: &str, tcp: &mut tokio::net::TcpStream) -> Vec<u8> {
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    if length.is_some() {
        tcp.read_exact(&mut body).await.expect("all of it");
    } else {
        while !body.ends_with(b"0\r\n\r\n") {
            body.push(tcp.read_u8().await.expect("a byte"));
        }
    }
    body
}

#[tokio::test]
async fn body_is_sent_sized_or_chunked() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let stub = Stub::start(move |_, mut tcp| {
        let sender = sender.clone();
        async move {
            while let Some(head) = read_head(&mut tcp).await {
                let body = read_wire_body(&head, &mut tcp).await;
                let _ = sender.send((head, body.len()));
                tokio::io::AsyncWriteExt::write_all(&mut tcp, HELLO).await.expect("a reader");
            }
        }
    })
    .await;
    let upstream = stub.upstream();
    let known = Request::post("/").body(Full::new(Bytes::from(vec![b'a'; 1 << 20]))).expect("a request");
    assert_eq!(
        whole(with_timeout(upstream.send(known)).await.expect("an answer")).await.expect("all"),
        "hello"
    );
    let (head, bytes) = with_timeout(receiver.recv()).await.expect("a request");
    assert!(head.contains("content-length: 1048576\r\n") && bytes == 1 << 20, "{head} {bytes}");

    let pieces = stream::iter((0..4).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"abcd")))));
    let unknown = Request::post("/").body(StreamBody::new(pieces)).expect("a request");
    assert_eq!(
        whole(with_timeout(upstream.send(unknown)).await.expect("an answer")).await.expect("all"),
        "hello"
    );
    let (head, bytes) = with_timeout(receiver.recv()).await.expect("a request");
    assert!(head.contains("transfer-encoding: chunked\r\n") && bytes == 4 * 9 + 5, "{head} {bytes}");
    assert_eq!(stub.accepted(), 1);
}

#[tokio::test]
async fn stalled_or_truncated_upload_is_not_an_origin_fault() {
    let stub = Stub::start(|_, mut tcp| async move { read_to_end(&mut tcp).await }).await;
    let upstream = upstream(UpstreamSettings { idle_timeout: SHORT, ..stub.settings() });
    let (_silent, body) = Channel::<Bytes, Infallible>::new(1);
    let error = with_timeout(upstream.send(Request::post("/").body(body).expect("a request")))
        .await
        .expect_err("nothing");
    assert!(matches!(error, UpstreamError::RequestStalled { .. }), "{error:?}");
    assert_eq!((error.status().as_u16(), error.is_origin_fault()), (408, false));

    let pieces = [Ok(Frame::data(Bytes::from_static(b"abcd"))), Err("the client has gone")];
    let breaks = StreamBody::new(stream::iter(pieces));
    let error = with_timeout(upstream.send(Request::post("/").body(breaks).expect("a request")))
        .await
        .expect_err("half");
    assert!(error.to_string().contains("the client has gone"), "{error}");
    assert_eq!((error.status().as_u16(), error.is_origin_fault()), (400, false));
    assert_eq!(upstream.status().endpoints[0].failures, 0);
    until(|| upstream.status().busy == 0).await;
}

/// A body without an end.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'a'; 16 << 10])))))
    }
}

#[tokio::test]
async fn unread_upload_times_out_as_an_origin_fault() {
    // The kernel completes the handshake; no process accepts or reads.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(8).expect("a listener");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let upstream = upstream(UpstreamSettings { idle_timeout: SHORT, ..settings(&url) });
    let error = with_timeout(upstream.send(Request::post("/").body(Endless).expect("a request")))
        .await
        .expect_err("stuck");
    assert!(matches!(error, UpstreamError::IdleTimeout { after: SHORT }), "{error:?}");
    assert_eq!(upstream.status().endpoints[0].failures, 1);
}

#[tokio::test]
async fn response_is_returned_before_the_upload_ends() {
    let stub = Stub::start(|_, mut tcp| async move {
        let _ =
            serve_once(&mut tcp, b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno\n").await;
        read_to_end(&mut tcp).await;
    })
    .await;
    let upstream = upstream(UpstreamSettings { idle_timeout: SHORT, ..stub.settings() });
    let (_silent, body) = Channel::<Bytes, Infallible>::new(1);
    let answer = with_timeout(upstream.send(Request::post("/").body(body).expect("a request")))
        .await
        .expect("an answer");
    assert_eq!((answer.status().as_u16(), answer.headers()[CONTENT_LENGTH].as_bytes()), (413, &b"3"[..]));
    assert_eq!(whole(answer).await.expect("all"), "no\n");
    // The idle timeout bounds the wait for the rest of the request.
    until(|| upstream.status().busy + upstream.status().idle == 0).await;
}

#[tokio::test]
async fn connect_request_is_unsendable() {
    let stub = Stub::answering(HELLO).await;
    let upstream = stub.upstream();
    let tunnel = Request::connect("a:80").body(Empty::<Bytes>::new()).expect("a request");
    let error = upstream.send(tunnel).await.expect_err("an unsendable request");
    assert!(matches!(error, UpstreamError::Unsendable { .. }), "{error:?}");
    assert_eq!(stub.accepted(), 0);
}
