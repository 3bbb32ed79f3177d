//! The small client, with scripted servers.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header::AUTHORIZATION};
use stockade_http::{
    client::{ClientError, HttpClient, HttpUrl, UrlFault, block_within},
    tls::Trust,
};

const HANG_GUARD: Duration = Duration::from_secs(30);
const REPLY_BYTES_MAX: usize = 10;

/// Sends `reply` to the one request that arrives, closes the connection, and returns the head of the request.
fn server(reply: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/path?query", listener.local_addr().expect("an address"));
    let thread = thread::spawn(move || {
        let (mut tcp, _) = listener.accept().expect("a connection");
        let head = read_head(&mut tcp);
        tcp.write_all(reply.as_bytes()).expect("it is read");
        head
    });
    (url, thread)
}

fn read_head(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tcp.read_exact(&mut byte).expect("a byte");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

fn client(url: &str) -> HttpClient {
    let url = HttpUrl::parse(url).expect("a URL");
    let mut secret = HeaderValue::from_static("Bearer secret");
    secret.set_sensitive(true);
    let headers = HeaderMap::from_iter([(AUTHORIZATION, secret)]);
    HttpClient::new(url, headers, &Trust::System, REPLY_BYTES_MAX).expect("no authority is needed")
}

fn get(url: &str) -> Result<Response<Bytes>, ClientError> {
    let reply = block_within(HANG_GUARD, client(url).send(Method::GET, Bytes::new()));
    reply.expect("a runtime").expect("in time")
}

#[test]
fn reply_is_read_whole_in_every_framing_and_bounded() {
    for (reply, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Ok((200, "hello"))),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Ok((404, ""))),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
            Ok((200, "hello")),
        ),
        ("HTTP/1.0 200 OK\r\n\r\nuntil ends", Ok((200, "until ends"))),
        ("HTTP/1.0 200 OK\r\n\r\nmore than ten", Err("too large")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", Err("incomplete")),
        ("HTTP/1.1 200 OK\r\nContent-", Err("none")),
        ("not HTTP\r\n\r\n", Err("none")),
    ] {
        let (url, server) = server(reply);
        let answer = match get(&url) {
            Ok(answer) => Ok((answer.status().as_u16(), String::from_utf8_lossy(answer.body()).into_owned())),
            Err(ClientError::TooLarge) => Err("too large"),
            Err(ClientError::Incomplete(_)) => Err("incomplete"),
            Err(ClientError::NoReply(_)) => Err("none"),
            Err(error) => panic!("{reply:?}: {error}"),
        };
        assert_eq!(answer, expected.map(|(status, body)| (status, body.to_owned())), "{reply:?}");
        let head = server.join().expect("it ends");
        assert!(head.starts_with("GET /path?query HTTP/1.1\r\n"), "{head}");
        assert!(
            head.contains("authorization: Bearer secret\r\n") && head.contains("user-agent: stockade/"),
            "{head}"
        );
    }
}

#[test]
fn silent_server_costs_no_more_than_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let reply = block_within(Duration::from_millis(50), client(&url).send(Method::GET, Bytes::new()));
    assert!(reply.expect("a runtime").is_none());
}

#[test]
fn url_has_a_host_and_no_secret() {
    for (text, expected) in [
        ("http://127.0.0.1:4318", Ok((false, "127.0.0.1", 4318, "/"))),
        ("https://[::1]/x?y=1", Ok((true, "::1", 443, "/x?y=1"))),
        ("http://name", Ok((false, "name", 80, "/"))),
        ("http://user:secret@name/", Err(UrlFault::Credentials)),
        ("ftp://name/", Err(UrlFault::Malformed)),
        ("name:80", Err(UrlFault::Malformed)),
        ("/path", Err(UrlFault::Malformed)),
    ] {
        let url = HttpUrl::parse(text);
        let parts =
            url.as_ref().map(|url| (url.is_encrypted, url.host.as_str(), url.port, url.path.as_str()));
        assert_eq!(parts.map_err(|fault| *fault), expected, "{text}");
    }
    assert_eq!(client("http://name:81/a?token=secret").shown_url(), "http://name:81/a");
}
