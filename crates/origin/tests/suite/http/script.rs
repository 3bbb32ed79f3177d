//! The endings of scripted responses, in real bytes.

use std::{
    io::{ErrorKind, Read},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use h2::Reason;
use http::request::Parts;
use stockade_origin::{Origin, OriginOptions, ResponseEnding, Script, ScriptedResponse};
use tokio::net::TcpStream;

use crate::http::{
    encrypted::{connect_http2, get as get_http2},
    support::{connect, get, receive, send},
};

const BODY: &[u8] = b"0123456789";
const RAW: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";

/// Each path ends its response in another way.
#[derive(Debug)]
struct Endings;

impl Script for Endings {
    fn respond(&self, request: &Parts) -> ScriptedResponse {
        let ending = match request.uri.path() {
            "/cut" => ResponseEnding::Cut(4),
            "/cut-at-end" => ResponseEnding::Cut(usize::MAX),
            "/reset" => ResponseEnding::Reset(4),
            "/reset-at-end" => ResponseEnding::Reset(usize::MAX),
            "/silent" => ResponseEnding::Silent,
            "/refused" => ResponseEnding::Refused,
            "/raw" => ResponseEnding::Raw(Bytes::from_static(RAW)),
            _ => ResponseEnding::Complete,
        };
        ScriptedResponse { ending, ..ScriptedResponse::ok(BODY) }
    }
}

fn start() -> Origin {
    let script: Arc<dyn Script> = Arc::new(Endings);
    Origin::start(&OriginOptions { script: Some(script), ..OriginOptions::default() }).unwrap()
}

/// The bytes until the connection ends, and the error that it ends with.
fn read_all(address: SocketAddr, method: &str, path: &str) -> (Vec<u8>, Option<ErrorKind>) {
    let mut tcp = connect(address).unwrap();
    send(&mut tcp, method, path, "", "");
    let mut bytes = Vec::new();
    let end = tcp.read_to_end(&mut bytes).err().map(|error| error.kind());
    (bytes, end)
}

#[test]
fn response_ends_within_its_body() {
    let origin = start();
    for (path, body, end) in [
        ("/cut", &BODY[..4], None),
        ("/cut-at-end", BODY, None),
        ("/reset", &BODY[..4], Some(ErrorKind::ConnectionReset)),
        ("/reset-at-end", BODY, Some(ErrorKind::ConnectionReset)),
    ] {
        let (bytes, ended) = read_all(origin.address, "GET", path);
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let head = str::from_utf8(&bytes[..at]).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        assert!(head.contains("content-length: 10\r\n"), "{path}: {head}");
        assert_eq!((&bytes[at..], ended), (body, end), "{path}");
    }
    assert_eq!(get(origin.address, "/whole").body, BODY, "the origin goes on");
}

#[test]
fn cut_response_to_head_request_ends_within_its_head() {
    let origin = start();
    let (bytes, end) = read_all(origin.address, "HEAD", "/cut");
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n"), "{text}");
    assert!(!text.contains("\r\n\r\n") && end.is_none(), "{text}: {end:?}");
}

#[test]
fn refused_request_resets_its_connection_without_a_byte() {
    let origin = start();
    for method in ["GET", "HEAD", "POST"] {
        let (bytes, end) = read_all(origin.address, method, "/refused");
        assert_eq!((bytes.len(), end), (0, Some(ErrorKind::ConnectionReset)), "{method}");
    }
    // A kept connection, too.
    let mut tcp = connect(origin.address).unwrap();
    send(&mut tcp, "GET", "/whole", "", "");
    assert_eq!(receive(&tcp, "GET").unwrap().body, BODY);
    send(&mut tcp, "GET", "/refused", "", "");
    assert_eq!(receive(&tcp, "GET").unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn raw_bytes_are_sent_as_they_are() {
    let origin = start();
    for method in ["GET", "HEAD"] {
        let (bytes, end) = read_all(origin.address, method, "/raw");
        assert_eq!((&bytes[..], end), (RAW, None), "{method}");
    }
}

#[test]
fn silent_response_sends_no_byte_and_stays_open() {
    let origin = start();
    let mut tcp = connect(origin.address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    send(&mut tcp, "GET", "/silent", "", "");
    assert_eq!(tcp.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[tokio::test]
async fn ending_closes_its_http2_stream_and_no_other() {
    let origin = start();
    let requests = connect_http2(TcpStream::connect(origin.address).await.unwrap()).await;
    for (path, reason, bytes) in [
        ("/refused", Reason::REFUSED_STREAM, 0),
        // HTTP/2 has another framing, so that the bytes cannot be sent.
        ("/raw", Reason::PROTOCOL_ERROR, 0),
        ("/reset", Reason::INTERNAL_ERROR, 4),
        // The client itself detects that the body is too short, with its last frame.
        ("/cut", Reason::PROTOCOL_ERROR, 0),
    ] {
        let reply = get_http2(&requests, path).await;
        assert_eq!(reply.map(|(head, _)| head.status()).unwrap_err(), (Some(reason), bytes), "{path}");
        assert_eq!(get_http2(&requests, "/whole").await.unwrap().1, BODY, "after {path}");
    }
}
