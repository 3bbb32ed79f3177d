//! Hostile clients: the resident memory of the proxy stays bounded.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use super::{MIB, config_without_log, resident, start_proxy};
use crate::{running::PATIENCE, support::Sandbox};

/// The memory that a response that is not stored uses at most while its client does not read.
const PASSED_BYTES: usize = 256 << 10;

/// A connection that sends one request after the other.
struct Client {
    sent: TcpStream,
    received: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let sent = TcpStream::connect_timeout(&address, PATIENCE).expect("the address is open");
        sent.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        let received = BufReader::new(sent.try_clone().expect("a descriptor"));
        Self { sent, received }
    }

    /// Sends a GET, and returns the status line. The response has a `Content-Length`.
    fn get(&mut self, path: &str) -> String {
        write!(self.sent, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request is sent");
        let (mut status, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            self.received.read_line(&mut line).expect("a line");
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if status.is_empty() {
                line.clone_into(&mut status);
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.received.read_exact(&mut body).expect("a body");
        status
    }
}

/// Starts an origin that answers each request with a 404 that has neither a lifetime nor a reason not to be stored.
fn origin_of_missing_pages() -> SocketAddr {
    origin_that_answers(|reply| reply.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))
}

/// Starts an origin that answers each GET in the same way.
fn origin_that_answers(
    answer: impl Fn(&mut TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut reply = connection.expect("a connection");
            let requests = BufReader::new(reply.try_clone().expect("a descriptor"));
            let answer = answer.clone();
            thread::spawn(move || {
                let mut ends = requests.split(b'\n').map_while(Result::ok).filter(|line| line == b"\r");
                // The proxy may close the connection of a body that it does not want.
                while ends.next().is_some() && answer(&mut reply).is_ok() {}
            });
        }
    });
    address
}

#[test]
fn long_urls_of_missing_pages_leave_no_memory_behind() {
    let sandbox = Sandbox::new();
    let url = format!("http://{}", origin_of_missing_pages());
    let bounds = "[cache]\nlimit = { bytes = \"16MiB\" }\n[bounds]\nhead = \"64KiB\"\n";
    let config = config_without_log(&sandbox, &url, bounds);
    let (proxy, address, _) = start_proxy(&sandbox, &config, &["--threads", "1"]);
    let mut client = Client::connect(address);
    let padding = "x".repeat(56 * 1_024);
    let mut get_missing = |number: usize| {
        let status = client.get(&format!("/missing?{number}{padding}"));
        assert!(status.starts_with("HTTP/1.1 404 "), "{status}");
    };
    (0..100).for_each(&mut get_missing);
    let before = resident(&proxy);
    // 33 MiB of URLs.
    (100..700).for_each(&mut get_missing);
    let grown = resident(&proxy).saturating_sub(before);
    assert!(grown < 12 * MIB, "{} MiB more are resident", grown / MIB);
}

/// Starts an origin whose pages are 1 MiB each, and fresh for a minute.
fn origin_of_large_pages() -> SocketAddr {
    let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {MIB}\r\n\r\n");
    let response = [head.as_bytes(), &vec![b'x'; MIB]].concat();
    origin_that_answers(move |reply| reply.write_all(&response))
}

/// Opens a connection of HTTP/2 whose streams have a window of one byte.
fn connect_with_small_windows(address: SocketAddr) -> TcpStream {
    let mut tcp = TcpStream::connect_timeout(&address, PATIENCE).expect("the address is open");
    // The preface, and SETTINGS_INITIAL_WINDOW_SIZE = 1.
    tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\x01")
        .expect("the connection is open");
    tcp
}

/// Each stream would keep its object after that was evicted.
#[test]
fn streams_that_take_one_byte_leave_the_memory_bounded() {
    const LIMIT: usize = 16 * MIB;
    let sandbox = Sandbox::new();
    let url = format!("http://{}", origin_of_large_pages());
    let bounds = "[cache]\nlimit = { bytes = \"16MiB\", max_object = \"2MiB\" }\n[bounds]\nstreams = 250\n";
    let config = config_without_log(&sandbox, &url, bounds);
    let (proxy, address, _) = start_proxy(&sandbox, &config, &["--threads", "1"]);
    let mut client = Client::connect(address);
    client.get("/0");
    let before = resident(&proxy);
    let mut slow = connect_with_small_windows(address);
    for page in 1..=100_u32 {
        let path = format!("/{page}");
        client.get(&path);
        // The proxy may have ended the connection.
        if slow.write_all(&http2_get(2 * page - 1, &path)).is_err() {
            slow = connect_with_small_windows(address);
        }
        let grown = resident(&proxy).saturating_sub(before);
        // A page that finds no room is passed through.
        let bound = LIMIT + 8 * MIB + page as usize * PASSED_BYTES;
        assert!(grown < bound, "{} MiB more are resident at page {page}", grown / MIB);
    }
    drop(slow);
    assert!(client.get("/1").starts_with("HTTP/1.1 200 "));
}

/// A GET in literal fields of HPACK (RFC 7541, 6.2.2).
fn http2_get(stream: u32, path: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    for (name, value) in [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a")] {
        fields.push(0);
        for text in [name, value] {
            fields.push(u8::try_from(text.len()).expect("a short text"));
            fields.extend(text.as_bytes());
        }
    }
    let length = u8::try_from(fields.len()).expect("a short head");
    // HEADERS with END_STREAM and END_HEADERS.
    let mut frame = vec![0, 0, length, 1, 5];
    frame.extend(stream.to_be_bytes());
    frame.extend(fields);
    frame
}
