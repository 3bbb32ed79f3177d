//! The small server, with raw requests.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use stockade_http::server::{self, ServerLimits, ServerThread, WhenFull, refused_method};

/// A guard against hanging: nothing here takes a hundredth of it.
const HANG_GUARD: Duration = Duration::from_mins(1);

fn start(is_keep_alive: bool, when_full: WhenFull) -> (SocketAddr, ServerThread) {
    let limits = ServerLimits {
        connections_max: 2,
        connection_time_max: HANG_GUARD,
        head_time_max: HANG_GUARD,
        is_keep_alive,
        when_full,
    };
    let listener = server::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let address = listener.local_addr().expect("an address");
    let respond = |_: &_| Ok(|_| async { server::text::<Full<Bytes>>(StatusCode::OK, "hello") });
    (address, ServerThread::serve("test", listener, limits, respond).expect("a thread"))
}

fn connect(address: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(address).expect("it listens");
    tcp.set_read_timeout(Some(HANG_GUARD)).expect("a timeout");
    tcp
}

fn request(tcp: &mut TcpStream) {
    tcp.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    let mut reply = Vec::new();
    while !reply.ends_with(b"hello") {
        let mut byte = [0];
        tcp.read_exact(&mut byte).expect("a byte");
        reply.push(byte[0]);
    }
    assert!(reply.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

fn is_closed(tcp: &mut TcpStream) -> bool {
    matches!(tcp.read(&mut [0]), Ok(0) | Err(_))
}

#[test]
fn full_server_closes_the_oldest_silent_connection() {
    let (address, _server) = start(true, WhenFull::CloseOldest);
    let [mut first, mut second] = [connect(address), connect(address)];
    request(&mut first);
    request(&mut second);
    let mut third = connect(address);
    request(&mut third);
    assert!(is_closed(&mut first));
    // The others have another request.
    request(&mut second);
    request(&mut third);
}

#[test]
fn full_server_lets_a_new_connection_wait() {
    let (address, _server) = start(false, WhenFull::Wait);
    let [first, mut second] = [connect(address), connect(address)];
    let mut third = connect(address);
    third.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel takes it");
    third.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    assert!(third.read(&mut [0]).is_err(), "it is served while two are open");
    drop(first);
    third.set_read_timeout(Some(HANG_GUARD)).expect("a timeout");
    let mut reply = String::new();
    third.read_to_string(&mut reply).expect("a reply, and the end of the connection");
    assert!(reply.ends_with("hello"), "{reply}");
    request(&mut second);
    assert!(is_closed(&mut second), "a connection has one request");
}

#[test]
fn dropped_server_has_closed_its_connections_and_its_port() {
    let (address, server) = start(true, WhenFull::Wait);
    let mut tcp = connect(address);
    request(&mut tcp);
    drop(server);
    assert!(is_closed(&mut tcp) && TcpStream::connect(address).is_err());
}

#[test]
fn refused_method_is_told_the_allowed_one() {
    let allow = |method: &Method, allowed: &Method| {
        let refused: Option<Response<Full<Bytes>>> = refused_method(method, allowed);
        refused.map(|refused| {
            assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
            refused.headers()["allow"].to_str().expect("text").to_owned()
        })
    };
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(allow(&method, &Method::GET), None);
        assert_eq!(allow(&method, &Method::POST).as_deref(), Some("POST"));
    }
    assert_eq!(allow(&Method::POST, &Method::GET).as_deref(), Some("GET, HEAD"));
    assert_eq!(allow(&Method::POST, &Method::POST), None);
}
